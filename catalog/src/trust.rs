//! Whose files are believed: those of this user or of root that nobody else can write.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::reason::Reason;

/// Checks a file and the folder that holds it. Symbolic links are followed: the target counts.
pub(crate) fn check_file(path: &Path, uid: u32) -> Result<Metadata, Reason> {
    let facts = check(path, uid)?;
    if let Some(folder) = path.parent() {
        check(folder, uid)?;
    }
    Ok(facts)
}

fn check(path: &Path, uid: u32) -> Result<Metadata, Reason> {
    let facts = std::fs::metadata(path)
        .map_err(|error| Reason::Unreadable { path: path.to_owned(), error: error.to_string() })?;
    match complaint(facts.uid(), facts.mode(), uid) {
        Some(why) => Err(Reason::Untrusted { path: path.to_owned(), why }),
        None => Ok(facts),
    }
}

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// What is wrong with an owner and mode, if anything is.
fn complaint(owner: u32, mode: u32, uid: u32) -> Option<String> {
    let mode = mode & 0o7777;
    if owner != uid && owner != 0 {
        Some(format!("belongs to user {owner}, neither to you (user {uid}) nor to root"))
    } else if mode & OTHERS_WRITE != 0 {
        Some(format!("can be written by every user (mode {mode:04o})"))
    } else if mode & GROUP_WRITES != 0 {
        Some(format!("can be written by its group (mode {mode:04o})"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn only_own_and_roots_files_that_nobody_else_writes_are_believed() {
        let check =
            |owner, mode, good| assert_eq!(complaint(owner, mode, 1000).is_none(), good, "{owner} {mode:o}");
        check(1000, 0o100644, true);
        check(0, 0o100755, true);
        check(1000, 0o100664, false);
        check(0, 0o100646, false);
        check(1001, 0o100644, false);
        check(1000, 0o041777, false);
    }
}

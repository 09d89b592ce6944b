//! Where the result goes: it grows in a directory beside its own and takes its place at the end, whole or not at all.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::error::ConvertError;
use crate::safetensors;

/// Bytes that are left for the small files.
const SMALL_FILES_BYTES: u64 = 64 << 20;

/// A directory that is being made. Dropped before it is finished, it is gone.
pub(crate) struct Place {
    to: PathBuf,
    fresh: PathBuf,
    /// Where what was there goes for a moment; `None` = nothing was.
    old: Option<PathBuf>,
}

impl Place {
    /// Looks whether `to` can be written, and writes nothing yet.
    pub(crate) fn find(source: &Path, to: &Path, force: bool) -> Result<Place, ConvertError> {
        let to = std::path::absolute(to).map_err(ConvertError::io(to))?;
        let there = fs::symlink_metadata(&to).is_ok();
        if there && !force {
            return Err(ConvertError::Exists { path: to });
        }
        if there {
            let real = |path: &Path| fs::canonicalize(path).map_err(ConvertError::io(path));
            if real(source)?.starts_with(real(&to)?) {
                return Err(ConvertError::Overlap { path: to });
            }
            if !is_ours(&to) {
                return Err(ConvertError::NotOurs { path: to });
            }
        }
        let Some(name) = to.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            return Err(ConvertError::Exists { path: to });
        };
        let beside = |what: &str| to.with_file_name(format!(".{name}.{what}-{}", std::process::id()));
        Ok(Place { fresh: beside("converting"), old: there.then(|| beside("replaced")), to })
    }

    /// Refuses what the disk has no room for.
    pub(crate) fn check_room(&self, needs: u64) -> Result<(), ConvertError> {
        check_room(&self.to, needs)
    }

    /// Makes the directory in which the result grows.
    pub(crate) fn begin(&self) -> Result<&Path, ConvertError> {
        if let Some(parent) = self.fresh.parent() {
            fs::create_dir_all(parent).map_err(ConvertError::io(parent))?;
            sweep(&self.fresh, parent, |path| fs::remove_dir_all(path))?;
        }
        fs::create_dir(&self.fresh).map_err(ConvertError::io(&self.fresh))?;
        Ok(&self.fresh)
    }

    /// Puts the result in its place.
    pub(crate) fn finish(self) -> Result<PathBuf, ConvertError> {
        let (fresh, to) = (&self.fresh, &self.to);
        if let Some(old) = &self.old {
            // What was there is removed with `self`. Not every file system can exchange: there, it is away for a moment.
            if renameat_with(CWD, fresh, CWD, to, RenameFlags::EXCHANGE).is_ok() {
                return Ok(to.clone());
            }
            fs::rename(to, old).map_err(ConvertError::io(to))?;
        }
        if let Err(error) = fs::rename(fresh, to) {
            if let Some(old) = &self.old {
                fs::rename(old, to).map_err(ConvertError::io(old))?;
            }
            return Err(ConvertError::io(to)(error));
        }
        if let Some(old) = &self.old {
            fs::remove_dir_all(old).map_err(ConvertError::io(old))?;
        }
        Ok(to.clone())
    }
}

/// Refuses what the disk has no room for.
pub(crate) fn check_room(to: &Path, needs: u64) -> Result<(), ConvertError> {
    let there = to.ancestors().skip(1).find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let facts = rustix::fs::statvfs(there).map_err(|error| ConvertError::io(there)(error.into()))?;
    let free = facts.f_bavail.saturating_mul(facts.f_frsize);
    let needs = needs.saturating_add(SMALL_FILES_BYTES);
    if needs > free {
        return Err(ConvertError::Space { path: there.to_owned(), needs, free });
    }
    Ok(())
}

/// Removes what runs to the same place left that were killed; names end in the number of the process.
pub(crate) fn sweep(
    fresh: &Path,
    parent: &Path,
    remove: impl Fn(&Path) -> std::io::Result<()>,
) -> Result<(), ConvertError> {
    let name = fresh.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    for entry in fs::read_dir(parent).map_err(ConvertError::io(parent))?.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(stem)?.parse().ok());
        let Some(process) = number.and_then(Pid::from_raw) else { continue };
        if test_kill_process(process) == Err(Errno::SRCH) {
            let path = entry.path();
            remove(&path).map_err(ConvertError::io(&path))?;
        }
    }
    Ok(())
}

impl Drop for Place {
    fn drop(&mut self) {
        // Behind `finish` it is what was replaced, or gone; nobody is left to be told of anything else.
        let _ = fs::remove_dir_all(&self.fresh);
    }
}

/// Empty, or with weights that a conversion wrote.
fn is_ours(path: &Path) -> bool {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return error.kind() == ErrorKind::NotFound,
    };
    let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let mut weights =
        paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    paths.is_empty() || weights.next().is_some_and(|path| safetensors::is_ours(path))
}

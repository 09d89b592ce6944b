//! Finds models below directories: files by their ending, and directories that are a model as a whole.
//!
//! It opens nothing. Links are followed, and every directory and file counts once, so that a loop of links ends and the
//! same model behind two names is listed under the first. What cannot be looked into is listed with its reason.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::directory;
use crate::error::ArtifactError;

/// Levels of directories that are looked into.
pub const DEPTH_MAX: usize = 8;
/// Directory entries of one search that are looked at.
pub const ENTRIES_MAX: usize = 200_000;

/// Something that is a model by its name, or that could not be looked into.
#[derive(Debug)]
pub struct Found {
    /// Where.
    pub path: PathBuf,
    /// Why it could not be looked into; `None` for what [`crate::open`] may be asked about.
    pub fault: Option<ArtifactError>,
}

/// One search over several directories; nothing is found twice.
#[derive(Debug, Default)]
pub struct Finder {
    /// Device and number of every directory and model file so far.
    seen: HashSet<(u64, u64)>,
    entries: usize,
    found: Vec<Found>,
}

impl Finder {
    /// Models at and below `root`, sorted by path. A root that does not exist is a fault.
    pub fn search(&mut self, root: &Path) -> Vec<Found> {
        match fs::metadata(root) {
            Err(source) => self.fault(root, source),
            Ok(facts) if facts.is_dir() => self.directory(root, &facts, 0),
            // A file that is named is taken whatever its name is.
            Ok(facts) => self.file(root, &facts),
        }
        let mut found = std::mem::take(&mut self.found);
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }

    fn fault(&mut self, path: &Path, source: std::io::Error) {
        let path = path.to_owned();
        let fault = Some(ArtifactError::Unreadable { path: path.clone(), source });
        self.found.push(Found { path, fault });
    }

    fn is_new(&mut self, facts: &Metadata) -> bool {
        self.seen.insert((facts.dev(), facts.ino()))
    }

    fn file(&mut self, path: &Path, facts: &Metadata) {
        if self.is_new(facts) {
            self.found.push(Found { path: path.to_owned(), fault: None });
        }
    }

    fn directory(&mut self, path: &Path, facts: &Metadata, depth: usize) {
        if !self.is_new(facts) {
            return;
        }
        let listed = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = match listed {
            Ok(entries) => entries,
            Err(source) => return self.fault(path, source),
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        let names = entries.iter().map(fs::DirEntry::file_name);
        if directory::is_model(names, path) {
            self.found.push(Found { path: path.to_owned(), fault: None });
            return;
        }
        for entry in entries {
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                let reason = format!("more than {ENTRIES_MAX} entries, the search ends here");
                return self.fault(path, std::io::Error::other(reason));
            }
            self.entry(&entry.path(), depth);
        }
    }

    fn entry(&mut self, path: &Path, depth: usize) {
        let is_model = is_model_file(path);
        match fs::metadata(path) {
            Ok(facts) if facts.is_dir() && depth < DEPTH_MAX => self.directory(path, &facts, depth + 1),
            Ok(facts) if facts.is_file() && is_model => self.file(path, &facts),
            // A link that leads nowhere matters only where a model should be.
            Err(source) if is_model => self.fault(path, source),
            _ => {}
        }
    }
}

/// By its ending; a later file of several belongs to the first, if that is there.
fn is_model_file(path: &Path) -> bool {
    let ending = path.extension().and_then(OsStr::to_str).unwrap_or("").to_ascii_lowercase();
    match ending.as_str() {
        "gguf" => !first_part(path).is_some_and(|first| first.exists()),
        "base" => true,
        _ => false,
    }
}

/// The first file of a model of which this one is a later part, by the name.
fn first_part(path: &Path) -> Option<PathBuf> {
    let stem = path.file_stem()?.to_str()?;
    let (head, count) = stem.rsplit_once("-of-")?;
    let (name, number) = head.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(number) || !is_number(count) || number == "00001" {
        return None;
    }
    Some(path.with_file_name(format!("{name}-00001-of-{count}.gguf")))
}

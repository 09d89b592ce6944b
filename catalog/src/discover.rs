//! Walks the search order and makes the catalog: which runtimes there are, which of two with one id counts.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::entry::{Entry, Source, State};
use crate::examine::{Examiner, MANIFEST, read_manifest, resolve};
use crate::machine::Machine;
use crate::reason::Reason;
use crate::search::{Root, Search};

/// Folders looked at in one root, at most.
const FOLDERS_MAX: usize = 256;

/// Every runtime that was found, sound or not.
#[derive(Debug)]
pub struct Catalog {
    pub(crate) entries: Vec<Entry>,
    pub(crate) machine: Machine,
    pub(crate) uid: u32,
}

/// What lies at a path.
enum Location {
    Manifest(PathBuf),
    Library(PathBuf),
    Nothing(Reason),
}

impl Catalog {
    /// Looks through the whole search order. Nothing is executed. Entries stand in search order, then by id, newest
    /// version first; of several sound ones with one id the first counts and the others are [`Reason::Shadowed`].
    pub fn discover(search: &Search) -> Catalog {
        let mut cache = Cache::open(search.cache_dir.as_deref(), search.uid);
        let mut seen = BTreeSet::new();
        let mut entries = Vec::new();
        for root in &search.roots {
            let mut examiner = Examiner { machine: &search.machine, uid: search.uid, cache: &mut cache };
            let mut found: Vec<Entry> = Vec::new();
            for location in locate(root) {
                let (Location::Manifest(path) | Location::Library(path)) = &location else {
                    found.extend(nothing(root, location));
                    continue;
                };
                let real = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                if seen.insert(real) {
                    found.push(match &location {
                        Location::Manifest(path) => examiner.manifest(root.source, &root.path, path),
                        _ => examiner.library(root.source, &root.path, path),
                    });
                }
            }
            found.sort_by(|a, b| a.id().cmp(b.id()).then_with(|| newest_first(a, b)));
            entries.extend(found);
        }
        shadow(&mut entries);
        cache.save();
        Catalog { entries, machine: search.machine.clone(), uid: search.uid }
    }

    /// All of them, in search order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

fn nothing(root: &Root, location: Location) -> Option<Entry> {
    let Location::Nothing(reason) = location else { return None };
    let mut entry = Entry::unread(root.source, &root.path, &root.path);
    entry.state = State::Unusable(reason);
    Some(entry)
}

/// Of sound entries with one id, the first counts.
fn shadow(entries: &mut [Entry]) {
    let mut first: BTreeMap<String, PathBuf> = BTreeMap::new();
    for entry in entries.iter_mut().filter(|entry| entry.state == State::Usable) {
        match first.get(entry.id()) {
            None => {
                first.insert(entry.id().to_owned(), entry.library.clone());
            }
            Some(by) => {
                let reason = Reason::Shadowed { id: entry.id().to_owned(), by: by.clone() };
                entry.state = State::Unusable(reason);
            }
        }
    }
}

fn newest_first(a: &Entry, b: &Entry) -> Ordering {
    version_key(&b.descriptor.version).cmp(&version_key(&a.descriptor.version))
}

/// Numbers by value, before words; `1.10` after `1.9`.
fn version_key(version: &str) -> Vec<(Option<u64>, String)> {
    version.split(['.', '-', '+', '_']).map(|part| (part.parse().ok(), part.to_owned())).collect()
}

fn locate(root: &Root) -> Vec<Location> {
    let Root { source, path } = root;
    let variable = match source {
        Source::Environment => Some("SUPERFLUID_RUNTIMES"),
        Source::Added => Some("SUPERFLUID_RUNTIMES_ADD"),
        _ => None,
    };
    let named = variable.is_some() || *source == Source::Explicit;
    if let (Some(variable), true) = (variable, path.is_relative()) {
        return vec![Location::Nothing(Reason::RelativePath { variable, path: path.clone() })];
    }
    match fs::metadata(path) {
        Err(_) if !named => Vec::new(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            vec![Location::Nothing(Reason::Missing { path: path.clone() })]
        }
        Err(error) => vec![unreadable(path, &error)],
        Ok(facts) if facts.is_dir() => {
            let found = scan(path);
            if found.is_empty() && named {
                return vec![Location::Nothing(Reason::NoneHere { path: path.clone() })];
            }
            found
        }
        Ok(_) if path.extension().is_some_and(|end| end == "json") => vec![Location::Manifest(path.clone())],
        Ok(_) => vec![library(path)],
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Location {
    Location::Nothing(Reason::Unreadable { path: path.to_owned(), error: error.to_string() })
}

/// A library named by its own path is still held to the manifest beside it, when that is about this library.
fn library(path: &Path) -> Location {
    let manifest = path.with_file_name(MANIFEST);
    let real = fs::canonicalize(path).ok();
    let lists_it = read_manifest(&manifest).is_ok_and(|parsed| {
        parsed
            .libraries
            .iter()
            .any(|library| real.is_some() && resolve(&manifest, &library.path).ok() == real)
    });
    if lists_it { Location::Manifest(manifest) } else { Location::Library(path.to_owned()) }
}

/// The runtime in a folder, or the runtimes one or two folders below it.
fn scan(folder: &Path) -> Vec<Location> {
    let own = folder.join(MANIFEST);
    if own.exists() {
        return vec![Location::Manifest(own)];
    }
    let children = match folders(folder) {
        Ok(children) => children,
        Err(error) => return vec![unreadable(folder, &error)],
    };
    let mut found = Vec::new();
    for child in children {
        let manifest = child.join(MANIFEST);
        if manifest.exists() {
            found.push(Location::Manifest(manifest));
            continue;
        }
        let below = folders(&child).unwrap_or_default();
        let manifests = below.into_iter().map(|version| version.join(MANIFEST)).filter(|path| path.exists());
        found.extend(manifests.map(Location::Manifest));
    }
    found
}

/// The folders in a folder, by name.
fn folders(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .take(FOLDERS_MAX + 1)
        .collect();
    found.sort();
    if found.len() > FOLDERS_MAX {
        tracing::warn!(folder = %folder.display(), "more than {FOLDERS_MAX} folders; the rest is not looked at");
        found.truncate(FOLDERS_MAX);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::version_key;

    #[test]
    fn versions_order_by_number() {
        let check =
            |newer: &str, older: &str| assert!(version_key(newer) > version_key(older), "{newer} {older}");
        check("1.10.0", "1.9.9");
        check("2.0", "1.99");
        check("1.0.1", "1.0");
    }
}

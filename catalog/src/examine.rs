//! Examines one runtime from its files alone: manifest, trust, paths, size, hash, descriptor, requirements.

use std::fs;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use serde_json::value::RawValue;
use sf_abi::descriptor::{Descriptor, LibraryEntry, Manifest};
use sf_abi::{SFR_ABI_MAJOR, SFR_ABI_MINOR};
use sf_core::limits::RUNTIME_JSON_BYTES_MAX;

use crate::cache::Cache;
use crate::entry::{Entry, Source, State};
use crate::machine::Machine;
use crate::reason::Reason;
use crate::{descriptor, section, trust};

/// Name of a manifest.
pub(crate) const MANIFEST: &str = "runtime.json";

/// What examining depends on besides the files.
pub(crate) struct Examiner<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) uid: u32,
    pub(crate) cache: &'a mut Cache,
}

impl Examiner<'_> {
    /// A runtime with a manifest.
    pub(crate) fn manifest(&mut self, source: Source, origin: &Path, manifest: &Path) -> Entry {
        let mut entry = Entry::unread(source, origin, manifest);
        entry.manifest = Some(manifest.to_owned());
        if let Err(reason) = self.fill_from_manifest(&mut entry, manifest) {
            entry.state = State::Unusable(reason);
        }
        entry
    }

    /// A bare library: what stands in its section is all there is.
    pub(crate) fn library(&mut self, source: Source, origin: &Path, library: &Path) -> Entry {
        let mut entry = Entry::unread(source, origin, library);
        if let Err(reason) = self.fill_from_library(&mut entry, library) {
            entry.state = State::Unusable(reason);
        }
        entry
    }

    fn fill_from_manifest(&mut self, entry: &mut Entry, path: &Path) -> Result<(), Reason> {
        trust::check_file(path, self.uid)?;
        let manifest = read_manifest(path)?;
        entry.descriptor_bytes = manifest.descriptor.get().to_owned();
        entry.descriptor = descriptor::parse(&entry.descriptor_bytes)?;
        let recorded = pick(&manifest.libraries, self.machine)?;
        entry.library = resolve(path, &recorded.path)?;
        let facts = trust::check_file(&entry.library, self.uid)?;
        if facts.len() != recorded.size {
            let (path, expected, actual) = (entry.library.clone(), recorded.size, facts.len());
            return Err(Reason::SizeMismatch { path, expected, actual });
        }
        entry.sha256 = self.cache.sha256(&entry.library)?;
        if entry.sha256 != recorded.sha256 {
            let (expected, actual) = (recorded.sha256.clone(), entry.sha256.clone());
            return Err(Reason::HashMismatch { path: entry.library.clone(), expected, actual });
        }
        let inside = section::descriptor(&entry.library, self.machine)?;
        if let Some(reason) = descriptor::difference(&entry.descriptor_bytes, &inside) {
            return Err(reason);
        }
        requirements(&entry.descriptor, self.machine)
    }

    fn fill_from_library(&mut self, entry: &mut Entry, path: &Path) -> Result<(), Reason> {
        let unreadable =
            |error: std::io::Error| Reason::Unreadable { path: path.to_owned(), error: error.to_string() };
        entry.library = fs::canonicalize(path).map_err(unreadable)?;
        trust::check_file(&entry.library, self.uid)?;
        entry.descriptor_bytes = section::descriptor(&entry.library, self.machine)?;
        entry.descriptor = descriptor::parse(&entry.descriptor_bytes)?;
        entry.sha256 = self.cache.sha256(&entry.library)?;
        requirements(&entry.descriptor, self.machine)
    }
}

/// The manifest, its descriptor as the exact bytes that stand in it.
pub(crate) fn read_manifest(path: &Path) -> Result<Manifest<Box<RawValue>>, Reason> {
    let unreadable =
        |error: std::io::Error| Reason::Unreadable { path: path.to_owned(), error: error.to_string() };
    let bad = |why: String| Reason::BadManifest { path: path.to_owned(), why };
    let max = RUNTIME_JSON_BYTES_MAX as u64;
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(unreadable)?.take(max + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > max {
        return Err(Reason::TooLarge { path: path.to_owned(), bytes: bytes.len() as u64, max });
    }
    let manifest: Manifest<Box<RawValue>> =
        serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    match manifest.manifest_version {
        1 => Ok(manifest),
        other => Err(bad(format!("manifest_version is {other}; this host knows 1"))),
    }
}

/// The library of this platform.
fn pick<'m>(libraries: &'m [LibraryEntry], machine: &Machine) -> Result<&'m LibraryEntry, Reason> {
    let fits = |library: &&LibraryEntry| library.os == machine.os && library.arch == machine.arch;
    libraries.iter().find(fits).ok_or_else(|| {
        let offered: Vec<_> =
            libraries.iter().map(|library| format!("{} {}", library.os, library.arch)).collect();
        Reason::Platform {
            wanted: format!("{} {}", machine.os, machine.arch),
            offered: if offered.is_empty() { "none".into() } else { offered.join(", ") },
        }
    })
}

/// The library's real path: below the manifest's folder, also when links are followed.
pub(crate) fn resolve(manifest: &Path, library: &str) -> Result<PathBuf, Reason> {
    let escape = || Reason::PathEscape { path: library.to_owned() };
    let relative = Path::new(library);
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if library.is_empty() || !relative.components().all(plain) {
        return Err(escape());
    }
    let real = |path: &Path| {
        fs::canonicalize(path)
            .map_err(|error| Reason::Unreadable { path: path.to_owned(), error: error.to_string() })
    };
    let folder = real(manifest.parent().ok_or_else(escape)?)?;
    let library = real(&folder.join(relative))?;
    if library.starts_with(&folder) { Ok(library) } else { Err(escape()) }
}

/// What the descriptor asks of host and machine.
fn requirements(descriptor: &Descriptor, machine: &Machine) -> Result<(), Reason> {
    let host = [SFR_ABI_MAJOR, SFR_ABI_MINOR];
    let [major, _] = descriptor.abi;
    // Major 0 promises nothing between minors; from 1 on the library itself negotiates the minor.
    if major != SFR_ABI_MAJOR || (major == 0 && descriptor.abi != host) {
        return Err(Reason::Abi { runtime: descriptor.abi, host });
    }
    let needs = &descriptor.requires;
    if !needs.os.is_empty() && !needs.os.contains(&machine.os) {
        return Err(Reason::Os { needs: needs.os.clone(), here: machine.os.clone() });
    }
    let missing: Vec<String> =
        needs.cpu.iter().filter(|name| !machine.cpu.contains(*name)).cloned().collect();
    if missing.is_empty() { Ok(()) } else { Err(Reason::Cpu { missing }) }
}

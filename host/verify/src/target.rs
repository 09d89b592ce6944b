//! What a path given to `verify` means: which library, beside which manifest.

use std::path::{Path, PathBuf};

use serde_json::value::RawValue;
use sf_abi::descriptor::{LibraryEntry, Manifest};
use sha2::{Digest, Sha256};

use crate::journal::{Broken, broken, ensure};

/// A manifest's name.
const MANIFEST: &str = "runtime.json";
/// Largest manifest, bytes.
const MANIFEST_BYTES_MAX: u64 = 2 << 20;

/// A library and the manifest that speaks of it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) library: PathBuf,
    pub(crate) manifest: Option<PathBuf>,
}

/// A manifest as far as it is read here: the descriptor stays the bytes it was.
pub(crate) type RawManifest = Manifest<Box<RawValue>>;

impl Target {
    /// A library file, a folder with `runtime.json`, or a `runtime.json`.
    pub(crate) fn find(path: &Path) -> Result<Target, Broken> {
        let shown = path.display();
        let path = std::fs::canonicalize(path).map_err(|error| broken!("cannot open {shown}: {error}"))?;
        let manifest = if path.is_dir() {
            path.join(MANIFEST)
        } else if path.extension().is_some_and(|extension| extension == "json") {
            path
        } else {
            let beside = path.with_file_name(MANIFEST);
            let speaks = beside.is_file()
                && read_manifest(&beside).is_ok_and(|it| entry_of(&it, &beside, &path).is_some());
            return Ok(Target { manifest: speaks.then_some(beside), library: path });
        };
        let parsed = read_manifest(&manifest)?;
        let entry = parsed.libraries.iter().find(|entry| is_ours(entry)).ok_or_else(|| {
            let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
            broken!("{} has no library for {os} {arch}", manifest.display())
        })?;
        let library = library_of(&manifest, entry)?;
        Ok(Target { library, manifest: Some(manifest) })
    }
}

/// Reads a manifest.
pub(crate) fn read_manifest(path: &Path) -> Result<RawManifest, Broken> {
    let shown = path.display();
    let bytes = std::fs::metadata(path).map_err(|error| broken!("cannot open {shown}: {error}"))?.len();
    ensure!(bytes <= MANIFEST_BYTES_MAX, "{shown} is of {bytes} bytes, at most {MANIFEST_BYTES_MAX}");
    let text = std::fs::read_to_string(path).map_err(|error| broken!("cannot read {shown}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| broken!("{shown} is no manifest: {error}"))
}

/// The manifest's entry for this library on this platform.
pub(crate) fn entry_of<'a>(
    manifest: &'a RawManifest,
    path: &Path,
    library: &Path,
) -> Option<&'a LibraryEntry> {
    let mut ours = manifest.libraries.iter().filter(|entry| is_ours(entry));
    ours.find(|entry| library_of(path, entry).is_ok_and(|named| named == library))
}

fn is_ours(entry: &LibraryEntry) -> bool {
    entry.os == std::env::consts::OS && entry.arch == std::env::consts::ARCH
}

fn library_of(manifest: &Path, entry: &LibraryEntry) -> Result<PathBuf, Broken> {
    let relative = Path::new(&entry.path);
    let inside = relative.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    ensure!(inside, "the library path {:?} leaves the manifest's folder", entry.path);
    let library = manifest.with_file_name("").join(relative);
    std::fs::canonicalize(&library).map_err(|error| broken!("cannot open {}: {error}", library.display()))
}

/// Lower-case hex SHA-256.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, path: &str) -> PathBuf {
        let manifest = dir.join(MANIFEST);
        let text = format!(
            r#"{{"manifest_version":1,"libraries":[{{"os":"{}","arch":"{}","path":"{path}","sha256":"","size":1}}],"descriptor":{{"id" : 1}}}}"#,
            std::env::consts::OS,
            std::env::consts::ARCH,
        );
        std::fs::write(&manifest, text).unwrap();
        manifest
    }

    #[test]
    fn a_folder_a_manifest_and_a_library_name_the_same_target() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (library, manifest) = (root.join("libx.so"), write(&root, "libx.so"));
        std::fs::write(&library, "x").unwrap();
        for path in [&root, &manifest, &library] {
            let target = Target::find(path).unwrap();
            assert_eq!((&target.library, target.manifest.as_ref()), (&library, Some(&manifest)));
        }
        let other = root.join("liby.so");
        std::fs::write(&other, "y").unwrap();
        assert_eq!(Target::find(&other).unwrap().manifest, None, "a manifest that names another library");
        assert_eq!(read_manifest(&manifest).unwrap().descriptor.get(), r#"{"id" : 1}"#);
    }

    #[test]
    fn a_library_outside_its_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["../libx.so", "/lib/libx.so"] {
            let manifest = write(dir.path(), path);
            let broken = Target::find(&manifest).unwrap_err().to_string();
            assert!(broken.contains("leaves the manifest's folder"), "{broken}");
        }
        assert!(Target::find(&dir.path().join("none")).unwrap_err().to_string().contains("cannot open"));
    }

    #[test]
    fn a_hash_is_lower_case_hex() {
        assert!(sha256_hex(b"").starts_with("e3b0c44298fc1c14"));
    }
}

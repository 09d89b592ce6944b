//! Where a bundle goes: it grows in a file beside its own and takes its place at the end, whole or not at all.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::Profile;
use crate::error::ConvertError;
use crate::place::sweep;

/// A file that is being made. Dropped before it is finished, it is gone.
pub(super) struct FilePlace {
    to: PathBuf,
    fresh: PathBuf,
}

impl FilePlace {
    /// Looks whether `to` can be written, and writes nothing yet.
    pub(super) fn find(to: &Path, force: bool) -> Result<FilePlace, ConvertError> {
        let to = std::path::absolute(to).map_err(ConvertError::io(to))?;
        let Some(name) = to.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            return Err(ConvertError::BundleExists { path: to });
        };
        if fs::symlink_metadata(&to).is_ok() {
            if !force {
                return Err(ConvertError::BundleExists { path: to });
            }
            if !is_bundle(&to) {
                return Err(ConvertError::NotABundle { path: to });
            }
        }
        let fresh = to.with_file_name(format!(".{name}.packing-{}", std::process::id()));
        Ok(FilePlace { to, fresh })
    }

    pub(super) fn to(&self) -> &Path {
        &self.to
    }

    /// Makes the file in which the result grows.
    pub(super) fn begin(&self) -> Result<(&Path, File), ConvertError> {
        if let Some(parent) = self.fresh.parent() {
            fs::create_dir_all(parent).map_err(ConvertError::io(parent))?;
            sweep(&self.fresh, parent, |path| fs::remove_file(path))?;
        }
        let file = File::create_new(&self.fresh).map_err(ConvertError::io(&self.fresh))?;
        Ok((&self.fresh, file))
    }

    /// Puts it in its place.
    pub(super) fn finish(self) -> Result<PathBuf, ConvertError> {
        fs::rename(&self.fresh, &self.to).map_err(ConvertError::io(&self.to))?;
        Ok(self.to.clone())
    }
}

impl Drop for FilePlace {
    fn drop(&mut self) {
        // Behind `finish` there is none any more; nobody is left to be told of anything else.
        let _ = fs::remove_file(&self.fresh);
    }
}

/// The name of a bundle of the model at `source`: `smol-q8.base` for `~/smol.gguf`, with the part of a split file left out.
pub fn default_name(source: &Path, profile: Profile) -> PathBuf {
    // `.` and `..` have no name of their own.
    let real = fs::canonicalize(source).unwrap_or_else(|_| source.to_owned());
    let source = if source.file_name().is_some() { source } else { &real };
    let name = match real.is_dir() {
        true => source.file_name(),
        false => source.file_stem(),
    };
    let name = name.unwrap_or_default().to_string_lossy();
    let name = match name.rsplit_once("-00001-of-") {
        Some((stem, _)) => stem,
        None if name.is_empty() => "model",
        None => &name,
    };
    PathBuf::from(format!("{name}-{}.base", profile.name()))
}

/// Empty, or begun like a bundle: whatever else it is, it is not replaced.
fn is_bundle(path: &Path) -> bool {
    let mut magic = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut magic));
    read.is_ok() && (magic.is_empty() || magic == b"BASE")
}

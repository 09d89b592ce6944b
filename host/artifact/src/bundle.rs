//! Recognises a `.base` bundle and reads its texts; its rules are those of `sf-base`.

use std::fs::File;
use std::path::Path;

use sf_base::{BaseError, Bundle};

use crate::error::ArtifactError;

fn fault(path: &Path) -> impl Fn(BaseError) -> ArtifactError {
    let path = path.to_owned();
    move |error| match error {
        BaseError::Io(source) => ArtifactError::Unreadable { path: path.clone(), source },
        error => ArtifactError::Bundle(error),
    }
}

fn file(path: &Path) -> Result<File, ArtifactError> {
    File::open(path).map_err(|source| ArtifactError::Unreadable { path: path.to_owned(), source })
}

/// The header, checked.
pub(crate) fn open(path: &Path) -> Result<Bundle, ArtifactError> {
    Bundle::read(&file(path)?).map_err(fault(path))
}

/// The texts of a bundle, each compared with its checksum.
pub(crate) fn texts(
    path: &Path,
    bundle: &Bundle,
) -> impl Fn(&str, u64) -> Result<Option<String>, ArtifactError> {
    move |name, limit| {
        let Some(slot) = bundle.header.slots.iter().find(|slot| slot.id == name) else { return Ok(None) };
        let refused = |reason: String| ArtifactError::Config { path: path.join(name), reason };
        if slot.bytes > limit {
            return Err(refused(format!("more than {limit} bytes")));
        }
        let bytes = bundle.slot(&file(path)?, name).map_err(fault(path))?;
        let text = bytes.map(|bytes| String::from_utf8(bytes).map_err(|fault| refused(fault.to_string())));
        text.transpose()
    }
}

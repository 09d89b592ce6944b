//! Finds the other files of a GGUF model that was split (`name-00001-of-00003.gguf`).

use std::path::{Path, PathBuf};

use crate::error::ArtifactError;
use crate::gguf::{Gguf, Value};

/// Most parts of a model; the name has room for five digits.
const PARTS_MAX: u64 = 99_999;

/// All files of the model that starts at `path`, in order; just `path` when it was not split.
pub(crate) fn parts(path: &Path, gguf: &Gguf) -> Result<Vec<PathBuf>, ArtifactError> {
    let number = |key| gguf.get(key).and_then(Value::as_u64);
    let count = number("split.count").unwrap_or(1);
    if count <= 1 {
        return Ok(vec![path.to_owned()]);
    }
    if count > PARTS_MAX {
        return Err(ArtifactError::Count { what: "split.count", offset: 0, value: count, limit: PARTS_MAX });
    }
    let part = number("split.no").unwrap_or(0);
    if part != 0 {
        return Err(ArtifactError::NotFirstPart { path: path.to_owned(), number: part.saturating_add(1) });
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let ending = format!("-00001-of-{count:05}.gguf");
    let Some(stem) = name.strip_suffix(&ending) else {
        return Err(ArtifactError::PartMissing { path: path.with_file_name(format!("*{ending}")) });
    };
    let mut files = vec![path.to_owned()];
    for part in 2..=count {
        let file = path.with_file_name(format!("{stem}-{part:05}-of-{count:05}.gguf"));
        if !file.is_file() {
            return Err(ArtifactError::PartMissing { path: file });
        }
        files.push(file);
    }
    Ok(files)
}

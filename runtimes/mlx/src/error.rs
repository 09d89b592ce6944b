//! Why a directory is not opened as a model, before any weight is read.

use std::path::PathBuf;

use sf_abi_sdk::{Code, Fault};

use crate::safetensors::HeaderError;

/// What is wrong with a model directory.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum ModelError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} has {bytes} bytes, at most {limit} are read", path.display())]
    TooLong { path: PathBuf, bytes: u64, limit: u64 },
    #[error("{}: {why}", path.display())]
    Directory { path: PathBuf, why: String },
    #[error("{}: {error}", path.display())]
    Header { path: PathBuf, error: HeaderError },
    #[error("{}: {why}", path.display())]
    Index { path: PathBuf, why: String },
    #[error("config.json is not JSON: {0}")]
    Json(String),
    #[error("config.json: {key} {why}")]
    Config { key: String, why: String },
    #[error("config.json: {key} {why}")]
    Unsupported { key: String, why: String },
    #[error("{file} {why}")]
    Beside { file: String, why: String },
    #[error("tensor {tensor}: {why}")]
    Tensor { tensor: String, why: String },
}

impl ModelError {
    /// A value that contradicts itself or is no value at all.
    pub(crate) fn config(key: &str, why: impl Into<String>) -> ModelError {
        ModelError::Config { key: key.to_owned(), why: why.into() }
    }

    /// A value that makes sense and that this runtime does not compute.
    pub(crate) fn unsupported(key: &str, why: impl Into<String>) -> ModelError {
        ModelError::Unsupported { key: key.to_owned(), why: why.into() }
    }

    pub(crate) fn tensor(tensor: &str, why: impl Into<String>) -> ModelError {
        ModelError::Tensor { tensor: tensor.to_owned(), why: why.into() }
    }
}

impl From<ModelError> for Fault {
    fn from(error: ModelError) -> Fault {
        let words = error.to_string();
        match error {
            ModelError::Unreadable { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Fault::new(Code::NotFound, words).field("paths")
            }
            ModelError::Unsupported { key, .. } => Fault::new(Code::Unsupported, words).field(key),
            ModelError::Config { key, .. } => Fault::new(Code::Format, words).field(key),
            ModelError::Beside { file, .. } => Fault::new(Code::Unsupported, words).field(file),
            ModelError::Tensor { tensor, .. } => Fault::new(Code::Format, words).field(tensor),
            ModelError::Json(_) => Fault::new(Code::Format, words).field("config.json"),
            _ => Fault::new(Code::Format, words).field("paths"),
        }
    }
}

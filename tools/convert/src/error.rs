//! Why a model was not converted.

use std::path::{Path, PathBuf};

/// What is in the way.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum ConvertError {
    #[error("{} is there already (convert.exists)\n  hint: name another directory, or remove it", path.display())]
    Exists { path: PathBuf },
    #[error(transparent)]
    Source(#[from] sf_artifact::ArtifactError),
    #[error("cannot use {}: {source} (convert.io)", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{key} {why} (convert.key)")]
    Key { key: String, why: String },
    #[error("tensor {tensor}: {why} (convert.tensor)")]
    Tensor { tensor: String, why: String },
    #[error("tensor {tensor} of the result differs from its source: {why} (convert.check)")]
    Check { tensor: String, why: String },
}

impl ConvertError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> ConvertError {
        let path = path.to_owned();
        move |source| ConvertError::Io { path, source }
    }

    pub(crate) fn key(key: &str, why: impl Into<String>) -> ConvertError {
        ConvertError::Key { key: key.to_owned(), why: why.into() }
    }

    pub(crate) fn tensor(tensor: &str, why: impl Into<String>) -> ConvertError {
        ConvertError::Tensor { tensor: tensor.to_owned(), why: why.into() }
    }
}

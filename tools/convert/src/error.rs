//! Why a model was not converted.

use std::path::{Path, PathBuf};

use sf_artifact::ArtifactError;
use sf_base::BaseError;

/// What is in the way.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum ConvertError {
    #[error(
        "{} is there already (convert.exists)\n  hint: name another directory; --force replaces one that superfluid convert wrote",
        path.display()
    )]
    Exists { path: PathBuf },
    #[error(
        "{} was not written by superfluid convert, and is not replaced (convert.not_ours)\n  hint: name another \
         directory, or remove it",
        path.display()
    )]
    NotOurs { path: PathBuf },
    #[error(
        "{} holds the model that is converted (convert.overlap)\n  hint: name another directory",
        path.display()
    )]
    Overlap { path: PathBuf },
    #[error(
        "{} is there already (pack.exists)\n  hint: name another file; --force replaces a bundle",
        path.display()
    )]
    BundleExists { path: PathBuf },
    #[error(
        "{} is no .base bundle, and is not replaced (pack.not_a_bundle)\n  hint: name another file, or remove it",
        path.display()
    )]
    NotABundle { path: PathBuf },
    #[error("the model has no bundle: {error}")]
    NoBundle { error: BaseError },
    #[error("{} is not what was written: {error}\n  hint: {}", path.display(), error.hint())]
    Damaged { path: PathBuf, error: BaseError },
    #[error("{} is no .base bundle: it has no checksums to compare (inspect.no_checksums)", path.display())]
    NoChecksums { path: PathBuf },
    #[error("cannot open {}: {error}\n  hint: {}", path.display(), error.hint())]
    Source { path: PathBuf, error: ArtifactError },
    #[error("{} is {found} (convert.format)\n  hint: {hint}", path.display())]
    Format { path: PathBuf, found: String, hint: &'static str },
    #[error(
        "cannot read {}: {why} (convert.safetensors)\n  hint: the file is damaged or its download incomplete; fetch it again",
        path.display()
    )]
    Safetensors { path: PathBuf, why: String },
    #[error("cannot use {}: {source} (convert.io)", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{key} {why} (convert.key)")]
    Key { key: String, why: String },
    #[error("tensor {tensor}: {why} (convert.tensor)")]
    Tensor { tensor: String, why: String },
    #[error(
        "{key} says that the model is quantized already (convert.quantized)\n  hint: give the model that it was made of; \
         without --bits and --plain it is copied as it is"
    )]
    Quantized { key: String },
    #[error(
        "no matrix has rows of whole groups of {group} elements (convert.group)\n  hint: a smaller --group may divide them"
    )]
    Group { group: u32 },
    #[error(
        "the result needs {needs} bytes, and {} has {free} free (convert.space)\n  hint: fewer --bits need less, or name \
         a directory on another disk",
        path.display()
    )]
    Space { path: PathBuf, needs: u64, free: u64 },
    #[error("the result would not be served: {why} (convert.unusable)")]
    Unusable { why: String },
    #[error("tensor {tensor} of the result differs from its source: {why} (convert.check)")]
    Check { tensor: String, why: String },
    #[error("stopped before the end; nothing was left behind (convert.stopped)")]
    Stopped,
}

impl ConvertError {
    /// Whether something else has to be asked for, rather than tried again: the model or the request is in the way.
    pub fn is_refusal(&self) -> bool {
        use ConvertError::{Check, Damaged, Io, Safetensors, Source, Space, Stopped};
        !matches!(
            self,
            Check { .. }
                | Damaged { .. }
                | Io { .. }
                | Safetensors { .. }
                | Source { .. }
                | Space { .. }
                | Stopped
        )
    }

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

    pub(crate) fn unusable(why: impl std::fmt::Display) -> ConvertError {
        ConvertError::Unusable { why: why.to_string() }
    }
}

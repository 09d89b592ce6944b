//! What keeps a bundle from being opened.

use sf_abi_sdk::{Code, Fault};
use sf_base::BaseError;
use thiserror::Error;

/// An error of a model's file or of the memory for it.
#[derive(Debug, Error)]
pub(crate) enum ModelError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[source] std::io::Error),
    /// The file breaks a rule of the format.
    #[error(transparent)]
    Bundle(#[from] BaseError),
    /// A tensor is missing or does not fit the architecture.
    #[error("tensor {name}: {why}")]
    Tensor {
        /// The tensor.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Something that the kernels do not compute.
    #[error("{what}; this build computes {known}")]
    Unsupported {
        /// What the header asks for.
        what: String,
        /// What there is.
        known: &'static str,
    },
    /// The system gives no memory.
    #[error("no memory for {bytes} bytes of weights: {errno}")]
    Memory {
        /// How much.
        bytes: usize,
        /// What the system said.
        errno: rustix::io::Errno,
    },
}

impl ModelError {
    pub(crate) fn tensor(name: &str, why: String) -> ModelError {
        ModelError::Tensor { name: name.to_owned(), why }
    }

    pub(crate) fn memory(bytes: usize, errno: rustix::io::Errno) -> ModelError {
        ModelError::Memory { bytes, errno }
    }
}

impl From<ModelError> for Fault {
    fn from(error: ModelError) -> Fault {
        let code = match &error {
            ModelError::Memory { .. } => Code::NomemHost,
            ModelError::Unsupported { .. } => Code::Unsupported,
            ModelError::Read(error) if error.kind() == std::io::ErrorKind::NotFound => Code::NotFound,
            _ => Code::Format,
        };
        Fault::new(code, error.to_string()).field("paths")
    }
}

//! Why a developer command stopped.

use std::path::{Path, PathBuf};

/// One enum for all commands: they end the process with its text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// The command line was not understood.
    #[error("{0}")]
    Usage(String),
    /// A program that we need could not be started.
    #[error("cannot run {program}: {source}; cargo xtask setup installs what is missing")]
    Start { program: String, source: std::io::Error },
    /// A program ended badly; it has already said why.
    #[error("{command} failed ({status})")]
    Failed { command: String, status: std::process::ExitStatus },
    /// Reading or writing went wrong.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    /// Cargo could not describe the workspace.
    #[error("cargo metadata: {0}")]
    Metadata(#[from] cargo_metadata::Error),
    /// A file does not have the content that was pinned.
    #[error("{path} has SHA-256 {found}, want {want}; delete it and fetch again")]
    Checksum { path: PathBuf, found: String, want: &'static str },
    /// Rules were broken; each was printed.
    #[error("{0} findings")]
    Findings(usize),
    /// Something is not as this tool needs it.
    #[error("{0}")]
    Broken(String),
}

impl TaskError {
    /// For `map_err`: names the file that an I/O error is about.
    pub(crate) fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { path, source }
    }
}

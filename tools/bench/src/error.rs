//! What can keep a benchmark from running.

use thiserror::Error;

/// A benchmark's failure.
#[derive(Debug, Error)]
pub(crate) enum BenchError {
    /// The command line.
    #[error("{0}")]
    Usage(String),
    /// A file or socket.
    #[error("cannot {what}: {source}")]
    Io {
        /// What we tried.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A command that failed.
    #[error("{command} failed: {how}")]
    Command {
        /// The command.
        command: String,
        /// Exit status or output.
        how: String,
    },
    /// A server that did not answer as it should.
    #[error("{server}: {what}")]
    Server {
        /// Which.
        server: String,
        /// What it did.
        what: String,
    },
    /// Scenarios that could not be played to their end; the others were.
    #[error("these scenarios failed: {0}")]
    Scenarios(String),
}

impl BenchError {
    /// For `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> BenchError {
        let what = what.into();
        move |source| BenchError::Io { what, source }
    }
}

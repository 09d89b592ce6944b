//! Every way in which a run cannot begin, and every way in which one request can fail.

use std::fmt;
use std::io;

/// A run that cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The address of the server.
    #[error("{url:?} is not a server that can be loaded: {why} (load.url)")]
    Url {
        /// As given.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Resolving, connecting, polling.
    #[error("cannot {doing}: {source} (load.io)")]
    Io {
        /// Verb and object, e.g. `connect to 127.0.0.1:8453`.
        doing: String,
        /// The system's word.
        source: io::Error,
    },
    /// The server answered a preparatory request with something else than what was asked.
    #[error("{what} (load.server)")]
    Server {
        /// Who said what.
        what: String,
    },
    /// A setting that cannot be read or honoured.
    #[error("{setting} is {value:?}; accepted is {accepts} (load.setting)")]
    Setting {
        /// Its name, as the user writes it.
        setting: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        accepts: &'static str,
    },
    /// Settings that do not go together.
    #[error("{0} (load.setting)")]
    Contradiction(&'static str),
}

impl LoadError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| LoadError::Io { doing, source }
    }

    /// Whether the request itself is at fault, not the machine or the server.
    pub fn is_usage(&self) -> bool {
        matches!(self, LoadError::Url { .. } | LoadError::Setting { .. } | LoadError::Contradiction(_))
    }
}

/// Why one request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody took the connection, or it broke while the request was being sent.
    Connect(io::ErrorKind),
    /// No end within the time allowed.
    Timeout,
    /// The server closed the connection before the answer was complete.
    Closed,
    /// Bytes that are not HTTP, or not the answer that was asked for.
    Protocol(&'static str),
    /// An HTTP status other than 2xx.
    Status {
        /// The status.
        status: u16,
        /// `error.code`, else `error.type`; empty when the answer has none.
        code: String,
        /// `error.message`, or the start of the answer.
        message: String,
    },
    /// An error event in a stream that had begun well.
    Stream {
        /// `error.code`, else `error.type`; empty when the event has none.
        code: String,
        /// `error.message`.
        message: String,
    },
}

impl Failure {
    /// A short name to count by: `429 queue_full`, `stream engine_lost`, `timeout`.
    pub fn label(&self) -> String {
        match self {
            Failure::Connect(_) => "connect".to_owned(),
            Failure::Timeout => "timeout".to_owned(),
            Failure::Closed => "closed".to_owned(),
            Failure::Protocol(_) => "protocol".to_owned(),
            Failure::Status { status, code, .. } if code.is_empty() => status.to_string(),
            Failure::Status { status, code, .. } => format!("{status} {code}"),
            Failure::Stream { code, .. } if code.is_empty() => "stream error".to_owned(),
            Failure::Stream { code, .. } => format!("stream {code}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connect(kind) => write!(f, "the connection failed: {kind}"),
            Failure::Timeout => f.write_str("no end within the time allowed"),
            Failure::Closed => f.write_str("the server closed the connection before the end of its answer"),
            Failure::Protocol(why) => write!(f, "the answer is not what was asked for: {why}"),
            Failure::Status { message, .. } | Failure::Stream { message, .. } => {
                write!(f, "{}: {message}", self.label())
            }
        }
    }
}

//! Why the program ends: the one place that maps causes to exit codes.

use std::fmt;
use std::process::ExitCode;

/// Exit codes of `superfluid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Failed along the way: I/O, model load.
    Failed = 1,
    /// Usage, or something this runtime or model cannot honour.
    Refused = 2,
    /// A runtime that is not installed here or cannot run here.
    RuntimeMissing = 4,
}

/// A fatal cause with its exit code.
#[derive(Debug)]
pub(crate) struct Fatal {
    exit: Exit,
    message: String,
}

impl Fatal {
    /// Failed along the way.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Fatal { exit: Exit::Failed, message: message.to_string() }
    }

    /// Cannot be honoured.
    pub(crate) fn refused(message: impl fmt::Display) -> Self {
        Fatal { exit: Exit::Refused, message: message.to_string() }
    }

    /// No runtime for it.
    pub(crate) fn runtime_missing(message: impl fmt::Display) -> Self {
        Fatal { exit: Exit::RuntimeMissing, message: message.to_string() }
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Fatal> for ExitCode {
    fn from(fatal: Fatal) -> ExitCode {
        ExitCode::from(fatal.exit as u8)
    }
}

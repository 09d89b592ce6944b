//! What can go wrong between the server and an engine.

use std::fmt;

use sf_abi::{SFR_E_STATE, SFR_SCOPE_CALL, SFR_SCOPE_LANE};
use thiserror::Error;

/// An engine's failure. `is_fatal` ones end the link: a new one must be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EngineError {
    /// The library could not be loaded or does not speak our ABI.
    #[error("cannot load {library}: {reason} (engine.load)")]
    Load {
        /// Path of the library.
        library: String,
        /// Why.
        reason: String,
    },
    /// The runtime refused a call.
    #[error("{call} refused: {message} (code {code}{})", if field.is_empty() { String::new() } else { format!(", {field}") })]
    Refused {
        /// `open`, `step`, ...
        call: &'static str,
        /// `SFR_E_…`.
        code: i32,
        /// `SFR_SCOPE_…`.
        scope: u32,
        /// The runtime's words, or ours when it gave none.
        message: String,
        /// The option or field it is about.
        field: String,
    },
    /// The runtime broke the contract.
    #[error("the runtime broke its contract in {call}: {reason} (engine.contract)")]
    Contract {
        /// The call.
        call: &'static str,
        /// Which rule.
        reason: String,
    },
    /// The worker process is gone.
    #[error("the worker died: {how}{} (engine.died)", if last_words.is_empty() { String::new() } else { format!("; its last words: {last_words}") })]
    Died {
        /// `killed by SIGKILL`, `exit code 3`, ...
        how: String,
        /// Last lines of its stderr.
        last_words: String,
    },
    /// No answer in time; the worker was killed.
    #[error("no answer to {call} within {limit_ms} ms; the worker was killed (engine.hung)")]
    Hung {
        /// The call.
        call: &'static str,
        /// The limit.
        limit_ms: u64,
    },
    /// An operating-system call of ours failed.
    #[error("cannot {what}: {reason} (engine.system)")]
    System {
        /// What we tried.
        what: &'static str,
        /// The system's answer.
        reason: String,
    },
}

impl EngineError {
    pub(crate) fn system(what: &'static str, error: impl fmt::Display) -> Self {
        EngineError::System { what, reason: error.to_string() }
    }

    /// A call of ours at the wrong moment; it costs nothing.
    pub(crate) fn misuse(call: &'static str, message: &str) -> Self {
        let (code, scope) = (SFR_E_STATE, SFR_SCOPE_CALL);
        EngineError::Refused { call, code, scope, message: message.to_owned(), field: String::new() }
    }

    /// Whether the link is at its end. A refusal that costs a call or a lane is not.
    pub fn is_fatal(&self) -> bool {
        match self {
            EngineError::Refused { scope, .. } => !matches!(*scope, SFR_SCOPE_CALL | SFR_SCOPE_LANE),
            EngineError::Load { .. }
            | EngineError::Contract { .. }
            | EngineError::Died { .. }
            | EngineError::Hung { .. }
            | EngineError::System { .. } => true,
        }
    }
}

//! What can go wrong in a call to a runtime, and what it costs.

use sf_abi::{
    SFR_E_ABI, SFR_E_DEVICE_LOST, SFR_E_FATAL, SFR_SCOPE_CALL, SFR_SCOPE_LANE, SFR_SCOPE_MODEL,
    SFR_SCOPE_PROCESS,
};
use thiserror::Error;

/// A failed call. [`KitError::scope`] tells what is lost.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KitError {
    /// Library and host share no ABI version.
    #[error(
        "the runtime does not speak ABI {}.{}: {reason} (kit.version)",
        sf_abi::SFR_ABI_MAJOR,
        sf_abi::SFR_ABI_MINOR
    )]
    Version {
        /// What it said instead.
        reason: String,
    },
    /// The runtime, or this crate on its behalf, refused a call.
    #[error("{call} refused: {message} (code {code}{})", if field.is_empty() { String::new() } else { format!(", {field}") })]
    Refused {
        /// `open`, `step_begin`, ...
        call: &'static str,
        /// `SFR_E_…`, negative.
        code: i32,
        /// `SFR_SCOPE_…`.
        scope: u32,
        /// The runtime's words, or ours when it gave none.
        message: String,
        /// The option, struct field or file it is about; may be empty.
        field: String,
    },
    /// The runtime broke the header's rules; nothing it says is believed any more.
    #[error("the runtime broke its contract in {call}: {reason} (kit.contract)")]
    Contract {
        /// The call.
        call: &'static str,
        /// Which rule, with the values seen.
        reason: String,
    },
}

impl KitError {
    /// A refusal in our own words that costs the call only.
    pub(crate) fn refused(call: &'static str, code: i32, field: &str, message: impl Into<String>) -> Self {
        KitError::Refused {
            call,
            code,
            scope: SFR_SCOPE_CALL,
            message: message.into(),
            field: field.to_owned(),
        }
    }

    /// A broken rule.
    pub(crate) fn contract(call: &'static str, reason: impl Into<String>) -> Self {
        KitError::Contract { call, reason: reason.into() }
    }

    /// `SFR_E_…`; a broken contract and a missing version count as [`SFR_E_ABI`].
    pub fn code(&self) -> i32 {
        match self {
            KitError::Refused { code, .. } => *code,
            KitError::Version { .. } | KitError::Contract { .. } => SFR_E_ABI,
        }
    }

    /// `SFR_SCOPE_…`: what is lost. A runtime that broke its contract costs the process.
    pub fn scope(&self) -> u32 {
        match self {
            KitError::Refused { scope, .. } => *scope,
            KitError::Version { .. } | KitError::Contract { .. } => SFR_SCOPE_PROCESS,
        }
    }

    /// The call that failed.
    pub fn call(&self) -> &'static str {
        match self {
            KitError::Refused { call, .. } | KitError::Contract { call, .. } => call,
            KitError::Version { .. } => "query",
        }
    }

    /// Whether only the call or its lanes are lost and the model goes on.
    pub fn spares_the_model(&self) -> bool {
        matches!(self.scope(), SFR_SCOPE_CALL | SFR_SCOPE_LANE)
    }
}

/// The scope to act on: what the runtime said, but never less than what the code alone means.
pub(crate) fn scope_of(code: i32, said: u32) -> u32 {
    let least = match code {
        SFR_E_FATAL => SFR_SCOPE_PROCESS,
        SFR_E_DEVICE_LOST => SFR_SCOPE_MODEL,
        _ => SFR_SCOPE_CALL,
    };
    // An unknown scope is read as the widest one.
    said.min(SFR_SCOPE_PROCESS).max(least)
}

/// The header's name of a status code.
pub(crate) fn code_name(code: i32) -> &'static str {
    const NAMES: [&str; 20] = [
        "SFR_OK",
        "SFR_E_ABI",
        "SFR_E_ARG",
        "SFR_E_UNSUPPORTED",
        "SFR_E_OPTION",
        "SFR_E_NOT_FOUND",
        "SFR_E_FORMAT",
        "SFR_E_NOMEM_HOST",
        "SFR_E_NOMEM_DEVICE",
        "SFR_E_CAPACITY",
        "SFR_E_BUSY",
        "SFR_E_CANCELLED",
        "SFR_E_DEADLINE",
        "SFR_E_IDENTITY",
        "SFR_E_CHECKSUM",
        "SFR_E_SMALL_BUFFER",
        "SFR_E_STATE",
        "SFR_E_DEVICE_LOST",
        "SFR_E_FATAL",
        "SFR_E_INTERNAL",
    ];
    usize::try_from(code.unsigned_abs())
        .ok()
        .and_then(|at| NAMES.get(at))
        .copied()
        .unwrap_or("an unknown code")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sf_abi::{SFR_E_INTERNAL, SFR_E_STATE, SFR_SCOPE_RUNTIME};

    #[test]
    fn a_scope_is_never_narrower_than_its_code_and_never_unknown() {
        let check = |code, said, expect| assert_eq!(scope_of(code, said), expect, "{code} {said}");
        check(SFR_E_STATE, SFR_SCOPE_LANE, SFR_SCOPE_LANE);
        check(SFR_E_FATAL, SFR_SCOPE_CALL, SFR_SCOPE_PROCESS);
        check(SFR_E_DEVICE_LOST, SFR_SCOPE_CALL, SFR_SCOPE_MODEL);
        check(SFR_E_DEVICE_LOST, SFR_SCOPE_RUNTIME, SFR_SCOPE_RUNTIME);
        check(SFR_E_INTERNAL, 77, SFR_SCOPE_PROCESS);
    }

    #[test]
    fn codes_have_the_names_of_the_header() {
        let check = |code, expect| assert_eq!(code_name(code), expect);
        check(SFR_E_STATE, "SFR_E_STATE");
        check(SFR_E_INTERNAL, "SFR_E_INTERNAL");
        check(-20, "an unknown code");
        check(i32::MIN, "an unknown code");
    }
}

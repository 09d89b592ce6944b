//! What went wrong, in a form that every surface can show: a stable code, a kind, words and a way out.

use std::fmt;

/// Decides the HTTP status and the exit code. Mapped in exactly one place each: `sf-api` and the daemon's `main`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The request is malformed or out of range.
    Invalid,
    /// No or a wrong key.
    Unauthorized,
    /// No such model, route or object.
    NotFound,
    /// This runtime or model cannot do that, ever.
    Unsupported,
    /// The body is larger than the limit.
    TooLarge,
    /// Too much work right now; later it may pass.
    Busy,
    /// The server is not ready or going away.
    Unavailable,
    /// The engine failed under the request.
    Engine,
    /// The request's own deadline passed.
    Deadline,
    /// Our bug.
    Internal,
}

/// A failure as a person and a program should see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What the caller may do about it.
    pub kind: FaultKind,
    /// Stable, snake_case, e.g. `context_length_exceeded`.
    pub code: &'static str,
    /// A lowercase phrase with the value and the limit in it.
    pub message: String,
    /// The field or flag it is about.
    pub param: Option<String>,
    /// What to do.
    pub hint: Option<String>,
}

impl Fault {
    /// A fault without field or hint.
    pub fn new(kind: FaultKind, code: &'static str, message: impl Into<String>) -> Self {
        Fault { kind, code, message: message.into(), param: None, hint: None }
    }

    /// A malformed or out-of-range request field.
    pub fn invalid(code: &'static str, param: impl Into<String>, message: impl Into<String>) -> Self {
        Fault::new(FaultKind::Invalid, code, message).param(param)
    }

    /// Names the field or flag.
    #[must_use]
    pub fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

//! What is wrong with a bundle, by the field that says so.

use thiserror::Error;

/// An error of a `.base` file.
#[derive(Debug, Error)]
pub enum BaseError {
    /// It cannot be read.
    #[error("{0} (base.unreadable)")]
    Io(#[from] std::io::Error),
    /// It is something else.
    #[error("the file begins with {found:02x?}, a bundle begins with \"BASE\" (base.magic)")]
    Magic {
        /// Its first four bytes.
        found: [u8; 4],
    },
    /// It was written by a later version of the format.
    #[error("version {found}, this build reads version {known} (base.version)")]
    Version {
        /// What the file says.
        found: u32,
        /// What this build knows.
        known: u32,
    },
    /// A part reaches behind the end of the file.
    #[error("{field}: ends at byte {needs}, the file has {file_bytes} (base.truncated)")]
    Truncated {
        /// Which part.
        field: String,
        /// The byte behind it; saturates.
        needs: u64,
        /// Size of the file.
        file_bytes: u64,
    },
    /// A number that is out of its range.
    #[error("{field} is {value}, {rule} (base.range)")]
    Range {
        /// Which number.
        field: String,
        /// What it says.
        value: u64,
        /// What is allowed.
        rule: String,
    },
    /// A word or number that nobody knows, or that contradicts another one.
    #[error("{field} is {value}: {rule} (base.value)")]
    Value {
        /// Which field.
        field: String,
        /// What it says.
        value: String,
        /// What is allowed.
        rule: String,
    },
    /// The header is not what the prologue's checksum says.
    #[error("the header's checksum is {found:016x}, the prologue says {expected:016x} (base.checksum)")]
    HeaderSum {
        /// Of the bytes that are there.
        found: u64,
        /// Of those that were written.
        expected: u64,
    },
    /// The header is no JSON of the known shape.
    #[error("the header: {reason} (base.header)")]
    Header {
        /// What is wrong.
        reason: String,
    },
    /// The header is JSON, but not in its one form.
    #[error("the header is not in canonical form: it differs at byte {at} (base.canonical)")]
    Canonical {
        /// The first byte that differs.
        at: usize,
    },
    /// Something must be understood to read the file, and is not.
    #[error("{field} must be understood to read this bundle, and this build does not know it (base.must)")]
    Must {
        /// What it is.
        field: String,
    },
    /// A tensor or a slot is not what its checksum says.
    #[error("{field}: its bytes have the checksum {found}, the header says {expected} (base.checksum)")]
    Sum {
        /// Which part.
        field: String,
        /// Of the bytes that are there.
        found: String,
        /// Of those that were written.
        expected: String,
    },
}

impl BaseError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            BaseError::Io(_) => "base.unreadable",
            BaseError::Magic { .. } => "base.magic",
            BaseError::Version { .. } => "base.version",
            BaseError::Truncated { .. } => "base.truncated",
            BaseError::Range { .. } => "base.range",
            BaseError::Value { .. } => "base.value",
            BaseError::HeaderSum { .. } | BaseError::Sum { .. } => "base.checksum",
            BaseError::Header { .. } => "base.header",
            BaseError::Canonical { .. } => "base.canonical",
            BaseError::Must { .. } => "base.must",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            BaseError::Io(_) => "check the path and its permissions",
            BaseError::Magic { .. } => {
                "make a bundle from a GGUF file or a model directory: superfluid pack MODEL"
            }
            BaseError::Version { .. } | BaseError::Must { .. } => {
                "update superfluid, or pack the model again with this version"
            }
            BaseError::Truncated { .. } => "the copy or download may be incomplete; fetch or pack it again",
            _ => "the file is damaged or was written by a faulty tool; fetch or pack it again",
        }
    }

    pub(crate) fn range(field: impl Into<String>, value: u64, rule: impl Into<String>) -> BaseError {
        BaseError::Range { field: field.into(), value, rule: rule.into() }
    }

    pub(crate) fn value(
        field: impl Into<String>,
        value: impl std::fmt::Display,
        rule: impl Into<String>,
    ) -> BaseError {
        BaseError::Value { field: field.into(), value: value.to_string(), rule: rule.into() }
    }
}

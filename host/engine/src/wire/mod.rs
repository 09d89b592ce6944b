//! What crosses between the server and its worker: control frames on the socket, flat step records in shared memory.
//!
//! Everything that arrives here is checked; nothing that arrives here can cause a panic. These types stay private to the
//! crate: `sf-core` knows no encoding.

pub(crate) mod bytes;
pub(crate) mod embed;
pub(crate) mod fault;
pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod step;

use thiserror::Error;

/// Version of the worker protocol: frames, step records and the layout of the shared memory. Both sides must agree.
pub const PROTOCOL: u16 = 5;

/// Bytes that do not decode.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum WireError {
    /// The record ends early.
    #[error("record ends at byte {have}, needs {need} (engine.wire)")]
    Short {
        /// Bytes needed from the start of the record.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// Bytes are left over after the record.
    #[error("{extra} bytes follow the record (engine.wire)")]
    Long {
        /// How many.
        extra: usize,
    },
    /// A tag or flag that this version does not know.
    #[error("unknown {what} {value} (engine.wire)")]
    Tag {
        /// Which field.
        what: &'static str,
        /// What stood there.
        value: u32,
    },
    /// A range that does not lie within what it points into.
    #[error("range {start}..{end} does not lie within {len} tokens (engine.wire)")]
    Range {
        /// First index.
        start: u32,
        /// One past the last.
        end: u32,
        /// Tokens in the plan.
        len: u32,
    },
    /// Text that is not UTF-8.
    #[error("text is not UTF-8 (engine.wire)")]
    Text,
    /// More bytes than the area or the frame may hold.
    #[error("record of {bytes} bytes exceeds the {max} that fit (engine.wire)")]
    Size {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A frame that is not one of this protocol's.
    #[error("not a frame of worker protocol {PROTOCOL}: {reason} (engine.wire)")]
    Frame {
        /// Why.
        reason: String,
    },
}

//! Bytes of a connection to answers: HTTP/1.1 framing, and server-sent events inside of it. Pure; never trusts a length.

mod events;
mod response;

pub use events::EventScanner;
pub use response::{Head, ResponseReader};

/// Bytes that are not what the protocol allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WireError(pub &'static str);

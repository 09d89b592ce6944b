//! The HTTP surface against a scripted inference: shapes, refusals, cancellation, connections.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod embeddings;
mod fake;
mod gate;
mod gone;
mod malformed;
mod metered;
mod server;
mod stream;
mod terms;
mod wire;

//! The C header `superfluid_runtime.h` in Rust, field by field, and the descriptor a runtime carries.
//!
//! No behaviour: calling through these tables is `sf-kit`'s work, filling them `sf-abi-sdk`'s. The header is the
//! source of truth; `tests/layout.rs` compares every size, offset and constant with what C compilers and `bindgen`
//! make of it.

pub mod descriptor;
mod mirror;
mod tables;

pub use mirror::*;
pub use tables::*;

/// The header's text, for tools that compile against it.
pub const HEADER: &str = include_str!("../include/superfluid_runtime.h");

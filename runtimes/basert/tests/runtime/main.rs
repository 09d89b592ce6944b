//! The runtime through the calls of the engine kit, which checks the contract at every step.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(dead_code, reason = "each test binary uses its own part of what they share")]

mod contract;
// Whatever an engine is, its lanes keep the same promises.
#[path = "../../../mlx/tests/runtime/lanes.rs"]
mod lanes;
#[path = "../../../mlx/tests/runtime/library.rs"]
mod library;
#[path = "../../../mlx/tests/runtime/support.rs"]
mod support;
mod tiny;

use superfluid_basert::DESCRIPTOR;
use superfluid_basert::superfluid_export::superfluid_runtime_v1;

/// Of the library, without what the system adds.
const NAME: &str = "superfluid_basert";

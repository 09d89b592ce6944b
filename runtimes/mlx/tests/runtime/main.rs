//! The runtime through the calls of the engine kit, which checks the contract at every step.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(dead_code, reason = "each test binary uses its own part of what they share")]
#![cfg_attr(not(sf_mlx), allow(unused_imports, reason = "without MLX only the readers are tested"))]

mod contract;
#[cfg(sf_mlx)]
mod lanes;
#[cfg(sf_mlx)]
mod library;
mod support;
mod tiny;

use superfluid_mlx::superfluid_export::superfluid_runtime_v1;

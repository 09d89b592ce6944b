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

use superfluid_mlx::DESCRIPTOR;
use superfluid_mlx::superfluid_export::superfluid_runtime_v1;

/// Of the library, without what the system adds.
const NAME: &str = "superfluid_mlx";

#[cfg(all(sf_mlx, target_os = "linux"))]
#[test]
fn it_looks_for_mlx_beside_it() {
    let bytes = std::fs::read(library::library()).unwrap();
    let run_path = b"\0$ORIGIN/mlx/lib\0";
    assert!(bytes.windows(run_path.len()).any(|window| window == run_path), "no run path to MLX");
}

//! Any `config.json` and any start of a safetensors file give a model's sizes or a typed error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| superfluid_mlx::fuzz(data));

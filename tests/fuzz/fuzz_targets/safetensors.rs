//! Any file gives a safetensors header whose tensors lie one behind the other up to its end, or a typed error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| sf_artifact::safetensors::fuzz(data));

//! Any bytes at the start of a model file give a header or a typed error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = sf_artifact::Gguf::parse(data, data.len() as u64);
});

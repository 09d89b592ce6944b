//! Any tokens with any stop strings stream to the whole text up to the first stop.
#![no_main]

#[path = "../../../host/artifact/tests/support/mod.rs"]
mod support;
#[path = "../../../host/codec/tests/tiny/mod.rs"]
mod tiny;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    tiny::detokenize_input(data);
});

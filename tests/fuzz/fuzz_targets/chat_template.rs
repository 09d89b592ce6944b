//! Any chat template with any message renders or is refused.
#![no_main]

#[path = "../../../host/artifact/tests/support/mod.rs"]
mod support;
#[path = "../../../host/codec/tests/tiny/mod.rs"]
mod tiny;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    tiny::template_input(data);
});

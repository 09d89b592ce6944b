//! Any text becomes tokens and the same text again, and never a control token.
#![no_main]

#[path = "../../../host/artifact/tests/support/mod.rs"]
mod support;
#[path = "../../../host/codec/tests/tiny/mod.rs"]
mod tiny;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    tiny::any_text_round_trips(&String::from_utf8_lossy(data));
});

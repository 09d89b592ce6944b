//! Any output in any wire is read without a panic, the same in any pieces, and no byte of it is lost.
#![no_main]

#[path = "../../../host/codec/tests/wires/support.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    support::any_input(data);
});

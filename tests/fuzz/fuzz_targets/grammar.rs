//! Any schema, expression or grammar compiles or is refused.
#![no_main]

#[path = "../../../host/kit/tests/forms/mod.rs"]
mod forms;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    forms::input(data);
});

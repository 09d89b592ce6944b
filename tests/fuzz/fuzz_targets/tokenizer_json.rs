//! No message's text becomes a control token with a tokenizer.json of any kind.
#![no_main]

#[path = "../../../host/codec/tests/charsmap/mod.rs"]
mod charsmap;
#[path = "../../../host/codec/tests/directory/mod.rs"]
mod directory;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    directory::any_text_is_text(&String::from_utf8_lossy(data));
});

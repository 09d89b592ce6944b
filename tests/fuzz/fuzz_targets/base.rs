//! Any file, and any header with its checksum, gives a bundle whose slots and groups of weights can be read, or a typed error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| sf_base::fuzz(data));

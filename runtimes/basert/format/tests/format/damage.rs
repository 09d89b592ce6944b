//! Damaged files: nothing wrong is believed, and `verify` finds what the header cannot tell.

use std::io::Write as _;

use sf_base::{Bundle, DATA_ALIGN};

use crate::toy::{CONFIG, CONFIG_AT, parse, toy};

fn header_end(file: &[u8]) -> usize {
    64 + usize::try_from(u64::from_le_bytes(file[8..16].try_into().unwrap())).unwrap()
}

#[test]
fn every_flipped_bit_of_prologue_and_header_is_refused() {
    let mut file = toy();
    for at in 0..header_end(&file) {
        for bit in 0..8 {
            file[at] ^= 1 << bit;
            assert!(parse(&file).is_err(), "byte {at}, bit {bit}");
            file[at] ^= 1 << bit;
        }
    }
    parse(&file).unwrap();
}

#[test]
fn every_cut_file_is_refused() {
    let file = toy();
    let end = header_end(&file);
    for at in (0..end + 70).chain((end + 70..file.len()).step_by(9973)).chain([file.len() - 1]) {
        assert!(parse(&file[..at]).is_err(), "{at} bytes");
        // A reader that has fewer bytes than the file system says must not wait for them, nor make them up.
        let cut = Bundle::parse(&mut &file[..at], file.len() as u64);
        assert_eq!(cut.is_err(), at < end, "{at} bytes of {}", file.len());
    }
}

#[test]
fn verify_names_what_is_damaged() {
    let check = |at: u64, expect: Option<&str>| {
        let mut bytes = toy();
        bytes[at as usize] ^= 1;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let bundle = Bundle::read(&file).unwrap();
        let words = bundle.verify(&file, &mut |_| true).expect_err("damaged").to_string();
        assert!(words.starts_with(expect.unwrap()), "byte {at}: {words}");
    };
    check(CONFIG_AT, Some("slot config.json: its bytes have the checksum"));
    check(CONFIG_AT - 1, Some("byte 4095 is 1, "));
    check(CONFIG_AT + CONFIG.len() as u64, Some("byte 4118 is 1, "));
    check(DATA_ALIGN - 1, Some("byte 2097151 is 1, "));
    check(DATA_ALIGN + 543, Some("tensors[0] (embed): its bytes"));
    check(DATA_ALIGN + 544, Some("byte 2097696 is 1, "));
    check(DATA_ALIGN + 587, Some("tensors[1] (final_norm): its bytes"));
}

#[test]
fn verify_counts_to_the_end_and_stops_when_told() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&toy()).unwrap();
    let bundle = Bundle::read(&file).unwrap();
    let mut steps = Vec::new();
    assert!(bundle.verify(&file, &mut |done| (steps.push(done), true).1).unwrap());
    assert!(steps.is_sorted() && steps.last() == Some(&bundle.file_bytes), "{steps:?}");
    let mut calls = 0;
    assert!(!bundle.verify(&file, &mut |_| (calls += 1, false).1).unwrap());
    assert_eq!(calls, 1);
    assert_eq!(bundle.slot(&file, "config.json").unwrap().unwrap(), CONFIG);
    assert_eq!(bundle.slot(&file, "tokenizer.json").unwrap(), None);
}

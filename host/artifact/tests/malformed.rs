//! Every rule of the GGUF header is kept: one malformed header per row, each with the code of its refusal.

mod support;

use sf_artifact::Gguf;
use support::{ARRAY, BOOL, Bytes, I32, STRING, U8, U32, tiny};

fn good() -> Bytes {
    Bytes::head(0, 1).pair_text("general.architecture", "toy")
}

fn one_tensor() -> Bytes {
    Bytes::head(1, 1).pair_text("general.architecture", "toy")
}

fn aligned(alignment: u32) -> Bytes {
    Bytes::head(0, 1).pair_u32("general.alignment", alignment)
}

/// Name of the row, the file, the code, and a piece of the message (value, limit or offset).
type Row = (&'static str, Bytes, &'static str, &'static str);

fn frames() -> Vec<Row> {
    let head = || Bytes::default().raw(b"GGUF");
    vec![
        ("an empty file", Bytes::default(), "model.truncated", "file ends at byte 0"),
        ("half a magic", Bytes::default().raw(b"GG"), "model.truncated", "file ends at byte 2"),
        ("another magic", Bytes::default().raw(b"GGML").data(64, 64), "model.magic", "47, 47, 4d, 4c"),
        ("an HTML page", Bytes::default().raw(b"<!DOCTYPE html><html>"), "model.magic", "3c, 21"),
        ("nothing after the magic", head(), "model.truncated", "the version at byte 4"),
        ("version 0", head().u32(0).data(64, 64), "model.version", "version 0"),
        ("version 1", head().u32(1).data(64, 64), "model.version", "version 1"),
        ("version 4", head().u32(4).data(64, 64), "model.version", "version 4"),
        (
            "big-endian version 3",
            head().u32(3_u32.swap_bytes()).data(64, 64),
            "model.big_endian",
            "0x03000000",
        ),
        ("no counts", head().u32(3), "model.truncated", "tensor count at byte 8"),
        ("no key count", head().u32(3).u64(0), "model.truncated", "key count at byte 16"),
    ]
}

fn counts() -> Vec<Row> {
    vec![
        ("2^64-1 tensors", Bytes::head(u64::MAX, 0).data(64, 64), "model.count", "18446744073709551615"),
        ("2^63 keys", Bytes::head(0, 1 << 63).data(64, 64), "model.count", "9223372036854775808"),
        ("one key too many for the file", Bytes::head(0, 2).raw(&[0; 27]), "model.count", "at most 1"),
        ("one tensor too many for the file", Bytes::head(2, 0).raw(&[0; 41]), "model.count", "at most 1"),
        ("one more key than is there", Bytes::head(0, 2).pair_u32("k", 1), "model.count", "at most 1"),
        (
            "an array of 2^60 numbers",
            Bytes::head(0, 1).array("a", U32, 1 << 60).data(64, 64),
            "model.count",
            "1152921504606846976",
        ),
        (
            "an array of 2^61 strings",
            Bytes::head(0, 1).array("a", STRING, 1 << 61).data(64, 64),
            "model.count",
            "array length",
        ),
        (
            "an array one byte too long",
            Bytes::head(0, 1).array("a", U8, 5).raw(&[0; 4]),
            "model.count",
            "at most 4",
        ),
    ]
}

fn lengths() -> Vec<Row> {
    let key = |length: u64| Bytes::head(0, 1).u64(length);
    let value = |length: u64| Bytes::head(0, 1).text("k").u32(STRING).u64(length);
    vec![
        ("an empty key", key(0).data(64, 64), "model.length", "key of 0 bytes at byte 24"),
        ("a key of 65536 bytes", key(65_536).data(64, 70_000), "model.length", "to 65535"),
        ("a key of 2^64-1 bytes", key(u64::MAX).data(64, 64), "model.length", "18446744073709551615"),
        ("a key past the end", key(100).data(64, 0), "model.truncated", "needs 132"),
        ("a string past the end", value(1000).data(64, 0), "model.truncated", "a string value"),
        ("a string of 2^64-1 bytes", value(u64::MAX).data(64, 64), "model.truncated", "18446744073709551615"),
        (
            "a string of an array past the end",
            Bytes::head(0, 1).array("a", STRING, 2).text("x").u64(9).raw(b"short"),
            "model.truncated",
            "a string of an array",
        ),
        ("no value type", Bytes::head(0, 1).text("keykeykey"), "model.truncated", "a value type"),
        ("half a number", Bytes::head(0, 1).text("keys").u32(U32).raw(&[1, 2]), "model.truncated", "a value"),
        ("an empty tensor name", one_tensor().u64(0).data(64, 64), "model.length", "tensor name"),
        ("a tensor name of 1025 bytes", one_tensor().u64(1025).data(64, 2000), "model.length", "1025"),
    ]
}

fn values() -> Vec<Row> {
    vec![
        ("value type 13", Bytes::head(0, 1).text("k").u32(13).data(64, 8), "model.value_type", "13"),
        (
            "value type 2^32-1",
            Bytes::head(0, 1).text("k").u32(u32::MAX).data(64, 8),
            "model.value_type",
            "\"k\"",
        ),
        ("element type 77", Bytes::head(0, 1).array("k", 77, 0).data(64, 8), "model.value_type", "77"),
        ("an array of arrays", Bytes::head(0, 1).array("k", ARRAY, 1).data(64, 64), "model.nesting", "\"k\""),
        ("a bool of 2", Bytes::head(0, 1).text("k").u32(BOOL).raw(&[2]), "model.bool", "bool 2"),
        (
            "an array with a bool of 9",
            Bytes::head(0, 1).array("k", BOOL, 2).raw(&[1, 9]),
            "model.bool",
            "bool 9",
        ),
        (
            "a key that is no text",
            Bytes::head(0, 1).u64(2).raw(b"k\xff").data(64, 8),
            "model.utf8",
            "byte 32",
        ),
        (
            "a value that is no text",
            Bytes::head(0, 1).text("k").u32(STRING).u64(4).raw(b"ab\xc3("),
            "model.utf8",
            "from its byte 2",
        ),
        (
            "an array with a surrogate",
            Bytes::head(0, 1).array("k", STRING, 1).u64(3).raw(b"\xed\xa0\x80"),
            "model.utf8",
            "a string of an array",
        ),
        ("a key twice", Bytes::head(0, 2).pair_u32("k", 1).pair_u32("k", 1), "model.duplicate_key", "\"k\""),
        ("alignment 0", aligned(0), "model.alignment", "alignment 0"),
        ("alignment 24", aligned(24), "model.alignment", "alignment 24"),
        ("alignment 2^31", aligned(1 << 31), "model.alignment", "2147483648"),
        (
            "alignment as text",
            Bytes::head(0, 1).pair_text("general.alignment", "32"),
            "model.key_type",
            "string, expected u32",
        ),
        (
            "alignment as an array",
            Bytes::head(0, 1).pair_i32s("general.alignment", &[32]),
            "model.key_type",
            "array, expected u32",
        ),
    ]
}

fn tensors() -> Vec<Row> {
    let tensor = |dims: &[u64], kind, offset| one_tensor().tensor("blk.0", dims, kind, offset).data(32, 4096);
    let huge = 1_u64 << 62;
    vec![
        ("five dimensions", tensor(&[1; 5], 0, 0), "model.dimensions", "dimensions 5"),
        (
            "2^32-1 dimensions",
            one_tensor().text("t").u32(u32::MAX).data(64, 64),
            "model.dimensions",
            "4294967295",
        ),
        ("dimensions that overflow", tensor(&[huge, 4], 0, 0), "model.dimensions", "elements"),
        ("a negative dimension", tensor(&[u64::MAX], 0, 0), "model.dimensions", "18446744073709551615"),
        ("an overflow beside a zero", tensor(&[0, huge, huge], 0, 0), "model.dimensions", "elements"),
        ("bytes that overflow", tensor(&[huge], 28, 0), "model.dimensions", "the limit is"),
        ("tensor type 4, withdrawn", tensor(&[32], 4, 0), "model.tensor_type", "unknown type 4"),
        ("tensor type 31, withdrawn", tensor(&[32], 31, 0), "model.tensor_type", "\"blk.0\""),
        ("tensor type 999", tensor(&[32], 999, 0), "model.tensor_type", "999"),
        ("33 elements in blocks of 32", tensor(&[33], 2, 0), "model.tensor_block", "multiple of 32"),
        ("data off the alignment", tensor(&[4], 0, 16), "model.tensor_offset", "no multiple of 32"),
        ("data past the end", tensor(&[4], 0, 8192), "model.truncated", "the data of tensor"),
        ("data that ends past the end", tensor(&[1025], 0, 0), "model.truncated", "\"blk.0\""),
        ("an offset near 2^64", tensor(&[4], 0, u64::MAX - 31), "model.truncated", "18446744073709551615"),
        (
            "a cut tensor entry",
            one_tensor().text("t").u32(2).u64(1).raw(&[0; 6]),
            "model.truncated",
            "a dimension at",
        ),
        (
            "a tensor twice",
            Bytes::head(2, 1).pair_u32("k", 1).tensor("t", &[1], 0, 0).tensor("t", &[1], 0, 32).data(32, 64),
            "model.duplicate_tensor",
            "\"t\"",
        ),
    ]
}

fn rows() -> Vec<Row> {
    [frames(), counts(), lengths(), values(), tensors()].concat()
}

#[test]
fn every_malformed_header_is_refused_by_its_code_with_the_value_in_the_message() {
    let rows = rows();
    assert!(rows.len() >= 30);
    for (name, bytes, code, piece) in rows {
        let error = Gguf::parse(&bytes.0, bytes.0.len() as u64).expect_err(name);
        assert_eq!(error.code(), code, "{name}: {error}");
        let message = error.to_string();
        assert!(message.contains(piece), "{name}: {message}");
        assert!(message.ends_with(&format!("({code})")), "{name}: {message}");
        assert!(!error.hint().is_empty(), "{name}");
    }
}

#[test]
fn a_file_is_refused_with_the_same_words_as_its_bytes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (index, (name, bytes, ..)) in rows().into_iter().enumerate() {
        let path = directory.path().join(format!("{index}.gguf"));
        std::fs::write(&path, &bytes.0).expect(name);
        let from_file = Gguf::open(&path).expect_err(name).to_string();
        let from_bytes = Gguf::parse(&bytes.0, bytes.0.len() as u64).expect_err(name).to_string();
        assert_eq!(from_file, from_bytes, "{name}");
    }
}

#[test]
fn a_string_that_fills_a_sparse_file_of_terabytes_is_refused_before_it_is_read() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("sparse.gguf");
    let head = Bytes::head(0, 1).text("k").u32(STRING).u64(1 << 40);
    std::fs::write(&path, &head.0).expect("written");
    let file = std::fs::File::options().write(true).open(&path).expect("opened");
    file.set_len(2 << 40).expect("sparse files work here");
    assert_eq!(Gguf::open(&path).expect_err("too large").code(), "model.header_size");
}

#[test]
fn a_valid_file_cut_anywhere_is_refused_as_truncated_or_as_a_count_that_does_not_fit() {
    let bytes = tiny();
    for length in 0..bytes.len() {
        let error = Gguf::parse(&bytes[..length], length as u64).expect_err("cut");
        assert!(matches!(error.code(), "model.truncated" | "model.count"), "cut at {length}: {error}");
    }
    assert!(Gguf::parse(&bytes, bytes.len() as u64).is_ok());
}

#[test]
fn a_message_stays_short_however_long_the_name() {
    let bytes = Bytes::head(0, 1).text(&"ä".repeat(30_000)).u32(99).data(64, 64).0;
    let message = Gguf::parse(&bytes, bytes.len() as u64).expect_err("an unknown type").to_string();
    assert!(message.len() < 300 && message.contains("ää…"), "{message}");
}

#[test]
fn bytes_that_were_not_handed_over_count_as_truncated() {
    let bytes = good().array("a", I32, 0).0;
    let error = Gguf::parse(&bytes[..40], 1 << 20).expect_err("half a header");
    assert_eq!(error.code(), "model.truncated");
}

//! Each broken bundle is refused by the name of what is wrong.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sf_base::{BaseError, DATA_ALIGN, canonical};

use crate::toy::{file, header, parse, toy};

/// A place in the header and what is written there.
fn edits() -> Vec<(&'static str, Value)> {
    vec![
        ("/architecture/vocab", json!(0)),
        ("/architecture/vocab", json!(-1)),
        ("/architecture/hidden", json!(1 << 21)),
        ("/architecture/heads", json!(3)),
        ("/architecture/kind", json!("diffuser")),
        ("/architecture/kind", json!("encoder")),
        ("/architecture/pooling", json!({"kind": "mean", "normalize": true})),
        ("/architecture/layers", json!([])),
        ("/architecture/layers/0/rope", json!(1)),
        ("/architecture/layers/0/window", json!(0)),
        ("/architecture/ropes/0/inv_freq", json!([])),
        ("/architecture/ropes/0/inv_freq", json!([1.0, 1.0, 1.0, 1.0, 1.0])),
        ("/architecture/ropes/0/inv_freq/3", json!(-0.5)),
        ("/architecture/ropes/0/scale", json!(1e31)),
        ("/architecture/attention_scale", json!(-1.0)),
        ("/architecture/logit_softcap", json!(0.0)),
        ("/architecture/positions", json!(100)),
        ("/architecture/token_types", json!(1 << 21)),
        ("/architecture/must_turn", json!(true)),
        ("/profile", json!(4)),
        ("/must_sign", json!("x")),
        ("/slots", json!({})),
        ("/slots/0/id", json!("")),
        ("/slots/0/id", json!("voice.bin")),
        ("/slots/0/required", json!("yes")),
        ("/slots/0/offset", json!(64)),
        ("/slots/0/offset", json!(4097)),
        ("/slots/0/bytes", json!(DATA_ALIGN)),
        ("/slots/0/bytes", json!(1_u64 << 40)),
        ("/slots/0/checksum", json!("12")),
        ("/tensors/0", json!(7)),
        ("/tensors/0/name", json!("em\nbed")),
        ("/tensors/0/row", json!(16)),
        ("/tensors/0/rows", json!(0)),
        ("/tensors/0/rows", json!(1_u64 << 32)),
        ("/tensors/0/rows", json!(17)),
        ("/tensors/0/layout", json!("q3.16x32")),
        ("/tensors/0/offset", json!(0)),
        ("/tensors/0/offset", json!(DATA_ALIGN + 32)),
        ("/tensors/0/offset", json!(DATA_ALIGN + 64)),
        ("/tensors/0/offset", json!(u64::MAX - 63)),
        ("/tensors/0/checksum", json!("ABCDEF00ABCDEF00ABCDEF00ABCDEF00")),
        ("/tensors/1/name", json!("embed")),
        ("/tensors/1/offset", json!(DATA_ALIGN)),
        ("/tensors/1/offset", json!(DATA_ALIGN + 640)),
    ]
}

fn set(header: &mut Value, place: &str, value: Value) {
    let (parent, key) = place.rsplit_once('/').unwrap();
    match header.pointer_mut(parent).unwrap() {
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
        fields => fields[key] = value,
    }
}

fn line(what: &str, error: &BaseError) -> String {
    let words = error.to_string();
    assert!(words.ends_with(&format!("({})", error.code())), "{words}");
    format!("{what}\n    {words}\n    {}\n", error.hint())
}

#[test]
fn a_wrong_header_is_refused_by_its_field() {
    let mut lines = String::new();
    for (place, value) in edits() {
        let mut changed = header();
        set(&mut changed, place, value.clone());
        let error = parse(&file(&canonical(&changed))).expect_err(place);
        lines.write_str(&line(&format!("{place} = {value}"), &error)).unwrap();
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn a_missing_field_is_named() {
    let mut lines = String::new();
    let places = ["/architecture/ffn", "/source", "/slots", "/tensors", "/slots/0/bytes", "/tensors/1/cols"];
    for place in places {
        let mut changed = header();
        let (parent, key) = place.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
        let error = parse(&file(&canonical(&changed))).expect_err(place);
        lines.write_str(&line(place, &error)).unwrap();
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn a_wrong_prologue_is_refused_by_its_field() {
    let cases: [(&str, usize, &[u8]); 9] = [
        ("magic", 0, b"GGUF"),
        ("version", 4, &[2]),
        ("header_bytes", 8, &[0, 0, 0, 5]),
        ("header_bytes, past the end", 8, &[0, 0, 0x30]),
        ("data_offset", 16, &[1]),
        ("file_bytes, too many", 24, &[0, 0, 0x40]),
        ("file_bytes, too few", 24, &[1]),
        ("checksum", 32, &[0; 8]),
        ("reserved", 63, &[9]),
    ];
    let mut lines = String::new();
    for (what, at, bytes) in cases {
        let mut file = toy();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        lines.write_str(&line(what, &parse(&file).expect_err(what))).unwrap();
    }
    for text in ["", "[]", "{}", "{ }", "{\"a\":1,\"a\":2}", "{\"b\":1,\"a\":2}"] {
        lines.write_str(&line(&format!("header {text}"), &parse(&file(text)).expect_err(text))).unwrap();
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn what_a_later_version_adds_is_kept_out_of_the_way() {
    let mut changed = header();
    set(&mut changed, "/colour", json!({"deep": [1, 2]}));
    set(&mut changed, "/architecture/may_turn", json!(1.5));
    set(&mut changed, "/slots/0/id", json!("voice.bin"));
    set(&mut changed, "/slots/0/required", json!(false));
    let bundle = parse(&file(&canonical(&changed))).unwrap();
    assert_eq!(bundle.header.slots[0].id, "voice.bin");
    assert_eq!(bundle.header.architecture, parse(&toy()).unwrap().header.architecture);
}

#[test]
fn parts_of_a_matrix_follow_each_other() {
    let parse_with = |row: u32, rows: u32, cols: u32| {
        let mut changed = header();
        set(&mut changed, "/tensors/1/name", json!("embed"));
        let bytes = rows * cols * 4;
        for (key, value) in [("row", row), ("rows", rows), ("cols", cols), ("bytes", bytes)] {
            changed["tensors"][1][key] = json!(value);
        }
        parse(&file(&canonical(&changed)))
    };
    let words = |row, rows, cols| parse_with(row, rows, cols).expect_err("refused").to_string();
    assert!(words(0, 1, 3).starts_with("tensors[1].row is 0, the part of embed before it ends at row 16"));
    assert!(words(32, 1, 3).starts_with("tensors[1].row is 32, "));
    assert!(words(16, 1, 3).starts_with("tensors[1].cols is 3, the part of embed before it has 32"));
}

#[test]
fn the_first_tensor_is_at_the_data_offset_and_a_slot_comes_once() {
    let mut changed = header();
    changed["tensors"].as_array_mut().unwrap().remove(0);
    let words = parse(&file(&canonical(&changed))).expect_err("refused").to_string();
    assert!(
        words.starts_with("prologue.data_offset is 2097152, the first tensor begins at 2097728"),
        "{words}"
    );
    let mut changed = header();
    let again = changed["slots"][0].clone();
    changed["slots"].as_array_mut().unwrap().push(again);
    let words = parse(&file(&canonical(&changed))).expect_err("refused").to_string();
    assert!(words.starts_with("slots[1].id is config.json: it comes twice"), "{words}");
}

//! What a well-formed model says is read in full, and hostile changes to one never panic.

mod support;

use std::path::Path;

use proptest::prelude::*;
use sf_artifact::gguf::{TensorInfo, Value};
use sf_artifact::{ArtifactFormat, Gguf, open};
use support::{Bytes, GEMMA3, SMOLLM2, real_model, tiny};

fn parsed() -> Gguf {
    let bytes = tiny();
    Gguf::parse(&bytes, bytes.len() as u64).expect("tiny is well-formed")
}

#[test]
fn every_value_type_is_read() {
    let gguf = parsed();
    let all = 0x0101_0101_0101_0101_u64;
    let check = |key: &str, expect: Value| {
        let found = gguf.get(key).expect(key);
        assert_eq!(format!("{found:?}"), format!("{expect:?}"), "{key}");
    };
    check("general.name", Value::String("Tiny — ünï".into()));
    check("tokenizer.ggml.add_bos_token", Value::Bool(true));
    check("x.scalar0", Value::U8(1));
    check("x.scalar1", Value::I8(1));
    check("x.scalar2", Value::U16(0x0101));
    check("x.scalar3", Value::I16(0x0101));
    check("x.scalar5", Value::I32(0x0101_0101));
    check("x.scalar6", Value::F32(f32::from_bits(0x0101_0101)));
    check("x.scalar10", Value::U64(all));
    check("x.scalar11", Value::I64(all as i64));
    let array = |key: &str| gguf.get(key).and_then(Value::as_array).expect("an array");
    let tokens: Vec<_> = array("tokenizer.ggml.tokens").strings().expect("strings").collect();
    assert_eq!(tokens, [&b""[..], b"a", "▁b".as_bytes(), b"<eos>"]);
    let scores: Vec<_> = array("tokenizer.ggml.scores").f32s().expect("floats").collect();
    assert_eq!(scores, [0.0, -1.0, -2.0, 0.5]);
    let types: Vec<_> = array("tokenizer.ggml.token_type").i32s().expect("ints").collect();
    assert_eq!(types, [1, 1, 1, 3]);
    assert!(array("tokenizer.ggml.scores").i32s().is_none());
}

#[test]
fn tensors_have_their_place_and_size() {
    let gguf = parsed();
    let facts = |tensor: &TensorInfo| (tensor.name.clone(), tensor.kind.name, tensor.offset, tensor.bytes);
    let found: Vec<_> = gguf.tensors().iter().map(facts).collect();
    assert_eq!(found, [("one".to_owned(), "Q8_0", 0, 68), ("two".to_owned(), "F32", 128, 12)]);
    assert_eq!(gguf.alignment(), 64);
    assert_eq!(gguf.data_offset() % 64, 0);
    assert_eq!(gguf.quantization(), "Q8_0", "the type that most bytes have");
}

#[test]
fn smollm2_says_what_it_is() {
    let artifact = open(real_model(SMOLLM2)).expect("a real model");
    assert_eq!(artifact.format, ArtifactFormat::Gguf { version: 3 });
    assert_eq!(artifact.architecture, "llama");
    assert_eq!(artifact.quantization, "Q4_1");
    assert_eq!(artifact.bytes, 98_362_432);
    assert_eq!(artifact.context_trained, Some(8192));
    assert_eq!(artifact.name.as_deref(), Some("Smollm2 135M 8k Lc100K Mix1 Ep2"));
    assert_eq!(artifact.files, std::slice::from_ref(&artifact.path));
    assert_eq!(artifact.chat_template().map(|template| template.len()), Some(368));
    let gguf = artifact.gguf().expect("a GGUF file");
    assert_eq!(gguf.tensors().len(), 272);
    assert_eq!(gguf.tensors().iter().map(|tensor| tensor.bytes).sum::<u64>(), 96_576_768);
}

#[test]
fn gemma_says_what_it_is() {
    let artifact = open(real_model(GEMMA3)).expect("a real model");
    assert_eq!(artifact.architecture, "gemma3");
    assert_eq!(artifact.quantization, "Q4_K_M");
    assert_eq!(artifact.bytes, 253_113_024);
    assert_eq!(artifact.context_trained, Some(32768));
    assert_eq!(artifact.chat_template(), None, "it is a base model");
    let gguf = artifact.gguf().expect("a GGUF file");
    let tokens = gguf.get("tokenizer.ggml.tokens").and_then(Value::as_array).expect("tokens");
    assert_eq!(tokens.len(), 262_144);
    assert_eq!(tokens.strings().expect("strings").nth(2), Some(&b"<bos>"[..]));
    assert_eq!(gguf.tensors().iter().map(|tensor| tensor.bytes).sum::<u64>(), 246_587_904);
}

#[test]
fn a_header_longer_than_the_first_read_is_read() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("long.gguf");
    let long = "x".repeat(3 << 20);
    let pairs = Bytes::head(0, 3).pair_text("general.architecture", "toy").pair_text("long", &long);
    std::fs::write(&path, pairs.pair_u32("last", 7).0).expect("written");
    let gguf = Gguf::open(&path).expect("well-formed");
    assert_eq!(gguf.get("last").and_then(Value::as_u64), Some(7));
    assert_eq!(gguf.get("long").and_then(Value::as_str).map(str::len), Some(3 << 20));
}

#[test]
fn other_formats_are_recognised_and_anything_else_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let code = |name: &str| open(path(name)).expect_err(name).code();
    assert_eq!(code("absent.gguf"), "model.unreadable");
    std::fs::write(path("page.gguf"), "<html>").expect("written");
    assert_eq!(code("page.gguf"), "model.format_unknown");
    std::fs::write(path("empty.gguf"), "").expect("written");
    assert_eq!(code("empty.gguf"), "model.format_unknown");
    std::fs::write(path("nameless.gguf"), Bytes::head(0, 0).0).expect("written");
    assert_eq!(code("nameless.gguf"), "model.missing_key");
    std::fs::write(path("model.base"), b"BASE\x01\0\0\0").expect("written");
    assert_eq!(code("model.base"), "base.truncated");
    assert_eq!(code("."), "model.format_unknown");

    std::fs::write(path("a.safetensors"), [0; 10]).expect("written");
    std::fs::write(path("config.json"), "{").expect("written");
    assert_eq!(code("."), "model.config");
    let config = r#"{"model_type":"llama","torch_dtype":"bfloat16","max_position_embeddings":2048}"#;
    std::fs::write(path("config.json"), config).expect("written");
    std::fs::write(path("tokenizer_config.json"), r#"{"chat_template":"{{ x }}"}"#).expect("written");
    let artifact = open(directory.path()).expect("a model directory");
    assert_eq!(artifact.format, ArtifactFormat::SafetensorsDir);
    assert_eq!((&*artifact.architecture, &*artifact.quantization), ("llama", "bfloat16"));
    assert_eq!((artifact.bytes, artifact.context_trained), (10, Some(2048)));
    assert_eq!(artifact.chat_template().as_deref(), Some("{{ x }}"));
}

#[test]
fn a_split_model_is_all_of_its_parts() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let part = |number: u32| {
        let head = Bytes::head(0, 3).pair_text("general.architecture", "toy");
        head.pair_u32("split.count", 2).pair_u32("split.no", number - 1).0
    };
    let path = |number: u32| directory.path().join(format!("m-0000{number}-of-00002.gguf"));
    std::fs::write(path(1), part(1)).expect("written");
    assert_eq!(open(path(1)).expect_err("half a model").code(), "model.incomplete");
    std::fs::write(path(2), part(2)).expect("written");
    let artifact = open(path(1)).expect("both parts");
    assert_eq!(artifact.files, [path(1), path(2)]);
    assert_eq!(artifact.bytes, 2 * part(1).len() as u64);
    assert_eq!(open(path(2)).expect_err("the second part").code(), "model.not_first_part");
}

/// Hands each file of a target's corpus to `read`.
fn replay(target: &str, read: impl Fn(&[u8])) {
    let corpus = format!("{}/../../tests/fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is part of the tree") {
        read(&std::fs::read(entry.expect("an entry").path()).expect("readable"));
        seen += 1;
    }
    assert!(seen >= 5, "{target}: {seen} files");
}

#[test]
fn the_fuzz_corpus_replays_without_a_panic() {
    replay("gguf", |bytes| drop(Gguf::parse(bytes, bytes.len() as u64)));
    replay("safetensors", sf_artifact::safetensors::fuzz);
}

#[test]
fn a_damaged_safetensors_header_is_refused_with_words() {
    let check = |name: &str, expect: &str| {
        let path = format!("{}/../../tests/fuzz/corpus/safetensors/{name}", env!("CARGO_MANIFEST_DIR"));
        match sf_artifact::Safetensors::open(Path::new(&path)) {
            Ok(header) => assert_eq!(format!("{} tensors", header.tensors.len()), expect, "{name}"),
            Err(error) => assert_eq!(error.to_string(), expect, "{name}"),
        }
    };
    check("two_tensors", "2 tensors");
    check("no_tensors", "0 tensors");
    check("overlap", "tensors a and b share bytes");
    check("gap", "between a and b lie 1 bytes of no tensor");
    check("behind_the_end", "tensor a: its data ends at byte 8, the file has 4 bytes of data");
    check("product_overflows", "tensor a: its shape has more than 2^64 bytes");
    check("offsets_backwards", "tensor a: data_offsets are 2 to 1, its shape has 1 bytes");
    check("unknown_type", "tensor a: elements of Q4 are unknown");
    check("huge_header", "its header would have 4611686018427387904 bytes, the file has 10");
    check("short", "it has 2 bytes, such a file has at least 8");
}

proptest! {
    #[test]
    fn changed_bytes_never_panic_and_never_make_more_than_the_file_holds(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut bytes = tiny();
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(gguf) = Gguf::parse(&bytes, bytes.len() as u64) {
            let elements: usize =
                gguf.entries().filter_map(|(_, value)| value.as_array()).map(sf_artifact::gguf::Array::len).sum();
            prop_assert!(elements <= bytes.len());
            prop_assert!(gguf.tensors().len() * 25 <= bytes.len());
            prop_assert!(gguf.header_bytes() <= bytes.len() as u64);
            for (_, value) in gguf.entries() {
                if let Some(strings) = value.as_array().and_then(|array| array.strings()) {
                    prop_assert!(strings.map(<[u8]>::len).sum::<usize>() <= bytes.len());
                }
            }
        }
    }

    #[test]
    fn random_bytes_after_the_magic_never_panic(tail in prop::collection::vec(any::<u8>(), 0..512)) {
        let bytes = [b"GGUF\x03\0\0\0", &tail[..]].concat();
        let _ = Gguf::parse(&bytes, bytes.len() as u64);
    }
}

//! Tokens equal those of llama.cpp (b11434) on 640 texts: languages, emoji, digits, code, odd spaces, control characters,
//! marker look-alikes. The expectations were written by llama.cpp itself from the same model files.

#[path = "../../artifact/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use serde::Deserialize;
use sf_artifact::{Gguf, open};
use sf_codec::{Codec, CodecOptions};
use sf_core::Token;
use support::{GEMMA3, SMOLLM2, real_model};

#[derive(Deserialize)]
struct Expected {
    strings: Vec<String>,
    smollm2: Vec<Vec<u32>>,
    /// With markers parsed; only where that makes a difference.
    smollm2_marked: BTreeMap<usize, Vec<u32>>,
    gemma3: Vec<Vec<u32>>,
    gemma3_marked: BTreeMap<usize, Vec<u32>>,
    /// Per pre-tokenizer, over SmolLM2's vocabulary: FNV-1a of the ids of 32 texts at a time, each closed by 2^32 - 1.
    families: BTreeMap<String, Vec<String>>,
}

fn expected() -> Expected {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/llamacpp.json");
    serde_json::from_slice(&std::fs::read(path).expect("the data is part of the tree")).expect("valid JSON")
}

fn codec(file: &str) -> Codec {
    let artifact = open(real_model(file)).expect("a real model");
    Codec::open(&artifact, CodecOptions::default()).expect("a known tokenizer")
}

fn ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

fn check(file: &str, strings: &[String], plain: &[Vec<u32>], marked: &BTreeMap<usize, Vec<u32>>) {
    let codec = codec(file);
    let controls =
        |tokens: &[u32]| tokens.iter().filter(|&&id| codec.token_bytes(Token(id)).is_empty()).count();
    // SmolLM2 has no token for 13 of the bytes; neither tokenizer can carry them.
    let mut carried = [false; 256];
    for id in 0..codec.vocab() {
        if let [byte] = codec.token_bytes(Token(id)) {
            carried[*byte as usize] = true;
        }
    }
    assert_eq!(strings.len(), plain.len());
    for (index, (text, expect)) in strings.iter().zip(plain).enumerate() {
        let tokens = codec.encode(text, true).expect("short");
        assert_eq!(ids(&tokens), *expect, "{file}: {text:?}");
        if text.bytes().all(|byte| carried[byte as usize]) {
            // SentencePiece writes a space as U+2581 and cannot tell the two apart.
            let spaces = |text: &str| text.replace('\u{2581}', " ");
            assert_eq!(spaces(&codec.decode(&tokens)), spaces(text), "{file}: the way back of {text:?}");
        }
        assert_eq!(controls(&ids(&tokens)), usize::from(codec.adds_bos()), "{file}: {text:?}");

        let expect = marked.get(&index).unwrap_or(expect);
        let expect =
            expect.strip_prefix(&[codec.bos().map_or(0, |bos| bos.0)][..usize::from(codec.adds_bos())]);
        let tokens = codec.encode_trusted(text).expect("short");
        assert_eq!(Some(&*ids(&tokens)), expect, "{file}, markers: {text:?}");
    }
}

#[test]
fn smollm2_tokens_equal_llama_cpps() {
    let expect = expected();
    check(SMOLLM2, &expect.strings, &expect.smollm2, &expect.smollm2_marked);
}

#[test]
fn gemma_tokens_equal_llama_cpps() {
    let expect = expected();
    check(GEMMA3, &expect.strings, &expect.gemma3, &expect.gemma3_marked);
}

#[test]
fn the_tokens_that_end_an_answer_equal_llama_cpps() {
    let check = |file, expect: &[u32]| {
        let found: Vec<u32> = codec(file).eog_tokens().map(|token| token.0).collect();
        assert_eq!(found, expect, "{file}");
    };
    check(SMOLLM2, &[0, 2, 4]);
    check(GEMMA3, &[1, 106, 212]);
}

/// SmolLM2's header with another pre-tokenizer and without tensors.
fn with_pre_tokenizer(header: &[u8], name: &str) -> Codec {
    let key = b"tokenizer.ggml.pre";
    let at = header.windows(key.len()).position(|window| window == key).expect("the key") + key.len() + 4;
    let length = u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes")) as usize;
    let mut bytes = header[..at].to_vec();
    bytes.extend((name.len() as u64).to_le_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend(&header[at + 8 + length..]);
    bytes[8..16].fill(0);
    let gguf = Gguf::parse(&bytes, bytes.len() as u64).expect("still well-formed");
    Codec::from_gguf(&gguf, CodecOptions::default()).expect("a known pre-tokenizer")
}

fn digest(texts: &[String], codec: &Codec) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for text in texts {
        let mut ids = ids(&codec.encode(text, false).expect("short"));
        ids.push(u32::MAX);
        for byte in ids.iter().flat_map(|id| id.to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

#[test]
fn every_pre_tokenizer_cuts_as_llama_cpp_does() {
    let expect = expected();
    let path = real_model(SMOLLM2);
    let length = Gguf::open(&path).expect("a real model").header_bytes() as usize;
    let header = &std::fs::read(path).expect("readable")[..length];
    assert!(expect.families.len() >= 20);
    for (name, digests) in &expect.families {
        let codec = with_pre_tokenizer(header, name);
        for (index, (texts, expect)) in expect.strings.chunks(32).zip(digests).enumerate() {
            let found = digest(texts, &codec);
            assert_eq!(found, *expect, "{name}: among texts {} to {}", index * 32, index * 32 + 31);
        }
    }
}

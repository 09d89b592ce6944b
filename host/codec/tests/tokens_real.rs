//! Real vocabularies give the tokens of an independent implementation that was handed the same tokens and merges.

#[path = "../../artifact/tests/support/mod.rs"]
mod support;

mod corpus;

use std::collections::HashMap;

use corpus::corpus;
use sf_artifact::{Gguf, open};
use sf_codec::{Codec, CodecOptions};
use sf_core::Token;
use support::{Bytes, GEMMA3, SMOLLM2, real_model};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::Replace;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, Tokenizer};

fn strings(gguf: &Gguf, key: &str) -> Vec<String> {
    let list = gguf.get(key).and_then(|value| value.as_array()).expect("an array");
    let texts = list.strings().expect("strings");
    texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

fn kinds(gguf: &Gguf) -> Vec<i32> {
    let list = gguf.get("tokenizer.ggml.token_type").and_then(|value| value.as_array()).expect("an array");
    list.i32s().expect("integers").collect()
}

fn numbered(texts: &[String]) -> HashMap<String, u32> {
    texts.iter().cloned().zip(0..).collect()
}

/// Compares all texts; the count of them.
fn compare(name: &str, codec: &Codec, other: &Tokenizer) -> usize {
    let mut count = 0;
    for text in &corpus() {
        let found: Vec<u32> = codec.encode(text, false).expect("short").iter().map(|token| token.0).collect();
        let expect = other.encode(&**text, false).expect("it tokenizes");
        assert_eq!(found, expect.get_ids(), "{name}: {text:?}: {:?}", expect.get_tokens());
        count += 1;
    }
    count
}

#[test]
fn smollm2_equals_the_independent_implementation() {
    let artifact = open(real_model(SMOLLM2)).expect("a real model");
    let codec = Codec::open(&artifact, CodecOptions::default()).expect("a known tokenizer");
    let gguf = artifact.gguf().expect("a GGUF file");
    let merges = strings(gguf, "tokenizer.ggml.merges");
    let merges = merges.iter().filter_map(|line| line.split_once(' '));
    let merges = merges.map(|(left, right)| (left.to_owned(), right.to_owned())).collect();
    let vocab = numbered(&strings(gguf, "tokenizer.ggml.tokens"));
    let model = BPE::builder().vocab_and_merges(vocab.into_iter().collect::<Vocab>(), merges);
    let mut other = Tokenizer::new(model.build().expect("a valid vocabulary"));
    let cuts: Vec<PreTokenizerWrapper> =
        vec![Digits::new(true).into(), ByteLevel::new(false, true, true).into()];
    other.with_pre_tokenizer(Some(Sequence::new(cuts)));
    let count = compare("SmolLM2", &codec, &other);
    println!("{count} texts compared");
    assert!(count >= 2000, "{count}");
}

/// SentencePiece merges by the score of what comes out: every way to cut a token in two is a merge of that rank.
#[test]
fn gemma_equals_the_independent_implementation() {
    let artifact = open(real_model(GEMMA3)).expect("a real model");
    let codec = Codec::open(&artifact, CodecOptions::default()).expect("a known tokenizer");
    let gguf = artifact.gguf().expect("a GGUF file");
    let (texts, kinds) = (strings(gguf, "tokenizer.ggml.tokens"), kinds(gguf));
    let scores = gguf.get("tokenizer.ggml.scores").and_then(|value| value.as_array()).expect("an array");
    let scores: Vec<f32> = scores.f32s().expect("floats").collect();
    let vocab = numbered(&texts);
    let mut merges: Vec<(f32, u32, u32, String, String)> = Vec::new();
    for (id, text) in texts.iter().enumerate().filter(|&(id, _)| kinds[id] == 1) {
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(&first), Some(&second)) = (vocab.get(left), vocab.get(right))
                && kinds[first as usize] == 1
                && kinds[second as usize] == 1
            {
                merges.push((scores[id], first, second, left.to_owned(), right.to_owned()));
            }
        }
    }
    merges
        .sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)).then(one.2.cmp(&other.2)));
    let merges = merges.into_iter().map(|(_, _, _, left, right)| (left, right)).collect();
    let model = BPE::builder()
        .vocab_and_merges(vocab.into_iter().collect::<Vocab>(), merges)
        .byte_fallback(true)
        .unk_token("<unk>".to_owned())
        .fuse_unk(true);
    let mut other = Tokenizer::new(model.build().expect("a valid vocabulary"));
    other.with_normalizer(Some(Replace::new(" ", "▁").expect("a plain text"))).expect("it fits");
    // What ends an answer is a control token, whatever its kind.
    let is_given = |id: &usize| kinds[*id] == 4 && !codec.token_bytes(Token(*id as u32)).is_empty();
    let given = (0..texts.len()).filter(is_given);
    let given = given.map(|id| AddedToken::from(texts[id].clone(), false).normalized(false));
    other.add_tokens(given).expect("they are in the vocabulary");
    let count = compare("Gemma 3", &codec, &other);
    println!("{count} texts compared");
    assert!(count >= 2000, "{count}");
}

/// all-MiniLM as a directory, and its vocabulary as a converter would write it to GGUF.
#[test]
#[ignore = "needs cargo xtask fetch minilm"]
fn minilm_equals_the_independent_implementation() {
    let path = real_model("all-MiniLM-L6-v2/tokenizer.json");
    let artifact = open(path.parent().expect("a directory")).expect("a model directory");
    let codec = Codec::open(&artifact, CodecOptions::default()).expect("a known tokenizer");
    let mut other = Tokenizer::from_file(&path).expect("the same file");
    other.with_padding(None).with_truncation(None).expect("nothing to cut");
    other.set_encode_special_tokens(true);
    let count = compare("MiniLM", &codec, &other);
    println!("{count} texts compared");
    assert!(count >= 2000, "{count}");
    for text in corpus() {
        let found: Vec<u32> = codec.encode_whole(&text).expect("short").iter().map(|token| token.0).collect();
        assert_eq!(found, other.encode(&*text, true).expect("it tokenizes").get_ids(), "{text:?}");
    }

    let texts: Vec<String> = (0..codec.vocab())
        .map(|id| {
            let text = codec.token_name(Token(id));
            match text.strip_prefix("##") {
                _ if [0, 100, 101, 102, 103].contains(&id) => text.to_owned(),
                Some(rest) if !rest.is_empty() => rest.to_owned(),
                _ => format!("▁{text}"),
            }
        })
        .collect();
    let kinds: Vec<i32> =
        (0..codec.vocab()).map(|id| if [0, 100, 101, 102, 103].contains(&id) { 3 } else { 1 }).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let bytes = Bytes::head(0, 3)
        .pair_text("tokenizer.ggml.model", "bert")
        .pair_texts("tokenizer.ggml.tokens", &texts)
        .pair_i32s("tokenizer.ggml.token_type", &kinds);
    let gguf = Gguf::parse(&bytes.0, bytes.0.len() as u64).expect("well-formed");
    let codec = Codec::from_gguf(&gguf, CodecOptions::default()).expect("a known tokenizer");
    let count = compare("MiniLM from GGUF", &codec, &other);
    println!("{count} texts compared");
    assert!(count >= 2000, "{count}");
}

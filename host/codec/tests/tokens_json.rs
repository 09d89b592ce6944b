//! A directory's `tokenizer.json` gives the tokens of the crate that defines it, on more than two thousand texts; what a
//! message says never becomes a control token; what cannot be read exactly is refused by name.

mod charsmap;
mod corpus;
mod directory;

use std::str::FromStr;

use corpus::corpus;
use directory::{
    Pair, SPECIALS, all, any_text_is_text, byte_fallback, byte_level, config, open, unigram, word_level,
    wordpiece,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use sf_codec::{Codec, CodecOptions, TextStream};
use sf_core::Token;
use tokenizers::Tokenizer;

fn ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

/// The crate alone, that is, with its own search for added tokens.
fn alone(file: &Value, text_only: bool) -> Tokenizer {
    let mut tokenizer = Tokenizer::from_str(&file.to_string()).expect("a valid file");
    tokenizer.set_encode_special_tokens(text_only);
    tokenizer
}

#[test]
fn tokens_equal_those_of_the_crate() {
    let files = [byte_level(), byte_fallback(), unigram(), wordpiece(), word_level()];
    for (file, Pair { name, codec, .. }) in files.iter().zip(all()) {
        let (text_only, marked) = (alone(file, true), alone(file, false));
        let (mut compared, mut apart) = (0, 0);
        for text in corpus() {
            let expect = text_only.encode(&*text, false).expect("it tokenizes");
            // Some of its models find control tokens in a text by themselves.
            if expect.get_ids().iter().any(|id| (1..SPECIALS.len() as u32).contains(id)) {
                apart += 1;
            } else {
                let tokens = codec.encode(&text, false).expect("short");
                assert_eq!(ids(&tokens), expect.get_ids(), "{name}: {text:?}");
                compared += 1;
            }
            let expect = marked.encode(&*text, false).expect("it tokenizes");
            let tokens = codec.encode_trusted(&text).expect("short");
            assert_eq!(ids(&tokens), expect.get_ids(), "{name}, trusted: {text:?}");
            let whole = marked.encode(&*text, true).expect("it tokenizes");
            let tokens = codec.encode_whole(&text).expect("short");
            // What stands before and behind it; of no text there is nothing else.
            let around = marked.encode("", true).expect("it tokenizes");
            let own = codec.encode_whole("").expect("short");
            assert_eq!(ids(&own), around.get_ids(), "{name}: what is put around a text");
            if codec.adds_bos() {
                assert_eq!(ids(&tokens).first(), whole.get_ids().first(), "{name}: BOS");
            }
        }
        println!("{name}: {compared} texts compared, {apart} hold control tokens to the crate");
        assert!(compared >= 2000, "{name}: {compared}");
    }
}

#[test]
fn no_text_becomes_a_control_token() {
    let texts = corpus();
    for text in &texts {
        any_text_is_text(text);
    }
    println!("{} texts", texts.len());
    assert!(texts.len() >= 2000);
}

#[test]
fn the_fuzz_corpus_replays() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus/tokenizer_json");
    let mut seen = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is part of the tree") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("readable");
        any_text_is_text(&String::from_utf8_lossy(&data));
        seen += 1;
    }
    assert!(seen >= 5, "{seen} files");
}

#[test]
fn what_byte_complete_vocabularies_encode_comes_back() {
    for Pair { name, codec, .. } in all().iter().filter(|pair| pair.name.starts_with("byte")) {
        for text in corpus() {
            // Added tokens swallow the spaces around them, or start a piece that gets a space.
            if directory::PLAIN.iter().any(|token| text.contains(token)) {
                continue;
            }
            let tokens = codec.encode(&text, true).expect("short");
            let expect = if *name == "byte_fallback" { text.replace('▁', " ") } else { text.clone() };
            assert_eq!(codec.decode(&tokens), expect, "{name}: {text:?}");
        }
    }
}

#[test]
fn a_stream_brings_the_same_text_as_decoding_at_once() {
    for Pair { name, codec, .. } in all() {
        for text in corpus() {
            let tokens = codec.encode(&text, false).expect("short");
            let bytes: Vec<u8> = tokens.iter().flat_map(|&token| codec.token_bytes(token)).copied().collect();
            let mut stream = TextStream::new(codec.clone(), Vec::new());
            let mut streamed: String = tokens.iter().map(|&token| stream.push(token).text).collect();
            streamed.push_str(&stream.finish());
            assert_eq!(streamed, String::from_utf8_lossy(&bytes), "{name}: {text:?}");
            let decoded = codec.decode(&tokens);
            assert!(streamed == decoded || streamed.strip_prefix(' ') == Some(&*decoded), "{name}: {text:?}");
        }
    }
}

#[test]
fn decoding_equals_the_crates() {
    let files = [byte_level(), byte_fallback(), unigram(), wordpiece()];
    for (file, Pair { name, codec, .. }) in files.iter().zip(all()) {
        let other = alone(file, true);
        let mut compared = 0;
        for text in corpus() {
            let tokens = codec.encode(&text, false).expect("short");
            let expect = other.decode(&ids(&tokens), true).expect("it decodes");
            let first = tokens.first().map_or("", |&token| codec.token_name(token));
            // The crate drops every space of a first token, calls a whole run of bytes broken when one is, reads added
            // tokens in GPT-2's alphabet, and writes the unknown token out.
            let apart = first.starts_with("▁▁")
                || text.contains('Ω')
                || text.contains("##")
                || tokens.contains(&Token(0));
            if !apart {
                assert_eq!(codec.decode(&tokens), expect, "{name}: {text:?}");
                compared += 1;
            }
        }
        println!("{name}: {compared} texts decoded alike");
        assert!(compared >= 500, "{name}: {compared}");
    }
}

#[test]
fn bos_eos_and_ends_are_those_of_the_files() {
    let check = |change: &dyn Fn(&mut Value), file: Value, bos: Option<u32>, whole: &[u32], ends: &[u32]| {
        let mut config = config();
        change(&mut config);
        let codec = open(&file, &config).expect("a known tokenizer");
        assert_eq!(codec.bos().filter(|_| codec.adds_bos()).map(|token| token.0), bos);
        let whole_ids = ids(&codec.encode_whole("").expect("short"));
        assert_eq!(whole_ids, whole);
        assert_eq!(codec.eog_tokens().map(|token| token.0).collect::<Vec<_>>(), ends);
    };
    check(&|_| {}, byte_level(), Some(1), &[1], &[2, 4]);
    check(&|_| {}, wordpiece(), Some(1), &[1, 2], &[2, 4]);
    check(&|config| config["add_bos_token"] = false.into(), byte_level(), None, &[], &[2, 4]);
    check(&|config| config["add_eos_token"] = true.into(), byte_level(), Some(1), &[1, 2], &[2, 4]);
    check(&|config| config["add_bos_token"] = true.into(), word_level(), Some(1), &[1], &[2, 4]);
    check(&|config| config["eos_token"] = "[INST]".into(), word_level(), None, &[], &[2, 4, 5]);
}

#[test]
fn generation_config_lists_more_ends() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    directory::write(directory.path(), &byte_level(), &config());
    std::fs::write(directory.path().join("generation_config.json"), r#"{"eos_token_id": [5, 7]}"#)
        .expect("writable");
    let artifact = sf_artifact::open(directory.path()).expect("a model directory");
    let codec = Codec::open(&artifact, CodecOptions::default()).expect("a known tokenizer");
    assert_eq!(codec.eog_tokens().map(|token| token.0).collect::<Vec<_>>(), [2, 4, 5, 7]);
}

#[test]
fn tokenizer_config_corrects_the_added_tokens() {
    let mut config = config();
    config["added_tokens_decoder"] = json!({"5": {"content": "[INST]", "special": false}});
    config["additional_special_tokens"] = json!(["<td>"]);
    let codec = open(&byte_level(), &config).expect("a known tokenizer");
    let names = |text: &str| -> Vec<String> {
        let tokens = codec.encode(text, false).expect("short");
        tokens.iter().map(|&token| codec.token_name(token).to_owned()).collect()
    };
    assert_eq!(names("[INST]<td>"), ["[INST]", "<", "t", "d", ">"]);
    config["added_tokens_decoder"] = json!({"5": {"content": "<s>", "special": false}});
    let error = open(&byte_level(), &config).expect_err("another token");
    assert!(error.to_string().contains("token 5 is another one"), "{error}");
}

#[test]
fn a_chat_template_is_found_in_either_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    directory::write(directory.path(), &byte_level(), &config());
    let open = || {
        let artifact = sf_artifact::open(directory.path()).expect("a model directory");
        Codec::open(&artifact, CodecOptions::default()).expect("a known tokenizer")
    };
    let text = |codec: &Codec| {
        let message = sf_core::Message::new(sf_core::Role::User, "hi");
        codec.render_text(&vec![message].into()).expect("it renders")
    };
    assert_eq!(text(&open()), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    std::fs::write(directory.path().join("chat_template.jinja"), "{{ messages[0].content }}!")
        .expect("writable");
    assert_eq!(text(&open()), "hi!");
}

#[test]
fn what_cannot_be_read_exactly_is_refused_with_the_place() {
    let check = |change: &dyn Fn(&mut Value), mut file: Value, expect: &str| {
        change(&mut file);
        let error = open(&file, &config()).expect_err(expect);
        assert_eq!(error.code(), "codec.tokenizer_part", "{error}");
        assert!(error.to_string().contains(expect), "{error}, expected {expect:?}");
    };
    check(
        &|file| file["model"]["dropout"] = 0.1.into(),
        byte_level(),
        "model.dropout: tokens would be drawn by chance",
    );
    check(&|file| file["decoder"] = json!({"type": "CTC"}), byte_level(), "decoder: CTC is not supported");
    let fixed = json!({"type": "FixedLength", "length": 0});
    check(
        &|file| file["pre_tokenizer"] = fixed.clone(),
        byte_level(),
        "pre_tokenizer.length: words of no character",
    );
    check(
        &|file| file["model"]["merges"] = json!([["aaaaaaaaaaaaa", "b"]]),
        byte_level(),
        "a pair of 14 bytes",
    );
    check(
        &|file| file["model"]["continuing_subword_prefix"] = "##".into(),
        byte_level(),
        "not supported with BPE",
    );
    check(&|file| file["normalizer"]["precompiled_charsmap"] = Value::Null, unigram(), "it is no string");
    check(&|file| file["model"]["unk_id"] = Value::Null, unigram(), "model.unk_id: there is no token");
    check(
        &|file| file["model"]["unk_token"] = "nowhere".into(),
        wordpiece(),
        "model.unk_token: \"nowhere\" is not in",
    );
    check(
        &|file| file["model"]["vocab"]["far"] = 900_000_000.into(),
        word_level(),
        "a token has number 900000000",
    );
    check(&|file| file["model"]["vocab"]["same"] = 8.into(), word_level(), "have number 8");
    check(&|file| file["model"] = json!({}), word_level(), "tokenizer.json: missing field `type`");
    check(&|file| file["model"]["merges"] = json!(["q nothere"]), byte_level(), "tokenizer.json: ");
    let broken = charsmap::base64(&[8, 0, 0, 0, 1, 2]);
    check(
        &|file| file["normalizer"]["precompiled_charsmap"] = broken.clone().into(),
        unigram(),
        "an array of 8 bytes",
    );
    let two = json!([{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}]);
    check(&|file| file["post_processor"]["single"] = two.clone(), byte_level(), "2 tokens on one side");
    let directory = tempfile::tempdir().expect("a temporary directory");
    directory::write(directory.path(), &byte_level(), &config());
    std::fs::write(directory.path().join("tokenizer_config.json"), "{").expect("writable");
    let artifact = sf_artifact::open(directory.path()).expect("a model directory");
    let error = Codec::open(&artifact, CodecOptions::default()).expect_err("broken");
    assert!(error.to_string().contains("tokenizer_config.json: EOF"), "{error}");
    std::fs::remove_file(directory.path().join("tokenizer.json")).expect("it was there");
    let error = Codec::open(&artifact, CodecOptions::default()).expect_err("no tokenizer");
    assert_eq!(error.code(), "codec.no_tokenizer");
}

#[test]
fn every_normalizer_and_pre_tokenizer_gives_the_crates_tokens() {
    let split = |pattern: Value, behavior: &str, invert: bool| json!({"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert});
    let llama3 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    let parts = [
        ("normalizer", json!({"type": "Strip", "strip_left": true, "strip_right": true})),
        ("normalizer", json!({"type": "StripAccents"})),
        ("normalizer", json!({"type": "NFC"})),
        ("normalizer", json!({"type": "NFD"})),
        ("normalizer", json!({"type": "NFKC"})),
        ("normalizer", json!({"type": "NFKD"})),
        ("normalizer", json!({"type": "Lowercase"})),
        ("normalizer", json!({"type": "Nmt"})),
        ("normalizer", json!({"type": "Replace", "pattern": {"Regex": "\\s{2,}"}, "content": " "})),
        ("pre_tokenizer", json!({"type": "Whitespace"})),
        ("pre_tokenizer", json!({"type": "CharDelimiterSplit", "delimiter": "-"})),
        ("pre_tokenizer", json!({"type": "Punctuation", "behavior": "MergedWithPrevious"})),
        ("pre_tokenizer", json!({"type": "Digits", "individual_digits": true})),
        ("pre_tokenizer", json!({"type": "UnicodeScripts"})),
        ("pre_tokenizer", json!({"type": "FixedLength", "length": 3})),
        (
            "pre_tokenizer",
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
        ),
        ("pre_tokenizer", split(json!({"Regex": llama3}), "Isolated", false)),
        ("pre_tokenizer", split(json!({"String": " "}), "MergedWithNext", false)),
        ("pre_tokenizer", split(json!({"Regex": "\\w+"}), "Removed", true)),
    ];
    let texts = corpus();
    for (place, part) in &parts {
        let mut file = byte_fallback();
        file["normalizer"] = Value::Null;
        file[place] = part.clone();
        let codec = open(&file, &config()).expect("a known part");
        let marked = alone(&file, false);
        for text in texts.iter().step_by(4) {
            let expect = marked.encode(&**text, false).expect("it tokenizes");
            let tokens = codec.encode_trusted(text).expect("short");
            assert_eq!(ids(&tokens), expect.get_ids(), "{part}: {text:?}");
        }
    }
    println!("{} parts, {} texts each", parts.len(), texts.len() / 4);
}

/// Every place in a file but the vocabulary's, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) if map.len() < 40 => {
            map.iter().for_each(|(key, value)| {
                places(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            });
        }
        Value::Array(list) => {
            list.iter()
                .take(3)
                .enumerate()
                .for_each(|(index, value)| places(value, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

#[test]
fn a_damaged_file_is_used_or_refused_and_never_brings_the_server_down() {
    let others = [
        json!(null),
        json!(true),
        json!(-1),
        json!(4_000_000_000_u32),
        json!(""),
        json!("▁"),
        json!([]),
        json!({}),
    ];
    let (mut used, mut refused) = (0, 0);
    for file in [byte_level(), byte_fallback(), unigram(), wordpiece(), word_level()] {
        let mut all = Vec::new();
        places(&file, "", &mut all);
        for (place, other) in all.iter().flat_map(|place| others.iter().map(move |other| (place, other))) {
            let mut damaged = file.clone();
            *damaged.pointer_mut(place).expect("it was found there") = other.clone();
            let Ok(codec) = open(&damaged, &config()) else {
                refused += 1;
                continue;
            };
            for text in ["", "the <tool>  x</s>", "é世\n\u{301}ﬁ"] {
                let tokens = codec.encode(text, true).and_then(|_| codec.encode_trusted(text));
                codec.decode(&tokens.unwrap_or_default());
            }
            used += 1;
        }
    }
    println!("{used} damaged files used, {refused} refused");
    assert!(used >= 100 && refused >= 1000, "{used} {refused}");
}

proptest! {
    #[test]
    fn any_text_is_no_control_token(text in any::<String>()) {
        any_text_is_text(&text);
    }

    #[test]
    fn pieces_of_markers_are_no_control_tokens(
        parts in prop::collection::vec("<s>|</|s>|<|>|\\|>|<\\||im_|start|end|\\[INST|\\]|<mask>|unk| |\n|▁|x\\||<td>|<tool>|Ω", 0..24),
    ) {
        any_text_is_text(&parts.concat());
    }
}

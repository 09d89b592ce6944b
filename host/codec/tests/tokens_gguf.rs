//! WordPiece, unigram and plain-text BPE rebuilt from GGUF equal an independent implementation with the same vocabulary on
//! more than two thousand texts.

#[path = "../../artifact/tests/support/mod.rs"]
mod support;

mod charsmap;
mod corpus;

use std::str::FromStr;

use corpus::corpus;
use serde_json::{Value, json};
use sf_artifact::Gguf;
use sf_codec::{Codec, CodecOptions};
use sf_core::Token;
use support::{Bytes, U8};
use tokenizers::Tokenizer;

fn codec(bytes: &Bytes) -> Codec {
    let gguf = Gguf::parse(&bytes.0, bytes.0.len() as u64).expect("well-formed");
    Codec::from_gguf(&gguf, CodecOptions::default()).expect("a known tokenizer")
}

fn independent(description: &Value) -> Tokenizer {
    let mut tokenizer = Tokenizer::from_str(&description.to_string()).expect("a valid description");
    tokenizer.set_encode_special_tokens(true);
    tokenizer
}

fn ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

/// Compares all texts that `comparable` takes; the count of them.
fn compare(codec: &Codec, other: &Tokenizer, comparable: impl Fn(&str) -> bool) -> usize {
    let mut count = 0;
    for text in corpus().iter().filter(|text| comparable(text)) {
        let found = ids(&codec.encode(text, false).expect("short"));
        let expect = other.encode(&**text, false).expect("it tokenizes");
        assert_eq!(found, expect.get_ids(), "{text:?}: {:?}", expect.get_tokens());
        count += 1;
    }
    count
}

/// `[PAD]` and the like, then pieces that only BERT's own vocabulary marks.
fn bert_vocabulary() -> Vec<String> {
    let mut tokens: Vec<String> = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(str::to_owned).to_vec();
    let letters =
        ('!'..='~').chain("абвгдеёжзийклмнопрстуфхцчшщъыьэюяαβγδεζηθικλμνξοπρςστυφχψωéàüßı".chars());
    let more = "世界中文測試引號豈，。「」！“”’‘«»–—…नमसतदकखगजटपबभयरलवषहािीुेैोौंক বাংলভষী".chars();
    let jamo = ('\u{1100}'..='\u{1112}').chain('\u{1161}'..='\u{1175}').chain('\u{11a8}'..='\u{11c2}');
    for letter in letters.chain(more).chain(jamo).filter(|letter| !letter.is_whitespace()) {
        tokens.extend([letter.to_string(), format!("##{letter}")]);
    }
    let words = [
        "hello", "world", "the", "quick", "brown", "##ing", "##s", "##er", "cafe", "##fe", "12", "##34",
        "при", "##вет",
    ];
    tokens.extend(words.map(str::to_owned));
    let mut seen = std::collections::HashSet::new();
    tokens.retain(|token| seen.insert(token.clone()));
    tokens
}

fn bert(lowercase: bool, strip_accents: bool) -> (Codec, Tokenizer) {
    let tokens = bert_vocabulary();
    let converted = tokens.iter().enumerate().map(|(id, token)| match token.strip_prefix("##") {
        _ if id < 5 => token.clone(),
        // A letter of its own: "##" alone is a word.
        Some(rest) if !rest.is_empty() => rest.to_owned(),
        _ => format!("▁{token}"),
    });
    let texts: Vec<String> = converted.collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let kinds: Vec<i32> = (0..texts.len()).map(|id| if id < 5 { 3 } else { 1 }).collect();
    let bytes = Bytes::head(0, 9)
        .pair_text("tokenizer.ggml.model", "bert")
        .pair_texts("tokenizer.ggml.tokens", &texts)
        .pair_i32s("tokenizer.ggml.token_type", &kinds)
        .pair_u32("tokenizer.ggml.bos_token_id", 2)
        .pair_u32("tokenizer.ggml.seperator_token_id", 3)
        .pair_u32("tokenizer.ggml.unknown_token_id", 1)
        .pair_u32("tokenizer.ggml.padding_token_id", 0)
        .pair_bool("tokenizer.ggml.normalizer.lowercase", lowercase)
        .pair_bool("tokenizer.ggml.normalizer.strip_accents", strip_accents);
    let vocab: serde_json::Map<String, Value> =
        tokens.iter().enumerate().map(|(id, token)| (token.clone(), id.into())).collect();
    let special = |id: usize| {
        json!({"id": id, "content": tokens[id], "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false})
    };
    let description = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": (0..5).map(special).collect::<Vec<_>>(),
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": strip_accents, "lowercase": lowercase},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": null, "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab},
    });
    (codec(&bytes), independent(&description))
}

#[test]
fn wordpiece_equals_the_reference() {
    for (lowercase, strip_accents) in [(true, true), (false, false), (true, false)] {
        let (codec, other) = bert(lowercase, strip_accents);
        let count = compare(&codec, &other, |_| true);
        println!("{count} texts compared");
        assert!(count >= 2000, "{count}");
    }
}

#[test]
fn wordpiece_cuts_as_bert_does() {
    let (codec, _) = bert(true, true);
    let check = |text: &str, expect: &[&str]| {
        let tokens = codec.encode(text, false).expect("short");
        let names: Vec<&str> = tokens.iter().map(|&token| codec.token_name(token)).collect();
        assert_eq!(names, expect, "{text:?}");
    };
    check("Hello CAFÉ!", &["▁hello", "▁cafe", "▁!"]);
    check("quicker\tworlds", &["▁quick", "er", "▁world", "s"]);
    check("中文12", &["▁中", "▁文", "▁12"]);
    check("ok☃ [CLS]", &["[UNK]", "▁[", "▁c", "l", "s", "▁]"]);
    check("가", &["▁ᄀ", "ᅡ"]);
    check("\0\u{200b} \u{fffd}", &[]);
    check(&"a".repeat(101), &["[UNK]"]);
    let whole = codec.encode_whole("hello").expect("short");
    let names: Vec<&str> = whole.iter().map(|&token| codec.token_name(token)).collect();
    assert_eq!(names, ["[CLS]", "▁hello", "[SEP]"]);
    assert_eq!(codec.decode(&whole), "hello");
    assert_eq!(codec.decode(&codec.encode("the quicker world", true).expect("short")), "the quicker world");
}

fn unigram_pieces() -> Vec<(String, f32)> {
    let mut pieces = vec![("▁".to_owned(), -2.0)];
    let letters =
        ('!'..='~').chain("абвгдежзиклмнопрстуüßéäöñçαβγδεισωאבגдеمرحب你好世界日本語한국어안녕".chars());
    let mut seen = std::collections::HashSet::new();
    for (index, letter) in letters.filter(|&letter| seen.insert(letter)).enumerate() {
        pieces.push((letter.to_string(), -6.0 - (index % 37) as f32 / 8.0));
    }
    let words = [
        "▁the", "the", "▁th", "he", "ing", "▁a", "an", "▁and", "▁Hello", "llo", "▁wor", "ld", "▁12", "12",
        "34", "▁x", "re", "▁П", "ри", "вет", "世界", "fi", "▁fi", "ne", "你好", "!!", "..", "==", "  ",
    ];
    for (index, word) in words.iter().enumerate() {
        pieces.push(((*word).to_owned(), -3.0 - index as f32 / 16.0));
    }
    pieces
}

struct Unigram {
    bytes: bool,
    charsmap: bool,
}

impl Unigram {
    fn vocabulary(&self) -> Vec<(String, f32, i32)> {
        let specials = [("<pad>", 3), ("</s>", 3), ("<unk>", 2)];
        let mut vocabulary: Vec<(String, f32, i32)> =
            specials.iter().map(|&(text, kind)| (text.to_owned(), 0.0, kind)).collect();
        if self.bytes {
            vocabulary.extend((0..=255).map(|byte: u8| (format!("<0x{byte:02X}>"), 0.0, 6)));
        }
        vocabulary.extend(unigram_pieces().into_iter().map(|(text, score)| (text, score, 1)));
        vocabulary
    }

    fn codec(&self) -> Codec {
        let vocabulary = self.vocabulary();
        let texts: Vec<&str> = vocabulary.iter().map(|(text, ..)| &**text).collect();
        let scores: Vec<f32> = vocabulary.iter().map(|&(_, score, _)| score).collect();
        let kinds: Vec<i32> = vocabulary.iter().map(|&(.., kind)| kind).collect();
        let map = charsmap::build();
        let bytes = Bytes::head(0, 6 + u64::from(self.charsmap))
            .pair_text("tokenizer.ggml.model", "t5")
            .pair_texts("tokenizer.ggml.tokens", &texts)
            .pair_f32s("tokenizer.ggml.scores", &scores)
            .pair_i32s("tokenizer.ggml.token_type", &kinds)
            .pair_bool("tokenizer.ggml.add_space_prefix", true)
            .pair_bool("tokenizer.ggml.remove_extra_whitespaces", self.charsmap);
        if self.charsmap {
            return codec(
                &bytes.array("tokenizer.ggml.precompiled_charsmap", U8, map.len() as u64).raw(&map),
            );
        }
        codec(&bytes)
    }

    fn independent(&self) -> Tokenizer {
        let vocabulary = self.vocabulary();
        let vocab: Vec<Value> = vocabulary.iter().map(|(text, score, _)| json!([text, score])).collect();
        let normalizer = match self.charsmap {
            true => {
                json!({"type": "Precompiled", "precompiled_charsmap": charsmap::base64(&charsmap::build())})
            }
            false => json!({"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ]}),
        };
        let pre_tokenizer = match self.charsmap {
            true => json!({"type": "Sequence", "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
            ]}),
            false => Value::Null,
        };
        independent(&json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": null,
            "model": {"type": "Unigram", "unk_id": 2, "vocab": vocab, "byte_fallback": self.bytes},
        }))
    }
}

/// The reference takes control and byte tokens that are written out for the tokens; here they are text.
fn has_no_token_name(text: &str) -> bool {
    !["<pad>", "</s>", "<unk>", "<0x"].iter().any(|name| text.contains(name))
}

#[test]
fn unigram_equals_the_reference() {
    let plain = |text: &str| has_no_token_name(text) && !text.chars().all(|character| character == ' ');
    for bytes in [false, true] {
        let unigram = Unigram { bytes, charsmap: false };
        let count = compare(&unigram.codec(), &unigram.independent(), plain);
        println!("{count} texts compared");
        assert!(count >= 2000, "{count}");
    }
}

#[test]
fn unigram_with_a_charsmap_equals_the_reference() {
    // A space that carries a mark is one character to the reference, two to SentencePiece; a word that starts with U+2581
    // gets no space from the reference.
    let comparable =
        |text: &str| has_no_token_name(text) && charsmap::is_comparable(text) && !text.contains('▁');
    for bytes in [false, true] {
        let unigram = Unigram { bytes, charsmap: true };
        let count = compare(&unigram.codec(), &unigram.independent(), comparable);
        println!("{count} texts compared");
        assert!(count >= 2000, "{count}");
    }
}

#[test]
fn unigram_takes_the_likeliest_tokens_and_closes_a_text() {
    let unigram = Unigram { bytes: false, charsmap: true };
    let codec = unigram.codec();
    let check = |text: &str, expect: &[&str]| {
        let tokens = codec.encode(text, false).expect("short");
        let names: Vec<&str> = tokens.iter().map(|&token| codec.token_name(token)).collect();
        assert_eq!(names, expect, "{text:?}");
    };
    check("  the \u{3000} ﬁne ", &["▁the", "▁fi", "ne"]);
    check("𝔘𝔫 a", &["▁", "<unk>", "▁a"]);
    check("</s>", &["▁", "<", "/", "s", ">"]);
    check(" \n ", &[]);
    let whole = codec.encode_whole("the").expect("short");
    assert_eq!(codec.token_name(*whole.last().expect("not empty")), "</s>");
    assert_eq!(codec.decode(&whole), "the");
}

#[test]
fn unigram_with_bytes_brings_every_text_back() {
    let codec = Unigram { bytes: true, charsmap: false }.codec();
    let mut count = 0;
    for text in corpus() {
        let tokens = codec.encode(&text, false).expect("short");
        // It writes a space as U+2581 and cannot tell the two apart; spaces alone get none put first.
        if text.chars().all(|character| character == ' ') {
            continue;
        }
        assert_eq!(codec.decode(&tokens), text.replace('▁', " "), "{text:?}");
        count += 1;
    }
    println!("{count} texts came back");
    assert!(count >= 2000);
}

/// BPE over characters, as Gemma 4 has it.
fn plain_bpe() -> (Codec, Tokenizer) {
    let mut texts: Vec<String> = ["<pad>", "<eos>", "<bos>", "<unk>"].map(str::to_owned).to_vec();
    texts.extend((0..=255).map(|byte: u8| format!("<0x{byte:02X}>")));
    let bytes_end = texts.len();
    texts.extend(('!'..='~').map(String::from));
    texts.extend("▁\n\tабвгдежзиклмнопрстуПüßé你好世界한국어".chars().map(String::from));
    texts.extend(["\n\n", "\n\n\n"].map(str::to_owned));
    let merges = [
        "t h",
        "th e",
        "▁ the",
        "▁ a",
        "i n",
        "in g",
        "▁ ▁",
        "▁▁ ▁▁",
        "1 2",
        "世 界",
        "П р",
        "< /",
        "e l",
        "el l",
        "ell o",
    ];
    texts.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let kinds: Vec<i32> = (0..texts.len())
        .map(|id| match id {
            3 => 2,
            0..4 => 3,
            _ if id < bytes_end => 6,
            _ => 1,
        })
        .collect();
    let names: Vec<&str> = texts.iter().map(String::as_str).collect();
    let bytes = Bytes::head(0, 6)
        .pair_text("tokenizer.ggml.model", "gemma4")
        .pair_texts("tokenizer.ggml.tokens", &names)
        .pair_i32s("tokenizer.ggml.token_type", &kinds)
        .pair_texts("tokenizer.ggml.merges", &merges)
        .pair_u32("tokenizer.ggml.bos_token_id", 2)
        .pair_u32("tokenizer.ggml.eos_token_id", 1);
    let vocab: serde_json::Map<String, Value> =
        texts.iter().enumerate().map(|(id, text)| (text.clone(), id.into())).collect();
    let description = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[^\n]+|\n+"}, "behavior": "Isolated", "invert": false},
        "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": merges},
    });
    (codec(&bytes), independent(&description))
}

#[test]
fn plain_bpe_equals_the_reference_and_brings_every_text_back() {
    let (codec, other) = plain_bpe();
    // A run of line breaks that is a token is that token, which merges alone do not reach.
    let comparable = |text: &str| !text.contains("\n\n");
    let count = compare(&codec, &other, comparable);
    println!("{count} texts compared");
    assert!(count >= 2000, "{count}");
    for text in corpus() {
        let tokens = codec.encode(&text, false).expect("short");
        assert_eq!(codec.decode(&tokens), text.replace('▁', " "), "{text:?}");
        let controls = tokens.iter().filter(|&&token| codec.token_bytes(token).is_empty());
        assert_eq!(controls.count(), 0, "{text:?}");
    }
    let names = |text: &str| -> Vec<String> {
        let tokens = codec.encode(text, true).expect("short");
        tokens.iter().map(|&token| codec.token_name(token).to_owned()).collect()
    };
    assert_eq!(names("the\n\n\n a"), ["<bos>", "the", "\n\n\n", "▁a"]);
}

//! Text becomes tokens and text again, whole or in pieces, whatever it is.

#[path = "../../artifact/tests/support/mod.rs"]
mod support;
mod tiny;

use std::sync::Arc;

use proptest::prelude::*;
use sf_codec::{Codec, CodecError, CodecOptions, Piece, TEXT_BYTES_MAX, TextStream};
use sf_core::Token;
use support::Bytes;
use tiny::{any_text_round_trips, any_tokens_stream, bpe, detokenize_input, spm, template_input};

fn names(codec: &Codec, tokens: &[Token]) -> Vec<String> {
    tokens.iter().map(|&token| codec.token_name(token).to_owned()).collect()
}

#[test]
fn bpe_merges_by_rank_and_takes_user_defined_tokens_from_text() {
    let check = |text: &str, expect: &[&str]| {
        assert_eq!(names(&bpe(), &bpe().encode(text, true).expect("short")), expect, "{text:?}");
    };
    check("the thing", &["the", "Ġ", "th", "ing"]);
    check(" a<td>", &["Ġa", "<td>"]);
    check("\n\n\n\n\nx", &["\n\n\n", "\n\n", "x"]);
    check("<|im_end|>", &["<|", "im", "_", "e", "n", "d", "|>"]);
    let marker_like = "<s></s><unk>[INST]";
    check(marker_like, &marker_like.split_inclusive(|_| true).collect::<Vec<_>>());
    check("", &[]);
}

#[test]
fn spm_merges_by_score_puts_a_space_first_and_falls_back_to_bytes() {
    let check = |text: &str, expect: &[&str]| {
        assert_eq!(names(&spm(), &spm().encode(text, true).expect("short")), expect, "{text:?}");
    };
    check("the the", &["<s>", "▁the", "▁the"]);
    check("a  a", &["<s>", "▁a", "▁▁", "a"]);
    check("é日", &["<s>", "▁", "é", "<0xE6>", "<0x97>", "<0xA5>"]);
    check("<td>the", &["<s>", "<td>", "▁the"]);
    check("<0x41>", &["<s>", "▁", "<", "0", "x", "4", "1", ">"]);
    check("<s>", &["<s>", "▁", "<s", ">"]);
    check("", &["<s>"]);
}

#[test]
fn bos_goes_first_only_where_asked_for_and_wanted() {
    assert_eq!(bpe().encode("x", true).expect("short").len(), 1, "gpt-2 wants none");
    assert_eq!(names(&spm(), &spm().encode("the", true).expect("short")), ["<s>", "▁the"]);
    assert_eq!(names(&spm(), &spm().encode("the", false).expect("short")), ["▁the"]);
}

#[test]
fn ids_outside_the_vocabulary_are_nothing() {
    let codec = bpe();
    let outside = Token(codec.vocab());
    assert_eq!(codec.token_bytes(outside), b"");
    assert_eq!(codec.token_name(Token(u32::MAX)), "");
    assert!(!codec.is_eog(outside));
    assert_eq!(codec.decode(&[outside, Token(u32::MAX)]), "");
}

#[test]
fn a_text_beyond_the_limit_is_refused() {
    let text = "a".repeat(TEXT_BYTES_MAX + 1);
    let limit = TEXT_BYTES_MAX;
    assert_eq!(bpe().encode(&text, false), Err(CodecError::TooLong { bytes: limit + 1, limit }));
}

#[test]
fn a_tokenizer_that_cannot_be_used_is_refused_by_name() {
    let check = |bytes: Bytes, code: &str, piece: &str| {
        let gguf = sf_artifact::Gguf::parse(&bytes.0, bytes.0.len() as u64).expect("a well-formed header");
        let error = Codec::from_gguf(&gguf, CodecOptions::default()).expect_err(code);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(piece), "{error}");
        assert!(error.to_string().ends_with(&format!("({code})")), "{error}");
    };
    let model = |keys: u64, name| Bytes::head(0, keys).pair_text("tokenizer.ggml.model", name);
    let gpt2 = |keys: u64| model(keys + 1, "gpt2").pair_text("tokenizer.ggml.pre", "gpt-2");
    check(Bytes::head(0, 0), "codec.missing_key", "tokenizer.ggml.model");
    check(Bytes::head(0, 1).pair_u32("tokenizer.ggml.model", 1), "codec.key_type", "u32, expected string");
    check(model(1, "plamo2"), "codec.tokenizer_unsupported", "plamo2");
    check(model(1, "rwkv"), "codec.tokenizer_unsupported", "rwkv");
    check(
        model(2, "gpt2").pair_text("tokenizer.ggml.pre", "martian"),
        "codec.pre_tokenizer_unsupported",
        "martian",
    );
    check(gpt2(1), "codec.missing_key", "tokenizer.ggml.tokens");
    check(gpt2(2).pair_i32s("tokenizer.ggml.tokens", &[1]), "codec.key_type", "an array of strings");
    let tokens = |keys: u64| gpt2(keys + 1).pair_texts("tokenizer.ggml.tokens", &["a", "b", "a"]);
    check(tokens(1), "codec.missing_key", "tokenizer.ggml.merges");
    check(tokens(2).pair_i32s("tokenizer.ggml.token_type", &[1]), "codec.vocabulary", "has 1 entries");
    check(tokens(2).pair_texts("tokenizer.ggml.merges", &[]), "codec.duplicate_token", "tokens 0 and 2");
    let spm = model(3, "llama").pair_texts("tokenizer.ggml.tokens", &["a", "b"]);
    check(spm.pair_f32s("tokenizer.ggml.scores", &[0.0]), "codec.vocabulary", "the vocabulary has 2");
}

fn streamed(text: &str, stops: &[&str]) -> (Vec<Piece>, String) {
    let stops = stops.iter().map(|&stop| stop.to_owned()).collect();
    let mut stream = TextStream::new(bpe(), stops);
    // A token per byte: the finest cut there is.
    let pieces = text.bytes().map(|byte| stream.push(byte_token(byte))).collect();
    (pieces, stream.finish())
}

fn byte_token(byte: u8) -> Token {
    let found = (0..256).map(Token).find(|&token| bpe().token_bytes(token) == [byte]);
    found.expect("the tiny vocabulary has every byte")
}

fn texts(pieces: &[Piece]) -> Vec<&str> {
    pieces.iter().map(|piece| &*piece.text).collect()
}

#[test]
fn a_character_comes_whole_with_its_last_byte() {
    let (pieces, rest) = streamed("a€b", &[]);
    assert_eq!(texts(&pieces), ["a", "", "", "€", "b"]);
    assert_eq!(rest, "");
}

#[test]
fn text_that_may_become_a_stop_waits_and_the_stop_is_cut_off() {
    let (pieces, _) = streamed("ab<end>cd", &["<end>"]);
    assert_eq!(texts(&pieces), ["a", "b", "", "", "", "", "", "", ""]);
    let stopped: Vec<bool> = pieces.iter().map(|piece| piece.stopped).collect();
    assert_eq!(stopped, [false, false, false, false, false, false, true, true, true]);

    let (pieces, rest) = streamed("a<en<en", &["<end>"]);
    assert_eq!(texts(&pieces), ["a", "", "", "", "<en", "", ""]);
    assert_eq!(rest, "<en", "held back to the end, then handed out");
}

#[test]
fn of_two_stops_the_one_completed_first_counts() {
    let check = |text: &str, stops: &[&str], expect: &str| {
        let (pieces, rest) = streamed(text, stops);
        assert_eq!(texts(&pieces).concat() + &rest, expect, "{text:?} {stops:?}");
    };
    check("xabcd", &["abcd", "bc"], "xa");
    check("xabc", &["bc", "abc"], "x");
    check("aaab", &["aab"], "a");
    check("same", &["", "z"], "same");
    check("ab", &["ab"], "");
}

#[test]
fn control_tokens_bring_no_text() {
    let codec = bpe();
    let control = (0..codec.vocab()).map(Token).find(|&token| codec.token_name(token) == "<|im_end|>");
    let control = control.expect("in the vocabulary");
    assert!(codec.is_eog(control));
    let mut stream = TextStream::new(Arc::clone(&codec), Vec::new());
    assert_eq!(stream.push(control), Piece::default());
    assert_eq!(stream.push(byte_token(0xe2)), Piece::default());
    assert_eq!(stream.push(control), Piece::default(), "also not in the middle of a character");
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn the_fuzz_corpora_replay() {
    let check = |target: &str, run: &dyn Fn(&[u8])| {
        let corpus = format!("{}/../../tests/fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        let mut seen = 0;
        for entry in std::fs::read_dir(corpus).expect("the corpus is part of the tree") {
            run(&std::fs::read(entry.expect("an entry").path()).expect("readable"));
            seen += 1;
        }
        assert!(seen >= 5, "{target}: {seen} files");
    };
    check("tokenizer", &|data| any_text_round_trips(&String::from_utf8_lossy(data)));
    check("detokenize", &detokenize_input);
    check("chat_template", &template_input);
}

proptest! {
    #[test]
    fn any_text_comes_back(text in any::<String>()) {
        any_text_round_trips(&text);
    }

    #[test]
    fn text_of_marker_pieces_comes_back(parts in prop::collection::vec("<s>|</|s>|<\\||im_|end|\\|>|\\[INST|\\]|\n+|<td| |a|▁|ing", 0..20)) {
        any_text_round_trips(&parts.concat());
    }

    #[test]
    fn any_tokens_stream_to_the_whole_text_up_to_the_first_stop(
        ids in prop::collection::vec(0_u32..290, 0..40),
        stops in prop::collection::vec("[a-c]{0,3}|é|\u{fffd}|<td>", 0..4),
    ) {
        let tokens: Vec<Token> = ids.into_iter().map(Token).collect();
        any_tokens_stream(&bpe(), &tokens, &stops);
        any_tokens_stream(&spm(), &tokens, &stops);
    }

    #[test]
    fn a_text_streams_the_same_however_tokens_cut_it(
        text in "[abé日]{0,24}",
        stops in prop::collection::vec("[abé]{1,4}", 0..4),
        cuts in prop::collection::vec(any::<bool>(), 100),
    ) {
        // Runs of bytes, cut anywhere, from a vocabulary in which every run is a token.
        let mut runs: Vec<Vec<u8>> = vec![Vec::new()];
        for (byte, cut) in text.bytes().zip(&cuts) {
            if *cut {
                runs.push(Vec::new());
            }
            runs.last_mut().expect("never empty").push(byte);
        }
        let tokens: Vec<Token> = runs.iter().flatten().map(|&byte| byte_token(byte)).collect();
        any_tokens_stream(&bpe(), &tokens, &stops);
        let codec = vocabulary_of(&runs);
        let tokens: Vec<Token> = (0..runs.len() as u32).map(Token).collect();
        any_tokens_stream(&codec, &tokens, &stops);
    }
}

/// A vocabulary with one token per run, made unique by its place behind a character that is then cut off by kind.
fn vocabulary_of(runs: &[Vec<u8>]) -> Arc<Codec> {
    let alphabet = |byte: u8| bpe().token_name(byte_token(byte)).to_owned();
    let mut texts: Vec<String> = Vec::new();
    for run in runs {
        let mut text: String = run.iter().map(|&byte| alphabet(byte)).collect();
        // Two tokens must differ; the padding is a byte that the text does not have.
        while text.is_empty() || texts.contains(&text) {
            text.push('!');
        }
        texts.push(text);
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let bytes = Bytes::head(0, 4)
        .pair_text("tokenizer.ggml.model", "gpt2")
        .pair_text("tokenizer.ggml.pre", "gpt-2")
        .pair_texts("tokenizer.ggml.merges", &[])
        .pair_texts("tokenizer.ggml.tokens", &texts);
    let gguf = sf_artifact::Gguf::parse(&bytes.0, bytes.0.len() as u64).expect("well-formed");
    Arc::new(Codec::from_gguf(&gguf, CodecOptions::default()).expect("a known tokenizer"))
}

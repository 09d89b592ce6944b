//! What a token's kind decides in a GGUF vocabulary: what text can become it, and what it shows.

#[path = "../../artifact/tests/support/mod.rs"]
mod support;

use sf_artifact::Gguf;
use sf_codec::{Codec, CodecOptions};
use sf_core::Token;
use support::Bytes;

fn vocabulary(pre: &str, tokens: &[(&str, i32)]) -> Codec {
    let texts: Vec<&str> = tokens.iter().map(|&(text, _)| text).collect();
    let kinds: Vec<i32> = tokens.iter().map(|&(_, kind)| kind).collect();
    let bytes = Bytes::head(0, 5)
        .pair_text("tokenizer.ggml.model", "gpt2")
        .pair_text("tokenizer.ggml.pre", pre)
        .pair_texts("tokenizer.ggml.merges", &[])
        .pair_texts("tokenizer.ggml.tokens", &texts)
        .pair_i32s("tokenizer.ggml.token_type", &kinds);
    let gguf = Gguf::parse(&bytes.0, bytes.0.len() as u64).expect("well-formed");
    Codec::from_gguf(&gguf, CodecOptions::default()).expect("a known tokenizer")
}

#[test]
fn a_channel_is_shown_but_never_made_from_text() {
    let letters = ["<", "|", ">", "c", "h", "a", "n", "e", "l", "d"].map(|letter| (letter, 1));
    let harmony = [("<|channel|>", 3), ("<|end|>", 3), ("<|return|>", 3), ("<|call|>", 3)];
    let codec = vocabulary("gpt-4o", &[&letters[..], &harmony].concat());
    let (channel, end) = (Token(10), Token(11));
    assert_eq!(codec.encode_trusted("<|channel|>a<|end|>").expect("short"), [channel, Token(5), end]);
    assert_eq!(codec.encode("<|channel|>", false).expect("short").len(), 11);
    assert_eq!(codec.encode("<|end|>", false).expect("short").len(), 7);
    assert_eq!(codec.token_bytes(channel), b"<|channel|>");
    let ends: Vec<Token> = codec.eog_tokens().collect();
    assert_eq!(ends, [Token(11 + 1), Token(11 + 2)], "an <|end|> of gpt-oss ends a message, not the answer");
}

#[test]
fn a_mask_swallows_the_spaces_before_it_in_the_families_that_say_so() {
    let tokens = [("a", 1), ("\u{120}", 1), ("<mask>", 3), ("b", 1)];
    let names = |pre: &str| -> Vec<String> {
        let codec = vocabulary(pre, &tokens);
        let tokens = codec.encode_trusted("a  <mask> b").expect("short");
        tokens.iter().map(|&token| codec.token_name(token).to_owned()).collect()
    };
    assert_eq!(names("jina-v2-code"), ["a", "<mask>", "\u{120}", "b"]);
    assert_eq!(names("gpt-2"), ["a", "\u{120}", "\u{120}", "<mask>", "\u{120}", "b"]);
}

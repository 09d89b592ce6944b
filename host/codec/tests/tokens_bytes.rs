//! Tokens end inside characters and hold broken bytes: whatever the cut, the stream brings the text of the whole.

#[path = "../../artifact/tests/support/mod.rs"]
mod support;

mod corpus;
mod tiny;

use std::sync::Arc;

use corpus::{Random, corpus};
use sf_codec::{Codec, CodecOptions, TextStream};
use sf_core::Token;
use support::Bytes;
use tiny::{bpe, spm};

/// The token of a single byte.
fn byte_tokens(codec: &Codec) -> Vec<Token> {
    let token = |byte: u8| (0..codec.vocab()).map(Token).find(|&token| codec.token_bytes(token) == [byte]);
    (0..=255).map(|byte| token(byte).expect("every byte has a token")).collect()
}

fn streamed(codec: &Arc<Codec>, tokens: impl IntoIterator<Item = Token>) -> String {
    let mut stream = TextStream::new(Arc::clone(codec), Vec::new());
    let mut text: String = tokens.into_iter().map(|token| stream.push(token).text).collect();
    text.push_str(&stream.finish());
    text
}

/// A vocabulary whose tokens are these runs of bytes, by `<0x..>` for a lone one and GPT-2's alphabet for the rest.
fn runs(runs: &[&[u8]]) -> Arc<Codec> {
    let printable = |byte: u8| {
        let tokens = byte_tokens(&bpe());
        bpe().token_name(tokens[byte as usize]).to_owned()
    };
    let texts: Vec<String> =
        runs.iter().map(|run| run.iter().map(|&byte| printable(byte)).collect()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let bytes = Bytes::head(0, 4)
        .pair_text("tokenizer.ggml.model", "gpt2")
        .pair_text("tokenizer.ggml.pre", "gpt-2")
        .pair_texts("tokenizer.ggml.merges", &[])
        .pair_texts("tokenizer.ggml.tokens", &texts);
    let gguf = sf_artifact::Gguf::parse(&bytes.0, bytes.0.len() as u64).expect("well-formed");
    Arc::new(Codec::from_gguf(&gguf, CodecOptions::default()).expect("a known tokenizer"))
}

#[test]
fn broken_bytes_become_one_mark_per_maximal_part() {
    // From the examples of the Unicode standard, chapter 3.9, and its neighbours.
    let check = |bytes: &[u8], expect: &str| {
        for codec in [bpe(), spm()] {
            let tokens = byte_tokens(&codec);
            let tokens: Vec<Token> = bytes.iter().map(|&byte| tokens[byte as usize]).collect();
            assert_eq!(streamed(&codec, tokens.iter().copied()), expect, "{bytes:x?}");
            assert_eq!(codec.decode(&tokens), expect, "{bytes:x?}");
        }
    };
    check(
        b"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82A",
        "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}A",
    );
    check(
        b"\xed\xa0\x80\xed\xbf\xbf\xed\xafA",
        "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}A",
    );
    check(b"\xf4\x91\x92\x93\xffA\x80\xbfB", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}A\u{fffd}\u{fffd}B");
    check(b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbfA", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}A");
    check(
        b"\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64",
        "a\u{fffd}\u{fffd}\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}d",
    );
    check(b"\xf0\x9f\x98", "\u{fffd}");
    check(b"\xf0\x9f\x98\xf0\x9f\x98\x80", "\u{fffd}\u{1f600}");
    check(b"\xe2\x82", "\u{fffd}");
    check("€\u{10ffff}\u{7ff}".as_bytes(), "€\u{10ffff}\u{7ff}");
}

#[test]
fn a_stream_is_the_same_however_two_tokens_share_the_bytes() {
    let mut random = Random(11);
    let mut texts: Vec<Vec<u8>> =
        ["a€b", "é日本", "😀x", "👨‍👩‍👧", "ab"].map(|text| text.as_bytes().to_vec()).to_vec();
    texts.extend((0..80).map(|_| {
        (0..1 + random.below(9))
            .map(|_| [0x61, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xc3, 0xff][random.below(10)])
            .collect()
    }));
    let mut count = 0;
    for bytes in &texts {
        for at in 1..bytes.len() {
            let (left, right) = bytes.split_at(at);
            if left == right {
                continue;
            }
            let codec = runs(&[left, right]);
            assert_eq!(
                streamed(&codec, [Token(0), Token(1)]),
                String::from_utf8_lossy(bytes),
                "{left:x?} {right:x?}"
            );
            count += 1;
        }
    }
    println!("{count} splits");
    assert!(count >= 200, "{count}");
}

#[test]
fn every_text_streams_byte_by_byte() {
    let texts = corpus();
    for codec in [bpe(), spm()] {
        let bytes = byte_tokens(&codec);
        for text in &texts {
            let tokens = text.bytes().map(|byte| bytes[byte as usize]);
            assert_eq!(streamed(&codec, tokens), *text);
        }
    }
    let mut random = Random(3);
    for _ in 0..2000 {
        let broken: Vec<u8> = (0..random.below(40)).map(|_| random.below(256) as u8).collect();
        let codec = bpe();
        let bytes = byte_tokens(&codec);
        let tokens = broken.iter().map(|&byte| bytes[byte as usize]);
        assert_eq!(streamed(&codec, tokens), String::from_utf8_lossy(&broken), "{broken:x?}");
    }
    println!("{} texts and 2000 runs of random bytes", texts.len());
}

#[test]
fn what_gguf_vocabularies_encode_comes_back() {
    let texts = corpus();
    for text in &texts {
        tiny::any_text_round_trips(text);
    }
    println!("{} texts came back", texts.len());
    assert!(texts.len() >= 2000);
}

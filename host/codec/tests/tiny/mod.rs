//! Two tiny vocabularies that carry every byte, and the properties that hold for any input; the fuzz targets use both too.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::{Arc, OnceLock};

use sf_artifact::Gguf;
use sf_codec::{Codec, CodecError, CodecOptions, TextStream};
use sf_core::{Chat, Content, Message, Part, Role, Token};

use crate::support::Bytes;

/// Control tokens of both vocabularies; they share starts on purpose.
pub(crate) const CONTROLS: [&str; 7] =
    ["<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "[INST]", "<|x|><|y|>"];
/// User-defined tokens of both.
pub(crate) const MARKERS: [&str; 4] = ["<td>", "\n\n", "\n\n\n", "</td>"];

const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}\
     {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// GPT-2's printable stand-in for a byte.
pub(crate) fn printable(byte: u8) -> char {
    let stands = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if stands(byte) {
        return byte.into();
    }
    let nth = (0..byte).filter(|&byte| !stands(byte)).count() as u32;
    char::from_u32(0x100 + nth).expect("a letter")
}

fn finish(head: Bytes, mut texts: Vec<String>, mut kinds: Vec<i32>, more: &[String], scores: bool) -> Gguf {
    let first_control = texts.len();
    texts.extend(CONTROLS.map(str::to_owned));
    texts.extend(more.iter().filter(|text| !CONTROLS.contains(&text.as_str())).cloned());
    kinds.resize(texts.len(), 3);
    kinds[first_control + 2] = 2;
    texts.extend(MARKERS.map(str::to_owned));
    kinds.extend([4; MARKERS.len()]);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut bytes = head
        .pair_texts("tokenizer.ggml.tokens", &texts)
        .pair_i32s("tokenizer.ggml.token_type", &kinds)
        .pair_u32("tokenizer.ggml.bos_token_id", first_control as u32)
        .pair_u32("tokenizer.ggml.eos_token_id", first_control as u32 + 1)
        .pair_u32("tokenizer.ggml.unknown_token_id", first_control as u32 + 2)
        .pair_text("tokenizer.chat_template", CHATML);
    if scores {
        // Longer is better.
        let scores: Vec<f32> = texts.iter().map(|text| text.len() as f32).collect();
        bytes = bytes.pair_f32s("tokenizer.ggml.scores", &scores);
    }
    Gguf::parse(&bytes.0, bytes.0.len() as u64).expect("well-formed")
}

/// Every byte, a few merges, `gpt-2`.
pub(crate) fn bpe_header() -> Gguf {
    bpe_header_with(&[])
}

/// The same with more control tokens.
pub(crate) fn bpe_header_with(more: &[String]) -> Gguf {
    let mut texts: Vec<String> = (0..=255).map(|byte| printable(byte).to_string()).collect();
    let merges = ["t h", "th e", "h e", "Ġ a", "i n", "in g", "< |", "| >", "i m", "x y"];
    texts.extend(merges.map(|merge| merge.replace(' ', "")));
    let kinds = vec![1; texts.len()];
    let head = Bytes::head(0, 9)
        .pair_text("tokenizer.ggml.model", "gpt2")
        .pair_text("tokenizer.ggml.pre", "gpt-2")
        .pair_texts("tokenizer.ggml.merges", &merges);
    finish(head, texts, kinds, more, false)
}

/// Every byte as `<0x..>`, ASCII letters, a few pieces; a space goes first.
pub(crate) fn spm_header() -> Gguf {
    let mut texts: Vec<String> = (0..=255).map(|byte: u8| format!("<0x{byte:02X}>")).collect();
    let mut kinds = vec![6; texts.len()];
    texts.extend((' '..='~').filter(|&c| c != ' ').map(String::from));
    texts.extend(
        ["▁", "▁▁", "▁a", "th", "the", "▁the", "ing", "in", "é", "<s", "s>", "ö▁"].map(str::to_owned),
    );
    kinds.resize(texts.len(), 1);
    let head = Bytes::head(0, 9)
        .pair_text("tokenizer.ggml.model", "llama")
        .pair_bool("tokenizer.ggml.add_bos_token", true);
    finish(head, texts, kinds, &[], true)
}

pub(crate) fn bpe() -> Arc<Codec> {
    static CODEC: OnceLock<Arc<Codec>> = OnceLock::new();
    let build =
        || Arc::new(Codec::from_gguf(&bpe_header(), CodecOptions::default()).expect("a known tokenizer"));
    Arc::clone(CODEC.get_or_init(build))
}

pub(crate) fn spm() -> Arc<Codec> {
    static CODEC: OnceLock<Arc<Codec>> = OnceLock::new();
    let build =
        || Arc::new(Codec::from_gguf(&spm_header(), CodecOptions::default()).expect("a known tokenizer"));
    Arc::clone(CODEC.get_or_init(build))
}

pub(crate) fn message(role: Role, content: &str) -> Message {
    Message::new(role, content)
}

/// Messages and nothing besides.
pub(crate) fn chat(messages: &[Message]) -> Chat {
    messages.to_vec().into()
}

/// How many tokens steer the model instead of being text.
pub(crate) fn control_count(codec: &Codec, tokens: &[Token]) -> usize {
    tokens.iter().filter(|&&token| codec.token_bytes(token).is_empty()).count()
}

/// Text becomes text again and never a control token.
pub(crate) fn any_text_round_trips(text: &str) {
    let tokens = bpe().encode(text, false).expect("short");
    assert_eq!(bpe().decode(&tokens), text);
    assert_eq!(control_count(&bpe(), &tokens), 0, "{text:?}");
    let tokens = spm().encode(text, false).expect("short");
    // It writes a space as U+2581, and puts one behind every marker: the way back cannot know.
    let exact = !MARKERS.iter().any(|marker| text.contains(marker));
    let comparable =
        |text: &str| if exact { text.replace('▁', " ") } else { text.replace(['▁', ' '], "") };
    assert_eq!(comparable(&spm().decode(&tokens)), comparable(text));
    assert_eq!(control_count(&spm(), &tokens), 0, "{text:?}");
}

/// What a stream must deliver: everything up to the first stop string to be completed.
pub(crate) fn cut(whole: &str, stops: &[String]) -> String {
    let ends = stops.iter().filter(|stop| !stop.is_empty());
    let ends = ends.filter_map(|stop| whole.find(&**stop).map(|at| (at + stop.len(), at)));
    ends.min().map_or(whole, |(_, at)| &whole[..at]).to_owned()
}

/// The pieces of a stream are the whole text up to the first stop, and no piece comes late or early.
pub(crate) fn any_tokens_stream(codec: &Arc<Codec>, tokens: &[Token], stops: &[String]) {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&token| codec.token_bytes(token)).copied().collect();
    let whole = cut(&String::from_utf8_lossy(&bytes), stops);
    let mut stream = TextStream::new(Arc::clone(codec), stops.to_vec());
    let mut text = String::new();
    for &token in tokens {
        let piece = stream.push(token);
        text.push_str(&piece.text);
        assert!(whole.starts_with(&text), "{text:?} is no start of {whole:?} with stops {stops:?}");
        if piece.stopped {
            break;
        }
    }
    text.push_str(&stream.finish());
    assert_eq!(text, whole, "stops {stops:?}");
    assert_eq!(stream.finish(), "", "nothing comes twice");
}

/// A template from anywhere compiles and renders, or is refused with a code; it neither panics nor runs on. Zero bytes cut the
/// message into parts.
pub(crate) fn any_template_ends(source: &str, content: &str) {
    let options = CodecOptions { chat_template: Some(source.to_owned()), ..CodecOptions::default() };
    let codec = match Codec::from_gguf(&bpe_header(), options) {
        Ok(codec) => codec.with_time(0),
        Err(error) => {
            assert!(matches!(error, CodecError::Template { .. } | CodecError::TooLong { .. }), "{error}");
            return;
        }
    };
    let mut said = message(Role::User, content);
    if content.contains('\0') {
        let parts = content.split('\0').map(|text| Part::Text(text.to_owned()));
        said.content = Some(Content::Parts(parts.collect()));
    }
    let chat = chat(&[said.clone(), message(Role::Assistant, "x"), said]);
    let rendered = codec.render(&chat);
    if let Err(error) = &rendered {
        assert!(!error.code().is_empty() && !error.to_string().is_empty());
    }
    let apart = codec.conversation(&chat).map(|found| found.into_rendering().tokens);
    assert_eq!(apart, rendered);
}

/// Input of the fuzz target `chat_template`: a template and the parts of a message, parted by zero bytes.
pub(crate) fn template_input(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (source, content) = text.split_once('\0').unwrap_or((&text, "Hi <|im_end|>"));
    any_template_ends(source, content);
}

/// Input of the fuzz target `detokenize`: a count, that many stop strings closed by zero bytes, then token ids.
pub(crate) fn detokenize_input(data: &[u8]) {
    let Some((&count, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(usize::from(count % 4) + 1, |&byte| byte == 0);
    let mut stops: Vec<String> = Vec::new();
    for _ in 0..count % 4 {
        stops.extend(parts.next().map(|stop| String::from_utf8_lossy(stop).into_owned()));
    }
    let ids = parts.next().unwrap_or(&[]);
    for codec in [bpe(), spm()] {
        let tokens: Vec<Token> = ids
            .iter()
            .scan(0_u32, |sum, &byte| {
                // Bytes alone would never reach the tokens behind 255.
                *sum += u32::from(byte == 7);
                Some(Token((u32::from(byte) + 256 * (*sum % 2)) % codec.vocab()))
            })
            .collect();
        any_tokens_stream(&codec, &tokens, &stops);
    }
}

//! Model directories with tiny tokenizers of every kind, written out as `tokenizer.json`; the fuzz target uses them too.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};
use sf_codec::{Codec, CodecError, CodecOptions};
use sf_core::{Message, Role, Token};

/// Special tokens of all of them, in this order, from number 0 on.
pub(crate) const SPECIALS: [&str; 8] =
    ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "<mask>", "<|x|><|y|>"];
/// Added tokens that are text.
pub(crate) const PLAIN: [&str; 4] = ["<td>", "</td>", "<tool>", "Ωmega"];

pub(crate) const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}\
     {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// GPT-2's printable stand-in for a byte.
fn printable(byte: u8) -> char {
    let stands = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if stands(byte) {
        return byte.into();
    }
    let nth = (0..byte).filter(|&byte| !stands(byte)).count() as u32;
    char::from_u32(0x100 + nth).expect("a letter")
}

fn added(first_plain: usize) -> Vec<Value> {
    let token = |id: usize, content: &str, special: bool, normalized: bool, strips: bool, single: bool| {
        json!({"id": id, "content": content, "special": special, "normalized": normalized,
            "lstrip": strips, "rstrip": strips, "single_word": single})
    };
    let special =
        |(id, content): (usize, &&str)| token(id, content, true, false, *content == "<mask>", false);
    let plain = |(index, content): (usize, &&str)| {
        token(
            first_plain + index,
            content,
            false,
            *content == "<tool>",
            *content == "</td>",
            *content == "Ωmega",
        )
    };
    SPECIALS.iter().enumerate().map(special).chain(PLAIN.iter().enumerate().map(plain)).collect()
}

fn numbered(texts: &[String]) -> Map<String, Value> {
    texts.iter().enumerate().map(|(id, text)| (text.clone(), id.into())).collect()
}

fn specials() -> Vec<String> {
    SPECIALS.map(str::to_owned).to_vec()
}

fn around(first: Option<&str>, last: Option<&str>) -> Value {
    let part = |token: &str| json!({"SpecialToken": {"id": token, "type_id": 0}});
    let single: Vec<Value> = first
        .map(part)
        .into_iter()
        .chain([json!({"Sequence": {"id": "A", "type_id": 0}})])
        .chain(last.map(part))
        .collect();
    let entry = |token: &str| {
        let id = SPECIALS.iter().position(|special| *special == token).expect("a special token");
        (token.to_owned(), json!({"id": token, "ids": [id], "tokens": [token]}))
    };
    let tokens: Map<String, Value> = first.into_iter().chain(last).map(entry).collect();
    json!({"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": tokens})
}

fn file(parts: &Value) -> Value {
    let mut file = json!({"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null});
    let all = file.as_object_mut().expect("an object");
    all.extend(parts.as_object().expect("an object").clone());
    file
}

const MERGES: [&str; 9] = ["t h", "th e", "i n", "in g", "< |", "| >", "i m", "< s", "<s >"];

/// Every byte, cut like GPT-2; a text starts with BOS. The control token `<s>` is what a merge makes of its text.
pub(crate) fn byte_level() -> Value {
    let mut texts = specials();
    texts.extend((0..=255).map(|byte| printable(byte).to_string()));
    texts.extend(MERGES.iter().map(|merge| merge.replace(' ', "")).filter(|text| text != "<s>"));
    file(&json!({
        "added_tokens": added(texts.len()),
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": around(Some("<s>"), None),
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
            "vocab": numbered(&texts), "merges": MERGES},
    }))
}

/// Llama 2's way: a space first, BPE over characters, bytes for what is unknown.
pub(crate) fn byte_fallback() -> Value {
    let mut texts = specials();
    texts.extend((0..=255).map(|byte: u8| format!("<0x{byte:02X}>")));
    texts.extend(('!'..='~').chain("▁éüß世界".chars()).map(String::from));
    let merges = ["▁ t", "▁t h", "▁th e", "t h", "th e", "i n", "in g", "▁ ▁", "< s", "<s >", "世 界"];
    texts.extend(merges.iter().map(|merge| merge.replace(' ', "")).filter(|text| text != "<s>"));
    file(&json!({
        "added_tokens": added(texts.len()),
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]},
        "post_processor": around(Some("<s>"), None),
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": numbered(&texts), "merges": merges},
    }))
}

/// XLM-R's way; the model itself would take `</s>` in a text for the token.
pub(crate) fn unigram() -> Value {
    let mut vocab: Vec<Value> = SPECIALS.iter().map(|text| json!([text, 0.0])).collect();
    let letters = ('!'..='~').chain("▁éüßабвгдежз世界日本".chars());
    vocab.extend(
        letters
            .enumerate()
            .map(|(index, letter)| json!([letter.to_string(), -6.0 - (index % 29) as f64 / 8.0])),
    );
    let words = ["▁the", "▁th", "he", "ing", "▁a", "▁Hello", "llo", "▁12", "世界", "▁<"];
    vocab.extend(words.iter().enumerate().map(|(index, word)| json!([word, -3.0 - index as f64 / 16.0])));
    file(&json!({
        "added_tokens": added(vocab.len()),
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": crate::charsmap::base64(&crate::charsmap::build())},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true},
        "post_processor": around(Some("<s>"), Some("</s>")),
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false},
    }))
}

/// BERT's way.
pub(crate) fn wordpiece() -> Value {
    let mut texts = specials();
    for letter in ('!'..='~').chain("абвгдеёжзéß世界「".chars()) {
        texts.extend([letter.to_string(), format!("##{letter}")]);
    }
    texts.extend(["hello", "the", "##ing", "##er", "12"].map(str::to_owned));
    let mut seen = std::collections::HashSet::new();
    texts.retain(|text| seen.insert(text.clone()));
    file(&json!({
        "added_tokens": added(texts.len()),
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": around(Some("<s>"), Some("</s>")),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": numbered(&texts)},
    }))
}

/// Whole words, cut at spaces only: a control token that is written out is in the vocabulary.
pub(crate) fn word_level() -> Value {
    let mut texts = specials();
    texts.extend(["hello", "the", "12", "!"].map(str::to_owned));
    file(&json!({
        "added_tokens": added(texts.len()),
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": numbered(&texts)},
    }))
}

pub(crate) fn config() -> Value {
    json!({"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true}, "unk_token": "<unk>", "chat_template": CHATML})
}

/// Writes a directory as a converter would.
pub(crate) fn write(path: &Path, tokenizer: &Value, config: &Value) {
    let put = |name: &str, text: &str| std::fs::write(path.join(name), text).expect("a writable directory");
    put("config.json", r#"{"model_type": "llama", "eos_token_id": 2}"#);
    put("model.safetensors", "");
    put("tokenizer.json", &tokenizer.to_string());
    put("tokenizer_config.json", &config.to_string());
}

pub(crate) fn open(tokenizer: &Value, config: &Value) -> Result<Codec, CodecError> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    write(directory.path(), tokenizer, config);
    let artifact = sf_artifact::open(directory.path()).expect("a model directory");
    Codec::open(&artifact, CodecOptions::default())
}

/// Messages right behind each other, with their names in the marker.
const JOINED: &str =
    "{% for m in messages %}{{ m.content }}{% endfor %}<|im_start|>{{ messages[0].name }}<|im_end|>";

/// Of each kind one that chats as its directory says, and one whose template keeps messages least apart.
pub(crate) struct Pair {
    pub name: &'static str,
    pub codec: Arc<Codec>,
    joined: Codec,
}

/// All of them, opened once.
pub(crate) fn all() -> &'static [Pair] {
    static CODECS: OnceLock<Vec<Pair>> = OnceLock::new();
    CODECS.get_or_init(|| {
        let files = [
            ("byte_level", byte_level()),
            ("byte_fallback", byte_fallback()),
            ("unigram", unigram()),
            ("wordpiece", wordpiece()),
            ("word_level", word_level()),
        ];
        let pair = |(name, file): (&'static str, Value)| {
            let codec = Arc::new(open(&file, &config()).expect(name));
            let mut config = config();
            config["chat_template"] = JOINED.into();
            Pair { name, codec, joined: open(&file, &config).expect(name) }
        };
        files.map(pair).into_iter().collect()
    })
}

/// What a message says becomes no control token, whichever part of it says it and however it is split.
pub(crate) fn any_text_is_text(text: &str) {
    let controls = |tokens: &[Token]| tokens.iter().filter(|token| (1..8).contains(&token.0)).count();
    let message = |content: &str, name: &str| Message {
        name: (!name.is_empty()).then(|| name.to_owned()),
        ..Message::new(Role::User, content)
    };
    for Pair { name, codec, joined } in all() {
        let tokens = codec.encode(text, false).expect("short");
        assert_eq!(controls(&tokens), 0, "{name}: {text:?}");
        let prompt =
            |text: &str| codec.render(&vec![message("x", ""), message(text, "")].into()).expect("it renders");
        assert_eq!(controls(&prompt(text)), controls(&prompt("x")), "{name}: {text:?}");
        let prompt = |left: &str, right: &str, name: &str| {
            let tokens =
                joined.render(&vec![message(left, name), message(right, "")].into()).expect("it renders");
            controls(&tokens)
        };
        let plain = prompt("x", "x", "x");
        assert!(plain >= 2, "{name}: the template's own");
        let middle = (text.len() / 2..=text.len()).find(|&at| text.is_char_boundary(at));
        let (left, right) = text.split_at(middle.unwrap_or(0));
        assert_eq!(prompt(left, right, "x"), plain, "{name}: {left:?} {right:?}");
        assert_eq!(prompt("x", "x", text), plain, "{name}: the name {text:?}");
    }
}

//! The tokenizer's files from the vocabulary in a GGUF file.

use serde_json::{Map, Value, json};
use sf_artifact::gguf;

use crate::error::ConvertError;
use crate::metadata::Metadata;
use crate::pretty;
use crate::vocabulary::merges;

/// Kinds of tokens in `tokenizer.ggml.token_type`.
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// How texts are cut before pairs are merged. The expressions are those of the models' own `tokenizer.json`.
struct Cut {
    /// Values of `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    digits_alone: bool,
    /// None = that of the byte-level step itself.
    pattern: Option<&'static str>,
    whole_words: bool,
    composed: bool,
}

const CUTS: &[Cut] = &[
    Cut { names: &["gpt-2"], digits_alone: false, pattern: None, whole_words: false, composed: false },
    Cut {
        names: &["smollm", "starcoder"],
        digits_alone: true,
        pattern: None,
        whole_words: false,
        composed: false,
    },
    Cut {
        names: &["llama-bpe", "llama3", "llama-v3"],
        digits_alone: false,
        pattern: Some(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        whole_words: true,
        composed: false,
    },
    Cut {
        names: &["qwen2", "deepseek-r1-qwen"],
        digits_alone: false,
        pattern: Some(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        whole_words: false,
        composed: true,
    },
];

/// A vocabulary as both kinds of tokenizers need it.
struct Vocabulary<'a> {
    tokens: Vec<&'a str>,
    kinds: Vec<i32>,
}

/// Each file by its name.
pub(crate) fn files(metadata: &Metadata<'_>) -> Result<Vec<(&'static str, String)>, ConvertError> {
    let tokens = metadata.strings("tokenizer.ggml.tokens")?;
    let key = "tokenizer.ggml.token_type";
    let kinds =
        metadata.get(key).and_then(gguf::Value::as_array).and_then(|array| Some(array.i32s()?.collect()));
    let kinds: Vec<i32> = kinds.unwrap_or_else(|| vec![1; tokens.len()]);
    if kinds.len() != tokens.len() {
        return Err(ConvertError::key(
            key,
            format!("has {} entries for {} tokens", kinds.len(), tokens.len()),
        ));
    }
    let vocabulary = Vocabulary { tokens, kinds };
    let mut tokenizer = match metadata.text("tokenizer.ggml.model") {
        Some("gpt2") => byte_level(metadata, &vocabulary)?,
        Some("llama") => sentence_piece(metadata, &vocabulary)?,
        other => {
            let why = format!("is {}, converted are gpt2 and llama", other.unwrap_or("missing"));
            return Err(ConvertError::key("tokenizer.ggml.model", why));
        }
    };
    let bos = special(metadata, &vocabulary, "bos");
    if let Some((id, text)) = bos.filter(|_| adds_bos(metadata)) {
        tokenizer["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": text, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [
                {"SpecialToken": {"id": text, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": text, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {text: {"id": text, "ids": [id], "tokens": [text]}},
        });
    }
    let mut files = vec![
        ("tokenizer.json", tokenizer.to_string()),
        ("tokenizer_config.json", pretty(&tokenizer_config(metadata, &vocabulary))),
        ("generation_config.json", pretty(&generation_config(metadata))),
    ];
    if let Some(template) = metadata.text("tokenizer.chat_template") {
        files.push(("chat_template.jinja", template.to_owned()));
    }
    Ok(files)
}

/// A SentencePiece model begins with BOS unless it says otherwise.
fn adds_bos(metadata: &Metadata<'_>) -> bool {
    let usual = metadata.text("tokenizer.ggml.model") == Some("llama");
    metadata.flag("tokenizer.ggml.add_bos_token").unwrap_or(usual)
}

fn special<'a>(metadata: &Metadata<'_>, vocabulary: &Vocabulary<'a>, name: &str) -> Option<(u64, &'a str)> {
    let id = metadata.number(&format!("tokenizer.ggml.{name}_token_id"))?;
    Some((id, *vocabulary.tokens.get(usize::try_from(id).ok()?)?))
}

impl Vocabulary<'_> {
    fn added(&self) -> Vec<Value> {
        let is_added = |kind: i32| matches!(kind, CONTROL | USER_DEFINED | UNKNOWN);
        let added = self.tokens.iter().zip(&self.kinds).enumerate().filter(|(_, (_, kind))| is_added(**kind));
        added
            .map(|(id, (content, kind))| {
                json!({
                    "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": *kind != USER_DEFINED,
                })
            })
            .collect()
    }

    fn ids(&self) -> Map<String, Value> {
        self.tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), json!(id))).collect()
    }
}

fn byte_level(metadata: &Metadata<'_>, vocabulary: &Vocabulary<'_>) -> Result<Value, ConvertError> {
    let key = "tokenizer.ggml.pre";
    let name = metadata.text(key).unwrap_or_default();
    let cut = CUTS.iter().find(|cut| cut.names.contains(&name)).ok_or_else(|| {
        let known: Vec<&str> = CUTS.iter().flat_map(|cut| cut.names).copied().collect();
        ConvertError::key(key, format!("is {name:?}, converted are {}", known.join(", ")))
    })?;
    let mut steps = Vec::new();
    if cut.digits_alone {
        steps.push(json!({"type": "Digits", "individual_digits": true}));
    }
    if let Some(pattern) = cut.pattern {
        let split =
            json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        steps.push(split);
    }
    let own = cut.pattern.is_none();
    steps.push(
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": own}),
    );
    let pairs: Vec<Vec<&str>> = metadata
        .strings("tokenizer.ggml.merges")?
        .iter()
        .map(|merge| merge.splitn(2, ' ').collect())
        .collect();
    if let Some(merge) = pairs.iter().find(|pair| pair.len() != 2) {
        return Err(ConvertError::key("tokenizer.ggml.merges", format!("has {merge:?}, which is no pair")));
    }
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": vocabulary.added(),
        "normalizer": if cut.composed { json!({"type": "NFC"}) } else { Value::Null },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": cut.whole_words,
            "vocab": vocabulary.ids(), "merges": pairs,
        },
    }))
}

fn sentence_piece(metadata: &Metadata<'_>, vocabulary: &Vocabulary<'_>) -> Result<Value, ConvertError> {
    let key = "tokenizer.ggml.scores";
    let scores =
        metadata.get(key).and_then(gguf::Value::as_array).and_then(|array| Some(array.f32s()?.collect()));
    let scores: Vec<f32> = scores.ok_or_else(|| ConvertError::key(key, "is missing or no list of floats"))?;
    if scores.len() != vocabulary.tokens.len() {
        return Err(ConvertError::key(
            key,
            format!("has {} entries for {} tokens", scores.len(), vocabulary.tokens.len()),
        ));
    }
    let usable = |id: usize| !matches!(vocabulary.kinds[id], CONTROL | UNKNOWN | BYTE | USER_DEFINED);
    let pairs: Vec<[&str; 2]> = merges(&vocabulary.tokens, &scores, usable)
        .into_iter()
        .map(|(left, right)| [vocabulary.tokens[left], vocabulary.tokens[right]])
        .collect();
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    let prefix = metadata.flag("tokenizer.ggml.add_space_prefix").unwrap_or(true);
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    let normalizer = match prefix {
        true => {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
            json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u{2581}"}, spaces]})
        }
        false => spaces,
    };
    let unknown = special(metadata, vocabulary, "unknown").map_or("<unk>", |(_, text)| text);
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": vocabulary.added(),
        "normalizer": normalizer,
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocabulary.ids(), "merges": pairs,
        },
    }))
}

fn tokenizer_config(metadata: &Metadata<'_>, vocabulary: &Vocabulary<'_>) -> Value {
    let mut config = json!({
        "add_bos_token": adds_bos(metadata),
        "add_eos_token": metadata.flag("tokenizer.ggml.add_eos_token").unwrap_or(false),
        "clean_up_tokenization_spaces": false,
        "model_max_length": metadata.own("context_length"),
        "tokenizer_class": "PreTrainedTokenizerFast",
    });
    for (name, key) in
        [("bos", "bos_token"), ("eos", "eos_token"), ("padding", "pad_token"), ("unknown", "unk_token")]
    {
        if let Some((_, text)) = special(metadata, vocabulary, name) {
            config[key] = json!(text);
        }
    }
    if let Some(template) = metadata.text("tokenizer.chat_template") {
        config["chat_template"] = json!(template);
    }
    config
}

fn generation_config(metadata: &Metadata<'_>) -> Value {
    let mut config = json!({"_from_model_config": true});
    for (name, key) in [("bos", "bos_token_id"), ("eos", "eos_token_id"), ("padding", "pad_token_id")] {
        if let Some(id) = metadata.number(&format!("tokenizer.ggml.{name}_token_id")) {
            config[key] = json!(id);
        }
    }
    config
}

//! The vocabulary as the model file gives it: texts, kinds, the bytes each token stands for, which tokens end a text.
//!
//! The rules and the lists of well-known texts are those of llama.cpp, so that a text ends where it ends there.

use sf_artifact::gguf::{Array, Gguf, Value, ValueType};

use crate::bytelevel;
use crate::error::CodecError;
use crate::table::Blob;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
    Undefined,
}

impl Kind {
    fn from_tag(tag: i32) -> Kind {
        match tag {
            1 => Kind::Normal,
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::UserDefined,
            5 => Kind::Unused,
            6 => Kind::Byte,
            _ => Kind::Undefined,
        }
    }

    /// Steers the model and is no text: never made from text, never shown.
    pub(crate) fn is_control(self) -> bool {
        matches!(self, Kind::Control | Kind::Unknown)
    }
}

/// How token texts stand for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// GPT-2's printable alphabet, one character per byte.
    ByteLevel,
    /// UTF-8 with U+2581 for a space, `<0x0A>` for a lone byte.
    Metaspace,
}

#[derive(Clone, Debug)]
pub(crate) struct Vocab {
    /// As the file spells them.
    pub texts: Blob,
    /// The bytes they add to a text; empty for control tokens.
    pub pieces: Blob,
    pub kinds: Vec<Kind>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
    /// Control tokens swallow the spaces after them (Phi-3).
    pub markers_eat_space: bool,
    /// Sorted.
    eog: Vec<u32>,
}

/// What the kind of tokenizer decides before the file's own keys do.
pub(crate) struct Defaults {
    pub spelling: Spelling,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub add_bos: bool,
}

/// Texts of tokens that end a turn or a text, whatever the file says about them.
const EOG_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Fill-in-the-middle tokens: key of the id, whether it ends a text, known texts.
const FIM_TEXTS: &[(&str, bool, &[&str])] = &[
    (
        "tokenizer.ggml.fim_pre_token_id",
        false,
        &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
    ),
    (
        "tokenizer.ggml.fim_suf_token_id",
        false,
        &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
    ),
    (
        "tokenizer.ggml.fim_mid_token_id",
        false,
        &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
    ),
    ("tokenizer.ggml.fim_pad_token_id", true, &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"]),
    (
        "tokenizer.ggml.fim_rep_token_id",
        true,
        &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
    ),
    ("tokenizer.ggml.fim_sep_token_id", true, &["<|file_sep|>"]),
];

/// gpt-oss writes its channels with these; they are part of the text.
const CHANNEL_TEXTS: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

impl Vocab {
    pub(crate) fn read(gguf: &Gguf, defaults: &Defaults) -> Result<Vocab, CodecError> {
        let tokens = array(gguf, "tokenizer.ggml.tokens", ValueType::String)?
            .ok_or(CodecError::MissingKey { key: "tokenizer.ggml.tokens" })?;
        let texts = texts(&tokens);
        let mut vocab = Vocab {
            kinds: kinds(gguf, texts.len())?,
            texts,
            pieces: Blob::default(),
            bos: defaults.bos,
            eos: defaults.eos,
            unknown: defaults.unknown,
            add_bos: flag(gguf, "tokenizer.ggml.add_bos_token")?.unwrap_or(defaults.add_bos),
            add_eos: flag(gguf, "tokenizer.ggml.add_eos_token")?.unwrap_or(false),
            markers_eat_space: eats_space(gguf),
            eog: Vec::new(),
        };
        vocab.bos = vocab.id(gguf, "tokenizer.ggml.bos_token_id").or(vocab.known(defaults.bos));
        vocab.eos = vocab.id(gguf, "tokenizer.ggml.eos_token_id").or(vocab.known(defaults.eos));
        vocab.unknown = vocab.id(gguf, "tokenizer.ggml.unknown_token_id").or(vocab.known(defaults.unknown));
        vocab.find_eog(gguf);
        vocab.spell(defaults.spelling);
        Ok(vocab)
    }

    pub(crate) fn len(&self) -> u32 {
        self.texts.len() as u32
    }

    pub(crate) fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Undefined)
    }

    /// The text of a token as a string; tokens are UTF-8 by the format.
    pub(crate) fn text(&self, id: u32) -> &str {
        std::str::from_utf8(self.texts.get(id)).unwrap_or("")
    }

    pub(crate) fn is_eog(&self, id: u32) -> bool {
        self.eog.binary_search(&id).is_ok()
    }

    pub(crate) fn eog(&self) -> &[u32] {
        &self.eog
    }

    /// All control and unknown tokens.
    pub(crate) fn controls(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len()).filter(|&id| self.kind(id).is_control())
    }

    fn known(&self, id: Option<u32>) -> Option<u32> {
        id.filter(|&id| id < self.len())
    }

    /// A token id of the file; one outside the vocabulary counts as not given.
    fn id(&self, gguf: &Gguf, key: &str) -> Option<u32> {
        let id = gguf.get(key).and_then(Value::as_u64)?;
        self.known(id.try_into().ok())
    }

    fn find_eog(&mut self, gguf: &Gguf) {
        let mut found = Vec::new();
        let mut fim: Vec<Option<u32>> = FIM_TEXTS.iter().map(|(key, ..)| self.id(gguf, key)).collect();
        let mut channels = Vec::new();
        for id in 0..self.len() {
            let text = self.text(id);
            // All known texts start with one of these and are short; most tokens leave here.
            let candidate = text.len() <= 32 && text.starts_with(['<', '[', '_', '▁']);
            if !candidate {
                continue;
            }
            let mut is_control = false;
            if EOG_TEXTS.contains(&text) {
                found.push(id);
                is_control = true;
            }
            for (slot, (.., texts)) in fim.iter_mut().zip(FIM_TEXTS) {
                if slot.is_none() && texts.contains(&text) {
                    *slot = Some(id);
                    is_control = true;
                }
            }
            if CHANNEL_TEXTS.contains(&text) {
                channels.push(id);
            }
            if is_control {
                self.kinds[id as usize] = Kind::Control;
            }
        }
        for id in channels {
            self.kinds[id as usize] = Kind::UserDefined;
        }
        found.extend(fim.into_iter().zip(FIM_TEXTS).filter_map(|(id, (_, ends, _))| id.filter(|_| *ends)));
        for key in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
            found.extend(self.id(gguf, key));
        }
        found.extend(self.eos);
        found.sort_unstable();
        found.dedup();
        self.eog = found;
        self.except_eog();
    }

    /// Two families where a well-known text does not end the answer.
    fn except_eog(&mut self) {
        let find = |text: &str| self.eog.iter().copied().find(|&id| self.text(id) == text);
        let call = find("<|call|>").is_some() || find("<|calls|>").is_some();
        let harmony = call && (find("<|return|>").is_some() || find("<|flush|>").is_some());
        let gemma4 = find("<|tool_response>").is_some() || find("<|plamo:eos|>").is_some();
        let end = find("<|end|>").filter(|_| harmony).map(|id| (id, Kind::UserDefined));
        let close = find("</s>").filter(|_| gemma4).map(|id| (id, Kind::Normal));
        for (id, kind) in end.into_iter().chain(close) {
            self.eog.retain(|&other| other != id);
            self.kinds[id as usize] = kind;
        }
    }

    fn spell(&mut self, spelling: Spelling) {
        let mut pieces = Blob::with_capacity(self.texts.len(), self.texts.len() * 8);
        for (id, kind) in self.kinds.iter().enumerate() {
            let text = self.texts.get(id as u32);
            pieces.push_with(|out| match (kind, spelling) {
                (Kind::Control | Kind::Unknown | Kind::Unused | Kind::Undefined, _) => {}
                (Kind::UserDefined, _) => out.extend_from_slice(text),
                (Kind::Byte, _) => out.extend(byte_of(text)),
                (Kind::Normal, Spelling::Metaspace) => unescape(text, out),
                (Kind::Normal, Spelling::ByteLevel) => bytelevel::decode(text, out),
            });
        }
        self.pieces = pieces;
    }
}

/// The byte that `<0x0A>` stands for.
pub(crate) fn byte_of(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

fn unescape(text: &[u8], out: &mut Vec<u8>) {
    let text = std::str::from_utf8(text).unwrap_or("");
    for (index, part) in text.split('\u{2581}').enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(part.as_bytes());
    }
}

fn texts(tokens: &Array) -> Blob {
    let strings = tokens.strings().into_iter().flatten();
    let mut texts = Blob::with_capacity(tokens.len(), tokens.len() * 8);
    for (id, text) in strings.enumerate() {
        if text.is_empty() {
            texts.push(format!("[EMPTY_{id}]").as_bytes());
        } else {
            texts.push(text);
        }
    }
    texts
}

fn kinds(gguf: &Gguf, count: usize) -> Result<Vec<Kind>, CodecError> {
    let key = "tokenizer.ggml.token_type";
    let Some(tags) = array(gguf, key, ValueType::I32)? else {
        return Ok(vec![Kind::Normal; count]);
    };
    if tags.len() < count {
        return Err(CodecError::VocabularyLength { key, value: tags.len(), limit: count });
    }
    Ok(tags.i32s().into_iter().flatten().take(count).map(Kind::from_tag).collect())
}

fn eats_space(gguf: &Gguf) -> bool {
    let name = gguf.get("general.name").and_then(Value::as_str).unwrap_or("").to_lowercase();
    name.contains("phi-3") || name.contains("phi3")
}

/// An array of the tokenizer; `None` when absent.
pub(crate) fn array(gguf: &Gguf, key: &'static str, kind: ValueType) -> Result<Option<Array>, CodecError> {
    let Some(value) = gguf.get(key) else { return Ok(None) };
    let expected = match kind {
        ValueType::String => "an array of strings",
        ValueType::F32 => "an array of f32",
        _ => "an array of i32",
    };
    match value.as_array() {
        Some(array) if array.kind() == kind => Ok(Some(array.clone())),
        Some(_) => Err(CodecError::KeyType { key, expected, found: "an array of another type" }),
        None => Err(CodecError::KeyType { key, expected, found: value.kind().name() }),
    }
}

/// A bool of the tokenizer; `None` when absent.
pub(crate) fn flag(gguf: &Gguf, key: &'static str) -> Result<Option<bool>, CodecError> {
    let Some(value) = gguf.get(key) else { return Ok(None) };
    let wrong = || CodecError::KeyType { key, expected: "bool", found: value.kind().name() };
    value.as_bool().map(Some).ok_or_else(wrong)
}

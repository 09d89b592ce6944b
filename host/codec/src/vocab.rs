//! The vocabulary as the model file gives it: texts, kinds, the bytes each token stands for.

use sf_artifact::gguf::{Array, Gguf, Value, ValueType};

use crate::bytelevel;
use crate::ends::{self, Known};
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
    /// Steers the model and is shown: the channels of gpt-oss.
    Channel,
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

    /// Steers the model and is no text: never made from text.
    pub(crate) fn is_control(self) -> bool {
        matches!(self, Kind::Control | Kind::Unknown | Kind::Channel)
    }
}

/// How token texts stand for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// GPT-2's printable alphabet, one character per byte.
    ByteLevel,
    /// UTF-8 with U+2581 for a space, `<0x0A>` for a lone byte.
    Metaspace,
    /// UTF-8 as it is, `<0x0A>` for a lone byte.
    Plain,
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
    /// Goes behind a text that is complete: the end of the text, or a separator.
    pub last: Option<u32>,
    /// Control tokens swallow the spaces after them (Phi-3).
    pub markers_eat_space: bool,
    /// A token that swallows the spaces before it (masks).
    pub eats_before: Option<u32>,
    /// Sorted.
    eog: Vec<u32>,
}

/// What the kind of tokenizer decides before the file's own keys do.
pub(crate) struct Defaults {
    pub spelling: Spelling,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    /// Goes behind every complete text (WordPiece).
    pub separator: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
}

impl Defaults {
    /// Nothing is known beforehand.
    pub(crate) const NONE: Defaults = Defaults {
        spelling: Spelling::ByteLevel,
        bos: None,
        eos: None,
        unknown: None,
        separator: None,
        add_bos: false,
        add_eos: false,
    };
}

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
            add_eos: flag(gguf, "tokenizer.ggml.add_eos_token")?.unwrap_or(defaults.add_eos),
            last: None,
            markers_eat_space: eats_space(gguf),
            eats_before: None,
            eog: Vec::new(),
        };
        vocab.bos = vocab.id(gguf, "tokenizer.ggml.bos_token_id").or(vocab.known(defaults.bos));
        vocab.eos = vocab.id(gguf, "tokenizer.ggml.eos_token_id").or(vocab.known(defaults.eos));
        vocab.unknown = vocab.id(gguf, "tokenizer.ggml.unknown_token_id").or(vocab.known(defaults.unknown));
        vocab.eats_before = mask_that_strips(gguf)
            .and_then(|mask| (0..vocab.len()).find(|&id| vocab.texts.get(id) == mask.as_bytes()));
        let separator = defaults.separator.and_then(|known| {
            vocab.id(gguf, "tokenizer.ggml.seperator_token_id").or(vocab.known(Some(known)))
        });
        vocab.last = separator.or(vocab.eos.filter(|_| vocab.add_eos));
        let named = |key: &'static str| vocab.id(gguf, key);
        let listed = vocab.eos.into_iter().collect();
        let known = Known { texts: &vocab.texts, named: &named, may: &|_| true, listed };
        let mut kinds = vocab.kinds.clone();
        vocab.eog = ends::find(known, &mut kinds);
        vocab.kinds = kinds;
        vocab.spell(defaults.spelling);
        Ok(vocab)
    }

    /// A vocabulary that was read from other files than GGUF; `eog` is sorted.
    pub(crate) fn from_parts(texts: Blob, pieces: Blob, kinds: Vec<Kind>, eog: Vec<u32>) -> Vocab {
        Vocab {
            texts,
            pieces,
            kinds,
            bos: None,
            eos: None,
            unknown: None,
            add_bos: false,
            add_eos: false,
            last: None,
            markers_eat_space: false,
            eats_before: None,
            eog,
        }
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

    fn spell(&mut self, spelling: Spelling) {
        let mut pieces = Blob::with_capacity(self.texts.len(), self.texts.len() * 8);
        for (id, kind) in self.kinds.iter().enumerate() {
            let text = self.texts.get(id as u32);
            pieces.push_with(|out| match (kind, spelling) {
                (Kind::Control | Kind::Unknown | Kind::Unused | Kind::Undefined, _) => {}
                (Kind::UserDefined | Kind::Channel, _) => out.extend_from_slice(text),
                (Kind::Byte, _) => out.extend(byte_of(text)),
                (Kind::Normal, Spelling::Metaspace) => unescape(text, out),
                (Kind::Normal, Spelling::Plain) => out.extend_from_slice(text),
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

pub(crate) fn unescape(text: &[u8], out: &mut Vec<u8>) {
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

/// The mask of families where it swallows the spaces before it; GGUF does not say so, the names of the families do.
fn mask_that_strips(gguf: &Gguf) -> Option<&'static str> {
    let value = |key: &str| gguf.get(key).and_then(Value::as_str).unwrap_or("");
    let pre = value("tokenizer.ggml.pre");
    let by_pre = ["jina-v2-de", "jina-v2-es", "jina-v2-code", "mmbert"].iter().any(|name| pre.contains(name));
    let architecture = value("general.architecture");
    if by_pre || architecture.contains("nomic-bert-moe") || architecture.contains("jina-bert-v3") {
        return Some("<mask>");
    }
    value("general.name").to_lowercase().contains("modern-bert").then_some("[MASK]")
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

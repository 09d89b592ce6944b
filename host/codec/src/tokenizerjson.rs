//! What `tokenizer.json` and the files beside it say, as far as the crate that runs it does not need it: every token, its
//! kind and the bytes it stands for, and which tokens open and close a text.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use sf_artifact::TokenizerFiles;
use tokenizers::{Model, ModelWrapper, NormalizedString, Normalizer, Tokenizer};

use crate::added::AddedToken;
use crate::charsmap::Charsmap;
use crate::ends::{self, Known};
use crate::error::CodecError;
use crate::measures::{LongestMerge, LongestToken};
use crate::spelling::Decoder;
use crate::surroundings::Surroundings;
use crate::table::Blob;
use crate::vocab::{Kind, Vocab, byte_of};

/// Most token numbers without a token, beside as many as there are tokens.
const HOLES_MAX: usize = 1 << 16;

#[derive(Clone, Debug, Deserialize)]
struct Added {
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
}

#[derive(Deserialize)]
struct ModelHead {
    #[serde(rename = "type")]
    name: String,
    dropout: Option<f32>,
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    vocab: LongestToken,
    #[serde(default)]
    merges: LongestMerge,
    unk_token: Option<String>,
    unk_id: Option<u32>,
}

/// `tokenizer.json` without its vocabulary.
#[derive(Deserialize)]
pub(crate) struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    decoder: Option<Value>,
    #[serde(default)]
    post_processor: Value,
    model: ModelHead,
    #[serde(skip)]
    around: (Option<u32>, Option<u32>),
    #[serde(skip)]
    decoding: Decoder,
}

/// What became of the files.
pub(crate) struct Described {
    pub vocab: Vocab,
    pub added: Vec<AddedToken>,
    pub strips_space: bool,
    pub name: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Named {
    Text(String),
    Token { content: String },
}

impl Named {
    fn text(&self) -> &str {
        match self {
            Named::Text(text) | Named::Token { content: text } => text,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Several(Vec<u32>),
}

#[derive(Default, Deserialize)]
struct TokenizerConfig {
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
    bos_token: Option<Named>,
    eos_token: Option<Named>,
    unk_token: Option<Named>,
    sep_token: Option<Named>,
    pad_token: Option<Named>,
    cls_token: Option<Named>,
    mask_token: Option<Named>,
    #[serde(default)]
    additional_special_tokens: Option<Vec<Named>>,
    #[serde(default)]
    added_tokens_decoder: BTreeMap<String, Added>,
}

#[derive(Default, Deserialize)]
struct Ends {
    eos_token_id: Option<Ids>,
    text_config: Option<Box<Ends>>,
}

/// The files beside `tokenizer.json`.
pub(crate) struct Config {
    tokenizer: TokenizerConfig,
    ends: Vec<u32>,
}

impl Config {
    pub(crate) fn read(files: &TokenizerFiles) -> Result<Config, CodecError> {
        let tokenizer = parsed("tokenizer_config.json", files.config.as_deref())?;
        let generation = parsed("generation_config.json", files.generation.as_deref())?;
        let mut ends = Vec::new();
        let mut open = vec![generation, parsed("config.json", files.model.as_deref())?];
        while let Some(Ends { eos_token_id, text_config }) = open.pop() {
            match eos_token_id {
                Some(Ids::One(id)) => ends.push(id),
                Some(Ids::Several(ids)) => ends.extend(ids),
                None => {}
            }
            open.extend(text_config.map(|inner| *inner));
        }
        Ok(Config { tokenizer, ends })
    }

    /// Tokens that have a part of their own, whatever `tokenizer.json` says about them.
    fn special(&self) -> impl Iterator<Item = &str> {
        let config = &self.tokenizer;
        let parts = [
            &config.bos_token,
            &config.eos_token,
            &config.unk_token,
            &config.sep_token,
            &config.pad_token,
            &config.cls_token,
            &config.mask_token,
        ];
        let more = config.additional_special_tokens.iter().flatten();
        parts.into_iter().flatten().chain(more).map(Named::text)
    }
}

fn parsed<T: Default + for<'a> Deserialize<'a>>(file: &str, text: Option<&str>) -> Result<T, CodecError> {
    let Some(text) = text else { return Ok(T::default()) };
    serde_json::from_str(text).map_err(|fault| wrong(file, fault.to_string()))
}

fn wrong(part: &str, reason: impl Into<String>) -> CodecError {
    CodecError::TokenizerPart { part: part.to_owned(), reason: reason.into() }
}

/// Reads `tokenizer.json` but for its vocabulary, and refuses what cannot be done exactly.
pub(crate) fn check(text: &str) -> Result<File, CodecError> {
    let mut file: File =
        serde_json::from_str(text).map_err(|fault| wrong("tokenizer.json", fault.to_string()))?;
    if file.model.dropout.is_some_and(|dropout| dropout > 0.0) {
        return Err(wrong("model.dropout", "tokens would be drawn by chance"));
    }
    if file.model.name == "BPE" {
        let ModelHead { vocab: LongestToken(token), merges: LongestMerge(merge), .. } = file.model;
        if merge > token {
            let reason = format!("a pair of {merge} bytes, the longest token has {token}");
            return Err(wrong("model.merges", reason));
        }
        if file.model.continuing_subword_prefix.as_deref().is_some_and(|prefix| !prefix.is_empty()) {
            return Err(wrong("model.continuing_subword_prefix", "it is not supported with BPE"));
        }
    }
    // The crate checks neither the maps that it walks nor the lengths that it cuts into.
    let mut open: Vec<&Value> = file.normalizer.iter().chain(&file.pre_tokenizer).collect();
    while let Some(value) = open.pop() {
        match value {
            Value::Object(map) => {
                if let Some(blob) = map.get("precompiled_charsmap") {
                    let blob = blob.as_str().ok_or_else(|| "it is no string".to_owned());
                    let blob = blob.and_then(|blob| STANDARD.decode(blob).map_err(|fault| fault.to_string()));
                    blob.and_then(|blob| Charsmap::parse(&blob))
                        .map_err(|reason| wrong("normalizer.precompiled_charsmap", reason))?;
                }
                let is_fixed = map.get("type").and_then(Value::as_str) == Some("FixedLength");
                if is_fixed && map.get("length").and_then(Value::as_u64) == Some(0) {
                    return Err(wrong("pre_tokenizer.length", "words of no character"));
                }
                open.extend(map.values());
            }
            Value::Array(list) => open.extend(list),
            _ => {}
        }
    }
    file.decoding = Decoder::read(file.decoder.as_ref()).map_err(|reason| wrong("decoder", reason))?;
    let around = Surroundings::read(&file.post_processor);
    let Surroundings { before, behind } = around.map_err(|reason| wrong("post_processor", reason))?;
    file.around = (at_most_one(&before)?, at_most_one(&behind)?);
    Ok(file)
}

fn at_most_one(ids: &[u32]) -> Result<Option<u32>, CodecError> {
    match ids {
        [] => Ok(None),
        [id] => Ok(Some(*id)),
        several => {
            let reason = format!("{} tokens on one side of a text, at most one is supported", several.len());
            Err(wrong("post_processor", reason))
        }
    }
}

impl File {
    pub(crate) fn vocabulary(self, tokenizer: &Tokenizer, config: &Config) -> Result<Described, CodecError> {
        let mut added = self.added(tokenizer, config)?;
        let texts = texts(tokenizer, &added)?;
        let id =
            |token: &Option<Named>| token.as_ref().and_then(|token| id_of(token.text(), tokenizer, &added));
        let (bos, eos) = (id(&config.tokenizer.bos_token), id(&config.tokenizer.eos_token));
        let put = |says: Option<bool>, named, found| match says {
            Some(true) => named,
            Some(false) => None,
            None => found,
        };
        let first = put(config.tokenizer.add_bos_token, bos, self.around.0);
        let last = put(config.tokenizer.add_eos_token, eos, self.around.1);
        let unknown = self.unknown(tokenizer)?;

        let mut blob = Blob::with_capacity(texts.len(), texts.len() * 8);
        let mut kinds = Vec::with_capacity(texts.len());
        for (number, text) in (0..).zip(&texts) {
            kinds.push(match (added.get(&number), text) {
                _ if unknown == Some(number) => Kind::Unknown,
                (Some(token), _) if token.special => Kind::Control,
                (Some(_), _) => Kind::UserDefined,
                (None, None) => Kind::Undefined,
                (None, Some(text)) if self.decoding.has_bytes() && byte_of(text.as_bytes()).is_some() => {
                    Kind::Byte
                }
                (None, Some(_)) => Kind::Normal,
            });
            match text {
                Some(text) => blob.push(text.as_bytes()),
                None => blob.push(format!("[EMPTY_{number}]").as_bytes()),
            }
        }
        let count = texts.len() as u32;
        let listed: BTreeSet<u32> = config.ends.iter().copied().chain(eos).filter(|&id| id < count).collect();
        let may = |id: u32| added.contains_key(&id);
        let known = Known { texts: &blob, named: &|_| None, may: &may, listed: listed.into_iter().collect() };
        let eog = ends::find(known, &mut kinds);
        for (&number, token) in &mut added {
            token.special |= kinds[number as usize].is_control();
        }
        let mut pieces = Blob::with_capacity(texts.len(), texts.len() * 8);
        for (number, &kind) in (0..).zip(&kinds) {
            // A normalized token holds what the normalizer put before it, such as a space.
            let changed = added.get(&number).filter(|token| !token.special && token.sought != token.content);
            let (text, kind) = match changed {
                Some(token) => (token.sought.as_bytes(), Kind::Normal),
                None => (blob.get(number), kind),
            };
            pieces.push_with(|out| self.decoding.spell(text, kind, out));
        }
        let steers = |id: &u32| [first, bos, eos, last].contains(&Some(*id)) || eog.contains(id);
        let unknown = unknown.filter(|id| !steers(id));
        let mut vocab = Vocab::from_parts(blob, pieces, kinds, eog);
        (vocab.bos, vocab.add_bos) = (first.or(bos), first.is_some());
        (vocab.eos, vocab.add_eos) = (eos, last.is_some() && last == eos);
        (vocab.last, vocab.unknown) = (last, unknown);
        let strips_space = self.decoding.strips_space;
        Ok(Described { vocab, added: added.into_values().collect(), strips_space, name: self.model.name })
    }

    /// The added tokens by number, with the corrections of `tokenizer_config.json`.
    fn added(&self, tokenizer: &Tokenizer, config: &Config) -> Result<BTreeMap<u32, AddedToken>, CodecError> {
        let mut added = BTreeMap::new();
        for token in &self.added_tokens {
            let id = tokenizer.token_to_id(&token.content);
            added.extend(id.map(|id| (id, token.numbered(id))));
        }
        for (number, token) in &config.tokenizer.added_tokens_decoder {
            let file = "tokenizer_config.json, added_tokens_decoder";
            let id: u32 = number.parse().map_err(|_| wrong(file, format!("{number:?} is no number")))?;
            let known = tokenizer.token_to_id(&token.content);
            if known.is_some_and(|known| known != id)
                || known.is_none() && tokenizer.id_to_token(id).is_some()
            {
                return Err(wrong(file, format!("token {id} is another one in tokenizer.json")));
            }
            added.insert(id, token.numbered(id));
        }
        let mut numbers: HashMap<String, u32> = HashMap::new();
        for token in added.values() {
            numbers.entry(token.content.clone()).or_insert(token.id);
        }
        for text in config.special() {
            let known = numbers.get(text).copied();
            let Some(id) = known.or_else(|| tokenizer.token_to_id(text)) else { continue };
            let content = text.to_owned();
            numbers.entry(content.clone()).or_insert(id);
            let new = Added {
                content,
                special: true,
                normalized: false,
                single_word: false,
                lstrip: false,
                rstrip: false,
            };
            added.entry(id).or_insert_with(|| new.numbered(id)).special = true;
        }
        added.retain(|_, token| !token.content.is_empty());
        if let Some(normalizer) = tokenizer.get_normalizer() {
            for token in added.values_mut().filter(|token| token.normalized) {
                let mut text = NormalizedString::from(&*token.content);
                let done = normalizer.normalize(&mut text);
                done.map_err(|fault| wrong("normalizer", fault.to_string()))?;
                text.get().clone_into(&mut token.sought);
            }
        }
        Ok(added)
    }

    /// The token of what the model does not know; an error where the model needs one and has none.
    fn unknown(&self, tokenizer: &Tokenizer) -> Result<Option<u32>, CodecError> {
        let model = tokenizer.get_model();
        if let ModelWrapper::Unigram(unigram) = model {
            let has_bytes = (0..=255).all(|byte: u8| model.token_to_id(&format!("<0x{byte:02X}>")).is_some());
            if self.model.unk_id.is_none() && !(unigram.byte_fallback() && has_bytes) {
                return Err(wrong("model.unk_id", "there is no token for unknown characters"));
            }
            return Ok(self.model.unk_id);
        }
        let is_needed = !matches!(model, ModelWrapper::BPE(_));
        let default = is_needed.then(|| "[UNK]".to_owned());
        let Some(text) = self.model.unk_token.clone().or(default) else { return Ok(None) };
        let missing = || wrong("model.unk_token", format!("{text:?} is not in the vocabulary"));
        model.token_to_id(&text).map(Some).ok_or_else(missing)
    }
}

impl Added {
    fn numbered(&self, id: u32) -> AddedToken {
        let Added { content, special, normalized, single_word, lstrip, rstrip } = self.clone();
        let sought = content.clone();
        AddedToken { id, content, sought, special, normalized, single_word, lstrip, rstrip }
    }
}

fn id_of(text: &str, tokenizer: &Tokenizer, added: &BTreeMap<u32, AddedToken>) -> Option<u32> {
    let listed = added.values().find(|token| token.content == text).map(|token| token.id);
    listed.or_else(|| tokenizer.token_to_id(text))
}

/// The text of every token, by number.
fn texts(
    tokenizer: &Tokenizer,
    added: &BTreeMap<u32, AddedToken>,
) -> Result<Vec<Option<String>>, CodecError> {
    let numbered: Vec<(u32, String)> = match tokenizer.get_model() {
        ModelWrapper::Unigram(unigram) => (0..).zip(unigram.iter().map(|(text, _)| text.clone())).collect(),
        model => model.get_vocab().into_iter().map(|(text, id)| (id, text)).collect(),
    };
    let highest = numbered.iter().map(|&(id, _)| id).chain(added.keys().copied()).max();
    let count = highest.map_or(0, |id| id as usize + 1);
    let tokens = numbered.len() + added.len();
    if count > tokens * 2 + HOLES_MAX {
        return Err(wrong(
            "model.vocab",
            format!("a token has number {}, there are {tokens} tokens", count - 1),
        ));
    }
    let mut texts: Vec<Option<String>> = vec![None; count];
    for (id, text) in numbered {
        if let Some(first) = texts[id as usize].replace(text) {
            return Err(wrong("model.vocab", format!("{first:?} and another token have number {id}")));
        }
    }
    for (&id, token) in added {
        texts[id as usize] = Some(token.content.clone());
    }
    Ok(texts)
}

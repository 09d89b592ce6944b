//! Encoders: which of them are computed, and what `config.json` and the files of sentence-transformers say about one.
//!
//! A row of the table names what differs between the families; everything else they share: learned positions, a norm with bias
//! behind each part, attention in both directions, biases everywhere.

use serde_json::{Map, Value};

use crate::architecture::Activation;
use crate::error::ModelError;
use crate::files::Files;
use crate::quantization::Quantization;

/// A family of encoders.
#[derive(Debug, PartialEq)]
pub struct Family {
    /// `model_type` in `config.json`.
    pub model_type: &'static str,
    /// What tensors' names may begin with.
    pub prefix: &'static str,
    /// Positions count from behind the padding token's number.
    pub behind_padding: bool,
}

/// Every family, by `model_type`.
pub const FAMILIES: &[Family] = &[
    Family { model_type: "bert", prefix: "bert.", behind_padding: false },
    Family { model_type: "roberta", prefix: "roberta.", behind_padding: true },
    Family { model_type: "xlm-roberta", prefix: "roberta.", behind_padding: true },
];

/// Keys that make another model of it when they are set so.
const REFUSED: &[(&str, &str)] = &[
    ("is_decoder", "is true, a decoder's attention is not computed here"),
    ("add_cross_attention", "is true, attention to another model is not computed here"),
    ("is_encoder_decoder", "is true, there is no second half here"),
];
/// Endings of `architectures` whose head is what the model was trained for.
const HEADS: [&str; 4] =
    ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"];

const LAYERS_MAX: u64 = 1024;
const WIDTH_MAX: u64 = 1 << 16;
const VOCAB_MAX: u64 = 1 << 22;
const POSITIONS_MAX: u64 = 1 << 20;

/// The text of a file beside `config.json`; `None` where there is none of this name.
pub type TextOf<'a> = dyn Fn(&str) -> Result<Option<String>, ModelError> + 'a;

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first token's.
    First,
    /// The last token's.
    Last,
}

impl Pooling {
    /// As the description of a model names it.
    pub fn name(self) -> &'static str {
        match self {
            Pooling::Mean => "mean",
            Pooling::First => "first",
            Pooling::Last => "last",
        }
    }
}

/// An encoder's sizes and parts.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderConfig {
    /// The row of the table.
    pub family: &'static Family,
    /// Elements of a hidden state, and of a vector.
    pub hidden: u32,
    /// Layers.
    pub layers: u32,
    /// Heads.
    pub heads: u32,
    /// Elements between the feed-forward's matrices.
    pub ffn: u32,
    /// Tokens.
    pub vocab: u32,
    /// Rows of the table of positions.
    pub positions: u32,
    /// The row of a text's first token.
    pub first_position: u32,
    /// Kinds of segments; texts are of the first.
    pub types: u32,
    /// Added to a variance before its root is taken.
    pub norm_eps: f32,
    /// Between the feed-forward's matrices.
    pub activation: Activation,
    /// How matrices are quantized.
    pub quantization: Quantization,
    /// How tokens become one vector.
    pub pooling: Pooling,
    /// Whether vectors get a length of one.
    pub normalized: bool,
    /// Tokens of the longest text.
    pub tokens_max: u32,
}

impl EncoderConfig {
    /// Whether this `config.json` is an encoder's.
    pub fn is_meant(config: &str) -> bool {
        let value: Option<Value> = serde_json::from_str(config).ok();
        value.as_ref().and_then(|value| family(value.get("model_type")?.as_str()?)).is_some()
    }

    /// Reads `config.json` and the files of sentence-transformers beside it.
    ///
    /// # Errors
    /// What is missing, contradicts itself, or is not computed here, by its key or file.
    pub fn read(files: &Files) -> Result<EncoderConfig, ModelError> {
        EncoderConfig::parse(&files.config, &|name| files.text_beside(name))
    }

    /// The same of a `config.json`, and of the texts of files beside it by their names.
    ///
    /// # Errors
    /// As [`EncoderConfig::read`].
    pub fn parse(config: &str, beside: &TextOf<'_>) -> Result<EncoderConfig, ModelError> {
        let facts: Map<String, Value> =
            serde_json::from_str(config).map_err(|error| ModelError::Json(error.to_string()))?;
        let name = facts.get("model_type").and_then(Value::as_str).unwrap_or_default();
        let family =
            family(name).ok_or_else(|| ModelError::unsupported("model_type", format!("is {name}")))?;
        refuse_others(&facts)?;
        let size = |key: &str, max: u64| count(&facts, key, max);
        let (hidden, heads) = (size("hidden_size", WIDTH_MAX)?, size("num_attention_heads", 1024)?);
        if !hidden.is_multiple_of(heads) {
            let why = format!("is {heads}, which does not divide {hidden} elements");
            return Err(ModelError::config("num_attention_heads", why));
        }
        let positions = size("max_position_embeddings", POSITIONS_MAX)?;
        let padding = match facts.get("pad_token_id").filter(|value| !value.is_null()) {
            Some(_) if family.behind_padding => count_from_zero(&facts, "pad_token_id")?,
            _ => u32::from(family.behind_padding),
        };
        let first_position = if family.behind_padding { padding.saturating_add(1) } else { 0 };
        let Some(room) = positions.checked_sub(first_position).filter(|&room| room > 0) else {
            let why = format!("is {positions}, the first text's position is {first_position}");
            return Err(ModelError::config("max_position_embeddings", why));
        };
        let beside = Beside::read(beside)?;
        Ok(EncoderConfig {
            family,
            hidden,
            layers: size("num_hidden_layers", LAYERS_MAX)?,
            heads,
            ffn: size("intermediate_size", WIDTH_MAX)?,
            vocab: size("vocab_size", VOCAB_MAX)?,
            positions,
            first_position,
            types: match facts.contains_key("type_vocab_size") {
                true => size("type_vocab_size", 1024)?,
                false => 2,
            },
            norm_eps: crate::config::number("layer_norm_eps", facts.get("layer_norm_eps"))?.unwrap_or(1e-12)
                as f32,
            activation: activation(&facts)?,
            quantization: Quantization::read(&facts)?,
            pooling: beside.pooling,
            normalized: beside.normalized,
            tokens_max: beside.tokens_max.map_or(room, |most| most.min(room)),
        })
    }
}

fn family(model_type: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.model_type == model_type)
}

/// Says by its key what makes another model of it.
fn refuse_others(facts: &Map<String, Value>) -> Result<(), ModelError> {
    for (key, why) in REFUSED {
        if facts.get(*key) == Some(&Value::Bool(true)) {
            return Err(ModelError::unsupported(key, *why));
        }
    }
    let key = "position_embedding_type";
    if let Some(kind) = facts.get(key).filter(|kind| !kind.is_null() && *kind != "absolute") {
        return Err(ModelError::unsupported(key, format!("is {kind}; absolute positions are computed here")));
    }
    let key = "architectures";
    let names = facts.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for name in names {
        if let Some(head) = HEADS.iter().find(|head| name.ends_with(*head)) {
            let why = format!("names {name}: what follows the encoder there ({head}) is not computed here");
            return Err(ModelError::unsupported(key, why));
        }
    }
    Ok(())
}

fn count(facts: &Map<String, Value>, key: &str, max: u64) -> Result<u32, ModelError> {
    match count_from_zero(facts, key)? {
        given if given == 0 || u64::from(given) > max => {
            Err(ModelError::config(key, format!("is {given}, it can be 1 to {max}")))
        }
        given => Ok(given),
    }
}

fn count_from_zero(facts: &Map<String, Value>, key: &str) -> Result<u32, ModelError> {
    let value = facts
        .get(key)
        .filter(|value| !value.is_null())
        .ok_or_else(|| ModelError::config(key, "is missing"))?;
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| ModelError::config(key, format!("is {value}, not a count")))
}

fn activation(facts: &Map<String, Value>) -> Result<Activation, ModelError> {
    let key = "hidden_act";
    match facts.get(key).filter(|value| !value.is_null()) {
        None => Ok(Activation::Gelu),
        Some(value) => value
            .as_str()
            .and_then(Activation::named)
            .ok_or_else(|| ModelError::unsupported(key, format!("is {value}, which is not computed here"))),
    }
}

/// What the files of sentence-transformers say; without them what that library assumes.
#[derive(Debug, PartialEq, Eq)]
struct Beside {
    pooling: Pooling,
    normalized: bool,
    tokens_max: Option<u32>,
}

impl Beside {
    fn read(files: &TextOf<'_>) -> Result<Beside, ModelError> {
        let mut beside = Beside { pooling: Pooling::Mean, normalized: false, tokens_max: None };
        if let Some(facts) = object(files, "sentence_bert_config.json")?
            && facts.get("max_seq_length").is_some_and(|value| !value.is_null())
        {
            beside.tokens_max = Some(count(&facts, "max_seq_length", POSITIONS_MAX)?);
        }
        let list = "modules.json";
        let Some(modules) = json(files, list)? else { return Ok(beside) };
        let broken = |why: &str| ModelError::Beside { file: list.to_owned(), why: why.to_owned() };
        for module in modules.as_array().ok_or_else(|| broken("is no list"))? {
            let text = |key: &str| module.get(key).and_then(Value::as_str);
            let kind = text("type").ok_or_else(|| broken("has a module without a type"))?;
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" => {}
                "Normalize" => beside.normalized = true,
                "Pooling" => {
                    let folder = text("path").ok_or_else(|| broken("has a pooling without a path"))?;
                    beside.pooling = pooling(files, folder)?;
                }
                _ => {
                    return Err(ModelError::Beside {
                        file: list.to_owned(),
                        why: format!("names {kind}, which is not computed here"),
                    });
                }
            }
        }
        Ok(beside)
    }
}

fn pooling(files: &TextOf<'_>, folder: &str) -> Result<Pooling, ModelError> {
    let file = format!("{folder}/config.json");
    let fault = |why: String| ModelError::Beside { file: file.clone(), why };
    let plain = !folder.is_empty() && !folder.starts_with('.') && !folder.contains(['/', '\\']);
    if !plain {
        return Err(fault("is not a folder of the model".to_owned()));
    }
    let facts = object(files, &file)?.ok_or_else(|| fault("is missing, modules.json names it".to_owned()))?;
    if let Some(mode) = facts.get("pooling_mode").and_then(Value::as_str) {
        return by_name(mode)
            .ok_or_else(|| fault(format!("pooling_mode is {mode}, which is not computed here")));
    }
    let modes: Vec<&str> = facts
        .iter()
        .filter(|(_, value)| **value == Value::Bool(true))
        .filter_map(|(key, _)| key.strip_prefix("pooling_mode_"))
        .collect();
    match modes.as_slice() {
        [] => Ok(Pooling::Mean),
        [mode] => {
            let name = mode.trim_end_matches("_token").trim_end_matches("_tokens");
            by_name(name).ok_or_else(|| fault(format!("pooling_mode_{mode} is not computed here")))
        }
        several => Err(fault(format!("asks for {} at once, one is computed here", several.join(" and ")))),
    }
}

fn by_name(mode: &str) -> Option<Pooling> {
    match mode {
        "mean" => Some(Pooling::Mean),
        "cls" => Some(Pooling::First),
        "lasttoken" => Some(Pooling::Last),
        _ => None,
    }
}

fn json(files: &TextOf<'_>, name: &str) -> Result<Option<Value>, ModelError> {
    let Some(text) = files(name)? else { return Ok(None) };
    let parsed = serde_json::from_str(&text);
    parsed
        .map(Some)
        .map_err(|error| ModelError::Beside { file: name.to_owned(), why: format!("is not JSON: {error}") })
}

fn object(files: &TextOf<'_>, name: &str) -> Result<Option<Map<String, Value>>, ModelError> {
    match json(files, name)? {
        None => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(_) => Err(ModelError::Beside { file: name.to_owned(), why: "is no object".to_owned() }),
    }
}

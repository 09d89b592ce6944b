//! The architecture of an encoder, from its `config.json` and the files of sentence-transformers beside it.

use serde_json::{Map, Value};
use sf_base::{Activation, Arch, Kind, Layer, Norm, Norms, Pooling, PoolingKind};

use super::arch::activation;
use super::facts::Facts;
use crate::error::ConvertError;

/// A family of encoders.
pub(super) struct Family {
    pub(super) model_type: &'static str,
    /// What tensors' names may begin with.
    pub(super) prefix: &'static str,
    /// Positions count from behind the padding token's number.
    behind_padding: bool,
}

pub(super) const FAMILIES: &[Family] = &[
    Family { model_type: "bert", prefix: "bert.", behind_padding: false },
    Family { model_type: "roberta", prefix: "roberta.", behind_padding: true },
    Family { model_type: "xlm-roberta", prefix: "roberta.", behind_padding: true },
];

/// Keys that make another model of it when they are set.
const REFUSED: [&str; 3] = ["is_decoder", "add_cross_attention", "is_encoder_decoder"];
/// Endings of `architectures` whose head is what the model was trained for.
const HEADS: [&str; 4] =
    ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"];

const MODULES: &str = "modules.json";
const SENTENCES: &str = "sentence_bert_config.json";
const POOLING: &str = "1_Pooling/config.json";

/// A file beside `config.json`, by its name.
pub(super) type Beside<'a> = dyn Fn(&str) -> Result<Option<Value>, ConvertError> + 'a;

impl Family {
    pub(super) fn named(model_type: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|family| family.model_type == model_type)
    }
}

pub(super) fn arch(facts: Facts<'_>, family: &Family, beside: &Beside<'_>) -> Result<Arch, ConvertError> {
    refuse_others(facts)?;
    let (hidden, heads) = (facts.must("hidden_size")?, facts.must("num_attention_heads")?);
    if !hidden.is_multiple_of(heads) {
        let why = format!("is {heads}, which does not divide {hidden} elements");
        return Err(facts.fault("num_attention_heads", why));
    }
    let positions = facts.must("max_position_embeddings")?;
    let padding = if family.behind_padding { facts.count("pad_token_id")?.unwrap_or(1) } else { 0 };
    let first_position = if family.behind_padding { padding.saturating_add(1) } else { 0 };
    let Some(room) = positions.checked_sub(first_position).filter(|&room| room > 0) else {
        let why = format!("is {positions}, the first text's position is {first_position}");
        return Err(facts.fault("max_position_embeddings", why));
    };
    let head_dim = hidden / heads;
    let layer = Layer { rope: None, window: None };
    Ok(Arch {
        family: family.model_type.to_owned(),
        kind: Kind::Encoder,
        vocab: facts.must("vocab_size")?,
        hidden,
        heads,
        kv_heads: heads,
        head_dim,
        ffn: facts.must("intermediate_size")?,
        context: tokens_max(beside)?.map_or(room, |most| most.min(room)),
        activation: activation(facts, Activation::Gelu)?,
        gated: false,
        norm: Norm::Layer,
        norm_eps: facts.number("layer_norm_eps")?.unwrap_or(1e-12),
        norms: Norms::Behind,
        qk_norm: false,
        attention_scale: 1.0 / f64::from(head_dim).sqrt(),
        embedding_scale: 1.0,
        attention_softcap: None,
        logit_softcap: None,
        tied: true,
        ropes: Vec::new(),
        layers: vec![layer; facts.must("num_hidden_layers")?.min(1 << 16) as usize],
        pooling: Some(pooling(beside)?),
        token_types: facts.size("type_vocab_size")?.unwrap_or(2),
        positions,
        first_position,
    })
}

fn refuse_others(facts: Facts<'_>) -> Result<(), ConvertError> {
    for key in REFUSED {
        if facts.flag(key)? == Some(true) {
            return Err(facts.fault(key, "is true, such models are not packed"));
        }
    }
    let key = "position_embedding_type";
    if let Some(kind) = facts.value(key).filter(|kind| *kind != "absolute") {
        return Err(facts.fault(key, format!("is {kind}; absolute positions are packed")));
    }
    let key = "architectures";
    let names = facts.value(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for name in names {
        if let Some(head) = HEADS.iter().find(|head| name.ends_with(*head)) {
            let why = format!("names {name}: what follows the encoder there ({head}) is not packed");
            return Err(facts.fault(key, why));
        }
    }
    Ok(())
}

fn object(file: &'static str, value: Value) -> Result<Map<String, Value>, ConvertError> {
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(ConvertError::key(file, "is no object")),
    }
}

fn tokens_max(beside: &Beside<'_>) -> Result<Option<u32>, ConvertError> {
    let Some(value) = beside(SENTENCES)? else { return Ok(None) };
    Facts::of(SENTENCES, &object(SENTENCES, value)?).size("max_seq_length")
}

/// Without the files, what sentence-transformers assumes: the mean.
fn pooling(beside: &Beside<'_>) -> Result<Pooling, ConvertError> {
    let mut pooling = Pooling { kind: PoolingKind::Mean, normalize: false };
    let Some(modules) = beside(MODULES)? else { return Ok(pooling) };
    let broken = |why: String| ConvertError::key(MODULES, why);
    for module in modules.as_array().ok_or_else(|| broken("is no list".to_owned()))? {
        let text = |key: &str| module.get(key).and_then(Value::as_str);
        let kind = text("type").ok_or_else(|| broken("has a module without a type".to_owned()))?;
        match (kind.rsplit('.').next().unwrap_or_default(), text("path")) {
            ("Transformer", _) => {}
            ("Normalize", _) => pooling.normalize = true,
            ("Pooling", Some("1_Pooling")) => pooling.kind = kind_of(beside)?,
            ("Pooling", path) => {
                let path = path.unwrap_or_default();
                return Err(broken(format!("has its pooling in {path:?}, packed is what 1_Pooling says")));
            }
            _ => return Err(broken(format!("names {kind}, which is not packed"))),
        }
    }
    Ok(pooling)
}

fn kind_of(beside: &Beside<'_>) -> Result<PoolingKind, ConvertError> {
    let fault = |why: String| ConvertError::key(POOLING, why);
    let value = beside(POOLING)?.ok_or_else(|| fault("is missing, modules.json names it".to_owned()))?;
    let map = object(POOLING, value)?;
    let by_name = |mode: &str| match mode {
        "mean" | "mean_tokens" => Ok(PoolingKind::Mean),
        "cls" | "cls_token" => Ok(PoolingKind::First),
        "lasttoken" => Ok(PoolingKind::Last),
        other => Err(fault(format!("asks for {other}; mean, cls and lasttoken are packed"))),
    };
    if let Some(mode) = map.get("pooling_mode").and_then(Value::as_str) {
        return by_name(mode);
    }
    let set = map.iter().filter(|(_, value)| **value == Value::Bool(true));
    let modes: Vec<&str> = set.filter_map(|(key, _)| key.strip_prefix("pooling_mode_")).collect();
    match modes[..] {
        [] => Ok(PoolingKind::Mean),
        [mode] => by_name(mode),
        _ => Err(fault(format!("asks for {} at once, one is packed", modes.join(" and ")))),
    }
}

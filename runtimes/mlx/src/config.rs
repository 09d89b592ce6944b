//! Turns `config.json` into the numbers a forward pass needs, or says by name what in it cannot be computed.

use serde_json::{Map, Value};

use crate::architecture::{ARCHITECTURES, Activation, Architecture, Bias, Windows};
use crate::error::ModelError;
use crate::quantization::Quantization;
use crate::rope::Rope;

/// Most layers, heads and elements of a row that are believed.
const LAYERS_MAX: u64 = 1024;
const HEADS_MAX: u64 = 1024;
const WIDTH_MAX: u64 = 1 << 20;
const VOCAB_MAX: u64 = 1 << 22;
const CTX_MAX: u64 = 1 << 28;

/// A model's sizes and parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The row of the table.
    pub architecture: &'static Architecture,
    /// Elements of a hidden state.
    pub hidden: u32,
    /// Layers.
    pub layers: u32,
    /// Heads of queries.
    pub heads: u32,
    /// Heads of keys and values.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Elements between the feed-forward's matrices.
    pub ffn: u32,
    /// Tokens.
    pub vocab: u32,
    /// Added to a variance before its root is taken.
    pub norm_eps: f32,
    /// Between the feed-forward's matrices.
    pub activation: Activation,
    /// Positions the model was trained for, 0 = not said.
    pub ctx_trained: u32,
    /// The output matrix is the embedding.
    pub tied: bool,
    /// How heads are turned by position, in layers that look at everything.
    pub rope: Rope,
    /// The same in layers that look through a window.
    pub rope_window: Rope,
    /// Positions that a layer with a window sees, per layer; `None` = all of them.
    pub windows: Vec<Option<u32>>,
    /// Scores are multiplied by it.
    pub score_scale: f32,
    /// Scores are squashed below it.
    pub score_softcap: Option<f32>,
    /// Logits are squashed below it.
    pub logit_softcap: Option<f32>,
    /// Whether Q, K and V have a bias.
    pub qkv_bias: bool,
    /// Whether attention's output has a bias.
    pub output_bias: bool,
    /// Whether the feed-forward's matrices have a bias.
    pub mlp_bias: bool,
    /// How the matrices are quantized.
    pub quantization: Quantization,
}

/// `config.json` with getters that name the key in every error.
pub(crate) struct Reader<'a> {
    facts: &'a Map<String, Value>,
    architecture: &'static Architecture,
}

impl Reader<'_> {
    /// A value that is there and is not `null`.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.facts.get(key).filter(|value| !value.is_null())
    }

    fn size_if(&self, key: &str, max: u64) -> Result<Option<u32>, ModelError> {
        let given = match (self.value(key), self.architecture.default_of(key)) {
            (Some(value), _) => {
                value.as_u64().ok_or_else(|| ModelError::config(key, format!("is {value}, not a count")))?
            }
            (None, Some(default)) => default as u64,
            (None, None) => return Ok(None),
        };
        if given == 0 || given > max {
            return Err(ModelError::config(key, format!("is {given}, it can be 1 to {max}")));
        }
        Ok(Some(u32::try_from(given).expect("every limit is below 2^32")))
    }

    fn size(&self, key: &str, max: u64) -> Result<u32, ModelError> {
        self.size_if(key, max)?.ok_or_else(|| ModelError::config(key, "is missing"))
    }

    pub(crate) fn number_if(&self, key: &str) -> Result<Option<f64>, ModelError> {
        number(key, self.value(key)).map(|given| given.or_else(|| self.architecture.default_of(key)))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(ModelError::config(key, format!("is {other}, not true or false"))),
        }
    }

    fn bias(&self, bias: Bias) -> Result<bool, ModelError> {
        match bias {
            Bias::None => Ok(false),
            Bias::Always => Ok(true),
            Bias::When(key) => Ok(self.flag(key)?.unwrap_or(false)),
        }
    }
}

/// A positive, finite number.
pub(crate) fn number(key: &str, value: Option<&Value>) -> Result<Option<f64>, ModelError> {
    let Some(value) = value else { return Ok(None) };
    let number = value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
    number.map(Some).ok_or_else(|| ModelError::config(key, format!("is {value}, not a positive number")))
}

impl Config {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// What is missing, contradicts itself, or is not computed here, by its key.
    pub fn parse(text: &str) -> Result<Config, ModelError> {
        let value: Value = serde_json::from_str(text).map_err(|error| ModelError::Json(error.to_string()))?;
        let facts = value.as_object().ok_or_else(|| ModelError::Json("it is no object".to_owned()))?;
        let architecture = find_architecture(facts)?;
        let reader = Reader { facts, architecture };
        let hidden = reader.size("hidden_size", WIDTH_MAX)?;
        let layers = reader.size("num_hidden_layers", LAYERS_MAX)?;
        let heads = reader.size("num_attention_heads", HEADS_MAX)?;
        let kv_heads = reader.size_if("num_key_value_heads", HEADS_MAX)?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let why = format!("is {kv_heads}, which does not divide {heads} num_attention_heads");
            return Err(ModelError::config("num_key_value_heads", why));
        }
        let head_dim = match reader.size_if("head_dim", WIDTH_MAX)? {
            Some(size) => size,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                let why = format!("is missing, and {heads} heads do not divide {hidden}");
                return Err(ModelError::config("head_dim", why));
            }
        };
        if !head_dim.is_multiple_of(2) || u64::from(head_dim) * u64::from(heads) > WIDTH_MAX {
            return Err(ModelError::config(
                "head_dim",
                format!("is {head_dim}, it must be even and not so large"),
            ));
        }
        let (rope, rope_window) = Rope::read(&reader, head_dim)?;
        Ok(Config {
            architecture,
            hidden,
            layers,
            heads,
            kv_heads,
            head_dim,
            ffn: reader.size("intermediate_size", WIDTH_MAX)?,
            vocab: reader.size("vocab_size", VOCAB_MAX)?,
            norm_eps: reader.number_if("rms_norm_eps")?.unwrap_or(1e-6) as f32,
            activation: activation(&reader)?,
            ctx_trained: reader.size_if("max_position_embeddings", CTX_MAX)?.unwrap_or(0),
            tied: reader.flag("tie_word_embeddings")?.unwrap_or(architecture.tied),
            rope,
            rope_window,
            windows: windows(&reader, layers)?,
            score_scale: score_scale(&reader, head_dim)?,
            score_softcap: softcap(&reader, "attn_logit_softcapping")?,
            logit_softcap: softcap(&reader, "final_logit_softcapping")?,
            qkv_bias: reader.bias(architecture.qkv_bias)?,
            output_bias: reader.bias(architecture.output_bias)?,
            mlp_bias: reader.bias(architecture.mlp_bias)?,
            quantization: Quantization::read(facts)?,
        })
    }

    /// Elements of one position's keys and values in one layer.
    pub fn kv_width(&self) -> u32 {
        2 * self.kv_heads * self.head_dim
    }

    /// Settles what depends on the window that a model is opened with.
    pub fn extend_to(&mut self, window: u32) {
        for rope in [&mut self.rope, &mut self.rope_window] {
            *rope = rope.clone().within(window);
        }
    }

    /// How heads are turned in a layer.
    pub fn rope_of(&self, layer: u32) -> &Rope {
        match self.windows[layer as usize] {
            Some(_) => &self.rope_window,
            None => &self.rope,
        }
    }
}

fn find_architecture(facts: &Map<String, Value>) -> Result<&'static Architecture, ModelError> {
    let key = "model_type";
    let name = facts.get(key).and_then(Value::as_str).ok_or_else(|| ModelError::config(key, "is missing"))?;
    Architecture::named(name).ok_or_else(|| {
        let known: Vec<&str> = ARCHITECTURES.iter().map(|row| row.model_type).collect();
        ModelError::unsupported(key, format!("is {name}; this runtime computes {}", known.join(", ")))
    })
}

fn activation(reader: &Reader<'_>) -> Result<Activation, ModelError> {
    for key in ["hidden_activation", "hidden_act"] {
        let Some(value) = reader.value(key) else { continue };
        let name =
            value.as_str().ok_or_else(|| ModelError::config(key, format!("is {value}, not a name")))?;
        return Activation::named(name)
            .ok_or_else(|| ModelError::unsupported(key, format!("is {name}, which is not computed here")));
    }
    Ok(reader.architecture.activation)
}

fn windows(reader: &Reader<'_>, layers: u32) -> Result<Vec<Option<u32>>, ModelError> {
    let window = reader.size_if("sliding_window", u64::from(u32::MAX))?;
    if let Some(types) = reader.value("layer_types").and_then(Value::as_array) {
        return layer_types(types, window, layers);
    }
    let every = match reader.architecture.windows {
        Windows::None(refused) => {
            if let Some(key) = refused.filter(|_| window.is_some())
                && reader.flag(key)? == Some(true)
            {
                let why = "is true, and layer_types does not say for which layers";
                return Err(ModelError::unsupported(key, why));
            }
            return Ok(vec![None; layers as usize]);
        }
        Windows::All => u32::MAX,
        Windows::AllBut(key, usual) => match key {
            Some(key) => reader.size_if(key, LAYERS_MAX)?.unwrap_or(usual),
            None => usual,
        },
    };
    Ok((1..=layers).map(|number| window.filter(|_| number % every != 0)).collect())
}

/// Newer files name the kind of each layer.
fn layer_types(types: &[Value], window: Option<u32>, layers: u32) -> Result<Vec<Option<u32>>, ModelError> {
    let key = "layer_types";
    if types.len() != layers as usize {
        return Err(ModelError::config(key, format!("names {} layers of {layers}", types.len())));
    }
    let kind = |value: &Value| match value.as_str() {
        Some("full_attention") => Ok(None),
        Some("sliding_attention") if window.is_some() => Ok(window),
        Some("sliding_attention") => Err(ModelError::config("sliding_window", "is missing")),
        _ => Err(ModelError::unsupported(key, format!("has {value}, which is not computed here"))),
    };
    types.iter().map(kind).collect()
}

fn score_scale(reader: &Reader<'_>, head_dim: u32) -> Result<f32, ModelError> {
    let scalar = match reader.architecture.query_scalar {
        true => reader.number_if("query_pre_attn_scalar")?,
        false => None,
    };
    Ok((1.0 / scalar.unwrap_or_else(|| f64::from(head_dim)).sqrt()) as f32)
}

fn softcap(reader: &Reader<'_>, key: &str) -> Result<Option<f32>, ModelError> {
    match (reader.number_if(key)?, reader.architecture.softcaps) {
        (Some(_), false) => Err(ModelError::unsupported(key, "is not computed for this architecture")),
        (given, _) => Ok(given.map(|cap| cap as f32)),
    }
}

//! The architecture of a decoder, from its `config.json` and a table of what each family takes for granted.

use serde_json::Value;
use sf_base::{Activation, Arch, Kind, Layer, Norm, Norms, Rope};

use super::facts::{Facts, SIZE_MAX};
use super::rope::{Usual, ropes};
use crate::error::ConvertError;
use crate::kinds::Plain;

/// Positions that are said where a model says none.
const CONTEXT_UNSAID: u32 = 2048;
const LAYERS_MAX: u32 = 4096;

/// One family of decoders.
pub(super) struct Family {
    model_type: &'static str,
    /// Norm weights are stored less one; other norms than before; embeddings are scaled; scores have a scalar of their own.
    gemma: bool,
    head_norms: bool,
    windows: Windows,
    eps: f64,
    rope: Usual,
    head_dim: Option<u32>,
}

/// Which layers see a window.
#[derive(Clone, Copy)]
enum Windows {
    /// None of them; this flag of `config.json` would ask for some.
    None(Option<&'static str>),
    /// All, when there is one.
    All,
    /// All but every n-th.
    AllBut(Option<&'static str>, u32),
}

const PLAIN: Family = Family {
    model_type: "llama",
    gemma: false,
    head_norms: false,
    windows: Windows::None(None),
    eps: 1e-6,
    rope: Usual { theta: 10_000.0, local: None },
    head_dim: None,
};

const FAMILIES: &[Family] = &[
    PLAIN,
    Family { model_type: "mistral", windows: Windows::All, ..PLAIN },
    Family { model_type: "qwen2", windows: Windows::None(Some("use_sliding_window")), ..PLAIN },
    Family {
        model_type: "qwen3",
        head_norms: true,
        windows: Windows::None(Some("use_sliding_window")),
        ..PLAIN
    },
    Family { model_type: "gemma2", gemma: true, windows: Windows::AllBut(None, 2), ..PLAIN },
    Family {
        model_type: "gemma3_text",
        gemma: true,
        head_norms: true,
        windows: Windows::AllBut(Some("sliding_window_pattern"), 6),
        rope: Usual { theta: 1_000_000.0, local: Some(10_000.0) },
        head_dim: Some(256),
        ..PLAIN
    },
];

impl Family {
    pub(super) fn named(model_type: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|family| family.model_type == model_type)
    }

    /// All names, for people.
    pub(super) fn names() -> Vec<&'static str> {
        FAMILIES.iter().map(|family| family.model_type).collect()
    }

    /// What norm weights of a model directory lack.
    pub(super) fn norm_offset(&self) -> f32 {
        if self.gemma { 1.0 } else { 0.0 }
    }
}

/// Of a model whose rotations may be divided further, pair by pair.
pub(super) fn arch(
    facts: Facts<'_>,
    family: &Family,
    divisors: Option<&[f32]>,
) -> Result<Arch, ConvertError> {
    let (hidden, heads) = (facts.must("hidden_size")?, facts.must("num_attention_heads")?);
    let kv_heads = facts.size("num_key_value_heads")?.unwrap_or(heads);
    if !heads.is_multiple_of(kv_heads) {
        let why = format!("is {kv_heads}, which does not divide {heads} num_attention_heads");
        return Err(facts.fault("num_key_value_heads", why));
    }
    let head_dim = match facts.size("head_dim")?.or(family.head_dim) {
        Some(size) => size,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            return Err(facts.fault("head_dim", format!("is missing, {heads} heads do not divide {hidden}")));
        }
    };
    let all = u64::from(head_dim) * (u64::from(heads) + 2 * u64::from(kv_heads));
    if !head_dim.is_multiple_of(2) || all > SIZE_MAX {
        return Err(facts.fault("head_dim", format!("is {head_dim}, it must be even and not so large")));
    }
    let layers = facts.must("num_hidden_layers")?;
    if layers > LAYERS_MAX {
        return Err(facts.fault("num_hidden_layers", format!("is {layers}, at most {LAYERS_MAX} are packed")));
    }
    let (whole, window) = ropes(facts, head_dim, family.rope, divisors)?;
    let windows = windows(facts, family, layers)?;
    let (ropes, layers) = layers_of(whole, window, &windows);
    let scalar = if family.gemma { facts.number("query_pre_attn_scalar")? } else { None };
    let scale = 1.0 / scalar.unwrap_or_else(|| f64::from(head_dim)).sqrt();
    let embedding = f64::from(Plain::Bf16.round(f64::from(hidden).sqrt() as f32));
    Ok(Arch {
        family: family.model_type.to_owned(),
        kind: Kind::Decoder,
        vocab: facts.must("vocab_size")?,
        hidden,
        heads,
        kv_heads,
        head_dim,
        ffn: facts.must("intermediate_size")?,
        context: facts.size("max_position_embeddings")?.unwrap_or(CONTEXT_UNSAID),
        activation: activation(facts, if family.gemma { Activation::GeluTanh } else { Activation::Silu })?,
        gated: true,
        norm: Norm::Rms,
        norm_eps: facts.number("rms_norm_eps")?.unwrap_or(family.eps),
        norms: if family.gemma { Norms::Around } else { Norms::Before },
        qk_norm: family.head_norms,
        attention_scale: scale,
        // The model was trained with this factor as a brain float.
        embedding_scale: if family.gemma { embedding } else { 1.0 },
        attention_softcap: softcap(facts, family, "attn_logit_softcapping")?,
        logit_softcap: softcap(facts, family, "final_logit_softcapping")?,
        tied: facts.flag("tie_word_embeddings")?.unwrap_or(family.gemma),
        ropes,
        layers,
        pooling: None,
        token_types: 0,
        positions: 0,
        first_position: 0,
    })
}

/// Rotations without those that nobody uses, and each layer's.
fn layers_of(whole: Rope, window: Rope, windows: &[Option<u32>]) -> (Vec<Rope>, Vec<Layer>) {
    let same = whole == window || windows.iter().all(Option::is_none);
    let of_windows = if same { 0 } else { 1 };
    let layer = |&window: &Option<u32>| Layer { rope: Some(window.map_or(0, |_| of_windows)), window };
    let ropes = if same { vec![whole] } else { vec![whole, window] };
    (ropes, windows.iter().map(layer).collect())
}

pub(super) fn activation(facts: Facts<'_>, usual: Activation) -> Result<Activation, ConvertError> {
    for key in ["hidden_activation", "hidden_act"] {
        let Some(value) = facts.value(key) else { continue };
        return match value.as_str() {
            Some("silu" | "swish") => Ok(Activation::Silu),
            Some("gelu_pytorch_tanh" | "gelu_new") => Ok(Activation::GeluTanh),
            Some("gelu") => Ok(Activation::Gelu),
            _ => Err(facts.fault(key, format!("is {value}; silu, gelu and gelu_pytorch_tanh are packed"))),
        };
    }
    Ok(usual)
}

fn softcap(facts: Facts<'_>, family: &Family, key: &str) -> Result<Option<f64>, ConvertError> {
    match facts.number(key)? {
        Some(_) if !family.gemma => Err(facts.fault(key, "has no meaning for this architecture")),
        given => Ok(given),
    }
}

fn windows(facts: Facts<'_>, family: &Family, layers: u32) -> Result<Vec<Option<u32>>, ConvertError> {
    let window = facts.size("sliding_window")?;
    if let Some(types) = facts.value("layer_types").and_then(Value::as_array) {
        return layer_types(facts, types, window, layers);
    }
    let every = match family.windows {
        Windows::None(flag) => {
            if let Some(key) = flag.filter(|_| window.is_some())
                && facts.flag(key)? == Some(true)
            {
                return Err(facts.fault(key, "is true, and layer_types does not say for which layers"));
            }
            return Ok(vec![None; layers as usize]);
        }
        Windows::All => u32::MAX,
        Windows::AllBut(None, usual) => usual,
        Windows::AllBut(Some(key), usual) => facts.size(key)?.unwrap_or(usual),
    };
    Ok((1..=layers).map(|number| window.filter(|_| !number.is_multiple_of(every))).collect())
}

/// Newer files name the kind of each layer.
fn layer_types(
    facts: Facts<'_>,
    types: &[Value],
    window: Option<u32>,
    layers: u32,
) -> Result<Vec<Option<u32>>, ConvertError> {
    let key = "layer_types";
    if types.len() != layers as usize {
        return Err(facts.fault(key, format!("names {} layers of {layers}", types.len())));
    }
    let kind = |value: &Value| match value.as_str() {
        Some("full_attention") => Ok(None),
        Some("sliding_attention") if window.is_some() => Ok(window),
        Some("sliding_attention") => Err(facts.fault("sliding_window", "is missing")),
        _ => Err(facts.fault(key, format!("has {value}, which is not packed"))),
    };
    types.iter().map(kind).collect()
}

//! What a model says about itself: effective options and facts.

use serde_json::json;
use std::collections::BTreeMap;

use sf_abi_sdk::{Capability, EmbeddingFacts, ModelDescription, ModelFacts, True};

use crate::layout::Matrix;
use crate::params::Params;
use crate::quantization::Quantization;
use crate::{Checked, CheckedEncoder, Found};

/// What an encoder says where text is asked for.
pub(crate) const NO_TEXT: &str = "an encoder makes no text";

/// Of an open model.
pub(crate) fn described(checked: &Checked, params: &Params) -> ModelDescription {
    let no = || {
        Capability::No(
            "this model makes text; vectors are made by encoders (bert, roberta, xlm-roberta)".to_owned(),
        )
    };
    let mut capabilities = section("workload", [("embedding", no())]);
    capabilities.extend(determinism(params));
    ModelDescription {
        effective: effective(params, checked.config.ctx_trained),
        model: facts(checked),
        capabilities,
        ..ModelDescription::default()
    }
}

/// Of an open encoder.
pub(crate) fn described_encoder(checked: &CheckedEncoder, params: &Params) -> ModelDescription {
    let config = &checked.config;
    let no = || Capability::No(NO_TEXT.to_owned());
    let mut capabilities =
        section("workload", [("chat", no()), ("completion", no()), ("embedding", Capability::Yes(True))]);
    capabilities.extend(section("kv", ["export", "fork", "import", "truncate"].map(|name| (name, no()))));
    capabilities.extend(determinism(params));
    ModelDescription {
        effective: effective(params, config.tokens_max),
        model: encoder_facts(checked),
        capabilities,
        embedding: Some(EmbeddingFacts {
            dims: config.hidden,
            pooling: config.pooling.name().to_owned(),
            normalized: config.normalized,
            tokens_max: config.tokens_max.min(params.ctx_max(config.tokens_max)),
        }),
    }
}

/// What holds on the device.
fn determinism(params: &Params) -> BTreeMap<String, BTreeMap<String, Capability>> {
    let invariant = match params.device.is_gpu() {
        true => Capability::No("on a GPU MLX's own operations sum as the batch is shaped".to_owned()),
        false => Capability::Yes(True),
    };
    section("determinism", [("batch_invariant", invariant)])
}

fn section<const N: usize>(
    name: &str,
    entries: [(&str, Capability); N],
) -> BTreeMap<String, BTreeMap<String, Capability>> {
    let entries = entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    BTreeMap::from([(name.to_owned(), entries)])
}

fn effective(params: &Params, trained: u32) -> BTreeMap<String, serde_json::Value> {
    let effective = [
        ("ctx.max", json!(params.ctx_max(trained))),
        ("lanes.max", json!(params.lanes_max)),
        ("step.tokens.max", json!(params.step_tokens)),
        ("threads", json!(params.threads)),
        ("kv.type_k", json!("f32")),
        ("kv.type_v", json!("f32")),
        ("kv.cells", json!(params.kv_cells(trained))),
        ("x.mlx.cache-mb", json!(params.cache_mb)),
        ("x.mlx.device", json!(params.device.name())),
    ];
    effective.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Of a model that is not open, as JSON.
pub(crate) fn inspected(found: &Found) -> String {
    let (facts, layers, tensors) = match found {
        Found::Text(text) => (facts(text), text.config.layers, text.files.tensors.len()),
        Found::Encoder(encoder) => {
            (encoder_facts(encoder), encoder.config.layers, encoder.files.tensors.len())
        }
    };
    json!({
        "architecture": facts.architecture,
        "vocab": facts.vocab,
        "ctx_trained": facts.ctx_trained,
        "parameters": facts.parameters,
        "quantization": facts.quantization,
        "layers": layers,
        "tensors": tensors,
    })
    .to_string()
}

fn facts(checked: &Checked) -> ModelFacts {
    let config = &checked.config;
    ModelFacts {
        architecture: config.architecture.model_type.to_owned(),
        vocab: config.vocab,
        ctx_trained: config.ctx_trained,
        parameters: checked.layout.parameters(config),
        quantization: quantization(&checked.layout.layers[0].down, &config.quantization),
    }
}

fn encoder_facts(checked: &CheckedEncoder) -> ModelFacts {
    let config = &checked.config;
    ModelFacts {
        architecture: config.family.model_type.to_owned(),
        vocab: config.vocab,
        ctx_trained: config.positions - config.first_position,
        parameters: checked.layout.parameters(config),
        quantization: quantization(&checked.layout.layers[0].down, &config.quantization),
    }
}

/// What most matrices are stored as, one of which is `first`.
fn quantization(first: &Matrix, words: &Quantization) -> String {
    match (&first.blocks, words.words()) {
        (Some(_), Some(words)) => words,
        _ => first.weight.tensor.dtype.name().to_lowercase(),
    }
}

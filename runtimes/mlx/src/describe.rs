//! What a model says about itself: effective options and facts.

use serde_json::json;
use sf_abi_sdk::{ModelDescription, ModelFacts};

use crate::Checked;
use crate::params::Params;

/// Of an open model.
pub(crate) fn described(checked: &Checked, params: &Params) -> ModelDescription {
    let trained = checked.config.ctx_trained;
    let effective = [
        ("ctx.max", json!(params.ctx_max(trained))),
        ("lanes.max", json!(params.lanes_max)),
        ("step.tokens.max", json!(params.step_tokens)),
        ("threads", json!(params.threads)),
        ("kv.type_k", json!("f32")),
        ("kv.type_v", json!("f32")),
        ("kv.cells", json!(params.kv_cells(trained))),
        ("x.mlx.cache-mb", json!(params.cache_mb)),
    ];
    ModelDescription {
        effective: effective.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        model: facts(checked),
        ..ModelDescription::default()
    }
}

/// Of a model that is not open, as JSON.
pub(crate) fn inspected(checked: &Checked) -> String {
    let facts = facts(checked);
    json!({
        "architecture": facts.architecture,
        "vocab": facts.vocab,
        "ctx_trained": facts.ctx_trained,
        "parameters": facts.parameters,
        "quantization": facts.quantization,
        "layers": checked.config.layers,
        "tensors": checked.files.tensors.len(),
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
        quantization: quantization(checked),
    }
}

/// What most matrices are stored as.
fn quantization(checked: &Checked) -> String {
    let first = &checked.layout.layers[0].down;
    match (&first.blocks, checked.config.quantization.words()) {
        (Some(_), Some(words)) => words,
        _ => first.weight.tensor.dtype.name().to_lowercase(),
    }
}

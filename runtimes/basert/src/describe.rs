//! What a model says about itself: effective options and facts.

use std::collections::BTreeMap;

use serde_json::json;
use sf_abi_sdk::{Capability, EmbeddingFacts, ModelDescription, ModelFacts, True};
use sf_base::{Bundle, Kind};

use crate::params::{KV_TYPE, Params};

/// What an encoder says where text is asked for.
pub(crate) const NO_TEXT: &str = "an encoder makes no text";

/// Of an open model.
pub(crate) fn described(bundle: &Bundle, params: &Params) -> ModelDescription {
    let arch = &bundle.header.architecture;
    let no = |why: &str| Capability::No(why.to_owned());
    let (capabilities, embedding) = match arch.kind {
        Kind::Decoder => {
            let why = "this model makes text; vectors are made by encoders (bert, roberta, xlm-roberta)";
            (section("workload", [("embedding", no(why))]), None)
        }
        Kind::Encoder => {
            let workload =
                [("chat", no(NO_TEXT)), ("completion", no(NO_TEXT)), ("embedding", Capability::Yes(True))];
            let mut all = section("workload", workload);
            all.extend(section(
                "kv",
                ["export", "fork", "import", "truncate"].map(|name| (name, no(NO_TEXT))),
            ));
            (all, embedding(bundle, params))
        }
    };
    ModelDescription {
        effective: effective(params, arch.context),
        model: facts(bundle),
        capabilities,
        embedding,
    }
}

fn embedding(bundle: &Bundle, params: &Params) -> Option<EmbeddingFacts> {
    let arch = &bundle.header.architecture;
    arch.pooling.as_ref().map(|pooling| EmbeddingFacts {
        dims: arch.hidden,
        pooling: pooling.kind.name().to_owned(),
        normalized: pooling.normalize,
        tokens_max: arch.context.min(params.ctx_max(arch.context)),
    })
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
        ("kv.type_k", json!(KV_TYPE)),
        ("kv.type_v", json!(KV_TYPE)),
        ("kv.cells", json!(params.kv_cells(trained))),
        ("x.basert.kernels", json!(if params.kernels_auto { "auto" } else { params.kernels.name })),
        ("x.basert.weights", json!(params.placement.name())),
    ];
    effective.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Of a model that is not open, as JSON.
pub(crate) fn inspected(bundle: &Bundle) -> String {
    let facts = facts(bundle);
    json!({
        "architecture": facts.architecture,
        "vocab": facts.vocab,
        "ctx_trained": facts.ctx_trained,
        "parameters": facts.parameters,
        "quantization": facts.quantization,
        "layers": bundle.header.architecture.layers.len(),
        "tensors": bundle.header.tensors.len(),
    })
    .to_string()
}

fn facts(bundle: &Bundle) -> ModelFacts {
    let header = &bundle.header;
    ModelFacts {
        architecture: header.architecture.family.clone(),
        vocab: header.architecture.vocab,
        ctx_trained: header.architecture.context,
        parameters: header.parameters,
        quantization: header.quantization.clone(),
    }
}

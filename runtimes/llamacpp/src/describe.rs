//! What an open model says about itself: effective options, facts, and what it can do that others cannot.
#![expect(unsafe_code, reason = "asks llama.cpp")]

use std::collections::BTreeMap;

use llama_cpp_sys_2 as sys;
use serde_json::{Value, json};
use sf_abi_sdk::{Capability, ModelDescription, ModelFacts, True};

use crate::context::Context;
use crate::estimate::Sizes;
use crate::header::{Header, owned};
use crate::lanes::Memory;
use crate::params::Params;

/// The instruction sets this build uses, in llama.cpp's words.
pub(crate) fn system_info() -> String {
    // SAFETY: a static text.
    owned(unsafe { sys::llama_print_system_info() }).trim().to_owned()
}

/// A CPU feature that every build of llama.cpp for this architecture takes for granted and that is missing here.
///
/// A native build may need more; it is only meant for the machine it was built on.
pub(crate) fn missing_feature() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! first_missing {
            ($($feature:tt),*) => {
                [$(($feature, is_x86_feature_detected!($feature))),*]
                    .into_iter()
                    .find_map(|(feature, here)| (!here).then_some(feature))
            };
        }
        first_missing!("sse4.2", "avx", "avx2", "fma", "f16c", "bmi2")
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

pub(crate) fn describe(
    header: &Header,
    context: &Context,
    memory: Memory,
    params: &Params,
    sizes: &Sizes,
) -> ModelDescription {
    let model = context.weights().raw();
    // SAFETY: a live model.
    let parameters = unsafe { sys::llama_model_n_params(model) };
    ModelDescription {
        effective: effective(context, params, sizes),
        model: ModelFacts {
            architecture: header.architecture(),
            vocab: context.weights().vocab_len(),
            ctx_trained: header.ctx_trained(),
            parameters,
            quantization: header.quantization(),
        },
        capabilities: BTreeMap::from([("kv".to_owned(), kv(memory))]),
        embedding: None,
    }
}

fn effective(context: &Context, params: &Params, sizes: &Sizes) -> BTreeMap<String, Value> {
    let pairs = [
        ("ctx.max", json!(sizes.ctx_max)),
        ("lanes.max", json!(params.lanes_max)),
        ("step.tokens.max", json!(params.step_tokens)),
        ("threads", json!(params.threads)),
        ("kv.type_k", json!(params.type_k.name)),
        ("kv.type_v", json!(params.type_v.name)),
        ("kv.cells", json!(context.cells())),
        ("x.llamacpp.batch-size", json!(params.batch)),
        ("x.llamacpp.ubatch-size", json!(context.ubatch())),
        ("x.llamacpp.threads-batch", json!(params.threads_batch)),
        ("x.llamacpp.flash-attn", json!(params.flash.name())),
        ("x.llamacpp.mmap", json!(params.mmap)),
        ("x.llamacpp.mlock", json!(params.mlock)),
        ("x.llamacpp.repack", json!(params.repack)),
        ("x.llamacpp.swa-full", json!(params.swa_full)),
        ("x.llamacpp.kv-cells", json!(context.cells())),
        ("x.llamacpp.poll", json!(params.poll)),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Why a recurrent or hybrid model saves no lane.
const STATE_STAYS: &str = "a recurrent state is not saved in this build yet";

fn kv(memory: Memory) -> BTreeMap<String, Capability> {
    let (truncate, fork) = match memory {
        Memory::Whole => (Capability::Yes(True), Capability::Yes(True)),
        Memory::Window(window) => {
            let can = |what: &str| Capability::When {
                when: format!("the cut lies within the window of {window} positions, or the lane is shorter"),
                r#else: format!("{what}; x.llamacpp.swa-full keeps every position"),
            };
            (can("the lane becomes empty"), can("refused"))
        }
        Memory::State => {
            let can = |what: &str| Capability::When {
                when: "the whole lane is meant".to_owned(),
                r#else: what.to_owned(),
            };
            (can("the lane becomes empty"), can("refused"))
        }
    };
    let export = match memory {
        Memory::Whole => Capability::Yes(True),
        Memory::Window(window) => Capability::When {
            when: format!("the whole lane is meant, or its end lies within the window of {window} positions"),
            r#else: "refused; x.llamacpp.swa-full keeps every position".to_owned(),
        },
        Memory::State => Capability::No(STATE_STAYS.to_owned()),
    };
    let import = match memory {
        Memory::State => Capability::No(STATE_STAYS.to_owned()),
        _ => Capability::Yes(True),
    };
    [("truncate", truncate), ("fork", fork), ("export", export), ("import", import)]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

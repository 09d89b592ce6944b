//! Llama.cpp behind the superfluid runtime ABI: GGUF models on the CPU, many lanes in one context.
//!
//! One `llama_context` serves a model. A lane is a llama.cpp sequence in one unified KV cache, a step is one
//! `llama_batch`, and rows stay in llama.cpp's own output buffer. It must not know who calls it or sample anything.

mod attention;
mod context;
mod describe;
mod estimate;
mod header;
mod identity;
mod lanes;
mod log;
mod model;
mod pages;
mod params;
mod state;
mod step;
mod tokenizer;
mod weights;

use std::time::Duration;

use sf_abi_sdk::{Code, Device, Estimate, Fault, Host, OpenRequest, ProbeAnswer, Runtime};

pub use attention::use_original_attention;
pub use pages::released_bytes;

/// The descriptor: canonical JSON, the same bytes as in the library's section and in `runtime.json`.
pub const DESCRIPTOR: &str = include_str!("../descriptor.json");

/// The only device of a build without a GPU backend.
const CPU: &str = "cpu:0";

/// The runtime `llamacpp`.
#[derive(Debug)]
pub struct LlamaCpp;

impl Runtime for LlamaCpp {
    type Model = model::LlamaModel;
    type Tokenizer = tokenizer::LlamaTokenizer;
    const INSPECT: bool = true;
    const TOKENIZER: bool = true;

    fn init(host: Host) -> Result<Self, Fault> {
        log::attach(host);
        weights::start_backend();
        Ok(LlamaCpp)
    }

    fn probe(&self, _depth: u32, _budget: Duration) -> Result<ProbeAnswer, Fault> {
        let missing = describe::missing_feature();
        Ok(ProbeAnswer {
            available: missing.is_none(),
            reason: missing
                .map(|feature| format!("this build needs {feature}, which this CPU does not have")),
            devices: vec![Device {
                id: CPU.to_owned(),
                name: describe::system_info(),
                backend: "cpu".to_owned(),
                memory_total: sf_abi_sdk::machine::memory_total().unwrap_or(0),
            }],
        })
    }

    fn open(&self, request: &mut OpenRequest<'_>) -> Result<model::LlamaModel, Fault> {
        check_devices(request)?;
        model::LlamaModel::open(request)
    }

    fn inspect(&self, request: &OpenRequest<'_>) -> Result<String, Fault> {
        Ok(header::Header::open(request.paths()[0])?.facts().to_string())
    }

    fn estimate(&self, request: &OpenRequest<'_>) -> Result<Estimate, Fault> {
        check_devices(request)?;
        let params = params::Params::read(request.options())?;
        let header = header::Header::open(request.paths()[0])?;
        let sizes = estimate::Sizes::new(&header, &params);
        Ok(sizes.estimate(&header, request.paths()))
    }

    fn tokenizer(&self, request: &OpenRequest<'_>) -> Result<tokenizer::LlamaTokenizer, Fault> {
        tokenizer::LlamaTokenizer::open(request)
    }
}

fn check_devices(request: &OpenRequest<'_>) -> Result<(), Fault> {
    match request.devices().iter().find(|&&device| device != CPU) {
        Some(device) => {
            Err(Fault::new(Code::NotFound, format!("there is no device {device}, this build has {CPU}"))
                .field("devices"))
        }
        None => Ok(()),
    }
}

sf_abi_sdk::export_runtime!(LlamaCpp, descriptor = DESCRIPTOR);

//! MLX behind the superfluid runtime ABI: model directories with `config.json` and safetensors, many lanes in one batch.
//!
//! The readers ([`config`], [`files`], [`layout`]) are plain Rust and decide what can be opened. What computes is in `engine`,
//! which is compiled where an MLX build was given (see `build.rs`). It must not know who calls it or sample anything.
#![cfg_attr(not(sf_mlx), allow(dead_code, reason = "a build without MLX has the readers only"))]

pub mod architecture;
pub mod config;
mod describe;
pub mod encoder;
pub mod encoder_layout;
mod error;
mod estimate;
pub mod files;
mod identity;
pub mod layout;
mod params;
pub mod quantization;
pub mod rope;
pub mod safetensors;

#[cfg(not(sf_mlx))]
mod absent;
#[cfg(sf_mlx)]
mod engine;

#[cfg(not(sf_mlx))]
use absent as engine;

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use sf_abi_sdk::{Device, Estimate, Fault, Host, Level, NoTokenizer, OpenRequest, ProbeAnswer, Runtime};

#[cfg(sf_mlx)]
#[doc(hidden)]
pub use engine::use_kernels;
pub use error::ModelError;

use config::Config;
use encoder::EncoderConfig;
use encoder_layout::EncoderLayout;
use files::Files;
use layout::Layout;

/// The descriptor: canonical JSON, the same bytes as in the library's section and in `runtime.json`.
pub const DESCRIPTOR: &str = include_str!("../descriptor.json");

/// What every build computes on.
const CPU: &str = "cpu:0";
/// The first GPU that MLX finds, in builds that have one.
const GPU: &str = "gpu:0";

/// A model directory whose configuration and headers are read and fit each other.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) files: Files,
    pub(crate) config: Config,
    pub(crate) layout: Layout,
}

/// An encoder's directory, in the same way.
#[derive(Debug)]
pub(crate) struct CheckedEncoder {
    pub(crate) files: Files,
    pub(crate) config: EncoderConfig,
    pub(crate) layout: EncoderLayout,
}

/// What a directory holds.
#[derive(Debug)]
pub(crate) enum Found {
    Text(Box<Checked>),
    Encoder(Box<CheckedEncoder>),
}

impl Found {
    pub(crate) fn open(path: &Path) -> Result<Found, ModelError> {
        let files = Files::open(path)?;
        if EncoderConfig::is_meant(&files.config) {
            let config = EncoderConfig::read(&files)?;
            let layout = EncoderLayout::find(&config, &files)?;
            return Ok(Found::Encoder(Box::new(CheckedEncoder { files, config, layout })));
        }
        let config = Config::parse(&files.config)?;
        let layout = Layout::find(&config, &files)?;
        Ok(Found::Text(Box::new(Checked { files, config, layout })))
    }
}

/// Reads bytes as a `config.json` with the files of sentence-transformers behind it, zero bytes between them (when they begin
/// like one), or as the start of a safetensors file, and looks at what came out: for the fuzzer and the tests that replay what
/// it found.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    if bytes.first() == Some(&b'{') {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let parts: Vec<&str> = text.split('\0').collect();
        if let Ok(config) = Config::parse(parts[0]) {
            assert_eq!(config.windows.len(), config.layers as usize);
            (0..config.layers).for_each(|layer| assert!(config.rope_of(layer).turned() <= config.head_dim));
        }
        let beside = |name: &str| {
            let at = match name {
                "modules.json" => 1,
                "sentence_bert_config.json" => 2,
                _ => 3,
            };
            Ok(parts.get(at).map(|text| (*text).to_owned()))
        };
        if let Ok(config) = EncoderConfig::parse(parts[0], &beside) {
            assert!(EncoderConfig::is_meant(parts[0]) && config.hidden.is_multiple_of(config.heads));
            assert!(config.tokens_max > 0 && config.tokens_max <= config.positions - config.first_position);
        }
    } else if let Ok(header) = safetensors::Header::parse(bytes, bytes.len() as u64) {
        let inside = |tensor: &safetensors::Tensor| tensor.offset + tensor.bytes <= bytes.len() as u64;
        assert!(header.tensors.values().all(inside));
    }
}

static HOST: OnceLock<Host> = OnceLock::new();

/// One line to the host's log.
pub(crate) fn log(level: Level, message: &str) {
    if let Some(host) = HOST.get() {
        host.log(level, "mlx", message);
    }
}

/// The runtime `mlx`.
#[derive(Debug)]
pub struct Mlx;

impl Runtime for Mlx {
    type Model = engine::OpenModel;
    type Tokenizer = NoTokenizer;
    const INSPECT: bool = true;

    fn init(host: Host) -> Result<Self, Fault> {
        let _ = HOST.set(host);
        Ok(Mlx)
    }

    fn probe(&self, _depth: u32, _budget: Duration) -> Result<ProbeAnswer, Fault> {
        let reason = engine::missing();
        Ok(ProbeAnswer {
            available: reason.is_none(),
            reason,
            devices: [(CPU, "cpu", Some(engine::device_name())), (GPU, "gpu", engine::gpu_name())]
                .into_iter()
                .filter_map(|(id, backend, name)| {
                    Some(Device {
                        id: id.to_owned(),
                        name: name?,
                        backend: backend.to_owned(),
                        memory_total: sf_abi_sdk::machine::memory_total().unwrap_or(0),
                    })
                })
                .collect(),
        })
    }

    fn open(&self, request: &mut OpenRequest<'_>) -> Result<engine::OpenModel, Fault> {
        engine::open(request)
    }

    fn inspect(&self, request: &OpenRequest<'_>) -> Result<String, Fault> {
        Ok(describe::inspected(&Found::open(request.paths()[0])?))
    }

    fn estimate(&self, request: &OpenRequest<'_>) -> Result<Estimate, Fault> {
        let params = params::Params::read(request.options(), request.devices())?;
        Ok(estimate::of(&Found::open(request.paths()[0])?, &params))
    }
}

sf_abi_sdk::export_runtime!(Mlx, descriptor = DESCRIPTOR);

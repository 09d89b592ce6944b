//! Our own engine behind the superfluid runtime ABI: `.base` bundles, computed by hand-written kernels.
//!
//! A bundle's header describes the architecture in one form for all (`sf_base::Arch`); `engine` computes it, `kernels` are
//! what it computes with. It must not know who calls it, sample anything, or read any other format.

mod describe;
mod engine;
mod error;
mod estimate;
mod identity;
mod kernels;
mod params;
mod pool;

use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use sf_abi_sdk::{Device, Estimate, Fault, Host, Level, NoTokenizer, OpenRequest, ProbeAnswer, Runtime};
use sf_base::Bundle;

use error::ModelError;

/// The descriptor: canonical JSON, the same bytes as in the library's section and in `runtime.json`.
pub const DESCRIPTOR: &str = include_str!("../descriptor.json");

/// What every build computes on.
const CPU: &str = "cpu:0";

/// A bundle whose header is checked.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) bundle: Bundle,
}

impl Opened {
    pub(crate) fn open(path: &Path) -> Result<Opened, ModelError> {
        let file = File::open(path).map_err(ModelError::Read)?;
        let bundle = Bundle::read(&file)?;
        Ok(Opened { file, bundle })
    }
}

static HOST: OnceLock<Host> = OnceLock::new();

/// One line to the host's log.
pub(crate) fn log(level: Level, message: &str) {
    if let Some(host) = HOST.get() {
        host.log(level, "basert", message);
    }
}

/// The runtime `basert`.
#[derive(Debug)]
pub struct Basert;

impl Runtime for Basert {
    type Model = engine::OpenModel;
    type Tokenizer = NoTokenizer;
    const INSPECT: bool = true;

    fn init(host: Host) -> Result<Self, Fault> {
        let _ = HOST.set(host);
        Ok(Basert)
    }

    fn probe(&self, _depth: u32, _budget: Duration) -> Result<ProbeAnswer, Fault> {
        let kernels = kernels::Kernels::named(None).map_or("none", |kernels| kernels.name);
        Ok(ProbeAnswer {
            available: true,
            reason: None,
            devices: vec![Device {
                id: CPU.to_owned(),
                name: format!("CPU, {kernels} kernels"),
                backend: "cpu".to_owned(),
                memory_total: sf_abi_sdk::machine::memory_total().unwrap_or(0),
            }],
        })
    }

    fn open(&self, request: &mut OpenRequest<'_>) -> Result<engine::OpenModel, Fault> {
        engine::open(request)
    }

    fn inspect(&self, request: &OpenRequest<'_>) -> Result<String, Fault> {
        Ok(describe::inspected(&Opened::open(request.paths()[0])?.bundle))
    }

    fn estimate(&self, request: &OpenRequest<'_>) -> Result<Estimate, Fault> {
        let params = params::Params::read(request.options(), request.devices())?;
        Ok(estimate::of(&Opened::open(request.paths()[0])?.bundle, &params))
    }
}

sf_abi_sdk::export_runtime!(Basert, descriptor = DESCRIPTOR);

//! The one trait behind which both transports stand.

use std::path::PathBuf;

use sf_abi::descriptor::ModelDescription;
use sf_core::{EngineOption, StepOut, StepPlan};

use crate::control::Control;
use crate::error::EngineError;

/// Everything needed to open one model with one runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenSpec {
    /// The runtime's library, absolute.
    pub library: PathBuf,
    /// Set before the library is loaded (descriptor `env`).
    pub env: Vec<(String, String)>,
    /// The model's files, absolute, the main one first.
    pub models: Vec<PathBuf>,
    /// In the order given.
    pub options: Vec<EngineOption>,
    /// Lanes that will be used.
    pub lanes_max: u32,
}

/// What an open engine said about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Opened {
    /// Effective options, model facts, capability overrides.
    pub description: ModelDescription,
    /// Interfaces the model offers beyond `sf.engine/1`.
    pub interfaces: Vec<String>,
}

/// Numbers of a running engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Lanes alive.
    pub lanes_live: u32,
    /// Steps so far.
    pub steps: u64,
    /// Bytes of weights, KV and scratch.
    pub bytes: [u64; 3],
    /// Positions that all lanes may hold, and do hold.
    pub kv_cells: [u64; 2],
}

/// An open engine. Owned by one lane thread; one step is in flight at a time.
pub trait Link: Send {
    /// What it said when it opened.
    fn opened(&self) -> &Opened;

    /// Hands over a plan; returns as soon as the transport has taken it.
    fn begin(&mut self, plan: &StepPlan) -> Result<(), EngineError>;

    /// Waits for the step begun last and fills `out`, reusing its buffers.
    fn finish(&mut self, out: &mut StepOut) -> Result<(), EngineError>;

    /// Numbers for `/metrics`; only between steps.
    fn stats(&mut self) -> Result<EngineStats, EngineError>;

    /// The worker's process id; `None` in-process.
    fn pid(&self) -> Option<u32>;

    /// The words that make a running step yield or give up; `None` for links without them.
    fn control(&self) -> Option<Control> {
        None
    }
}

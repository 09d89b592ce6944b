//! The one trait behind which both transports stand.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sf_abi::descriptor::ModelDescription;
use sf_abi::{SFR_E_UNSUPPORTED, SFR_SCOPE_CALL};
use sf_core::{EmbedBatch, EngineOption, StepOut, StepPlan, Vocabulary};

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
    /// The model's tokens, without which no answer can be held to a grammar.
    pub vocabulary: Option<Arc<Vocabulary>>,
}

/// What an open engine said about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Opened {
    /// Effective options, model facts, capability overrides.
    pub description: ModelDescription,
    /// Interfaces the model offers beyond `sf.engine/1`.
    pub interfaces: Vec<String>,
    /// Its table can fork a lane.
    pub fork: bool,
    /// Its table can copy a lane to host memory and back.
    pub stash: bool,
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

/// An open engine. Owned by one lane thread; one tick runs at a time.
pub trait Link: Send {
    /// What it said when it opened.
    fn opened(&self) -> &Opened;

    /// Hands over a plan; returns as soon as the transport has taken it. A yield raised from here on ends the tick.
    fn begin(&mut self, plan: &StepPlan) -> Result<(), EngineError>;

    /// Waits for the next step of the tick begun last and fills `out`, reusing its buffers. `out.last` says that the
    /// tick is over, and so does an error; until then it must be called again before the next [`Link::begin`]. What a
    /// worker had answered before it died comes before the error. A last step may be without lanes: then a yield came
    /// after the step before it was told.
    fn next(&mut self, out: &mut StepOut) -> Result<(), EngineError>;

    /// Writes a vector per text into `out`, one after the other; between ticks only. What a text's vector is does not
    /// depend on the others. [`Opened::description`] says how long vectors are, and how long texts may be.
    ///
    /// # Errors
    /// A refusal of a link whose model makes no vectors; else as the engine says.
    fn embed(&mut self, batch: &EmbedBatch, out: &mut Vec<f32>) -> Result<(), EngineError> {
        let _ = (batch, out);
        Err(EngineError::Refused {
            call: "embed",
            code: SFR_E_UNSUPPORTED,
            scope: SFR_SCOPE_CALL,
            message: "this engine makes no vectors".to_owned(),
            field: String::new(),
        })
    }

    /// How long one step may take from now on before the engine counts as hung; [`sf_core::limits::STEP_MAX`] at first.
    /// Has no effect in-process, where nobody could end a step that hangs.
    fn set_step_limit(&mut self, limit: Duration) {
        let _ = limit;
    }

    /// Numbers for `/metrics`; only between ticks.
    fn stats(&mut self) -> Result<EngineStats, EngineError>;

    /// The worker's process id; `None` in-process.
    fn pid(&self) -> Option<u32>;

    /// The words that make a running tick yield or give up; `None` for links without them.
    fn control(&self) -> Option<Control> {
        None
    }
}

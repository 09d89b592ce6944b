//! One model as the service holds it: identity, codec, defaults, and the handle of its lane thread.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use sf_codec::Codec;
use sf_core::ports::{ModelCard, ModelState};
use sf_core::{SamplingParams, Token};
use sf_engine::error::EngineError;
use sf_engine::link::Link;
use tokio::sync::watch;

use crate::lane_thread::Job;

/// Opens the model's engine; called again after the engine died.
pub type Opener = Box<dyn FnMut() -> Result<Box<dyn Link>, EngineError> + Send>;

/// Sampling parameters in the order in which they win.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingDefaults {
    /// The operator's flags: they win over what a request asks for.
    pub operator: SamplingParams,
    /// The model's own defaults, below the request.
    pub model: SamplingParams,
    /// The operator's bound on generated tokens.
    pub tokens_max: Option<u32>,
}

/// Everything needed to serve one model.
pub struct ModelSpec {
    /// The id that clients name.
    pub id: String,
    /// The runtime that serves it, by id.
    pub runtime: String,
    /// Text to tokens and back.
    pub codec: Arc<Codec>,
    /// Positions of one lane.
    pub window: u32,
    /// Lanes in the batch.
    pub lanes: u32,
    /// Tokens in one step.
    pub step_tokens_max: u32,
    /// Sampling defaults.
    pub sampling: SamplingDefaults,
    /// Opens its engine.
    pub opener: Opener,
}

/// The service's view of a running model.
pub(crate) struct Model {
    pub(crate) id: String,
    pub(crate) runtime: String,
    pub(crate) codec: Arc<Codec>,
    /// End-of-text tokens, sorted.
    pub(crate) end_tokens: Arc<[Token]>,
    pub(crate) window: u32,
    pub(crate) sampling: SamplingDefaults,
    pub(crate) created: u64,
    pub(crate) jobs: SyncSender<Job>,
    pub(crate) state: watch::Receiver<ModelState>,
}

impl Model {
    pub(crate) fn card(&self) -> ModelCard {
        ModelCard {
            id: self.id.clone(),
            created: self.created,
            state: self.state.borrow().clone(),
            context_window: Some(self.window),
            runtime: Some(self.runtime.clone()),
            chat: self.codec.has_chat(),
        }
    }
}

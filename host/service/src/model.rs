//! One model as the service holds it: identity, codec, defaults, and the handle of its lane thread.

use std::sync::Arc;

use sf_codec::Codec;
use sf_core::ports::{ModelCard, ModelState};
use sf_core::{SamplingParams, Token, Vocabulary};
use sf_engine::EngineError;
use sf_engine::Link;
use sf_kit::Grammars;
use sf_sched::{EngineFacts, SchedulerSettings};
use tokio::sync::watch;

use crate::desk::Desk;

/// An open engine.
pub struct Engine {
    /// The way to it.
    pub link: Box<dyn Link>,
    /// What it can do.
    pub facts: EngineFacts,
}

/// Opens the model's engine; called again after the engine died.
pub type Opener = Box<dyn FnMut() -> Result<Engine, EngineError> + Send>;

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
    /// The codec's tokens, as the engine was told them.
    pub vocabulary: Arc<Vocabulary>,
    /// Positions of one lane.
    pub window: u32,
    /// Policy of its scheduler.
    pub scheduling: SchedulerSettings,
    /// Sampling defaults.
    pub sampling: SamplingDefaults,
    /// How the self-test of its text went, as [`ModelCard::self_test`].
    pub self_test: String,
    /// Opens its engine.
    pub opener: Opener,
}

/// The service's view of a running model.
pub(crate) struct Model {
    pub(crate) id: String,
    pub(crate) runtime: String,
    pub(crate) codec: Arc<Codec>,
    /// Says which grammars the engine will take.
    pub(crate) grammars: Arc<Grammars>,
    /// End-of-text tokens, sorted.
    pub(crate) end_tokens: Arc<[Token]>,
    pub(crate) window: u32,
    pub(crate) sampling: SamplingDefaults,
    pub(crate) self_test: String,
    pub(crate) created: u64,
    pub(crate) desk: Arc<Desk>,
    pub(crate) state: watch::Receiver<ModelState>,
}

impl Drop for Model {
    /// Ends its lane thread, and with that its engine.
    fn drop(&mut self) {
        self.desk.close();
    }
}

impl Model {
    /// A lane thread that ended leaves its last word behind, which is not true any more.
    fn state(&self) -> ModelState {
        match self.state.has_changed() {
            Ok(_) => self.state.borrow().clone(),
            Err(_) => ModelState::Retired("its lane thread has ended".to_owned()),
        }
    }

    pub(crate) fn card(&self) -> ModelCard {
        ModelCard {
            id: self.id.clone(),
            created: self.created,
            state: self.state(),
            context_window: Some(self.window),
            runtime: Some(self.runtime.clone()),
            chat: self.codec.has_chat(),
            self_test: self.self_test.clone(),
        }
    }
}

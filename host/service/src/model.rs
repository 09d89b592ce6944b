//! One model as the service holds it: identity, codec, defaults, and the handle of its lane thread.

use std::sync::{Arc, OnceLock};

use sf_codec::Codec;
use sf_core::ports::{ModelCard, ModelState, Workload};
use sf_core::{EmbedShape, Fault, FaultKind, SamplingParams, Token, Vocabulary};
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
    /// What it makes.
    pub workload: Workload,
    /// Positions of one lane, or tokens of one text.
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
    pub(crate) workload: Workload,
    /// The vectors it makes, from its first opening on.
    pub(crate) shape: Arc<OnceLock<EmbedShape>>,
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

    /// The vectors it makes, once it is open.
    pub(crate) async fn shape(&self) -> Result<EmbedShape, Fault> {
        let mut state = self.state.clone();
        let settled = |state: &ModelState| matches!(state, ModelState::Ready | ModelState::Retired(_));
        if self.shape.get().is_none() {
            // An error means that the lane thread has ended, and then nothing comes any more.
            let _ = state.wait_for(settled).await;
        }
        self.shape.get().copied().ok_or_else(|| {
            let message = format!("{} is not open, so it is not known what it makes", self.id);
            Fault::new(FaultKind::Unavailable, "model_not_open", message)
        })
    }

    pub(crate) fn card(&self) -> ModelCard {
        ModelCard {
            id: self.id.clone(),
            created: self.created,
            state: self.state(),
            context_window: Some(self.shape.get().map_or(self.window, |shape| shape.tokens_max)),
            runtime: Some(self.runtime.clone()),
            chat: self.workload == Workload::Text && self.codec.has_chat(),
            workload: self.workload,
            self_test: self.self_test.clone(),
        }
    }
}

//! What one stage needs of another without importing it.

use std::future::Future;
use std::pin::Pin;

use futures_core::Stream;

use crate::embed::{EmbedOrder, Embedded};
use crate::fault::{Fault, FaultKind};
use crate::ids::Token;
use crate::turn::{Chat, Input, Rendering, Turn, TurnEvent};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Events of one turn. Dropping it cancels the turn: its lanes are free within one engine step.
pub type TurnStream = Pin<Box<dyn Stream<Item = TurnEvent> + Send>>;

/// A turn that was taken.
pub struct Accepted {
    /// The model that answers.
    pub model: String,
    /// Tokens of the rendered prompt.
    pub prompt_tokens: u32,
    /// What of it is not taken as it was given.
    pub warnings: Vec<Warning>,
    /// What it answers.
    pub events: TurnStream,
}

/// Something of a turn that is not taken as it was given, and does not stop it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The field, or the template's variable.
    pub param: String,
    /// What becomes of it.
    pub message: String,
}

/// A chat that was rendered for a client to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The model whose template it was.
    pub model: String,
    /// What it wrote.
    pub rendering: Rendering,
    /// Tokens that end an answer, ascending.
    pub end_tokens: Vec<Token>,
    /// How the model writes reasoning and calls, where that is known.
    pub wire: Option<String>,
    /// What of the chat is not taken as it was given.
    pub warnings: Vec<Warning>,
}

impl Warning {
    /// What a client is told that wants to be refused rather than warned; `None` where there is nothing to warn of.
    pub fn refusal(warnings: &[Warning]) -> Option<Fault> {
        let first = warnings.first()?;
        let lines = warnings.iter().take(WARNINGS_TOLD_MAX).map(ToString::to_string);
        let message = lines.collect::<Vec<_>>().join("; ");
        let hint = "leave it out, or leave out the header x-superfluid-strict";
        Some(Fault::invalid("strict", first.param.clone(), message).hint(hint))
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let param = &self.param[..self.param.floor_char_boundary(64)];
        write!(f, "{param}: {}", self.message)
    }
}

/// Warnings that are told in one line; the others are counted.
pub const WARNINGS_TOLD_MAX: usize = 16;

/// One model as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCard {
    /// Its id.
    pub id: String,
    /// Seconds since the epoch at which it was registered.
    pub created: u64,
    /// Its state.
    pub state: ModelState,
    /// Positions of one lane, once known.
    pub context_window: Option<u32>,
    /// The runtime that serves it, once chosen.
    pub runtime: Option<String>,
    /// Whether it has a chat template.
    pub chat: bool,
    /// What it makes.
    pub workload: Workload,
    /// `passed`, or `failed: ` and what its text failed when it was loaded.
    pub self_test: String,
}

/// What a model makes of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workload {
    /// Text.
    #[default]
    Text,
    /// Vectors.
    Embedding,
}

/// Where a model stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelState {
    /// Being loaded.
    Loading,
    /// Answers.
    Ready,
    /// Its worker died and is being started again.
    Restarting,
    /// Given up, and why.
    Retired(String),
}

/// What the HTTP surface needs: text for turns, tokens for text, models.
pub trait Inference: Send + Sync + 'static {
    /// Renders, tokenizes and queues a turn.
    fn submit(&self, turn: Turn) -> BoxFuture<'_, Result<Accepted, Fault>>;

    /// Turns texts into vectors. Dropping the future gives up what of them does not run yet.
    fn embed(&self, order: EmbedOrder) -> BoxFuture<'_, Result<Embedded, Fault>> {
        let _ = order;
        Box::pin(std::future::ready(Err(Fault::new(
            FaultKind::Unsupported,
            "no_embeddings",
            "no vectors are made here",
        ))))
    }

    /// Renders and tokenizes only.
    fn tokenize(&self, model: Option<&str>, input: &Input) -> Result<Vec<Token>, Fault>;

    /// What the model's template makes of a chat, and what of the chat it does not read. Runs nothing.
    fn render(&self, model: Option<&str>, chat: &Chat) -> Result<Rendered, Fault>;

    /// The text of tokens.
    fn detokenize(&self, model: Option<&str>, tokens: &[Token]) -> Result<String, Fault>;

    /// All models, in the order they were named.
    fn models(&self) -> Vec<ModelCard>;

    /// What the schedulers can be told while they run.
    fn tuning(&self) -> Tuning;

    /// Changes it for all models from the next tick on.
    fn tune(&self, tuning: Tuning) -> Result<(), Fault>;
}

/// What can be changed while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Background requests run in every n-th tick while others have work; at least 1.
    pub background_every: u32,
}

/// Why a probe gave no answer: it crashed, hung, or said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFailure {
    /// In words, e.g. `killed by SIGSEGV`, `no answer within 5 s`.
    pub reason: String,
}

/// Asks a runtime whether it can run here, in a process that is thrown away.
pub trait Prober {
    /// The probe's JSON answer. `env` is set before the library is loaded.
    fn probe(
        &self,
        library: &std::path::Path,
        env: &[(String, String)],
        depth: u32,
    ) -> Result<String, ProbeFailure>;
}

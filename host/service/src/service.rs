//! The models of one server behind the port that the HTTP surface uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{TrySendError, sync_channel};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sf_core::limits::{QUEUE_REQUESTS_MAX, TURN_EVENTS_MAX};
use sf_core::ports::{Accepted, BoxFuture, Inference, ModelCard, ModelState};
use sf_core::{Fault, FaultKind, Input, RequestId, Token, Turn};
use sf_sched::{Admission, Scheduler, SchedulerSettings};
use tokio::sync::{mpsc, watch};

use crate::lane_thread::{Job, LaneThread};
use crate::meter::Meter;
use crate::model::{Model, ModelSpec};
use crate::resolve;
use crate::stream::{AnswerStream, Answering};

/// Prompt tokens in one step while other lanes decode: long enough to keep the batch kernels busy, short enough that
/// nobody's tokens stall for long.
const PREFILL_TOKENS_BUSY_MAX: u32 = 256;

/// The running models. Dropping it ends their lane threads and engines.
pub struct Service {
    models: Vec<Model>,
    requests: AtomicU64,
    draining: AtomicBool,
}

impl Service {
    /// Starts a lane thread per model; each opens its engine on its own. Watch [`Service::wait_ready`] for the result.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(specs: Vec<ModelSpec>) -> std::io::Result<Self> {
        let models = specs.into_iter().map(start_model).collect::<std::io::Result<Vec<_>>>()?;
        Ok(Service { models, requests: AtomicU64::new(0), draining: AtomicBool::new(false) })
    }

    /// Waits until every model is ready, or one is retired: then its id and the reason.
    ///
    /// # Errors
    /// The id and reason of the first model that could not be opened.
    pub async fn wait_ready(&self) -> Result<(), (String, String)> {
        for model in &self.models {
            let mut state = model.state.clone();
            let settled =
                state.wait_for(|state| matches!(state, ModelState::Ready | ModelState::Retired(_))).await;
            let reason = match settled.as_deref() {
                Ok(ModelState::Retired(reason)) => reason.clone(),
                Ok(_) => continue,
                Err(_) => "its lane thread ended".to_owned(),
            };
            return Err((model.id.clone(), reason));
        }
        Ok(())
    }

    /// Refuses new turns from now on; running ones go on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    fn model(&self, id: Option<&str>) -> Result<&Model, Fault> {
        let found = match id {
            None => self.models.first(),
            Some(id) => self.models.iter().find(|model| model.id == id),
        };
        found.ok_or_else(|| {
            let known: Vec<&str> = self.models.iter().map(|model| model.id.as_str()).collect();
            let message = format!("no model {:?} here", id.unwrap_or_default());
            Fault::new(FaultKind::NotFound, "model_not_found", message)
                .param("model")
                .hint(format!("served here: {}", known.join(", ")))
        })
    }

    fn next_id(&self) -> RequestId {
        RequestId(self.requests.fetch_add(1, Ordering::Relaxed))
    }

    fn take(&self, turn: &Turn) -> Result<Accepted, Fault> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(Fault::new(FaultKind::Unavailable, "draining", "the server is shutting down"));
        }
        let model = self.model(turn.model.as_deref())?;
        let prompt = resolve::prompt(model, &turn.input)?;
        let prompt_tokens = prompt.len() as u32;
        let admissions = resolve::admissions(model, turn, &prompt, || self.next_id())?;
        let submitted = Instant::now();
        let receivers = admissions
            .into_iter()
            .map(|admission| send_job(model, admission, submitted))
            .collect::<Result<Vec<_>, Fault>>()?;
        let events = AnswerStream::new(&model.codec, &turn.stop, turn.logprobs.is_some(), receivers);
        Ok(Accepted { model: model.id.clone(), prompt_tokens, events: Box::pin(events) })
    }
}

fn send_job(model: &Model, admission: Admission, submitted: Instant) -> Result<Answering, Fault> {
    let (events, receiver) = mpsc::channel(TURN_EVENTS_MAX);
    let stopped = Arc::new(AtomicBool::new(false));
    let job = Job { admission, events, stopped: Arc::clone(&stopped), submitted };
    match model.jobs.try_send(job) {
        Ok(()) => Ok(Answering { events: receiver, stopped }),
        Err(TrySendError::Full(_)) => {
            let message = format!("{QUEUE_REQUESTS_MAX} requests wait for {} already", model.id);
            Err(Fault::new(FaultKind::Busy, "queue_full", message).hint("retry later"))
        }
        Err(TrySendError::Disconnected(_)) => {
            let message = format!("the lane thread of {} has ended", model.id);
            Err(Fault::new(FaultKind::Internal, "lane_thread_ended", message))
        }
    }
}

fn start_model(spec: ModelSpec) -> std::io::Result<Model> {
    let (jobs, receiver) = sync_channel(QUEUE_REQUESTS_MAX);
    let (state_sender, state) = watch::channel(ModelState::Loading);
    let settings = SchedulerSettings {
        lanes_max: spec.lanes,
        step_tokens_max: spec.step_tokens_max.max(spec.lanes),
        prefill_tokens_busy_max: PREFILL_TOKENS_BUSY_MAX,
        queue_max: QUEUE_REQUESTS_MAX,
    };
    let thread = LaneThread {
        model: spec.id.clone(),
        jobs: receiver,
        scheduler: Scheduler::new(settings),
        opener: spec.opener,
        state: state_sender,
        meter: Meter::new(&spec.id, &spec.runtime),
    };
    std::thread::Builder::new().name(format!("lanes {}", spec.id)).spawn(move || thread.run())?;
    let end_tokens = (0..spec.codec.vocab()).map(Token).filter(|token| spec.codec.is_eog(*token)).collect();
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(Model {
        id: spec.id,
        runtime: spec.runtime,
        codec: spec.codec,
        end_tokens,
        window: spec.window,
        sampling: spec.sampling,
        created,
        jobs,
        state,
    })
}

impl Inference for Service {
    fn submit(&self, turn: Turn) -> BoxFuture<'_, Result<Accepted, Fault>> {
        Box::pin(async move { self.take(&turn) })
    }

    fn tokenize(&self, model: Option<&str>, input: &Input) -> Result<Vec<Token>, Fault> {
        resolve::prompt(self.model(model)?, input)
    }

    fn detokenize(&self, model: Option<&str>, tokens: &[Token]) -> Result<String, Fault> {
        let model = self.model(model)?;
        if let Some(token) = tokens.iter().find(|token| token.0 >= model.codec.vocab()) {
            let message =
                format!("token {token} is outside the vocabulary of {} tokens", model.codec.vocab());
            return Err(Fault::invalid("token_out_of_range", "tokens", message));
        }
        Ok(model.codec.decode(tokens))
    }

    fn models(&self) -> Vec<ModelCard> {
        self.models.iter().map(Model::card).collect()
    }
}

/// Shared by the HTTP surface and the main.
impl Service {
    /// Wraps it for sharing.
    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }
}

//! The models of one server behind the port that the HTTP surface uses.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use sf_core::limits::{BACKGROUND_EVERY, BACKGROUND_EVERY_MAX, GRAMMAR_BYTES_MAX, QUEUE_REQUESTS_MAX};
use sf_core::ports::{
    Accepted, BoxFuture, Inference, ModelCard, ModelState, Rendered, Tuning, Warning, Workload,
};
use sf_core::{
    Chat, EmbedOrder, Embedded, Fault, FaultKind, Form, Grammar, Input, Moment, RequestId, Token, Turn,
};
use sf_kit::Grammars;
use sf_sched::{Admission, QueueFull, Scheduler};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::desk::{Desk, Job, NotTaken};
use crate::embed::EmbedJob;
use crate::lanes::{LaneThread, Start, queue_full};
use crate::mailbox::{Mailbox, Outbox};
use crate::meter::Meter;
use crate::model::{Model, ModelSpec};
use crate::parts::Parts;
use crate::stream::{AnswerStream, Answering, Wish};
use crate::tools::{Tools, unfit_tool};
use crate::{pressure, resolve};

/// Text or messages from so many bytes on are tokenized away from the event loop, which other streams wait for.
const INLINE_BYTES_MAX: usize = 16 << 10;

/// The running models. Dropping it ends their lane threads and engines.
pub struct Service {
    models: Vec<Arc<Model>>,
    clock: Clock,
    requests: AtomicU64,
    draining: AtomicBool,
    background_every: AtomicU32,
}

impl Service {
    /// Starts a lane thread per model; each opens its engine on its own. Watch [`Service::wait_ready`] for the result.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(specs: Vec<ModelSpec>) -> std::io::Result<Self> {
        let clock = Clock::start();
        let background_every =
            specs.first().map_or(BACKGROUND_EVERY, |spec| spec.scheduling.background_every);
        let start = |spec| start_model(spec, clock);
        Ok(Service {
            models: specs.into_iter().map(start).collect::<std::io::Result<Vec<_>>>()?,
            clock,
            requests: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            background_every: AtomicU32::new(background_every),
        })
    }

    /// Sheds idle KV from now on when the system runs out of memory, where the system tells that.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn watch_os_pressure(&self) -> std::io::Result<()> {
        pressure::watch(self.models.iter().map(|model| Arc::downgrade(&model.desk)).collect())
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

    fn model(&self, id: Option<&str>) -> Result<&Arc<Model>, Fault> {
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

    /// Refuses what the model is not made for, and says what is.
    fn must_make(&self, model: &Model, workload: Workload) -> Result<(), Fault> {
        if model.workload == workload {
            return Ok(());
        }
        let others = self.models.iter().filter(|other| other.workload == workload);
        let others: Vec<&str> = others.map(|other| other.id.as_str()).collect();
        let id = &model.id;
        let (code, message, way_out) = match workload {
            Workload::Text => (
                "not_a_text_model",
                format!("{id} is an encoder: it makes vectors of texts and no text"),
                "send it to /v1/embeddings, or serve a model that makes text beside it",
            ),
            Workload::Embedding => (
                "not_an_embedding_model",
                format!("{id}, served by {}, makes text and no vectors", model.runtime),
                "serve an encoder, such as all-MiniLM-L6-v2: a directory of bert, roberta or xlm-roberta, which the \
                 runtime mlx reads",
            ),
        };
        let hint = match others.is_empty() {
            true => way_out.to_owned(),
            false => format!("name another model, served here: {}", others.join(", ")),
        };
        Err(Fault::new(FaultKind::Unsupported, code, message).param("model").hint(hint))
    }

    /// The vectors of an order's inputs.
    async fn vectors(&self, order: EmbedOrder) -> Result<Embedded, Fault> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(Fault::new(FaultKind::Unavailable, "draining", "the server is shutting down"));
        }
        let model = self.model(order.model.as_deref())?;
        self.must_make(model, Workload::Embedding)?;
        let shape = model.shape().await?;
        if let Some(asked) = order.dimensions.filter(|asked| *asked != shape.dims) {
            let message = format!("`dimensions` is {asked}, the vectors of {} have {}", model.id, shape.dims);
            return Err(Fault::new(FaultKind::Unsupported, "dimensions_unsupported", message)
                .param("dimensions")
                .hint("leave it out: this model was not trained for shorter vectors"));
        }
        let texts = texts(model, order, shape.tokens_max).await?;
        let (job, answered) = EmbedJob::new(texts);
        let prompt_tokens = job.tokens();
        model.desk.submit_embed(job).map_err(|error| not_taken(model, &error))?;
        let ended = |_| lane_thread_ended(model);
        let vectors = answered.await.map_err(ended)??;
        let dims = shape.dims as usize;
        Ok(Embedded { model: model.id.clone(), prompt_tokens, dims, vectors })
    }

    fn next_id(&self) -> RequestId {
        RequestId(self.requests.fetch_add(1, Ordering::Relaxed))
    }

    async fn take(&self, mut turn: Turn) -> Result<Accepted, Fault> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(Fault::new(FaultKind::Unavailable, "draining", "the server is shutting down"));
        }
        let model = self.model(turn.model.as_deref())?;
        self.must_make(model, Workload::Text)?;
        let submitted = self.clock.now();
        let (prompt, mut tools) = asked(model, &turn).await?;
        let calls = tools.form.take();
        let are_calls = calls.is_some();
        turn.form = turn.form.or(calls);
        resolve::check_limits(model, &turn, &prompt)?;
        match &turn.form {
            None => {}
            Some(calls) if are_calls => check_calls(model, calls, &turn.input, &tools).await?,
            Some(form) => tools.warnings.extend(check_form(model, form).await?),
        }
        let mut warnings = std::mem::take(&mut tools.warnings);
        let prompt_tokens = prompt.len() as u32;
        warnings.extend(resolve::clamped(model, &turn, prompt_tokens));
        if let Some(refusal) = Warning::refusal(&warnings).filter(|_| turn.strict) {
            return Err(refusal);
        }
        let admissions = resolve::admissions(model, &turn, &prompt, submitted, || self.next_id())?;
        let answers = admissions
            .into_iter()
            .map(|admission| submit(model, admission, submitted))
            .collect::<Result<Vec<_>, Fault>>()?;
        let parts = |request: RequestId| {
            tools.parser(model, &prompt).map(|parser| Parts::new(parser, request, &model.id))
        };
        let wish = Wish {
            stops: std::mem::take(&mut turn.stop),
            logprobs: turn.logprobs.is_some(),
            silent: turn.max_tokens == Some(0),
        };
        let mut events = AnswerStream::new(&model.codec, wish, parts, answers);
        if turn.scores_prompt {
            events.score(&prompt);
        }
        Ok(Accepted { model: model.id.clone(), prompt_tokens, warnings, events: Box::pin(events) })
    }
}

/// Refuses a grammar that the engine would refuse, and tells what of a schema is not read. Compiling one takes milliseconds:
/// not on the event loop.
async fn check_form(model: &Model, form: &Form) -> Result<Vec<Warning>, Fault> {
    let (grammars, asked) = (Arc::clone(&model.grammars), form.clone());
    let work = move || grammars.check(&asked.grammar).map(|()| ignored(&asked));
    let message = match tokio::task::spawn_blocking(work).await {
        Ok(Ok(warnings)) => return Ok(warnings),
        Ok(Err(error)) => error.to_string(),
        Err(error) => {
            let message = format!("compiling the grammar ended early: {error}");
            return Err(Fault::new(FaultKind::Internal, "grammar_ended", message));
        }
    };
    Err(Fault::invalid("invalid_grammar", form.param, message)
        .hint("what is supported stands in README, Answers of a given form"))
}

/// Keywords of a form's schema that are not read.
fn ignored(form: &Form) -> Vec<Warning> {
    let Grammar::JsonSchema(text) = &form.grammar else { return Vec::new() };
    let found = sf_kit::ignored_keywords(text).unwrap_or_default();
    let warning = |(at, keyword): (String, String)| Warning {
        param: form.param.to_owned(),
        message: format!("{at}: the keyword `{keyword}` is not read"),
    };
    found.into_iter().map(warning).collect()
}

/// As [`check_form`], of calls; says which tool cannot be held to its schema.
async fn check_calls(model: &Model, calls: &Form, input: &Input, tools: &Tools) -> Result<(), Fault> {
    let Err(fault) = check_form(model, calls).await else { return Ok(()) };
    let Input::Chat(chat) = input else { return Err(fault) };
    // All together they may be too long, and no tool is at fault.
    if calls.grammar.source().len() > GRAMMAR_BYTES_MAX {
        return Err(fault);
    }
    for (index, tool) in tools.strict.iter().filter_map(|&index| Some((index, chat.tools.get(index)?))) {
        let grammar = Grammar::JsonSchema(sf_codec::wire::parameters_text(tool).into());
        if let Err(fault) = check_form(model, &Form { grammar, param: "tools" }).await {
            return Err(unfit_tool(index, tool, &fault.message));
        }
    }
    Err(fault)
}

/// The tokens of a turn's input, and what its tools mean.
async fn asked(model: &Arc<Model>, turn: &Turn) -> Result<(Vec<Token>, Tools), Fault> {
    let (input, formed) = (&turn.input, turn.form.is_some());
    let bytes = match input {
        Input::Chat(chat) => chat.bytes(),
        Input::Text(text) => text.len(),
        Input::Tokens(_) => 0,
    };
    if bytes < INLINE_BYTES_MAX {
        return read(model, input, formed);
    }
    let (model, input) = (Arc::clone(model), input.clone());
    let work = tokio::task::spawn_blocking(move || read(&model, &input, formed));
    work.await.unwrap_or_else(|error| {
        let message = format!("the prompt's tokenizing ended early: {error}");
        Err(Fault::new(FaultKind::Internal, "tokenizing_ended", message))
    })
}

fn read(model: &Model, input: &Input, formed: bool) -> Result<(Vec<Token>, Tools), Fault> {
    let prompt = resolve::prompt(model, input)?;
    let tools = match input {
        Input::Chat(chat) => Tools::of(model, chat, &prompt, formed)?,
        Input::Text(_) | Input::Tokens(_) => Tools::default(),
    };
    Ok((prompt, tools))
}

fn submit(model: &Model, admission: Admission, now: Moment) -> Result<Answering, Fault> {
    let (request, mailbox) = (admission.request, Arc::new(Mailbox::default()));
    let job = Job { admission, mailbox: Outbox::of(&mailbox), submitted: now };
    match model.desk.submit(job) {
        Ok(()) => Ok(Answering { request, mailbox, desk: Arc::clone(&model.desk), over: false }),
        Err(error) => Err(not_taken(model, &error)),
    }
}

fn not_taken(model: &Model, error: &NotTaken) -> Fault {
    match *error {
        NotTaken::Full { waiting } => queue_full(&QueueFull { waiting, limit: QUEUE_REQUESTS_MAX }),
        NotTaken::Closed => lane_thread_ended(model),
    }
}

fn lane_thread_ended(model: &Model) -> Fault {
    let message = format!("the lane thread of {} has ended", model.id);
    Fault::new(FaultKind::Internal, "lane_thread_ended", message)
}

/// The tokens of each of an order's inputs, none longer than `tokens_max`.
async fn texts(model: &Arc<Model>, order: EmbedOrder, tokens_max: u32) -> Result<Vec<Vec<Token>>, Fault> {
    let bytes = |input: &Input| match input {
        Input::Text(text) => text.len(),
        Input::Chat(_) | Input::Tokens(_) => 0,
    };
    let total: usize = order.inputs.iter().map(bytes).sum();
    let theirs = Arc::clone(model);
    let work = move || {
        let text = |(at, input): (usize, &Input)| {
            let param = if order.is_list { format!("input[{at}]") } else { "input".to_owned() };
            resolve::embedded(&theirs, input, &param, tokens_max)
        };
        order.inputs.iter().enumerate().map(text).collect()
    };
    if total < INLINE_BYTES_MAX {
        return work();
    }
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        let message = format!("the inputs' tokenizing ended early: {error}");
        Err(Fault::new(FaultKind::Internal, "tokenizing_ended", message))
    })
}

fn start_model(spec: ModelSpec, clock: Clock) -> std::io::Result<Arc<Model>> {
    let (desk, shape) = (Arc::new(Desk::default()), Arc::new(OnceLock::new()));
    let (state_sender, state) = watch::channel(ModelState::Loading);
    let start = Start {
        model: spec.id.clone(),
        desk: Arc::clone(&desk),
        clock,
        scheduler: Scheduler::new(spec.scheduling),
        opener: Arc::new(Mutex::new(spec.opener)),
        state: state_sender,
        meter: Meter::new(&spec.id, &spec.runtime),
        shape: Arc::clone(&shape),
    };
    let thread = std::thread::Builder::new().name(format!("lanes {}", spec.id));
    thread.spawn(move || LaneThread::new(start).run())?;
    let end_tokens = (0..spec.codec.vocab()).map(Token).filter(|token| spec.codec.is_eog(*token)).collect();
    let grammars = Arc::new(Grammars::new(spec.vocabulary));
    let early = Arc::clone(&grammars);
    // Where the system refuses a thread, the first request with a grammar waits instead.
    let _ = std::thread::Builder::new().name("sf-grammars".to_owned()).spawn(move || early.prepare());
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(Arc::new(Model {
        id: spec.id,
        runtime: spec.runtime,
        codec: spec.codec,
        end_tokens,
        grammars,
        workload: spec.workload,
        shape,
        window: spec.window,
        sampling: spec.sampling,
        self_test: spec.self_test,
        created,
        desk,
        state,
    }))
}

impl Inference for Service {
    fn submit(&self, turn: Turn) -> BoxFuture<'_, Result<Accepted, Fault>> {
        Box::pin(self.take(turn))
    }

    fn embed(&self, order: EmbedOrder) -> BoxFuture<'_, Result<Embedded, Fault>> {
        Box::pin(self.vectors(order))
    }

    fn tokenize(&self, model: Option<&str>, input: &Input) -> Result<Vec<Token>, Fault> {
        resolve::prompt(self.model(model)?, input)
    }

    fn render(&self, model: Option<&str>, chat: &Chat) -> Result<Rendered, Fault> {
        let model = self.model(model)?;
        self.must_make(model, Workload::Text)?;
        resolve::rendering(model, chat)
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
        self.models.iter().map(|model| model.card()).collect()
    }

    fn tuning(&self) -> Tuning {
        Tuning { background_every: self.background_every.load(Ordering::Relaxed) }
    }

    fn tune(&self, tuning: Tuning) -> Result<(), Fault> {
        let every = tuning.background_every;
        if !(1..=BACKGROUND_EVERY_MAX).contains(&every) {
            let message = format!("background_every is {every}, accepted is 1 to {BACKGROUND_EVERY_MAX}");
            return Err(Fault::invalid("out_of_range", "background_every", message));
        }
        self.background_every.store(every, Ordering::Relaxed);
        for model in &self.models {
            model.desk.set_background_every(every);
        }
        Ok(())
    }
}

/// Shared by the HTTP surface and the main.
impl Service {
    /// Wraps it for sharing.
    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }
}

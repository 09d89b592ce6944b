//! The engine's life as its lane thread sees it: opened, lost, opened again, retired, loaded once more.
//!
//! Requests outlive engines: what they drew stays with the scheduler, and they go on from there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use sf_core::ports::ModelState;
use sf_core::{EmbedShape, Moment};
use sf_engine::EngineError;
use sf_engine::Link;

use super::{IDLE_MIN, LaneThread, StepWatch, faults};
use crate::desk::Closed;
use crate::model::Engine;
use crate::sync::lock;

/// An engine, or none for a model that is retired.
type Opened = Option<Box<dyn Link>>;

impl LaneThread {
    /// Opens it at start-up: one attempt, because what is wrong then is wrong with the settings.
    pub(super) fn open_first(&mut self) -> Result<Opened, Closed> {
        match self.open()? {
            Ok(engine) => Ok(Some(self.connect(engine))),
            Err(error) => {
                tracing::error!(model = self.start.model, %error, "cannot open the model");
                self.retire(&error);
                Ok(None)
            }
        }
    }

    /// Opens it again for the request that asked for a retired model.
    pub(super) fn reopen(&mut self) -> Result<Opened, Closed> {
        self.start.state.send_replace(ModelState::Loading);
        match self.open()? {
            Ok(engine) => Ok(Some(self.connect(engine))),
            Err(error) => {
                self.retire(&error);
                Ok(None)
            }
        }
    }

    /// Buries an engine and opens the next, with growing pauses; `None` when too many died in a row.
    pub(super) fn replace(&mut self, mut error: EngineError) -> Result<Opened, Closed> {
        self.bury(&error);
        let mut pause = self.restarts.died(self.clients.tokens, self.finished());
        while let Some(time) = pause {
            let attempt = self.restarts.attempt();
            tracing::warn!(model = self.start.model, %error, attempt, pause = ?time, "the engine is started again");
            self.start.meter.worker_restarts.increment(1);
            self.pause(time)?;
            match self.open()? {
                Ok(engine) => return Ok(Some(self.connect(engine))),
                Err(again) => error = again,
            }
            pause = self.restarts.failed();
        }
        self.retire(&error);
        Ok(None)
    }

    /// Opens an engine on a thread of its own: a large model takes its time, and requests may end meanwhile.
    fn open(&mut self) -> Result<Result<Engine, EngineError>, Closed> {
        let (tell, told) = mpsc::channel();
        let (opener, desk) = (Arc::clone(&self.start.opener), Arc::clone(&self.start.desk));
        let work = move || {
            let opened = catch_unwind(AssertUnwindSafe(|| lock(&opener)())).unwrap_or_else(|_| {
                let reason = "the thread that opened it has panicked".to_owned();
                Err(EngineError::System { what: "open the engine", reason })
            });
            // Nobody waits for it when the desk was closed; then it is dropped, and its worker ends.
            let _ = tell.send(opened);
            desk.poke();
        };
        let thread = std::thread::Builder::new().name(format!("open {}", self.start.model));
        if let Err(error) = thread.spawn(work) {
            return Ok(Err(EngineError::System { what: "start a thread", reason: error.to_string() }));
        }
        loop {
            match told.try_recv() {
                Ok(opened) => return Ok(opened),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    let reason = "the thread that opened it said nothing".to_owned();
                    return Ok(Err(EngineError::System { what: "open the engine", reason }));
                }
            }
            self.read_desk()?;
            let now = self.heed();
            let limit = self.start.scheduler.next_wake().map(|wake| (wake - now).max(IDLE_MIN));
            self.start.desk.wait(limit);
        }
    }

    /// Lets time pass without an engine; deadlines and clients that leave are heeded meanwhile.
    fn pause(&mut self, time: Duration) -> Result<(), Closed> {
        let end = self.now() + time;
        loop {
            self.read_desk()?;
            let now = self.heed();
            if now >= end {
                return Ok(());
            }
            let next = self.start.scheduler.next_wake().map_or(end, |wake| wake.min(end));
            self.start.desk.wait(Some((next - now).max(IDLE_MIN)));
        }
    }

    /// Ends what is due without an engine.
    fn heed(&mut self) -> Moment {
        let now = self.now();
        self.start.scheduler.expire(now, &mut self.outcomes);
        self.tell(now);
        self.wake(now);
        now
    }

    fn connect(&mut self, engine: Engine) -> Box<dyn Link> {
        let Engine { link, facts } = engine;
        tracing::debug!(model = self.start.model, ?facts, pid = link.pid(), "the engine is open");
        if let Some(told) = &link.opened().description.embedding {
            let shape = EmbedShape { dims: told.dims, tokens_max: told.tokens_max };
            self.start.shape.get_or_init(|| shape);
        }
        self.start.scheduler.engine_opened(facts);
        self.start.desk.connect(link.control());
        self.watch = StepWatch::default();
        self.restarts.opened(self.clients.tokens, self.finished());
        self.start.state.send_replace(ModelState::Ready);
        link
    }

    fn bury(&mut self, error: &EngineError) {
        self.start.desk.connect(None);
        self.start.state.send_replace(ModelState::Restarting);
        self.start.meter.engine_died(error);
        let running = self.start.scheduler.running();
        tracing::error!(model = self.start.model, %error, running, "the engine is lost; its requests go on in the next");
        // What its last steps brought comes before what becomes of its requests.
        let now = self.now();
        self.tell(now);
        self.start.scheduler.engine_lost(now, &mut self.outcomes);
        self.tell(now);
        self.wake(now);
        self.start.meter.update(now, &self.start.scheduler, false);
    }

    /// Answers that were completed, whatever they are.
    fn finished(&self) -> u64 {
        self.clients.finished + self.embeds.finished
    }

    fn retire(&mut self, error: &EngineError) {
        tracing::error!(model = self.start.model, %error, "the model is retired; the next request tries it once more");
        self.start.meter.retirements.increment(1);
        self.start.state.send_replace(ModelState::Retired(error.to_string()));
        let fault = faults::retired(&self.start.model, error);
        self.embeds.fail_all(&fault);
        self.start.desk.note_waiting_embeds(0);
        for request in self.start.scheduler.drop_all() {
            self.clients.fail(request, fault.clone(), &self.start.meter);
        }
    }
}

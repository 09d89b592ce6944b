//! The thread that owns one engine: its scheduler, its link, and what to do when the link breaks.
//!
//! A request is given up by dropping the receiver of its events: the thread sees it between two steps.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use sf_core::limits::{RESTART_PAUSE_MAX, RESTART_PAUSE_MIN, RESTARTS_MAX};
use sf_core::ports::ModelState;
use sf_core::{Fault, FaultKind, FinishReason, LaneFault, RequestId, Sampled, StepOut, StepPlan};
use sf_engine::error::EngineError;
use sf_engine::link::Link;
use sf_sched::{Admission, Outcome, Scheduler};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::watch;

use crate::meter::Meter;
use crate::model::Opener;

/// One answer to be generated.
pub(crate) struct Job {
    pub(crate) admission: Admission,
    pub(crate) events: Sender<RawEvent>,
    /// Set when a stop string completed the answer, so that the closed channel is not taken for a client that left.
    pub(crate) stopped: Arc<AtomicBool>,
    pub(crate) submitted: Instant,
}

/// What a lane thread tells the stream of one answer. A channel that closes without an end means that the client was
/// too slow to take its tokens.
#[derive(Debug)]
pub(crate) enum RawEvent {
    Token(Sampled),
    Finished { reason: FinishReason, drawn: u32 },
    Failed(Fault),
}

struct Listener {
    events: Sender<RawEvent>,
    stopped: Arc<AtomicBool>,
    submitted: Instant,
    last_token: Option<Instant>,
}

/// State of one lane thread.
pub(crate) struct LaneThread {
    pub(crate) model: String,
    pub(crate) jobs: Receiver<Job>,
    pub(crate) scheduler: Scheduler,
    pub(crate) opener: Opener,
    pub(crate) state: watch::Sender<ModelState>,
    pub(crate) meter: Meter,
}

/// All handles of the model are gone.
struct Closed;

impl LaneThread {
    /// Runs until every handle of the model is dropped.
    pub(crate) fn run(mut self) {
        let mut listeners = HashMap::new();
        let mut link = self.open_first();
        loop {
            let Ok(()) = self.take_jobs(&mut listeners) else { return };
            let Some(open) = link.as_mut() else {
                // Retired: the request that just came in is worth one more try.
                link = self.reopen_for(&mut listeners);
                continue;
            };
            if let Err(error) = self.serve(open.as_mut(), &mut listeners) {
                drop(link.take());
                self.fail_running(&error, &mut listeners);
                link = self.restart(&error, &mut listeners);
            }
        }
    }

    fn open_first(&mut self) -> Option<Box<dyn Link>> {
        match (self.opener)() {
            Ok(link) => {
                self.state.send_replace(ModelState::Ready);
                Some(link)
            }
            Err(error) => {
                tracing::error!(model = self.model, %error, "cannot open the model");
                self.state.send_replace(ModelState::Retired(error.to_string()));
                None
            }
        }
    }

    /// Waits for a job when nothing runs, then takes all that are there.
    fn take_jobs(&mut self, listeners: &mut HashMap<RequestId, Listener>) -> Result<(), Closed> {
        if self.scheduler.running() == 0 && self.scheduler.waiting() == 0 {
            self.note_load();
            match self.jobs.recv() {
                Ok(job) => self.admit(job, listeners),
                Err(_) => return Err(Closed),
            }
        }
        loop {
            match self.jobs.try_recv() {
                Ok(job) => self.admit(job, listeners),
                Err(TryRecvError::Empty) => return Ok(()),
                // Whoever could still read answers holds a handle: nobody is left to serve.
                Err(TryRecvError::Disconnected) => return Err(Closed),
            }
        }
    }

    fn admit(&mut self, job: Job, listeners: &mut HashMap<RequestId, Listener>) {
        let request = job.admission.request;
        self.meter.prompt_tokens.increment(job.admission.prompt.len() as u64);
        match self.scheduler.submit(job.admission) {
            Ok(()) => {
                let listener = Listener {
                    events: job.events,
                    stopped: job.stopped,
                    submitted: job.submitted,
                    last_token: None,
                };
                listeners.insert(request, listener);
            }
            Err(full) => {
                let fault = Fault::new(FaultKind::Busy, "queue_full", full.to_string())
                    .hint("retry later, or raise --max-batch");
                self.meter.requests_failed.increment(1);
                // A client that is gone already needs no answer.
                drop(job.events.try_send(RawEvent::Failed(fault)));
            }
        }
    }

    /// Steps until nothing is left to do or new jobs may wait.
    fn serve(
        &mut self,
        link: &mut dyn Link,
        listeners: &mut HashMap<RequestId, Listener>,
    ) -> Result<(), EngineError> {
        let (mut plan, mut out, mut outcomes) = (StepPlan::default(), StepOut::default(), Vec::new());
        loop {
            self.drop_vanished(listeners);
            if !self.scheduler.plan(&mut plan) {
                return Ok(());
            }
            self.note_load();
            let begun = Instant::now();
            link.begin(&plan)?;
            link.finish(&mut out)?;
            self.meter.step(begun.elapsed());
            self.scheduler.apply(&out, &mut outcomes);
            for outcome in outcomes.drain(..) {
                self.tell(outcome, listeners);
            }
            loop {
                match self.jobs.try_recv() {
                    Ok(job) => self.admit(job, listeners),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
        }
    }

    fn drop_vanished(&mut self, listeners: &mut HashMap<RequestId, Listener>) {
        let (scheduler, meter) = (&mut self.scheduler, &self.meter);
        listeners.retain(|request, listener| {
            let gone = listener.events.is_closed();
            if gone {
                scheduler.cancel(*request);
                let stopped = listener.stopped.load(Ordering::Acquire);
                let outcome = if stopped { &meter.requests_finished } else { &meter.requests_cancelled };
                outcome.increment(1);
            }
            !gone
        });
    }

    fn tell(&mut self, outcome: Outcome, listeners: &mut HashMap<RequestId, Listener>) {
        match outcome {
            Outcome::Token { request, sampled } => self.tell_token(request, sampled, listeners),
            Outcome::Finished { request, reason, drawn } => {
                if let Some(listener) = listeners.remove(&request) {
                    self.meter.requests_finished.increment(1);
                    drop(listener.events.try_send(RawEvent::Finished { reason, drawn }));
                }
            }
            Outcome::Failed { request, fault } => {
                if let Some(listener) = listeners.remove(&request) {
                    self.meter.requests_failed.increment(1);
                    drop(listener.events.try_send(RawEvent::Failed(lane_fault(&fault))));
                }
            }
        }
    }

    fn tell_token(
        &mut self,
        request: RequestId,
        sampled: Sampled,
        listeners: &mut HashMap<RequestId, Listener>,
    ) {
        let Some(listener) = listeners.get_mut(&request) else { return };
        let now = Instant::now();
        match listener.last_token.replace(now) {
            None => self.meter.first_token(now - listener.submitted),
            Some(last) => self.meter.next_token(now - last),
        }
        self.meter.generation_tokens.increment(1);
        match listener.events.try_send(RawEvent::Token(sampled)) {
            Ok(()) => {}
            // The next pass over the listeners cancels it.
            Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) => {
                tracing::warn!(model = self.model, %request, "the client reads too slowly; its answer is given up");
                listeners.remove(&request);
                self.scheduler.cancel(request);
                self.meter.requests_failed.increment(1);
            }
        }
    }

    fn fail_running(&mut self, error: &EngineError, listeners: &mut HashMap<RequestId, Listener>) {
        let fault = engine_fault(error);
        for request in self.scheduler.engine_lost() {
            if let Some(listener) = listeners.remove(&request) {
                self.meter.requests_failed.increment(1);
                drop(listener.events.try_send(RawEvent::Failed(fault.clone())));
            }
        }
    }

    /// Opens the engine again, with growing pauses; `None` when it keeps failing.
    fn restart(
        &mut self,
        cause: &EngineError,
        listeners: &mut HashMap<RequestId, Listener>,
    ) -> Option<Box<dyn Link>> {
        self.state.send_replace(ModelState::Restarting);
        let mut pause = RESTART_PAUSE_MIN;
        let mut last = cause.clone();
        for attempt in 1..=RESTARTS_MAX {
            tracing::warn!(model = self.model, error = %last, attempt, ?pause, "the engine failed; it is started again");
            self.meter.worker_restarts.increment(1);
            std::thread::sleep(pause);
            pause = next_pause(pause);
            match (self.opener)() {
                Ok(link) => {
                    self.state.send_replace(ModelState::Ready);
                    return Some(link);
                }
                Err(error) => last = error,
            }
        }
        self.retire(&last, listeners);
        None
    }

    fn reopen_for(&mut self, listeners: &mut HashMap<RequestId, Listener>) -> Option<Box<dyn Link>> {
        self.state.send_replace(ModelState::Loading);
        match (self.opener)() {
            Ok(link) => {
                self.state.send_replace(ModelState::Ready);
                Some(link)
            }
            Err(error) => {
                self.retire(&error, listeners);
                None
            }
        }
    }

    fn retire(&mut self, error: &EngineError, listeners: &mut HashMap<RequestId, Listener>) {
        tracing::error!(model = self.model, %error, "the model is retired; the next request tries it once more");
        self.state.send_replace(ModelState::Retired(error.to_string()));
        let fault = Fault::new(
            FaultKind::Unavailable,
            "model_retired",
            format!("{} is retired: {error}", self.model),
        )
        .hint("the next request loads it once more; see the server's log");
        for request in self.scheduler.drop_waiting() {
            if let Some(listener) = listeners.remove(&request) {
                self.meter.requests_failed.increment(1);
                drop(listener.events.try_send(RawEvent::Failed(fault.clone())));
            }
        }
    }

    fn note_load(&self) {
        self.meter.running.set(self.scheduler.running() as f64);
        self.meter.waiting.set(self.scheduler.waiting() as f64);
    }
}

fn next_pause(pause: Duration) -> Duration {
    (pause * 2).min(RESTART_PAUSE_MAX)
}

fn engine_fault(error: &EngineError) -> Fault {
    let code = match error {
        EngineError::Died { .. } => "engine_died",
        EngineError::Hung { .. } => "engine_hung",
        _ => "engine_failed",
    };
    Fault::new(FaultKind::Engine, code, error.to_string())
        .hint("the engine is being started again; retry the request")
}

fn lane_fault(fault: &LaneFault) -> Fault {
    // A full KV is the one lane fault that passes by itself.
    let (kind, code) = match fault.code {
        SFR_E_CAPACITY => (FaultKind::Busy, "kv_exhausted"),
        _ => (FaultKind::Engine, "lane_failed"),
    };
    Fault::new(kind, code, format!("the engine failed this answer: {}", fault.message))
}

/// `SFR_E_CAPACITY` of the ABI, which this crate does not import.
const SFR_E_CAPACITY: i32 = -9;

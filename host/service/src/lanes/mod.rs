//! The thread that owns one engine: its scheduler, its link, its clients, and what to do when the link breaks.
//!
//! While the engine computes a tick, the thread tells clients what the tick before brought. It never waits for a client
//! and never blocks on anything but its link and its desk.

mod clients;
mod embeds;
mod engine;
mod faults;
mod restarts;
mod watch;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use sf_core::ports::ModelState;
use sf_core::{EmbedShape, Moment, StepOut, StepPlan};
use sf_engine::EngineError;
use sf_engine::Link;
use sf_sched::{Outcome, Scheduler};
use tokio::sync::watch::Sender;

use crate::clock::Clock;
use crate::desk::{Closed, Desk, Job, News};
use crate::embed::EmbedQueue;
use crate::mailbox::Ending;
use crate::meter::Meter;
use crate::model::Opener;
use clients::Clients;
pub(crate) use faults::queue_full;
use restarts::Restarts;
use watch::{Kind, StepWatch};

/// Shortest sleep of an idle thread, so that a wake-up that brings nothing cannot spin.
const IDLE_MIN: Duration = Duration::from_millis(1);

/// What a lane thread is started with.
pub(crate) struct Start {
    /// The model's id, for the log.
    pub(crate) model: String,
    /// Where the HTTP side leaves its jobs.
    pub(crate) desk: Arc<Desk>,
    /// Shared with whoever submits.
    pub(crate) clock: Clock,
    /// Idle.
    pub(crate) scheduler: Scheduler,
    /// Opens the engine.
    pub(crate) opener: Arc<Mutex<Opener>>,
    /// Seen by clients.
    pub(crate) state: Sender<ModelState>,
    /// The model's numbers.
    pub(crate) meter: Meter,
    /// Told once the engine is open, where it makes vectors.
    pub(crate) shape: Arc<OnceLock<EmbedShape>>,
}

/// State of one lane thread.
pub(crate) struct LaneThread {
    start: Start,
    clients: Clients,
    embeds: EmbedQueue,
    vectors: Vec<f32>,
    restarts: Restarts,
    watch: StepWatch,
    news: News,
    plan: StepPlan,
    out: StepOut,
    outcomes: Vec<Outcome>,
}

/// Why serving ended.
enum Ended {
    Closed,
    Engine(EngineError),
}

impl From<Closed> for Ended {
    fn from(Closed: Closed) -> Self {
        Ended::Closed
    }
}

impl From<EngineError> for Ended {
    fn from(error: EngineError) -> Self {
        Ended::Engine(error)
    }
}

/// Closes the desk of a thread that ends, however it does, and tells those whose jobs lie there.
struct Leaver(Arc<Desk>);

impl Drop for Leaver {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl LaneThread {
    pub(crate) fn new(start: Start) -> Self {
        LaneThread {
            start,
            clients: Clients::default(),
            embeds: EmbedQueue::default(),
            vectors: Vec::new(),
            restarts: Restarts::default(),
            watch: StepWatch::default(),
            news: News::default(),
            plan: StepPlan::default(),
            out: StepOut::default(),
            outcomes: Vec::new(),
        }
    }

    /// Runs until the desk is closed.
    pub(crate) fn run(mut self) {
        let _leaver = Leaver(Arc::clone(&self.start.desk));
        let Ok(mut link) = self.open_first() else { return };
        loop {
            let ended = match link.as_mut() {
                Some(link) => self.serve(link.as_mut()),
                None => self.await_request().map_err(Ended::from),
            };
            match ended {
                Err(Ended::Closed) => return,
                Err(Ended::Engine(error)) => {
                    drop(link.take());
                    let Ok(opened) = self.replace(error) else { return };
                    link = opened;
                }
                // Retired: the request that just came in is worth one more try.
                Ok(()) => {
                    let Ok(opened) = self.reopen() else { return };
                    link = opened;
                }
            }
        }
    }

    /// Plans, runs ticks and tells clients, until the engine fails or the desk is closed.
    fn serve(&mut self, link: &mut dyn Link) -> Result<(), Ended> {
        // In this process, beginning a tick is computing it: nobody should wait for his token until then.
        let beside = link.pid().is_some();
        loop {
            self.read_desk()?;
            let now = self.now();
            let planned = self.start.scheduler.plan(now, &mut self.plan, &mut self.outcomes);
            if !beside {
                self.tell(now);
                self.wake(now);
            }
            let kind = Kind::of(&self.plan);
            if planned {
                link.set_step_limit(self.watch.limit(kind));
                link.begin(&self.plan)?;
                self.start.desk.begun(self.start.scheduler.has_room());
            }
            self.start.desk.note_waiting(self.start.scheduler.waiting());
            self.tell(now);
            if planned && kind == Kind::Decode {
                self.wake_paced(now);
            } else {
                // Nothing, or something long, comes next.
                self.wake(now);
            }
            self.give_up_stalled(now);
            self.start.meter.update(now, &self.start.scheduler, planned);
            self.start.meter.generated(self.clients.tokens);
            if planned {
                self.follow(link, kind, now)?;
            }
            // In turns with ticks, so that neither waits for the other's end.
            let embedded = self.embed(link)?;
            if !planned && !embedded {
                self.idle();
            }
        }
    }

    /// Takes the steps of the tick that was begun at `before`. What the last one brought is told after the next tick has begun.
    fn follow(&mut self, link: &mut dyn Link, mut kind: Kind, mut before: Moment) -> Result<(), EngineError> {
        loop {
            link.next(&mut self.out)?;
            let now = self.now();
            self.watch.note(kind, now - before);
            self.start.meter.step(&self.out, now - before);
            self.start.scheduler.apply(now, &self.out, &mut self.outcomes);
            if self.out.last {
                return Ok(());
            }
            self.start.desk.note_room(self.start.scheduler.has_room());
            if self.start.scheduler.should_yield() {
                self.start.desk.raise_yield();
            }
            self.tell(now);
            self.wake_paced(now);
            (before, kind) = (now, Kind::Decode);
            link.set_step_limit(self.watch.limit(kind));
        }
    }

    fn now(&self) -> Moment {
        self.start.clock.now()
    }

    /// Sleeps until there is news or a deadline passes.
    fn idle(&self) {
        let wakes = [self.start.scheduler.next_wake(), self.clients.next_wake()];
        let limit = wakes.into_iter().flatten().min().map(|at| (at - self.now()).max(IDLE_MIN));
        self.start.desk.wait(limit);
    }

    /// Without an engine: sleeps until a request waits for one.
    fn await_request(&mut self) -> Result<(), Closed> {
        while self.start.scheduler.waiting() == 0 && self.embeds.is_empty() {
            self.start.meter.update(self.now(), &self.start.scheduler, false);
            self.start.desk.wait(None);
            self.read_desk()?;
        }
        Ok(())
    }

    fn read_desk(&mut self) -> Result<(), Closed> {
        self.start.desk.take(&mut self.news)?;
        let mut news = std::mem::take(&mut self.news);
        for job in news.jobs.drain(..) {
            self.admit(job);
        }
        self.start.desk.note_waiting(self.start.scheduler.waiting());
        for job in news.embeds.drain(..) {
            self.start.meter.prompt_tokens.increment(job.tokens());
            self.embeds.push(job);
        }
        self.start.desk.note_waiting_embeds(self.embeds.len());
        for (request, why) in news.left.drain(..) {
            if self.clients.left(request, why, &self.start.meter) {
                self.start.scheduler.cancel(request);
            }
        }
        for request in news.caught_up.drain(..) {
            if self.clients.release(request) {
                self.start.scheduler.hold(request, false);
            }
        }
        if std::mem::take(&mut news.shed) {
            self.start.scheduler.shed();
            self.start.meter.os_pressure.increment(1);
        }
        if let Some(every) = news.background_every.take() {
            self.start.scheduler.set_background_every(every);
        }
        self.news = news;
        Ok(())
    }

    fn admit(&mut self, job: Job) {
        let Job { admission, mailbox, submitted } = job;
        let (request, now, meter) = (admission.request, self.start.clock.now(), &self.start.meter);
        meter.prompt_tokens.increment(admission.prompt.len() as u64);
        let times = clients::Times { submitted, taken: now };
        self.clients.insert(request, mailbox, admission.class, times);
        if let Err(full) = self.start.scheduler.submit(now, admission) {
            self.clients.fail(request, queue_full(&full), meter);
        }
    }

    /// Passes on what the scheduler decided. Streams are woken apart from that.
    fn tell(&mut self, now: Moment) {
        let (clients, scheduler, meter) = (&mut self.clients, &mut self.start.scheduler, &self.start.meter);
        for outcome in self.outcomes.drain(..) {
            match outcome {
                Outcome::Token { request, sampled } => {
                    if clients.token(request, sampled) && clients.hold(request, now) {
                        scheduler.hold(request, true);
                        meter.holds.increment(1);
                    }
                }
                Outcome::Scored { request, sampled } => {
                    if clients.scored(request, sampled) && clients.hold(request, now) {
                        scheduler.hold(request, true);
                        meter.holds.increment(1);
                    }
                }
                Outcome::Started { request, cached, waited } => {
                    clients.started(request, cached, waited, meter);
                }
                Outcome::Finished { request, reason, drawn, cached } => {
                    clients.finish(request, Ending::Finished { reason, drawn, cached }, now, meter);
                }
                Outcome::Failed { request, failure } => {
                    clients.fail(request, faults::failed(&failure), meter);
                }
            }
        }
    }

    fn wake(&mut self, now: Moment) {
        self.clients.wake(now, &self.start.meter);
    }

    fn wake_paced(&mut self, now: Moment) {
        self.clients.wake_paced(now, self.start.scheduler.running(), &self.start.meter);
    }

    fn give_up_stalled(&mut self, now: Moment) {
        while let Some(request) = self.clients.give_up_stalled(now, &self.start.meter) {
            tracing::warn!(model = self.start.model, %request, "the client reads too slowly; its answer is given up");
            self.start.scheduler.cancel(request);
        }
    }
}

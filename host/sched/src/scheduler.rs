//! The state machine of one engine: who may call what, and in which order a plan comes about.
//!
//! The policy is elsewhere: `queue` orders, `admit` gives out lanes, `feed` fills the tick, `settle` takes what came
//! back, `kv` and `tree` know what the lanes hold.

use sf_core::{LaneId, Moment, QosClass, RequestId, StepOut, StepPlan, limits};

use crate::feed::Fare;
use crate::job::Job;
use crate::kv::{Kv, Pin};
use crate::lane::{End, Entry, Lane};
use crate::pace::Pace;
use crate::queue::Queue;
use crate::types::{Admission, EngineFacts, Failure, Levels, Outcome, QueueFull, SchedulerSettings, Totals};

/// No lane runs there.
const VACANT: u32 = u32::MAX;

/// The state machine of one engine.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) settings: SchedulerSettings,
    pub(crate) queue: Queue,
    /// Running requests in the order of admission, and ended ones until the next plan.
    pub(crate) lanes: Vec<Lane>,
    /// Where a lane is in `lanes`, by its id.
    pub(crate) slots: Vec<u32>,
    pub(crate) kv: Kv,
    pub(crate) pace: Pace,
    pub(crate) fare: Fare,
    pub(crate) totals: Totals,
    /// Of the last call that told the time.
    pub(crate) now: Moment,
    pub(crate) starts: u64,
    /// Ticks that fed others since background was fed last.
    pub(crate) background_quiet: u32,
    /// The request that is next lacks KV cells.
    pub(crate) stalled: bool,
    /// The tick in flight should end.
    pub(crate) nudged: bool,
    /// Feeds of the tick in flight.
    pub(crate) flight_feeds: usize,
    in_flight: bool,
    seq: u64,
    arrivals: u64,
}

impl Scheduler {
    /// An idle scheduler of an engine that was not described yet: it has `batch_max` lanes and can nothing special.
    ///
    /// # Panics
    /// When the settings contradict each other: that is a bug of the caller.
    pub fn new(settings: SchedulerSettings) -> Self {
        assert!(settings.batch_max >= 1, "an engine has at least one lane");
        assert!(settings.step_tokens_max >= settings.batch_max, "a step must hold one token of every lane");
        assert!(
            settings.tick_decode_budget >= settings.batch_max,
            "a tick must hold one token of every lane"
        );
        assert!(settings.prefill_budget >= 1, "a tick must hold a token of a prompt");
        Scheduler {
            kv: Kv::new(&settings),
            slots: vec![VACANT; settings.batch_max as usize],
            settings,
            queue: Queue::default(),
            lanes: Vec::new(),
            pace: Pace::default(),
            fare: Fare::default(),
            totals: Totals::default(),
            now: Moment::default(),
            starts: 0,
            background_quiet: u32::MAX,
            stalled: false,
            nudged: false,
            flight_feeds: 0,
            in_flight: false,
            seq: 0,
            arrivals: 0,
        }
    }

    /// Queues a request.
    ///
    /// # Errors
    /// [`QueueFull`] when too many wait already.
    pub fn submit(&mut self, now: Moment, admission: Admission) -> Result<(), QueueFull> {
        debug_assert!(!admission.prompt.is_empty(), "the service refuses empty prompts");
        let waiting = self.queue.waiting.len();
        if waiting >= self.settings.queue_max {
            return Err(QueueFull { waiting, limit: self.settings.queue_max });
        }
        self.nudged |= self.would_run(admission.class);
        self.arrivals += 1;
        self.queue.parties.enter(admission.party);
        self.queue.push(Job::new(admission, now, self.arrivals), false);
        Ok(())
    }

    /// Forgets a request wherever it is; its lane is freed by the next plan. Unknown ids are ignored: the request may
    /// have ended while its client was giving up.
    pub fn cancel(&mut self, request: RequestId) {
        if let Some(at) = self.queue.find(request) {
            let job = self.queue.remove(at);
            self.queue.parties.leave(job.party);
        } else if let Some(lane) = self.running_lane(request) {
            lane.end = End::Retire;
            let party = lane.job.party;
            self.queue.parties.leave(party);
            self.nudged = true;
        }
    }

    fn running_lane(&mut self, request: RequestId) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.job.request == request && lane.end == End::No)
    }

    /// Requests that hold a lane.
    pub fn running(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.end == End::No).count()
    }

    /// Requests that wait for one.
    pub fn waiting(&self) -> usize {
        self.queue.waiting.len()
    }

    /// Fills `plan` with the next tick; `false` when there is nothing to do. Only when no tick is in flight.
    pub fn plan(&mut self, now: Moment, plan: &mut StepPlan, outcomes: &mut Vec<Outcome>) -> bool {
        debug_assert!(!self.in_flight, "a tick is in flight");
        plan.clear();
        self.now = now;
        self.kv.begin(now, self.pace.prompt_ns(), plan);
        self.expire(now, outcomes);
        self.sweep(plan);
        self.reopen(plan);
        self.kv.relieve(&self.settings, plan);
        self.admit(plan, outcomes);
        self.feed(plan, outcomes);
        self.kv.bound_pins(&self.settings);
        self.nudged = false;
        if plan.ops.is_empty() && plan.feeds.is_empty() {
            return false;
        }
        if !plan.feeds.is_empty() {
            self.queue.passed_over();
        }
        self.seq += 1;
        plan.seq = self.seq;
        self.totals.ticks += 1;
        self.pace.begin(now);
        (self.in_flight, self.flight_feeds) = (true, plan.feeds.len());
        true
    }

    /// Frees the lanes of ended requests, or keeps what they hold.
    fn sweep(&mut self, plan: &mut StepPlan) {
        let mut at = 0;
        while at < self.lanes.len() {
            if self.lanes[at].end == End::No {
                at += 1;
                continue;
            }
            let lane = self.take_lane_out(at);
            let whole = lane.len >= lane.job.prompt_len;
            let own = lane
                .job
                .pin
                .filter(|_| whole)
                .map(|time| Pin { until: self.now + time, len: lane.job.prompt_len });
            let pin = Pin::join(own, lane.pin);
            self.part(lane, pin, plan);
        }
    }

    /// Removes a lane from the running ones.
    pub(crate) fn take_lane_out(&mut self, at: usize) -> Lane {
        let lane = self.lanes.remove(at);
        self.slots[lane.id.0 as usize] = VACANT;
        for (at, lane) in self.lanes.iter().enumerate().skip(at) {
            self.slots[lane.id.0 as usize] = at as u32;
        }
        lane
    }

    /// A lane parts with its request: it is kept for its prefix, or closed.
    pub(crate) fn part(&mut self, lane: Lane, pin: Option<Pin>, plan: &mut StepPlan) -> Job {
        let good = lane.end == End::Retire && lane.entry == Entry::Open;
        if good && lane.job.reuse && lane.len >= limits::PREFIX_TOKENS_MIN {
            self.kv.retire(lane.id, &lane.job.tokens[..lane.len as usize], pin, plan);
        } else {
            self.kv.close(lane.id, plan);
        }
        lane.job
    }

    /// Takes what one step of the tick planned last brought.
    pub fn apply(&mut self, now: Moment, out: &StepOut, outcomes: &mut Vec<Outcome>) {
        debug_assert_eq!(out.seq, self.seq, "an answer to another plan");
        if !self.in_flight || out.seq != self.seq {
            return;
        }
        self.now = now;
        self.settle(now, out, outcomes);
        self.in_flight = !out.last;
    }

    /// Whether the tick in flight should end at its next step, because somebody could use a lane that became free, or
    /// somebody's time is up.
    pub fn should_yield(&self) -> bool {
        let due = || self.lanes.iter().any(|lane| lane.end == End::No && lane.job.is_due(self.now));
        self.in_flight && (self.nudged || due())
    }

    /// An engine was opened; forgets everything about the one before.
    pub fn engine_opened(&mut self, facts: EngineFacts) {
        debug_assert!(self.lanes.is_empty(), "the engine before was not given up");
        self.reset(&facts);
    }

    fn reset(&mut self, facts: &EngineFacts) {
        self.kv.reset(facts, &self.settings);
        self.slots.clear();
        self.slots.resize(facts.lanes as usize, VACANT);
        (self.in_flight, self.nudged, self.stalled) = (false, false, false);
        for waiting in &mut self.queue.waiting {
            waiting.block = None;
        }
    }

    /// The engine is gone: all lanes, prefixes and copies with it. Running requests are queued again in front of all
    /// others of their class with what they have drawn, and go on from there in the next engine; those that were running
    /// when too many engines died fail.
    pub fn engine_lost(&mut self, now: Moment, outcomes: &mut Vec<Outcome>) {
        self.now = now;
        let lanes = std::mem::take(&mut self.lanes);
        if lanes.iter().any(|lane| lane.fed > 0 && lane.job.class == QosClass::Background) {
            self.background_quiet = 0;
        }
        for mut job in lanes.into_iter().filter(|lane| lane.end == End::No).map(|lane| lane.job) {
            if job.lose_engine() && job.engines_lost > limits::RESUMES_MAX {
                self.queue.parties.leave(job.party);
                let failure = Failure::EnginesLost { engines: job.engines_lost };
                outcomes.push(Outcome::Failed { request: job.request, failure });
            } else {
                self.totals.resumes += 1;
                self.queue.push(job, true);
            }
        }
        self.reset(&EngineFacts { lanes: self.settings.batch_max, ..EngineFacts::default() });
    }

    /// Gives up every request, running or waiting, and returns them, oldest first. For a model that is retired.
    pub fn drop_all(&mut self) -> Vec<RequestId> {
        let mut dropped: Vec<(u64, RequestId)> = Vec::new();
        for lane in self.lanes.iter_mut().filter(|lane| lane.end == End::No) {
            lane.end = End::Close;
            dropped.push((lane.job.seq, lane.job.request));
            self.queue.parties.leave(lane.job.party);
        }
        while let Some(waiting) = self.queue.waiting.pop() {
            dropped.push((waiting.job.seq, waiting.job.request));
            self.queue.parties.leave(waiting.job.party);
        }
        dropped.sort_unstable();
        dropped.into_iter().map(|(_, request)| request).collect()
    }

    /// Leaves a running request's lane out of plans while its client is behind, or takes it in again.
    pub fn hold(&mut self, request: RequestId, held: bool) {
        if let Some(at) = self.queue.find(request) {
            self.queue.waiting[at].job.held = held;
        } else if let Some(lane) = self.running_lane(request) {
            lane.job.held = held;
        }
    }

    /// Background requests run in every n-th tick from now on; 0 counts as 1.
    pub fn set_background_every(&mut self, every: u32) {
        self.settings.background_every = every.clamp(1, limits::BACKGROUND_EVERY_MAX);
    }

    /// The system runs out of memory: the next plan drops copies and idle prefixes that are not pinned, down to the low
    /// watermark.
    pub fn shed(&mut self) {
        self.kv.shed();
    }

    /// The moment at which [`Scheduler::plan`] should be called although nothing happened: a deadline of a request.
    pub fn next_wake(&self) -> Option<Moment> {
        let lanes = self.lanes.iter().filter(|lane| lane.end == End::No);
        let running = lanes.filter_map(|lane| lane.job.deadline).min();
        running.into_iter().chain(self.queue.next_deadline()).min()
    }

    /// Whether an arrival of the agent class or a higher one would get a lane at once: then it is worth ending the
    /// running tick for it.
    pub fn has_room(&self) -> bool {
        let agents =
            self.lanes.iter().filter(|lane| lane.end == End::No && lane.job.class == QosClass::Agent);
        let cap = self.settings.class_lanes[QosClass::Agent.index()];
        self.has_place() && (agents.count() as u32) < cap
    }

    /// Whether a lane is there that nobody waits for.
    fn has_place(&self) -> bool {
        !self.stalled && self.running() < self.batch() && !self.somebody_waits()
    }

    /// Whether an arrival of this class would run in the next tick.
    fn would_run(&self, class: QosClass) -> bool {
        let urgent = class.is_latency_sensitive();
        self.has_place() || (urgent && self.victim_below(class).is_some())
    }

    /// Requests that can run at the same time.
    pub(crate) fn batch(&self) -> usize {
        self.settings.batch_max.min(self.kv.lanes()) as usize
    }

    /// Where a lane's request is among the running ones.
    pub(crate) fn at(&self, lane: LaneId) -> Option<usize> {
        let at = *self.slots.get(lane.0 as usize)?;
        (at != VACANT).then_some(at as usize)
    }

    /// Numbers since the start.
    pub fn totals(&self) -> Totals {
        Totals {
            evictions: self.kv.evictions,
            stashes: self.kv.stash.stashes,
            restores: self.kv.stash.restores,
            ..self.totals
        }
    }

    /// Where things stand.
    pub fn levels(&self) -> Levels {
        let live = self.lanes.iter().filter(|lane| lane.end == End::No);
        let decodes = live.clone().filter(|lane| lane.is_decoding()).count() as u32;
        Levels {
            running: live.count() as u32,
            waiting: self.queue.by_class(),
            residents: self.kv.residents.len() as u32,
            kv_cells_used: self.kv.tree.used() + self.kv.uncut,
            kv_cells: self.kv.cells(),
            kv_cells_idle: self.kv.tree.idle(),
            kv_cells_pinned: self.kv.pinned(),
            stash_bytes: self.kv.stash.bytes(),
            prefill_chunk: self.pace.chunk(&self.settings, decodes),
        }
    }
}

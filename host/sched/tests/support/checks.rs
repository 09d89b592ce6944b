//! What must hold at every hand-off between the scheduler and the rest, whatever is going on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sf_core::{FinishReason, LaneOp, Moment, QosClass, StepPlan, Token, limits};
use sf_sched::{Admission, Failure, Outcome, Scheduler, SchedulerSettings};

use super::draw::{Alone, alone};
use super::engine::ModelEngine;

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    Finished { reason: FinishReason, drawn: u32, cached: u32 },
    Failed(Failure),
    Refused,
    Cancelled,
}

/// A request as its client sees it.
#[derive(Clone)]
pub(crate) struct Tracked {
    pub(crate) class: QosClass,
    pub(crate) prompt: u32,
    /// Its prompt, if others may use it and it may use others'.
    shared: Option<Vec<Token>>,
    /// Tokens of its prompt that are to be scored, the next one last.
    unscored: Vec<Token>,
    /// Tick in which its lane was fed last.
    fed: u64,
    pub(crate) deadline: Option<Moment>,
    pub(crate) submitted: Moment,
    /// When and in which tick it got a lane for the first time.
    pub(crate) started: Option<(Moment, u64)>,
    /// Tick in which it arrived.
    pub(crate) tick: u64,
    pub(crate) cached: u32,
    pub(crate) tokens: Vec<Token>,
    /// When each token came.
    pub(crate) times: Vec<Moment>,
    /// Tick that brought its first token.
    pub(crate) first_tick: Option<u64>,
    pub(crate) end: Option<End>,
    pub(crate) ended: Option<(Moment, u64)>,
    pub(crate) held: bool,
    /// Engines that may have died under it.
    pub(crate) losses: u32,
    tokens_max: u32,
    alone: Alone,
}

/// Everything that is watched.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) requests: BTreeMap<u64, Tracked>,
    /// Ticks so far.
    pub(crate) ticks: u64,
    /// Nothing fails without a reason of its own, so that the cells reported are exact.
    pub(crate) exact_cells: bool,
    settings: SchedulerSettings,
    /// When the last plan was made.
    planned_at: Moment,
    background_every: u32,
    /// Ticks in which others were fed since background was fed last.
    background_quiet: Option<u32>,
    living: BTreeSet<u64>,
}

impl Rules {
    pub(crate) fn new(settings: SchedulerSettings) -> Self {
        Rules {
            requests: BTreeMap::new(),
            ticks: 0,
            exact_cells: true,
            planned_at: Moment(0),
            background_every: settings.background_every,
            background_quiet: None,
            settings,
            living: BTreeSet::new(),
        }
    }

    /// Requests that have not ended.
    pub(crate) fn living(&self) -> impl Iterator<Item = u64> + '_ {
        self.living.iter().copied()
    }

    pub(crate) fn submitted(&mut self, now: Moment, admission: &Admission, taken: bool) {
        let request = admission.request.0;
        assert_eq!(admission.sampler.seed, request, "its seed tells the model engine whose lane it is");
        let tracked = Tracked {
            class: admission.class,
            prompt: admission.prompt.len() as u32,
            shared: admission.reuse.then(|| admission.prompt.clone()),
            unscored: match admission.sampler.scores_prompt {
                true => admission.prompt[1..].iter().rev().copied().collect(),
                false => Vec::new(),
            },
            fed: self.ticks,
            deadline: admission.deadline,
            submitted: now,
            started: None,
            tick: self.ticks,
            cached: 0,
            tokens: Vec::new(),
            times: Vec::new(),
            first_tick: None,
            end: (!taken).then_some(End::Refused),
            ended: None,
            held: false,
            losses: 0,
            tokens_max: admission.stop.tokens_max,
            alone: alone(admission),
        };
        assert!(self.requests.insert(request, tracked).is_none(), "request {request} arrives twice");
        if taken {
            self.living.insert(request);
        }
    }

    pub(crate) fn cancelled(&mut self, request: u64) {
        if self.living.contains(&request) {
            self.end(Moment(0), request, End::Cancelled);
        }
    }

    fn end(&mut self, now: Moment, request: u64, end: End) {
        let tracked = self.requests.get_mut(&request).expect("it is known");
        (tracked.end, tracked.ended) = (Some(end), Some((now, self.ticks)));
        self.living.remove(&request);
    }

    pub(crate) fn held(&mut self, request: u64, held: bool) {
        if let Some(tracked) = self.requests.get_mut(&request) {
            tracked.held = held;
        }
    }

    pub(crate) fn background_every(&mut self, every: u32) {
        self.background_every = every;
        self.background_quiet = None;
    }

    /// An engine died under those that had a lane, or were getting one.
    pub(crate) fn lost(&mut self, engine: &ModelEngine) {
        let in_lane = |request: u64| engine.lanes.values().any(|lane| lane.spec.sampler.seed == request);
        for request in &self.living {
            let tracked = self.requests.get_mut(request).expect("it is known");
            let failing = engine.setup.noise.op.per_mille > 0;
            tracked.losses += u32::from(tracked.started.is_some() || failing || in_lane(*request));
        }
    }

    /// After a plan: bounds that need no engine.
    pub(crate) fn planned(&mut self, now: Moment, scheduler: &Scheduler, engine: &ModelEngine) {
        self.planned_at = now;
        let levels = scheduler.levels();
        assert!(scheduler.running() <= self.settings.batch_max as usize, "{} run", scheduler.running());
        assert_eq!(levels.running as usize, scheduler.running());
        assert_eq!(levels.waiting.iter().sum::<u32>() as usize, scheduler.waiting());
        let alive = scheduler.running() + scheduler.waiting();
        assert_eq!(alive, self.living.len(), "running and waiting are the living: {levels:?}");
        assert_eq!(levels.kv_cells, engine.setup.facts.kv_cells);
        assert!(levels.kv_cells_idle <= levels.kv_cells_used, "{levels:?}");
        assert!(levels.kv_cells_pinned <= levels.kv_cells_used, "{levels:?}");
        if levels.kv_cells > 0 {
            let pins_max = levels.kv_cells * u64::from(self.settings.pin_budget_pct) / 100;
            assert!(levels.kv_cells_pinned <= pins_max, "pins hold more than {pins_max}: {levels:?}");
        }
        assert!(levels.stash_bytes <= self.settings.stash_bytes_max, "{levels:?}");
        for request in &self.living {
            let deadline = self.requests[request].deadline;
            assert!(deadline.is_none_or(|deadline| now <= deadline), "request {request} is late");
        }
    }

    /// After an engine took a plan: who is fed.
    pub(crate) fn ticked(&mut self, plan: &StepPlan, engine: &ModelEngine) {
        self.ticks += 1;
        let copies = engine.stash_bytes_before();
        assert!(copies <= self.settings.stash_bytes_max, "{copies} bytes of copies are kept");
        for request in plan.ops.iter().filter_map(opened_for) {
            self.requests.get_mut(&request).expect("a lane is opened for a request").fed = self.ticks;
        }
        let (mut fed, mut in_turn) = ([0_u32; 4], false);
        for feed in &plan.feeds {
            // A lane whose opening failed is nobody's, or still the one's before.
            if engine.tick.as_ref().is_some_and(|tick| tick.op_fault(feed.lane).is_some()) {
                continue;
            }
            let request = engine.lanes.get(&feed.lane).expect("a fed lane is open").spec.sampler.seed;
            let tracked = self.requests.get(&request).expect("a lane belongs to a request");
            assert!(tracked.end.is_none(), "request {request} is fed and ended: {:?}", tracked.end);
            assert!(!tracked.held, "request {request} is fed and held");
            fed[tracked.class.index()] += 1;
            in_turn |= tracked.class == QosClass::Background && !self.may_go_anyway(request);
            self.requests.get_mut(&request).expect("it is known").fed = self.ticks;
        }
        for class in QosClass::ALL {
            let cap = self.settings.class_lanes[class.index()];
            assert!(fed[class.index()] <= cap, "{fed:?} lanes fed, {class} may have {cap}");
        }
        self.background(fed, in_turn);
    }

    /// Whether a background request may be fed out of its turn: it starves, or somebody above it waits for its prefix.
    fn may_go_anyway(&self, request: u64) -> bool {
        let tracked = &self.requests[&request];
        let patience = u64::from(self.settings.starvation_ticks) * u64::from(self.background_every);
        if self.ticks - tracked.fed > patience {
            return true;
        }
        let Some(prompt) = &tracked.shared else { return false };
        self.living.iter().map(|other| &self.requests[other]).any(|other| {
            let shared = other.shared.iter().flat_map(|theirs| theirs.iter().zip(prompt));
            let common = shared.take_while(|(theirs, ours)| theirs == ours).count();
            other.class < QosClass::Background && common >= limits::PREFIX_TOKENS_MIN as usize
        })
    }

    fn background(&mut self, fed: [u32; 4], in_turn: bool) {
        if fed[..3].iter().sum::<u32>() == 0 {
            let alone = fed[QosClass::Background.index()] > 0;
            self.background_quiet = if alone { None } else { self.background_quiet };
            return;
        }
        let quiet = self.background_quiet.map(|quiet| quiet + 1);
        if in_turn {
            let enough = quiet.is_none_or(|quiet| quiet >= self.background_every);
            assert!(enough, "background fed again after {quiet:?} ticks of {}", self.background_every);
        }
        self.background_quiet = if in_turn { Some(0) } else { quiet };
    }

    /// After a tick: the books agree.
    pub(crate) fn settled(&self, scheduler: &Scheduler, engine: &ModelEngine) {
        let levels = scheduler.levels();
        let used = engine.cells_used();
        assert!(levels.kv_cells_used >= used, "{used} cells are used: {levels:?}");
        assert!(!self.exact_cells || levels.kv_cells_used == used, "{used} cells are used: {levels:?}");
        let (copies, most) = (engine.stash_bytes(), self.settings.stash_bytes_max);
        // A copy that turned out to be too large is dropped by the next plan.
        assert!(levels.stash_bytes >= copies || copies > most, "{copies} bytes of copies: {levels:?}");
    }

    /// An outcome: is it this request's turn to hear it, and is it true?
    pub(crate) fn told(&mut self, now: Moment, outcome: &Outcome, engine: &ModelEngine) {
        let request = match outcome {
            Outcome::Started { request, .. }
            | Outcome::Scored { request, .. }
            | Outcome::Token { request, .. }
            | Outcome::Finished { request, .. }
            | Outcome::Failed { request, .. } => request.0,
        };
        let ticks = self.ticks;
        let tracked = self.requests.get_mut(&request).expect("an outcome of a known request");
        assert!(tracked.end.is_none(), "request {request}, ended by {:?}: {outcome:?}", tracked.end);
        match outcome {
            Outcome::Started { cached, waited, .. } => {
                assert!(tracked.started.is_none(), "request {request} starts twice");
                assert!(*cached < tracked.prompt, "{cached} of {} tokens cached", tracked.prompt);
                assert!(*cached == 0 || tracked.unscored.is_empty(), "what is scored is computed");
                let admitted = tracked.submitted + *waited;
                // Earlier than this tick when a restore or an opening failed and was tried again.
                assert!(admitted <= self.planned_at, "request {request} got its lane by a plan");
                tracked.started = Some((admitted, ticks));
                tracked.cached = *cached;
            }
            Outcome::Scored { sampled, .. } => {
                assert!(tracked.started.is_some(), "request {request} is scored before it starts");
                assert_eq!(Some(sampled.token), tracked.unscored.pop(), "request {request}");
            }
            Outcome::Token { sampled, .. } => {
                assert!(tracked.started.is_some(), "request {request} draws before it starts");
                assert!(tracked.unscored.is_empty(), "request {request} draws before it is scored");
                let at = tracked.tokens.len();
                let alone = tracked.alone.tokens.get(at);
                assert_eq!(Some(&sampled.token), alone, "token {at} of request {request}");
                tracked.tokens.push(sampled.token);
                tracked.times.push(now);
                tracked.first_tick.get_or_insert(ticks);
            }
            Outcome::Finished { reason, drawn, cached, .. } => {
                tracked.check_finish(now, *reason, *drawn);
                assert!(*cached < tracked.prompt, "{cached} of {} tokens cached", tracked.prompt);
                let end = End::Finished { reason: *reason, drawn: *drawn, cached: *cached };
                self.end(now, request, end);
            }
            Outcome::Failed { failure, .. } => {
                tracked.check_failure(now, request, failure, engine);
                self.end(now, request, End::Failed(failure.clone()));
            }
        }
    }
}

/// The request that an operation makes a lane for.
fn opened_for(op: &LaneOp) -> Option<u64> {
    match op {
        LaneOp::Open { spec, .. }
        | LaneOp::Fork { spec, .. }
        | LaneOp::Adopt { spec, .. }
        | LaneOp::Restore { spec, .. } => Some(spec.sampler.seed),
        LaneOp::Truncate { .. } | LaneOp::Close { .. } | LaneOp::Stash { .. } | LaneOp::Forget { .. } => None,
    }
}

impl fmt::Debug for Tracked {
    /// Without its tokens: they fill the screen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, prompt, started) = (self.class, self.prompt, self.started);
        let drawn = (self.tokens.len(), self.alone.drawn);
        write!(
            f,
            "{class}, {prompt} tokens, arrived in tick {}, started {started:?}, drew {drawn:?}",
            self.tick
        )?;
        write!(f, ", held {}, ended {:?} by {:?}", self.held, self.ended, self.end)
    }
}

impl Tracked {
    fn check_finish(&self, now: Moment, reason: FinishReason, drawn: u32) {
        assert!(self.started.is_some(), "finished before it started");
        if reason == FinishReason::Deadline {
            assert!(self.deadline.is_some_and(|deadline| deadline <= now), "too early");
            assert_eq!(drawn as usize, self.tokens.len());
        } else {
            assert_eq!((reason, drawn), (self.alone.reason, self.alone.drawn));
            assert_eq!(self.tokens, self.alone.tokens);
        }
    }

    fn check_failure(&self, now: Moment, request: u64, failure: &Failure, engine: &ModelEngine) {
        match failure {
            Failure::Lane(fault) => {
                assert_eq!(engine.faults.get(&request), Some(fault), "request {request} did nothing wrong");
            }
            Failure::Expired => {
                assert!(self.deadline.is_some_and(|deadline| deadline <= now), "too early");
                assert!(self.started.is_none(), "it ran: it ends with what it has");
            }
            Failure::EnginesLost { engines } => {
                assert!(*engines > limits::RESUMES_MAX && *engines <= self.losses, "{engines} engines");
            }
            Failure::KvExhausted { needed, .. } => {
                let cells = engine.setup.cells_max;
                let most = u64::from(self.prompt) + u64::from(self.tokens_max);
                let never = cells > 0 && most > cells && *needed > cells;
                assert!(never || engine.refused_alone.contains(&request), "request {request} is not alone");
            }
        }
    }

    /// Time to its first token.
    pub(crate) fn ttft_ms(&self) -> f64 {
        let first = self.times.first().expect("it drew a token");
        first.since(self.submitted).as_secs_f64() * 1e3
    }

    /// Ticks it waited for a lane.
    pub(crate) fn waited_ticks(&self) -> u64 {
        self.started.expect("it started").1 - self.tick
    }

    /// Whether it got every token it gets alone.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.end, Some(End::Finished { reason: FinishReason::Stop | FinishReason::Length, .. }))
    }
}

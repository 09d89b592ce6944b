//! What goes into the scheduler and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use sf_core::{FinishReason, LaneFault, Moment, QosClass, RequestId, Sampled, SamplerSpec, Token, limits};
use thiserror::Error;

/// Policy of one model's scheduler; the same for every engine that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// Requests computed at the same time (`--max-batch`), at least 1.
    pub batch_max: u32,
    /// Tokens fed in one step, all lanes together; at least `batch_max`.
    pub step_tokens_max: u32,
    /// Prompt tokens of one tick (`--prefill-budget`), at least 1.
    pub prefill_budget: u32,
    /// Decoded tokens of one tick, all lanes together (`--tick-decode-budget`); at least `batch_max`.
    pub tick_decode_budget: u32,
    /// Time that a tick of decode steps should take (`--tick-target-ms`).
    pub tick_target: Duration,
    /// Time that a step with prompt tokens should take, so that an arrival never waits long for its end.
    pub prefill_step_target: Duration,
    /// Running requests of each class at most, by [`QosClass::index`] (`--class-lanes`); `batch_max` = not capped.
    pub class_lanes: [u32; 4],
    /// Ticks that a waiting request is passed over before it goes first (`--starvation-ticks`), at least 1.
    pub starvation_ticks: u32,
    /// Background requests run in every n-th tick while others have work, at least 1.
    pub background_every: u32,
    /// Requests that may wait for a lane.
    pub queue_max: usize,
    /// Percent of KV positions in use at which idle prefixes are evicted (`--pressure-high`).
    pub pressure_high_pct: u32,
    /// Percent of KV positions at which evicting ends (`--pressure-low`), at most `pressure_high_pct`.
    pub pressure_low_pct: u32,
    /// Percent of KV positions that pins may hold (`--pin-budget-pct`).
    pub pin_budget_pct: u32,
    /// Bytes of host memory for copies of evicted prefixes (`--prefix-blob-budget-mb`); 0 = no copies.
    pub stash_bytes_max: u64,
    /// Positions of one lane.
    pub window: u32,
}

impl SchedulerSettings {
    /// The defaults of [`limits`] for a batch of `batch_max` and a window of `window` positions.
    pub fn new(batch_max: u32, window: u32) -> Self {
        SchedulerSettings {
            batch_max,
            step_tokens_max: limits::STEP_TOKENS_MAX.max(batch_max),
            prefill_budget: limits::PREFILL_BUDGET,
            tick_decode_budget: batch_max * limits::TICK_DECODE_STEPS,
            tick_target: limits::TICK_TARGET,
            prefill_step_target: limits::PREFILL_STEP_TARGET,
            class_lanes: [batch_max; 4],
            starvation_ticks: limits::STARVATION_TICKS,
            background_every: limits::BACKGROUND_EVERY,
            queue_max: limits::QUEUE_REQUESTS_MAX,
            pressure_high_pct: limits::PRESSURE_HIGH_PCT,
            pressure_low_pct: limits::PRESSURE_LOW_PCT,
            pin_budget_pct: limits::PIN_BUDGET_PCT,
            stash_bytes_max: limits::PREFIX_BLOB_BUDGET_MB << 20,
            window,
        }
    }
}

/// What the engine that just opened can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineFacts {
    /// Lanes it has, running ones and those that only keep a prefix; at least `batch_max`.
    pub lanes: u32,
    /// Positions that all lanes together may hold; 0 = unknown: then only its own refusals count.
    pub kv_cells: u64,
    /// A lane can be forked.
    pub fork: bool,
    /// A lane can be cut.
    pub truncate: bool,
    /// KV can be copied to host memory and back.
    pub stash: bool,
}

/// When an answer ends by itself.
#[derive(Clone, Debug)]
pub struct Stop {
    /// End-of-text tokens, sorted; empty = none is honoured.
    pub end_tokens: Arc<[Token]>,
    /// Tokens to draw at most, at least 1.
    pub tokens_max: u32,
    /// Positions that a lane may hold.
    pub positions_max: u32,
}

impl Stop {
    pub(crate) fn ends(&self, token: Token) -> bool {
        self.end_tokens.binary_search(&token).is_ok()
    }
}

/// A request that wants a lane.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Names it in outcomes; unique among the living.
    pub request: RequestId,
    /// Not empty, and shorter than `stop.positions_max`.
    pub prompt: Vec<Token>,
    /// How tokens are drawn.
    pub sampler: SamplerSpec,
    /// When to end.
    pub stop: Stop,
    /// Who goes first.
    pub class: QosClass,
    /// Whose it is, for fairness inside a class; 0 = nobody in particular.
    pub party: u64,
    /// When it ends with what it has, or is not started any more.
    pub deadline: Option<Moment>,
    /// Take over KV of earlier requests and leave its own behind.
    pub reuse: bool,
    /// Keep the KV of its prompt until then, within the pin budget.
    pub pin: Option<Duration>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It got a lane for the first time. Told with the first step of that tick: only then is it known that a prefix could be
    /// taken over.
    Started {
        /// The request.
        request: RequestId,
        /// Prompt tokens whose KV was there already.
        cached: u32,
        /// Time in the queue, up to the plan that gave it the lane.
        waited: Duration,
    },
    /// The next token of its prompt, from the second one on, as the model saw it coming. Before all drawn ones.
    Scored {
        /// The request.
        request: RequestId,
        /// The token.
        sampled: Sampled,
    },
    /// It drew a token. End-of-text tokens are not reported.
    Token {
        /// The request.
        request: RequestId,
        /// The token.
        sampled: Sampled,
    },
    /// It is complete and its lane is free.
    Finished {
        /// The request.
        request: RequestId,
        /// Why.
        reason: FinishReason,
        /// Tokens drawn, the end-of-text token included.
        drawn: u32,
        /// Prompt tokens that were not computed for it.
        cached: u32,
    },
    /// It failed; its neighbours go on.
    Failed {
        /// The request.
        request: RequestId,
        /// Why.
        failure: Failure,
    },
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The engine failed its lane.
    #[error("{}", .0.message)]
    Lane(LaneFault),
    /// It alone needs more KV positions than there are, or than anything else would free.
    #[error("it needs {needed} KV positions and all lanes together have {cells} (kv.exhausted)")]
    KvExhausted {
        /// Positions it needs.
        needed: u64,
        /// Positions there are.
        cells: u64,
    },
    /// Its deadline passed before it got a lane.
    #[error("its deadline passed before it got a lane (deadline.queued)")]
    Expired,
    /// It was running when one engine too many died.
    #[error("{engines} engines died while it ran (resume.limit)")]
    EnginesLost {
        /// Engines that died under it.
        engines: u32,
    },
}

/// Too many requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{waiting} requests wait for a lane already, the limit is {limit} (queue.full)")]
pub struct QueueFull {
    /// How many wait.
    pub waiting: usize,
    /// How many may.
    pub limit: usize,
}

/// Numbers since the start, for metrics; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Ticks planned.
    pub ticks: u64,
    /// Prompt tokens fed, those computed again after a preemption or a lost engine included.
    pub prefill_tokens: u64,
    /// Tokens drawn.
    pub decode_tokens: u64,
    /// Prompt tokens taken over from a resident lane.
    pub prefix_tokens: u64,
    /// Requests that took over a prefix.
    pub prefix_hits: u64,
    /// Requests that took over nothing.
    pub prefix_misses: u64,
    /// Idle prefixes dropped for room.
    pub evictions: u64,
    /// Lanes taken away from a running request, which was queued again.
    pub preemptions: u64,
    /// Running requests carried over to a new engine.
    pub resumes: u64,
    /// Requests that went first because they had waited too long.
    pub starvation_grants: u64,
    /// Copies of prefixes made in host memory.
    pub stashes: u64,
    /// Copies taken back into a lane.
    pub restores: u64,
    /// Requests that ended by their deadline, started or not.
    pub deadlines: u64,
}

/// Where things stand, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// Requests that hold a lane.
    pub running: u32,
    /// Requests that wait, by class.
    pub waiting: [u32; 4],
    /// Idle lanes that keep a prefix.
    pub residents: u32,
    /// KV positions in use, shared ones counted once.
    pub kv_cells_used: u64,
    /// KV positions there are; 0 = unknown.
    pub kv_cells: u64,
    /// Of those in use, positions that only idle prefixes hold.
    pub kv_cells_idle: u64,
    /// Positions that pins hold.
    pub kv_cells_pinned: u64,
    /// Bytes of copies in host memory.
    pub stash_bytes: u64,
    /// Prompt tokens that the next step may feed.
    pub prefill_chunk: u32,
}

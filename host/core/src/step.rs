//! One step of an engine: the plan that goes in and what comes out. The same types on both transports.

use std::ops::Range;

use crate::ids::{LaneId, Token};
use crate::sampling::SamplerSpec;

/// What the engine does next. Operations are applied in order, then the feeds run as one ragged batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepPlan {
    /// Grows by one per step of an engine; echoed in [`StepOut::seq`].
    pub seq: u64,
    /// Lane bookkeeping before the batch.
    pub ops: Vec<LaneOp>,
    /// At most one per lane. May be empty: then only the operations happen.
    pub feeds: Vec<Feed>,
    /// What the feeds' ranges point into.
    pub tokens: Vec<Token>,
}

impl StepPlan {
    /// Empties the plan and keeps its buffers.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.feeds.clear();
        self.tokens.clear();
    }
}

/// Lane bookkeeping.
#[derive(Clone, Debug, PartialEq)]
pub enum LaneOp {
    /// Makes a lane, empty.
    Open {
        /// Unused until now.
        lane: LaneId,
        /// How its tokens are chosen.
        sampler: SamplerSpec,
    },
    /// Makes a lane that holds the first `upto` positions of another.
    Fork {
        /// The parent; stays as it is.
        from: LaneId,
        /// Positions taken over.
        upto: u32,
        /// Unused until now.
        lane: LaneId,
        /// How the child's tokens are chosen.
        sampler: SamplerSpec,
    },
    /// Cuts a lane to at most `len` positions.
    Truncate {
        /// The lane.
        lane: LaneId,
        /// Positions to keep.
        len: u32,
    },
    /// Frees a lane. One that is not open is free already: its opening may have failed.
    Close {
        /// The lane.
        lane: LaneId,
    },
}

/// One lane's share of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// The lane.
    pub lane: LaneId,
    /// Its run, a non-empty range of [`StepPlan::tokens`]: one for a decode, more for a prefill chunk.
    pub tokens: Range<u32>,
    /// Positions the lane holds before the run.
    pub pos0: u32,
    /// Draw the token that follows the run's last one.
    pub sample: bool,
}

/// What a step brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOut {
    /// The plan's.
    pub seq: u64,
    /// One per feed in the plan's order, then one per operation that failed.
    pub lanes: Vec<LaneOut>,
    /// Time in kernels as the runtime measured it, nanoseconds; 0 = not measured.
    pub device_ns: u64,
}

/// What became of one lane in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneOut {
    /// The lane.
    pub lane: LaneId,
    /// Tokens of the run that are now in the lane.
    pub consumed: u32,
    /// The drawn token if one was asked for, or this lane's own fault.
    pub result: Result<Option<Sampled>, LaneFault>,
}

/// A drawn token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The token.
    pub token: Token,
    /// Its natural log-probability under the model's own distribution (before temperature and filters); present when
    /// the lane asked for log-probabilities.
    pub logprob: Option<f32>,
    /// The likeliest tokens with theirs, best first.
    pub top: Vec<(Token, f32)>,
}

/// A fault that ends one lane and leaves its neighbours alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneFault {
    /// The runtime's status code (`SFR_E_…`).
    pub code: i32,
    /// Its words.
    pub message: String,
}

//! One tick of an engine: the plan that goes in and what comes out, step by step. The same types on both transports.

use std::ops::Range;
use std::sync::Arc;

use crate::ids::{LaneId, StashKey, Token};
use crate::sampling::SamplerSpec;

/// What the engine does next. Operations are applied in order, then the feeds run as one ragged batch; lanes whose feed
/// says `more` go on decoding in further steps of the same tick.
///
/// A tick ends after `steps_max` steps, when no lane goes on, or at the first step boundary after the link's *yield*
/// word was raised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepPlan {
    /// Grows by one per tick of an engine; echoed in [`StepOut::seq`].
    pub seq: u64,
    /// Lane bookkeeping before the first step.
    pub ops: Vec<LaneOp>,
    /// At most one per lane. May be empty: then only the operations happen.
    pub feeds: Vec<Feed>,
    /// What the feeds' ranges point into. Behind a run that ends inside the prompt of a lane which scores it stands the token
    /// that follows the run.
    pub tokens: Vec<Token>,
    /// Steps of this tick at most; 0 counts as 1.
    pub steps_max: u32,
}

impl StepPlan {
    /// Empties the plan and keeps its buffers.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.feeds.clear();
        self.tokens.clear();
        self.steps_max = 1;
    }
}

/// What an engine must know of the request that a lane works for.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneSpec {
    /// How its tokens are chosen.
    pub sampler: SamplerSpec,
    /// Tokens that end it, sorted: a lane that draws one does not go on within a tick. Empty = none.
    pub ends: Arc<[Token]>,
    /// Positions below this hold the prompt; what is fed from here on counts as generated (penalties).
    pub prompt_len: u32,
}

impl Default for LaneSpec {
    /// Greedy, without an end, everything counts as prompt.
    fn default() -> Self {
        LaneSpec { sampler: SamplerSpec::default(), ends: Arc::from([]), prompt_len: u32::MAX }
    }
}

/// Lane bookkeeping.
#[derive(Clone, Debug, PartialEq)]
pub enum LaneOp {
    /// Makes a lane, empty.
    Open {
        /// Unused until now.
        lane: LaneId,
        /// What it is for.
        spec: LaneSpec,
    },
    /// Makes a lane that holds the first `upto` positions of another.
    Fork {
        /// The parent; stays as it is.
        from: LaneId,
        /// Positions taken over.
        upto: u32,
        /// Unused until now.
        lane: LaneId,
        /// What it is for.
        spec: LaneSpec,
    },
    /// Cuts an open lane to `upto` positions and gives it to another request.
    Adopt {
        /// The lane.
        lane: LaneId,
        /// Positions to keep.
        upto: u32,
        /// What it is for from now on.
        spec: LaneSpec,
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
    /// Copies the first `upto` positions of a lane into the engine process's host memory. The lane stays.
    Stash {
        /// The lane.
        lane: LaneId,
        /// Positions to copy.
        upto: u32,
        /// Unused until now; names the copy.
        key: StashKey,
    },
    /// Makes a lane from a copy, which stays.
    Restore {
        /// The copy.
        key: StashKey,
        /// Unused until now.
        lane: LaneId,
        /// What it is for.
        spec: LaneSpec,
    },
    /// Drops a copy. One that is not there is dropped already.
    Forget {
        /// The copy.
        key: StashKey,
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
    /// How many further tokens the lane may draw in this tick, each after feeding the one before. Needs `sample`.
    pub more: u32,
}

/// What one step of a tick brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOut {
    /// The plan's.
    pub seq: u64,
    /// Which step of the tick, from 0.
    pub step: u32,
    /// Nothing more comes for this plan.
    pub last: bool,
    /// One per lane fed in this step, in the plan's order, then (in step 0) one per operation that failed.
    pub lanes: Vec<LaneOut>,
    /// In step 0, prompt tokens of lanes that score their prompt; of each lane in the order of positions.
    pub scores: Vec<Score>,
    /// In step 0, one per [`LaneOp::Stash`] and [`LaneOp::Restore`] that succeeded.
    pub moves: Vec<Move>,
    /// Time in kernels as the runtime measured it, nanoseconds; 0 = not measured.
    pub device_ns: u64,
    /// Time spent on which tokens grammars allow, beside the forward pass, nanoseconds.
    pub mask_ns: u64,
    /// The part of it that the draw waited for.
    pub mask_wait_ns: u64,
}

impl StepOut {
    /// Empties it and keeps its buffers.
    pub fn clear(&mut self) {
        self.lanes.clear();
        self.scores.clear();
        self.moves.clear();
        (self.step, self.last, self.device_ns) = (0, false, 0);
        (self.mask_ns, self.mask_wait_ns) = (0, 0);
    }
}

/// A copy between a lane and host memory, as measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The copy.
    pub key: StashKey,
    /// Out of a lane, or back into one.
    pub direction: Direction,
    /// Positions moved.
    pub positions: u32,
    /// Size of the copy.
    pub bytes: u64,
    /// Time it took, nanoseconds.
    pub took_ns: u64,
}

/// Which way a [`Move`] went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a lane to host memory.
    Stashed,
    /// From host memory into a lane.
    Restored,
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

/// A token of a prompt as the model saw it coming.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The lane.
    pub lane: LaneId,
    /// Where the token stands; never 0.
    pub position: u32,
    /// The token, as if it had been drawn.
    pub sampled: Sampled,
}

/// A fault that ends one lane and leaves its neighbours alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneFault {
    /// The runtime's status code (`SFR_E_…`).
    pub code: i32,
    /// Its words.
    pub message: String,
}

impl LaneFault {
    /// `SFR_E_UNSUPPORTED`: this runtime or model can never do that.
    pub const UNSUPPORTED: i32 = -3;
    /// `SFR_E_CAPACITY`: it would fit if something were freed.
    pub const CAPACITY: i32 = -9;
}

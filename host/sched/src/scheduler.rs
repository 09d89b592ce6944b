//! First come, first served continuous batching: every decoding lane gets its token in every step, and prompts fill
//! what is left of the step's budget in the order of their arrival.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use sf_core::{
    Feed, FinishReason, LaneFault, LaneId, LaneOp, RequestId, Sampled, SamplerSpec, StepOut, StepPlan, Token,
};
use thiserror::Error;

use crate::lane::{Drawn, Lane};

/// Bounds of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// Lanes in the batch, at least 1.
    pub lanes_max: u32,
    /// Tokens fed in one step, all lanes together; at least `lanes_max`.
    pub step_tokens_max: u32,
    /// Prompt tokens fed in one step while at least one lane decodes, so that a long prompt does not stall it.
    pub prefill_tokens_busy_max: u32,
    /// Requests that may wait for a lane.
    pub queue_max: usize,
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
    /// It was running when an engine died: it is not started a third time.
    pub retried: bool,
}

/// What became of a request in a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
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
    },
    /// Its lane failed; its neighbours go on.
    Failed {
        /// The request.
        request: RequestId,
        /// The runtime's words.
        fault: LaneFault,
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

/// The state machine of one engine.
#[derive(Debug)]
pub struct Scheduler {
    settings: SchedulerSettings,
    queue: VecDeque<Admission>,
    /// In the order of admission, so that prompts are fed first come, first served.
    lanes: Vec<Lane>,
    free: Vec<LaneId>,
    seq: u64,
}

impl Scheduler {
    /// An idle scheduler.
    ///
    /// # Panics
    /// When the settings contradict each other: that is a bug of the caller.
    pub fn new(settings: SchedulerSettings) -> Self {
        assert!(settings.lanes_max >= 1, "an engine has at least one lane");
        assert!(settings.step_tokens_max >= settings.lanes_max, "a step must hold one token of every lane");
        assert!(settings.prefill_tokens_busy_max >= 1, "prefill must advance while others decode");
        let free = (0..settings.lanes_max).rev().map(LaneId).collect();
        Scheduler { settings, queue: VecDeque::new(), lanes: Vec::new(), free, seq: 0 }
    }

    /// Queues a request behind all others.
    pub fn submit(&mut self, admission: Admission) -> Result<(), QueueFull> {
        debug_assert!(!admission.prompt.is_empty(), "the service refuses empty prompts");
        if self.queue.len() >= self.settings.queue_max {
            return Err(QueueFull { waiting: self.queue.len(), limit: self.settings.queue_max });
        }
        self.queue.push_back(admission);
        Ok(())
    }

    /// Forgets a request wherever it is; its lane is freed by the next plan. Unknown ids are ignored: the request may
    /// have ended while its client was giving up.
    pub fn cancel(&mut self, request: RequestId) {
        self.queue.retain(|admission| admission.request != request);
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.request == request) {
            lane.closing = true;
        }
    }

    /// Requests that hold a lane.
    pub fn running(&self) -> usize {
        self.lanes.iter().filter(|lane| !lane.closing).count()
    }

    /// Requests that wait for one.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Fills `plan` with the next step; `false` when there is nothing to do.
    pub fn plan(&mut self, plan: &mut StepPlan) -> bool {
        plan.clear();
        self.close_ended(plan);
        self.admit(plan);
        let decoding = self.feed_decodes(plan);
        self.feed_prompts(plan, decoding);
        if plan.ops.is_empty() && plan.feeds.is_empty() {
            return false;
        }
        self.seq += 1;
        plan.seq = self.seq;
        true
    }

    fn close_ended(&mut self, plan: &mut StepPlan) {
        let free = &mut self.free;
        self.lanes.retain(|lane| {
            if lane.closing {
                plan.ops.push(LaneOp::Close { lane: lane.id });
                free.push(lane.id);
            }
            !lane.closing
        });
    }

    fn admit(&mut self, plan: &mut StepPlan) {
        while !self.queue.is_empty() {
            let Some(id) = self.free.pop() else { return };
            let admission = self.queue.pop_front().expect("the queue is not empty");
            let lane = Lane::new(id, admission);
            plan.ops.push(LaneOp::Open { lane: id, sampler: lane.sampler().clone() });
            self.lanes.push(lane);
        }
    }

    fn feed_decodes(&mut self, plan: &mut StepPlan) -> u32 {
        let mut fed = 0;
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_decoding()) {
            push_feed(lane, 1, plan);
            fed += 1;
        }
        fed
    }

    fn feed_prompts(&mut self, plan: &mut StepPlan, decoding: u32) {
        let mut budget = self.settings.step_tokens_max - decoding;
        if decoding > 0 {
            budget = budget.min(self.settings.prefill_tokens_busy_max);
        }
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_prefilling()) {
            if budget == 0 {
                return;
            }
            budget -= push_feed(lane, budget, plan);
        }
    }

    /// Takes what the step planned last brought.
    pub fn apply(&mut self, out: &StepOut, outcomes: &mut Vec<Outcome>) {
        debug_assert_eq!(out.seq, self.seq, "an answer to another plan");
        for lane_out in &out.lanes {
            // A lane that was cancelled while the step ran has nobody to tell.
            let Some(lane) = self.lanes.iter_mut().find(|lane| lane.id == lane_out.lane && !lane.closing)
            else {
                continue;
            };
            match &lane_out.result {
                Ok(sampled) => {
                    lane.consumed(lane_out.consumed);
                    if let Some(sampled) = sampled {
                        report(lane, sampled, outcomes);
                    }
                }
                Err(fault) => {
                    lane.closing = true;
                    outcomes.push(Outcome::Failed { request: lane.request, fault: fault.clone() });
                }
            }
        }
    }

    /// The engine is gone: forgets all lanes. A request whose client has seen nothing yet goes back to the head of the
    /// queue, once; the others are returned, oldest first. Waiting requests stay queued for the next engine.
    pub fn engine_lost(&mut self) -> Vec<RequestId> {
        self.free = (0..self.settings.lanes_max).rev().map(LaneId).collect();
        let (mut lost, mut again) = (Vec::new(), Vec::new());
        for lane in self.lanes.drain(..).filter(|lane| !lane.closing) {
            match lane.into_retry() {
                Ok(admission) => again.push(admission),
                Err(request) => lost.push(request),
            }
        }
        for admission in again.into_iter().rev() {
            self.queue.push_front(admission);
        }
        lost
    }

    /// Forgets the waiting requests and returns them, oldest first.
    pub fn drop_waiting(&mut self) -> Vec<RequestId> {
        self.queue.drain(..).map(|admission| admission.request).collect()
    }
}

fn report(lane: &mut Lane, sampled: &Sampled, outcomes: &mut Vec<Outcome>) {
    let drawn = lane.draw(sampled.token);
    if drawn != Drawn::EndOfText {
        outcomes.push(Outcome::Token { request: lane.request, sampled: sampled.clone() });
    }
    let reason = match drawn {
        Drawn::Continue => return,
        Drawn::EndOfText => FinishReason::Stop,
        Drawn::LastToken => FinishReason::Length,
    };
    lane.closing = true;
    outcomes.push(Outcome::Finished { request: lane.request, reason, drawn: lane.drawn });
}

fn push_feed(lane: &mut Lane, most: u32, plan: &mut StepPlan) -> u32 {
    let start = plan.tokens.len() as u32;
    let (count, complete) = lane.feed(most, &mut plan.tokens);
    let tokens: Range<u32> = start..start + count;
    plan.feeds.push(Feed { lane: lane.id, tokens, pos0: lane.len, sample: complete });
    count
}

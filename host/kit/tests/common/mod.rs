//! What the executor's tests share: the no-op runtime, plans built by hand, and a look at their answers.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![expect(unsafe_code, reason = "binds the no-op runtime")]

use sf_core::{
    EngineOption, Feed, LaneFault, LaneId, LaneOp, LaneOut, LaneSpec, OptionValue, SamplerSpec, StepOut,
    StepPlan, Token,
};
use sf_kit::{Executor, OpenRequest, Runtime, host, noop};

pub(crate) fn runtime() -> Runtime {
    // SAFETY: the no-op runtime keeps the header's rules.
    unsafe { Runtime::bind(noop::entry, host::host()) }.unwrap()
}

pub(crate) fn option(key: &str, value: i64, must: bool) -> EngineOption {
    EngineOption { key: key.to_owned(), value: OptionValue::Int(value), must }
}

pub(crate) fn request(options: Vec<EngineOption>) -> OpenRequest {
    OpenRequest { models: vec!["/none".into()], options, devices: vec![] }
}

pub(crate) fn executor(options: Vec<EngineOption>) -> Executor {
    Executor::new(runtime().open(&request(options)).unwrap())
}

/// Opens a greedy lane without an end.
pub(crate) fn open(lane: u32) -> LaneOp {
    open_with(lane, SamplerSpec::default(), u32::MAX)
}

pub(crate) fn open_with(lane: u32, sampler: SamplerSpec, prompt_len: u32) -> LaneOp {
    LaneOp::Open { lane: LaneId(lane), spec: LaneSpec { sampler, prompt_len, ..LaneSpec::default() } }
}

/// Builds plans by hand.
pub(crate) struct Plan(pub(crate) StepPlan);

impl Plan {
    pub(crate) fn new() -> Plan {
        Plan(StepPlan { steps_max: 1, ..StepPlan::default() })
    }

    pub(crate) fn op(mut self, op: LaneOp) -> Plan {
        self.0.ops.push(op);
        self
    }

    pub(crate) fn feed(mut self, lane: u32, pos0: u32, run: &[u32], sample: bool) -> Plan {
        let start = self.0.tokens.len() as u32;
        self.0.tokens.extend(run.iter().map(|token| Token(*token)));
        let tokens = start..start + run.len() as u32;
        self.0.feeds.push(Feed { lane: LaneId(lane), tokens, pos0, sample, more: 0 });
        self
    }

    /// The feed added last goes on for `more` steps.
    pub(crate) fn more(mut self, more: u32) -> Plan {
        self.0.feeds.last_mut().unwrap().more = more;
        self
    }

    pub(crate) fn steps(mut self, most: u32) -> Plan {
        self.0.steps_max = most;
        self
    }

    /// The lanes of the only step.
    pub(crate) fn run(self, executor: &mut Executor) -> Vec<LaneOut> {
        let mut outs = self.tick(executor);
        assert_eq!(outs.len(), 1, "{outs:?}");
        outs.remove(0).lanes
    }

    /// As [`Plan::run`], and on until every feed that asked for a token has drawn one or failed: grammars take their time.
    pub(crate) fn drawn(self, executor: &mut Executor) -> Vec<LaneOut> {
        let Plan(mut plan) = self;
        let mut told: Vec<LaneOut> = Vec::new();
        loop {
            let outs = Plan(plan.clone()).run(executor);
            plan.ops.clear();
            for out in outs {
                let feed = plan.feeds.iter_mut().find(|feed| feed.lane == out.lane);
                match feed.filter(|feed| feed.sample && out.result == Ok(None)) {
                    Some(feed) => {
                        feed.tokens.start += out.consumed;
                        feed.pos0 += out.consumed;
                    }
                    None => {
                        plan.feeds.retain(|feed| feed.lane != out.lane);
                        told.push(out);
                    }
                }
            }
            if plan.feeds.is_empty() {
                told.sort_by_key(|out| out.lane);
                return told;
            }
        }
    }

    /// Every step.
    pub(crate) fn tick(self, executor: &mut Executor) -> Vec<StepOut> {
        let word = executor.model().page().yield_seq();
        executor.begin(&self.0, word).unwrap();
        let mut outs: Vec<StepOut> = Vec::new();
        while outs.last().is_none_or(|out| !out.last) {
            let mut out = StepOut::default();
            executor.next(&mut out).unwrap();
            assert_eq!((out.seq, out.step as usize), (self.0.seq, outs.len()));
            outs.push(out);
        }
        outs
    }
}

pub(crate) fn token(out: &LaneOut) -> u32 {
    match &out.result {
        Ok(Some(sampled)) => sampled.token.0,
        other => panic!("lane {} drew nothing: {other:?}", out.lane),
    }
}

/// What a lane drew in the steps in which it took part.
pub(crate) fn drawn(outs: &[StepOut], lane: u32) -> Vec<u32> {
    outs.iter().flat_map(|out| &out.lanes).filter(|told| told.lane.0 == lane).map(token).collect()
}

pub(crate) fn code(out: &LaneOut) -> i32 {
    out.result.as_ref().err().map_or(0, |fault: &LaneFault| fault.code)
}

/// The no-op model's largest logit after `last` at `position`.
pub(crate) fn greedy(last: u32, position: u32) -> u32 {
    let row = noop::row_of(last, position);
    (0..noop::VOCAB).max_by(|a, b| noop::logit(row, *a).total_cmp(&noop::logit(row, *b))).unwrap() as u32
}

/// The greedy continuation of a lane whose last token is `last` at `position`.
pub(crate) fn greedy_run(last: u32, position: u32, count: u32) -> Vec<u32> {
    let mut last = last;
    (0..count)
        .map(|nth| {
            last = greedy(last, position + nth);
            last
        })
        .collect()
}

//! Measures what a link costs per step: everything but the runtime, which is one that computes nothing.

use std::time::{Duration, Instant};

use sf_core::{Feed, LaneId, LaneOp, SamplerSpec, StepOut, StepPlan, Token};

use crate::error::EngineError;
use crate::link::Link;

/// Steps before measuring, so that caches, the spin and the scheduler have settled.
const WARM_UP: u32 = 2000;

/// Wall time from `begin` to the end of `finish`, of steps in which every lane decodes one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCost {
    /// Lanes that decoded.
    pub lanes: u32,
    /// Steps measured.
    pub steps: u32,
    /// Half of the steps took at most this.
    pub median: Duration,
    /// 99 of 100 steps took at most this.
    pub p99: Duration,
}

/// Runs `steps` decode steps on `lanes` fresh lanes of `link`, which must hold `steps` + 2001 positions each.
///
/// # Errors
/// What the link says, and [`EngineError::Contract`] when a lane does not answer with a token.
pub fn measure(link: &mut dyn Link, lanes: u32, steps: u32) -> Result<LinkCost, EngineError> {
    let mut out = StepOut::default();
    let mut plan = StepPlan { ops: (0..lanes).map(open).collect(), ..StepPlan::default() };
    step(link, &mut plan, &mut out)?;
    plan.clear();
    for lane in 0..lanes {
        plan.feeds.push(Feed { lane: LaneId(lane), tokens: lane..lane + 1, pos0: 0, sample: true });
        plan.tokens.push(Token(1));
    }
    let mut took = Vec::with_capacity(steps as usize);
    for at in 0..WARM_UP + steps {
        let started = Instant::now();
        step(link, &mut plan, &mut out)?;
        if at >= WARM_UP {
            took.push(started.elapsed());
        }
        for (feed, lane) in plan.feeds.iter_mut().zip(&out.lanes) {
            let Ok(Some(sampled)) = &lane.result else {
                return Err(EngineError::Contract { call: "step", reason: format!("it answered {lane:?}") });
            };
            plan.tokens[feed.tokens.start as usize] = sampled.token;
            feed.pos0 += 1;
        }
    }
    plan.clear();
    plan.ops.extend((0..lanes).map(|lane| LaneOp::Close { lane: LaneId(lane) }));
    step(link, &mut plan, &mut out)?;
    took.sort_unstable();
    let at = |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or_default();
    Ok(LinkCost { lanes, steps, median: at(50), p99: at(99) })
}

fn open(lane: u32) -> LaneOp {
    LaneOp::Open { lane: LaneId(lane), sampler: SamplerSpec::default() }
}

fn step(link: &mut dyn Link, plan: &mut StepPlan, out: &mut StepOut) -> Result<(), EngineError> {
    plan.seq += 1;
    link.begin(plan)?;
    link.finish(out)
}

//! Measures what a link costs per step: everything but the runtime, which is one that computes nothing.

use std::time::{Duration, Instant};

use sf_core::{Feed, LaneId, LaneOp, LaneSpec, StepOut, StepPlan, Token};

use crate::error::EngineError;
use crate::link::Link;

/// Steps before measuring, so that caches, the spin and the scheduler have settled.
const WARM_UP: u32 = 2000;

/// What to measure: ticks in which every lane decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Lanes that decode.
    pub lanes: u32,
    /// Steps in each tick, at least 1.
    pub depth: u32,
    /// Steps measured, all ticks together.
    pub steps: u32,
}

/// Wall time per step: of a tick from `begin` to the end of its last `next`, divided by its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCost {
    /// What was measured.
    pub load: Load,
    /// Half of the ticks took at most this per step.
    pub median: Duration,
    /// 99 of 100 ticks took at most this per step.
    pub p99: Duration,
}

/// Runs `load` on fresh lanes of `link`, which must hold `steps` + 2001 + `depth` positions each.
///
/// # Errors
/// What the link says, and [`EngineError::Contract`] when a lane does not answer with a token or a tick ends early.
pub fn measure(link: &mut dyn Link, load: Load) -> Result<LinkCost, EngineError> {
    let (lanes, depth) = (load.lanes, load.depth.max(1));
    let mut out = StepOut::default();
    let mut plan = StepPlan { ops: (0..lanes).map(open).collect(), ..StepPlan::default() };
    tick(link, &mut plan, &mut out)?;
    plan.clear();
    plan.steps_max = depth;
    for lane in 0..lanes {
        let more = depth - 1;
        plan.feeds.push(Feed { lane: LaneId(lane), tokens: lane..lane + 1, pos0: 0, sample: true, more });
        plan.tokens.push(Token(1));
    }
    let mut took = Vec::with_capacity((load.steps / depth) as usize + 1);
    for at in (0..WARM_UP + load.steps).step_by(depth as usize) {
        let started = Instant::now();
        tick(link, &mut plan, &mut out)?;
        if at >= WARM_UP {
            took.push(started.elapsed() / depth);
        }
        if out.step + 1 != depth {
            let reason = format!("a tick of {depth} steps ended after step {}", out.step);
            return Err(EngineError::Contract { call: "step", reason });
        }
        for (feed, lane) in plan.feeds.iter_mut().zip(&out.lanes) {
            let Ok(Some(sampled)) = &lane.result else {
                return Err(EngineError::Contract { call: "step", reason: format!("it answered {lane:?}") });
            };
            plan.tokens[feed.tokens.start as usize] = sampled.token;
            feed.pos0 += depth;
        }
    }
    plan.clear();
    plan.ops.extend((0..lanes).map(|lane| LaneOp::Close { lane: LaneId(lane) }));
    tick(link, &mut plan, &mut out)?;
    took.sort_unstable();
    let at = |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or_default();
    Ok(LinkCost { load, median: at(50), p99: at(99) })
}

fn open(lane: u32) -> LaneOp {
    LaneOp::Open { lane: LaneId(lane), spec: LaneSpec::default() }
}

/// All steps of one plan; `out` holds the last.
fn tick(link: &mut dyn Link, plan: &mut StepPlan, out: &mut StepOut) -> Result<(), EngineError> {
    plan.seq += 1;
    link.begin(plan)?;
    loop {
        link.next(out)?;
        if out.last {
            return Ok(());
        }
    }
}

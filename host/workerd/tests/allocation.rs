//! The server's side of a link allocates nothing per token once its buffers have grown.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use common::{Bench, exe};
use sf_core::{Feed, LaneId, LaneOp, LaneSpec, SamplerSpec, StepOut, StepPlan, Token};
use sf_counting::allocations;
use sf_engine::{Link, open_in_process, open_worker};

const LANES: u32 = 3;

/// One tick of `depth` steps on every lane; leaves the tokens that are to be fed next.
fn tick(link: &mut dyn Link, plan: &mut StepPlan, out: &mut StepOut, depth: u32) {
    (plan.seq, plan.steps_max) = (plan.seq + 1, depth);
    plan.feeds.iter_mut().for_each(|feed| feed.more = depth - 1);
    link.begin(plan).unwrap();
    plan.ops.clear();
    for step in 0..depth {
        link.next(out).unwrap();
        assert_eq!((out.step, out.last), (step, step + 1 == depth));
    }
    for (feed, told) in plan.feeds.iter_mut().zip(&out.lanes) {
        let Ok(Some(sampled)) = &told.result else { panic!("{told:?}") };
        plan.tokens[feed.tokens.start as usize] = sampled.token;
        feed.pos0 += depth;
    }
}

#[test]
fn steps_and_ticks_allocate_nothing_in_the_server() {
    let bench = Bench::new();
    let spec = bench.spec(bench.sample());
    for mut link in [open_in_process(&spec).unwrap(), open_worker(&exe(), &spec).unwrap()] {
        let (mut plan, mut out) = (StepPlan::default(), StepOut::default());
        for lane in 0..LANES {
            let sampler =
                SamplerSpec { temperature: 0.8, logprobs: Some(2 * lane), ..SamplerSpec::default() };
            let spec = LaneSpec { sampler, prompt_len: 1, ..LaneSpec::default() };
            plan.ops.push(LaneOp::Open { lane: LaneId(lane), spec });
            let tokens = lane..lane + 1;
            plan.feeds.push(Feed { lane: LaneId(lane), tokens, pos0: 0, sample: true, more: 0 });
            plan.tokens.push(Token(lane));
        }
        for depth in [1, 1, 16, 1, 16] {
            tick(link.as_mut(), &mut plan, &mut out, depth);
        }
        let before = allocations();
        for depth in [1, 1, 32, 1, 1, 32, 1] {
            tick(link.as_mut(), &mut plan, &mut out, depth);
        }
        assert_eq!(allocations() - before, 0, "{:?}", link.pid());
        let told: Vec<usize> =
            out.lanes.iter().map(|told| told.result.clone().unwrap().unwrap().top.len()).collect();
        assert_eq!(told, [0, 2, 4]);
        assert!(before > 0, "the allocator counts");
    }
}

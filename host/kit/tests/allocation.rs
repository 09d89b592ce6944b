//! A step allocates nothing once its buffers have grown: counted over a thousand tokens.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(unsafe_code, reason = "binds the no-op runtime")]

use sf_core::{
    EngineOption, Feed, LaneId, LaneOp, LaneSpec, OptionValue, SamplerSpec, StepOut, StepPlan, Token,
};
use sf_counting::allocations;
use sf_kit::{Executor, OpenRequest, Runtime, host, noop};

const LANES: u32 = 4;

fn specs() -> [SamplerSpec; LANES as usize] {
    let hot = SamplerSpec { temperature: 0.8, seed: 5, ..SamplerSpec::default() };
    [
        SamplerSpec::default(),
        hot.clone(),
        SamplerSpec { top_k: 20, top_p: 0.9, min_p: 0.02, logprobs: Some(5), ..hot.clone() },
        SamplerSpec {
            repeat_penalty: 1.2,
            presence_penalty: 0.5,
            bias: vec![(Token(3), 1.0)],
            top_p: 0.8,
            ..hot
        },
    ]
}

/// One tick of `depth` steps on every lane, which holds `pos` positions; leaves the tokens that are to be fed next.
fn tick(executor: &mut Executor, plan: &mut StepPlan, out: &mut StepOut, (pos, depth): (u32, u32)) {
    plan.feeds.clear();
    plan.ops.clear();
    (plan.seq, plan.steps_max) = (plan.seq + 1, depth);
    for lane in 0..LANES {
        let tokens = lane..lane + 1;
        plan.feeds.push(Feed { lane: LaneId(lane), tokens, pos0: pos, sample: true, more: depth - 1 });
    }
    executor.begin(plan, 0).unwrap();
    for step in 0..depth {
        executor.next(out).unwrap();
        assert_eq!((out.step, out.last, out.lanes.len()), (step, step + 1 == depth, LANES as usize));
    }
    plan.tokens.clear();
    for told in &out.lanes {
        match &told.result {
            Ok(Some(sampled)) => plan.tokens.push(sampled.token),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_thousand_tokens_in_single_steps_and_in_ticks_allocate_nothing() {
    // SAFETY: the no-op runtime keeps the header's rules.
    let runtime = unsafe { Runtime::bind(noop::entry, host::host()) }.unwrap();
    let window = EngineOption { key: "ctx.max".into(), value: OptionValue::Int(4096), must: true };
    let request = OpenRequest { models: vec!["/none".into()], options: vec![window], devices: vec![] };
    let mut executor = Executor::new(runtime.open(&request).unwrap());
    let (mut plan, mut out) = (StepPlan::default(), StepOut::default());
    for (lane, sampler) in (0..).zip(specs()) {
        let spec = LaneSpec { sampler, prompt_len: 1, ..LaneSpec::default() };
        plan.ops.push(LaneOp::Open { lane: LaneId(lane), spec });
    }
    executor.run(&plan, &mut out).unwrap();
    plan.tokens.extend((0..LANES).map(Token));
    // Buffers grow until the look-back of 64 positions is full and every token of the vocabulary was drawn.
    let mut pos = 0;
    for depth in [1; 80].into_iter().chain([32; 10]) {
        tick(&mut executor, &mut plan, &mut out, (pos, depth));
        pos += depth;
    }
    let before = allocations();
    for depth in [1; 96].into_iter().chain([32; 5]) {
        tick(&mut executor, &mut plan, &mut out, (pos, depth));
        pos += depth;
    }
    assert_eq!(allocations() - before, 0, "256 steps of 4 lanes");
    assert!(before > 0, "the allocator counts");
}

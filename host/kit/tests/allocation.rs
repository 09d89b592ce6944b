//! A step allocates nothing once its buffers have grown: counted over a thousand tokens.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(unsafe_code, reason = "a counting allocator, and binding the no-op runtime")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sf_core::{EngineOption, Feed, LaneId, LaneOp, OptionValue, SamplerSpec, StepOut, StepPlan, Token};
use sf_kit::{Executor, OpenRequest, Runtime, host, noop};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(at, layout) };
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: as our caller promises.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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

fn step(executor: &mut Executor, plan: &mut StepPlan, out: &mut StepOut, pos: u32) {
    plan.clear();
    plan.seq += 1;
    for lane in 0..LANES {
        let token = match out.lanes.get(lane as usize).map(|told| &told.result) {
            Some(Ok(Some(sampled))) => sampled.token,
            _ => Token(lane),
        };
        plan.tokens.push(token);
        plan.feeds.push(Feed { lane: LaneId(lane), tokens: lane..lane + 1, pos0: pos, sample: true });
    }
    executor.run(plan, out).unwrap();
}

#[test]
fn a_thousand_greedy_and_sampled_tokens_allocate_nothing() {
    // SAFETY: the no-op runtime keeps the header's rules.
    let runtime = unsafe { Runtime::bind(noop::entry, host::host()) }.unwrap();
    let window = EngineOption { key: "ctx.max".into(), value: OptionValue::Int(4096), must: true };
    let request = OpenRequest { models: vec!["/none".into()], options: vec![window], devices: vec![] };
    let mut executor = Executor::new(runtime.open(&request).unwrap());
    let (mut plan, mut out) = (StepPlan::default(), StepOut::default());
    for (lane, sampler) in (0..).zip(specs()) {
        plan.ops.push(LaneOp::Open { lane: LaneId(lane), sampler });
    }
    executor.run(&plan, &mut out).unwrap();
    // Buffers grow until the look-back of 64 positions is full.
    for pos in 0..80 {
        step(&mut executor, &mut plan, &mut out, pos);
    }
    let before = COUNT.with(Cell::get);
    for pos in 80..330 {
        step(&mut executor, &mut plan, &mut out, pos);
    }
    assert_eq!(COUNT.with(Cell::get) - before, 0, "250 steps of 4 lanes");
    assert!(out.lanes.iter().all(|told| matches!(told.result, Ok(Some(_)))), "{out:?}");
    assert!(before > 0, "the allocator counts");
}

//! Ticks of several steps: which lanes go on, what ends a tick, and that no token is lost or repeated.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Plan, code, drawn, executor, greedy_run, open, option, token};
use sf_abi::{SFR_E_CAPACITY, SFR_E_STATE};
use sf_core::{LaneId, LaneOp, LaneSpec, StepOut, Token};
use sf_kit::Executor;

/// Opens lane `lane`, which ends at any of `ends`.
fn open_until(lane: u32, ends: &[u32]) -> LaneOp {
    let mut ends: Vec<Token> = ends.iter().map(|token| Token(*token)).collect();
    ends.sort_unstable();
    LaneOp::Open { lane: LaneId(lane), spec: LaneSpec { ends: ends.into(), ..LaneSpec::default() } }
}

/// Lanes of each step.
fn shape(outs: &[StepOut]) -> Vec<Vec<u32>> {
    outs.iter().map(|out| out.lanes.iter().map(|told| told.lane.0).collect()).collect()
}

/// Two lanes that decode, having been fed one token each.
fn two() -> (Executor, Vec<u32>, Vec<u32>) {
    let mut executor = executor(vec![]);
    Plan::new().op(open(0)).op(open(1)).feed(0, 0, &[1], false).feed(1, 0, &[2], false).run(&mut executor);
    (executor, greedy_run(11, 1, 9), greedy_run(12, 1, 9))
}

#[test]
fn a_tick_draws_what_single_steps_would() {
    let (mut executor, first, second) = two();
    let plan = Plan::new().feed(1, 1, &[12], true).more(7).feed(0, 1, &[11], true).more(2).steps(99);
    let outs = plan.tick(&mut executor);
    assert_eq!(drawn(&outs, 0), first[..3]);
    assert_eq!(drawn(&outs, 1), second[..8]);
    let mut expect = vec![vec![1, 0]; 3];
    expect.extend(vec![vec![1]; 5]);
    assert_eq!(shape(&outs), expect, "in the plan's order");
    assert!(outs.iter().flat_map(|out| &out.lanes).all(|told| told.consumed == 1));
    // The last token of each is not fed yet.
    let outs = Plan::new().feed(0, 4, &[first[2]], true).feed(1, 9, &[second[7]], true).run(&mut executor);
    assert_eq!([token(&outs[0]), token(&outs[1])], [first[3], second[8]]);
    assert_eq!(executor.stats().unwrap().steps, 10);
}

#[test]
fn the_plans_bound_on_steps_ends_a_tick() {
    for (most, expect) in [(0, 1), (1, 1), (2, 2), (5, 5), (9, 8)] {
        let (mut executor, first, _) = two();
        let outs = Plan::new().feed(0, 1, &[11], true).more(7).steps(most).tick(&mut executor);
        assert_eq!(drawn(&outs, 0), first[..expect], "{most}");
    }
}

#[test]
fn a_lane_that_draws_its_end_leaves_the_tick_and_the_others_go_on() {
    let mut executor = executor(vec![]);
    let whole = greedy_run(5, 2, 12);
    let end = whole.iter().position(|token| !whole[..3].contains(token)).unwrap();
    let plan = Plan::new()
        .op(open_until(0, &[whole[end], 60]))
        .op(open_until(1, &[]))
        .feed(0, 0, &[3, 4, 5], true)
        .more(11)
        .feed(1, 0, &[3, 4, 5], true)
        .more(11);
    let outs = plan.steps(99).tick(&mut executor);
    assert_eq!(drawn(&outs, 0), whole[..=end], "the end itself is told");
    assert_eq!(drawn(&outs, 1), whole);
}

#[test]
fn a_prefill_chunk_and_a_feed_without_a_draw_take_part_in_the_first_step_only() {
    let (mut executor, first, _) = two();
    let plan = Plan::new().feed(0, 1, &[11], true).more(3).feed(1, 1, &[7, 8, 9], false).more(3);
    let outs = plan.steps(8).tick(&mut executor);
    assert_eq!(shape(&outs), [vec![0, 1], vec![0], vec![0], vec![0]]);
    assert_eq!((outs[0].lanes[1].consumed, &outs[0].lanes[1].result), (3, &Ok(None)));
    assert_eq!(drawn(&outs[1..], 0), first[1..4]);
}

#[test]
fn a_step_is_computed_only_when_its_answer_is_asked_for() {
    let (mut executor, _, _) = two();
    executor.begin(&Plan::new().feed(0, 1, &[11], true).more(3).steps(4).0, 0).unwrap();
    let mut out = StepOut::default();
    for step in 0..4 {
        executor.next(&mut out).unwrap();
        assert_eq!((out.step, out.last), (step, step == 3));
        assert_eq!(executor.stats().unwrap().steps, u64::from(step) + 2);
    }
}

#[test]
fn a_yield_ends_a_tick_at_the_next_boundary_whenever_it_comes() {
    // Raised after the word was read: before the first step, and between two answers.
    for after in 0..4 {
        let (mut executor, first, _) = two();
        let page = executor.control();
        let word = page.yield_seq();
        let mut outs: Vec<StepOut> = Vec::new();
        let plan = Plan::new().feed(0, 1, &[11], true).more(7).steps(8).0;
        if after == 0 {
            page.raise_yield();
        }
        executor.begin(&plan, word).unwrap();
        while outs.last().is_none_or(|out| !out.last) {
            let mut out = StepOut::default();
            executor.next(&mut out).unwrap();
            outs.push(out);
            if outs.len() == after {
                page.raise_yield();
            }
        }
        let told = drawn(&outs, 0);
        assert_eq!(told, first[..after.max(1)], "{after}");
        assert!(after == 0 || outs.last().unwrap().lanes.is_empty(), "the last step came to nothing");
        // The next plan goes on from there; the word that ended this one does not end it.
        let (pos, last) = (1 + told.len() as u32, *told.last().unwrap());
        let outs = Plan::new().feed(0, pos, &[last], true).more(1).steps(2).tick(&mut executor);
        assert_eq!(drawn(&outs, 0), first[told.len()..told.len() + 2]);
    }
}

#[test]
fn a_lane_that_fails_in_a_later_step_leaves_its_neighbour_alone() {
    let mut executor = executor(vec![option("ctx.max", 6, true)]);
    let plan = Plan::new().op(open(0)).op(open(1));
    plan.feed(0, 0, &[1, 1, 1], false).feed(1, 0, &[2], false).run(&mut executor);
    let plan = Plan::new().feed(0, 3, &[1], true).more(9).feed(1, 1, &[2], true).more(3);
    let outs = plan.steps(9).tick(&mut executor);
    assert_eq!(shape(&outs), [vec![0, 1], vec![0, 1], vec![0, 1], vec![0, 1]]);
    let failed = &outs[3].lanes[0];
    assert_eq!((code(failed), failed.consumed), (SFR_E_CAPACITY, 0));
    assert_eq!(drawn(&outs, 1), greedy_run(2, 1, 4));
    let told: Vec<u32> = outs[..3].iter().map(|out| token(&out.lanes[0])).collect();
    assert_eq!(told, greedy_run(1, 3, 3));
}

#[test]
fn a_tick_that_is_cut_goes_on_in_the_next_plan() {
    let (mut executor, first, _) = two();
    let mut out = StepOut::default();
    executor.begin(&Plan::new().feed(0, 1, &[11], true).more(7).steps(8).0, 0).unwrap();
    executor.cut();
    executor.next(&mut out).unwrap();
    assert!(!out.last, "it does not lose the step that runs");
    assert_eq!(token(&out.lanes[0]), first[0]);
    executor.cut();
    assert!(executor.next(&mut out).is_err());
    let outs = Plan::new().feed(0, 2, &[first[0]], true).more(2).steps(3).tick(&mut executor);
    assert_eq!(drawn(&outs, 0), first[1..4]);
}

#[test]
fn a_plan_within_a_tick_is_refused_and_the_tick_goes_on() {
    let (mut executor, first, _) = two();
    let plan = Plan::new().feed(0, 1, &[11], true).more(1).steps(2).0;
    let mut out = StepOut::default();
    executor.begin(&plan, 0).unwrap();
    executor.next(&mut out).unwrap();
    assert_eq!(executor.begin(&plan, 0).unwrap_err().code(), SFR_E_STATE);
    executor.next(&mut out).unwrap();
    assert_eq!((out.last, token(&out.lanes[0])), (true, first[1]));
}

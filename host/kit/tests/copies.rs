//! Lanes that change hands, are copied out and back, or are built again from their tokens.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Plan, code, drawn, executor, greedy_run, open, option, token};
use proptest::prelude::*;
use sf_abi::{SFR_E_ARG, SFR_E_CAPACITY, SFR_E_NOT_FOUND, SFR_E_STATE};
use sf_core::{Direction, LaneId, LaneOp, LaneSpec, SamplerSpec, StashKey};
use sf_kit::{Executor, noop};

fn stash(lane: u32, upto: u32, key: u64) -> LaneOp {
    LaneOp::Stash { lane: LaneId(lane), upto, key: StashKey(key) }
}

fn restore(key: u64, lane: u32) -> LaneOp {
    LaneOp::Restore { key: StashKey(key), lane: LaneId(lane), spec: LaneSpec::default() }
}

fn adopt(lane: u32, upto: u32) -> LaneOp {
    LaneOp::Adopt { lane: LaneId(lane), upto, spec: LaneSpec::default() }
}

fn close(lane: u32) -> LaneOp {
    LaneOp::Close { lane: LaneId(lane) }
}

#[test]
fn a_copy_survives_its_lane_and_serves_again_and_again() {
    let mut executor = executor(vec![]);
    Plan::new().op(open(0)).feed(0, 0, &[1, 2, 3, 4], false).run(&mut executor);
    let mut outs = Plan::new().op(stash(0, 3, 7)).op(close(0)).tick(&mut executor);
    let moved = outs.remove(0).moves.remove(0);
    assert_eq!((moved.key, moved.direction, moved.positions), (StashKey(7), Direction::Stashed, 3));
    assert!(moved.bytes > 0);
    let plan = Plan::new().op(restore(7, 5)).op(restore(7, 0)).feed(5, 3, &[9], true).feed(0, 3, &[8], true);
    let out = plan.tick(&mut executor).remove(0);
    assert_eq!(
        [token(&out.lanes[0]), token(&out.lanes[1])],
        [greedy_run(9, 3, 1)[0], greedy_run(8, 3, 1)[0]]
    );
    let told: Vec<_> =
        out.moves.iter().map(|moved| (moved.direction, moved.positions, moved.bytes)).collect();
    assert_eq!(told, [(Direction::Restored, 3, moved.bytes); 2]);
    let forget = LaneOp::Forget { key: StashKey(7) };
    let outs = Plan::new().op(forget.clone()).op(forget).op(restore(7, 1)).run(&mut executor);
    assert_eq!(outs.iter().map(code).collect::<Vec<_>>(), [SFR_E_NOT_FOUND]);
}

#[test]
fn a_copy_or_an_adoption_that_cannot_be_is_its_lanes_fault() {
    let mut executor = executor(vec![option("lanes.max", 2, true)]);
    Plan::new().op(open(0)).op(open(1)).feed(0, 0, &[1, 2, 3], false).run(&mut executor);
    let mut check = |op: LaneOp, expect: i32| {
        let outs = Plan::new().op(op.clone()).run(&mut executor);
        assert_eq!(outs.iter().map(code).collect::<Vec<_>>(), [expect], "{op:?}");
    };
    check(stash(0, 4, 1), SFR_E_ARG);
    check(stash(0, 0, 1), SFR_E_ARG);
    check(stash(3, 1, 1), SFR_E_NOT_FOUND);
    check(restore(1, 3), SFR_E_NOT_FOUND);
    check(adopt(0, 4), SFR_E_ARG);
    check(adopt(3, 0), SFR_E_NOT_FOUND);
    assert!(Plan::new().op(stash(0, 2, 1)).run(&mut executor).is_empty());
    let mut check = |op: LaneOp, expect: i32| {
        let outs = Plan::new().op(op.clone()).run(&mut executor);
        assert_eq!(outs.iter().map(code).collect::<Vec<_>>(), [expect], "{op:?}");
    };
    check(stash(0, 2, 1), SFR_E_STATE);
    check(restore(1, 0), SFR_E_STATE);
    check(restore(1, 2), SFR_E_CAPACITY);
    check(restore(1, u32::MAX), SFR_E_ARG);
}

#[test]
fn what_failed_on_a_lanes_earlier_life_does_not_hit_its_next_owner() {
    let mut executor = executor(vec![]);
    Plan::new().op(open(0)).feed(0, 0, &[1, 2, 3], false).run(&mut executor);
    let plan = Plan::new().op(stash(0, 99, 1)).op(close(0)).op(open(0)).feed(0, 0, &[5], true);
    let outs = plan.tick(&mut executor).remove(0);
    assert_eq!((outs.lanes.len(), token(&outs.lanes[0])), (1, greedy_run(5, 0, 1)[0]));
    assert!(outs.moves.is_empty(), "that the copy failed is told by its absence");
    // Without a new owner it is told as a fault.
    let outs = Plan::new().op(stash(0, 99, 1)).op(close(0)).run(&mut executor);
    assert_eq!(outs.iter().map(code).collect::<Vec<_>>(), [SFR_E_ARG]);
}

/// What happens to a lane between two ticks; `upto` is taken modulo what it holds.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// The engine is gone: a new one is fed everything.
    Crash,
    /// It goes on in a fork of its first positions.
    Fork(u32),
    /// Another request ran in it meanwhile.
    Adopt(u32),
    /// It was copied out and closed.
    Stash(u32),
    /// It was cut.
    Cut(u32),
}

/// A request on a lane of an executor that may be taken away from it.
struct Story {
    executor: Executor,
    spec: LaneSpec,
    lane: u32,
    /// The prompt and what was drawn, the last one not fed yet.
    tokens: Vec<u32>,
    /// Positions in the lane.
    fed: u32,
    keys: u64,
}

impl Story {
    fn new(spec: &LaneSpec, prompt: &[u32]) -> Story {
        let mut executor = executor(vec![]);
        Plan::new().op(LaneOp::Open { lane: LaneId(0), spec: spec.clone() }).run(&mut executor);
        Story { executor, spec: spec.clone(), lane: 0, tokens: prompt.to_vec(), fed: 0, keys: 0 }
    }

    /// Feeds what is not in the lane yet, in two chunks where that is possible, and draws `count` tokens.
    fn draw(&mut self, count: u32) {
        let rest = self.tokens[self.fed as usize..].to_vec();
        let (first, second) = rest.split_at(rest.len() / 2);
        if !first.is_empty() {
            Plan::new().feed(self.lane, self.fed, first, false).run(&mut self.executor);
            self.fed += first.len() as u32;
        }
        let plan = Plan::new().feed(self.lane, self.fed, second, true).more(count - 1).steps(count);
        let outs = plan.tick(&mut self.executor);
        let drawn = drawn(&outs, self.lane);
        assert_eq!(drawn.len(), count as usize);
        self.tokens.extend(drawn);
        self.fed = self.tokens.len() as u32 - 1;
    }

    fn suffer(&mut self, blow: Blow) {
        let (lane, other) = (LaneId(self.lane), LaneId(self.lane + 1));
        let spec = self.spec.clone();
        let (upto, ops) = match blow {
            Blow::Crash => {
                self.executor = executor(vec![]);
                (0, vec![LaneOp::Open { lane, spec }])
            }
            Blow::Fork(upto) => {
                let upto = upto % (self.fed + 1);
                self.lane += 1;
                (upto, vec![LaneOp::Fork { from: lane, upto, lane: other, spec }, LaneOp::Close { lane }])
            }
            Blow::Adopt(upto) => {
                // Some requests count what they generate, some do not.
                let frequency_penalty = (upto / 7 % 2) as f32;
                let upto = upto % (self.fed + 1);
                let sampler = SamplerSpec { frequency_penalty, ..SamplerSpec::default() };
                let theirs = LaneSpec { sampler, prompt_len: 0, ..LaneSpec::default() };
                let plan = Plan::new().op(LaneOp::Adopt { lane, upto, spec: theirs });
                plan.feed(self.lane, upto, &[9, 9, 9], true).more(4).steps(5).tick(&mut self.executor);
                let back = upto - upto / 3;
                (back, vec![LaneOp::Adopt { lane, upto: back, spec }])
            }
            Blow::Stash(upto) => {
                let (upto, key) = (1 + upto % self.fed, StashKey(self.keys));
                self.keys += 1;
                self.lane += 1;
                let back = LaneOp::Restore { key, lane: other, spec };
                (
                    upto,
                    vec![
                        LaneOp::Stash { lane, upto, key },
                        LaneOp::Close { lane },
                        back,
                        LaneOp::Forget { key },
                    ],
                )
            }
            Blow::Cut(upto) => {
                let upto = upto % (self.fed + 1);
                (upto, vec![LaneOp::Truncate { lane, len: upto }])
            }
        };
        let plan = ops.into_iter().fold(Plan::new(), Plan::op);
        assert!(plan.run(&mut self.executor).is_empty());
        self.fed = upto;
    }
}

fn blow() -> impl Strategy<Value = Blow> {
    prop_oneof![
        Just(Blow::Crash),
        any::<u32>().prop_map(Blow::Fork),
        any::<u32>().prop_map(Blow::Adopt),
        any::<u32>().prop_map(Blow::Stash),
        any::<u32>().prop_map(Blow::Cut),
    ]
}

fn sampler() -> impl Strategy<Value = SamplerSpec> {
    let penalties = (
        prop_oneof![Just(1.0_f32), 0.5_f32..2.0],
        prop_oneof![Just(0.0_f32), -2.0_f32..2.0],
        prop_oneof![Just(0.0_f32), -2.0_f32..2.0],
        0_u32..40,
    );
    (prop_oneof![Just(0.0_f32), 0.5_f32..2.0], penalties, any::<u64>()).prop_map(
        |(temperature, (repeat_penalty, presence_penalty, frequency_penalty, penalty_last_n), seed)| {
            SamplerSpec {
                temperature,
                repeat_penalty,
                presence_penalty,
                frequency_penalty,
                penalty_last_n,
                seed,
                ..SamplerSpec::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lane_draws_the_same_tokens_whatever_became_of_it_in_between(
        sampler in sampler(),
        prompt in proptest::collection::vec(0..noop::VOCAB as u32, 1..20),
        life in proptest::collection::vec((1_u32..12, blow()), 1..6),
    ) {
        let spec = LaneSpec { sampler, prompt_len: prompt.len() as u32, ..LaneSpec::default() };
        let (mut disturbed, mut calm) = (Story::new(&spec, &prompt), Story::new(&spec, &prompt));
        for (count, blow) in life {
            disturbed.draw(count);
            disturbed.suffer(blow);
        }
        disturbed.draw(5);
        while calm.tokens.len() < disturbed.tokens.len() {
            calm.draw(1);
        }
        prop_assert_eq!(disturbed.tokens, calm.tokens);
    }
}

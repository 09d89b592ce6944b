//! Ticks of many steps over both transports: no token is lost or repeated, whoever ends them.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::time::Duration;

use common::{Bench, drawn, exe, first_plan, long_plan, option, step, tick};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use sf_core::{
    Direction, Feed, LaneFault, LaneId, LaneOp, LaneSpec, OptionValue, StashKey, StepOut, StepPlan, Token,
};
use sf_engine::{EngineError, Link, open_in_process, open_worker};

fn both(bench: &Bench) -> [Box<dyn Link>; 2] {
    let spec = bench.spec(bench.sample());
    [open_in_process(&spec).unwrap(), open_worker(&exe(), &spec).unwrap()]
}

/// A plan in which lane 0 feeds `token` at `pos0` and decodes `steps` steps.
fn go_on(seq: u64, pos0: u32, token: Token, steps: u32) -> StepPlan {
    let feeds = vec![Feed { lane: LaneId(0), tokens: 0..1, pos0, sample: true, more: steps - 1 }];
    StepPlan { seq, feeds, tokens: vec![token], steps_max: steps, ..StepPlan::default() }
}

/// What lane 0 draws after [`first_plan`]'s prompt, one step at a time.
fn story(bench: &Bench, count: usize) -> Vec<Token> {
    let mut link = open_in_process(&bench.spec(bench.sample())).unwrap();
    let mut told = drawn(&[step(link.as_mut(), &first_plan()).unwrap()]);
    while told.len() < count {
        let plan = go_on(1, 2 + told.len() as u32, told[told.len() - 1], 1);
        told.extend(drawn(&[step(link.as_mut(), &plan).unwrap()]));
    }
    told
}

fn pid(link: &dyn Link) -> Pid {
    Pid::from_raw(link.pid().unwrap() as i32).unwrap()
}

#[test]
fn a_tick_of_many_steps_is_as_many_ticks_of_one() {
    let bench = Bench::new();
    let story = story(&bench, 60);
    for mut link in both(&bench) {
        let (outs, error) = tick(link.as_mut(), &long_plan(32));
        assert_eq!((outs.len(), error), (32, None));
        assert!(outs.iter().enumerate().all(|(at, out)| (out.seq, out.step as usize) == (1, at)));
        assert_eq!(drawn(&outs), story[..32]);
        let (outs, _) = tick(link.as_mut(), &go_on(2, 34, story[31], 28));
        assert_eq!(drawn(&outs), story[32..]);
    }
}

#[test]
fn a_yield_ends_a_long_tick_early_and_every_token_comes_once() {
    const STEPS: u32 = 32;
    let bench = Bench::new();
    let story = story(&bench, 200);
    let mut spec = bench.spec(bench.sample());
    spec.options.push(option("x.sample.delay-us", OptionValue::Int(1000)));
    for mut link in [open_in_process(&spec).unwrap(), open_worker(&exe(), &spec).unwrap()] {
        let control = link.control().unwrap();
        let (mut told, mut early) = (Vec::new(), 0);
        // Raised as soon as the plan is handed over, after the first answer, after the second, and so on.
        for after in 0..6 {
            let plan = match told.last() {
                None => long_plan(STEPS),
                Some(last) => go_on(2 + after as u64, 2 + told.len() as u32, *last, STEPS),
            };
            link.begin(&plan).unwrap();
            let (mut outs, mut out) = (Vec::new(), StepOut::default());
            while !out.last {
                if outs.len() == after {
                    control.raise_yield();
                }
                link.next(&mut out).unwrap();
                outs.push(out.clone());
            }
            early += u32::from(outs.len() < STEPS as usize);
            told.extend(drawn(&outs));
        }
        assert_eq!(told, story[..told.len()]);
        assert!(early > 0, "a yield that is raised while 32 steps of a millisecond run comes in time");
    }
}

#[test]
fn what_a_worker_answered_before_it_was_killed_is_delivered() {
    let bench = Bench::new();
    let library = bench.compile("noop/noop_runtime.c", "mortal", &["-DNOOP_DIES_AFTER=5"]);
    let mut link = open_worker(&exe(), &bench.spec(library)).unwrap();
    let worker = rustix::process::pidfd_open(pid(link.as_ref()), PidfdFlags::empty()).unwrap();
    link.begin(&long_plan(32)).unwrap();
    // Nothing is read before it is gone.
    let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut [PollFd::new(&worker, PollFlags::IN)], Some(&limit)).unwrap(), 1);
    let mut out = StepOut::default();
    for at in 0..5 {
        link.next(&mut out).unwrap();
        assert_eq!((out.step, out.last, drawn(&[out.clone()])), (at, false, vec![Token(7)]));
    }
    let error = link.next(&mut out).unwrap_err();
    let EngineError::Died { how, .. } = &error else { panic!("{error}") };
    assert_eq!(how, "killed by SIGKILL");
    assert_eq!(link.next(&mut out).unwrap_err(), error);
    assert_eq!(link.begin(&first_plan()).unwrap_err(), error);
}

#[test]
fn a_kill_at_any_moment_of_a_tick_leaves_a_true_beginning() {
    let bench = Bench::new();
    let story = story(&bench, 32);
    let mut spec = bench.spec(bench.sample());
    spec.options.push(option("x.sample.delay-us", OptionValue::Int(500)));
    for reads in 0..4 {
        let mut link = open_worker(&exe(), &spec).unwrap();
        let worker = pid(link.as_ref());
        link.begin(&long_plan(32)).unwrap();
        let mut outs = Vec::new();
        let error = loop {
            if outs.len() == reads {
                rustix::process::kill_process(worker, Signal::KILL).unwrap();
            }
            let mut out = StepOut::default();
            match link.next(&mut out) {
                Ok(()) if out.last => break None,
                Ok(()) => outs.push(out),
                Err(error) => break Some(error),
            }
        };
        assert!(matches!(error, Some(EngineError::Died { .. })), "{error:?}");
        assert!(outs.len() >= reads);
        assert_eq!(drawn(&outs), story[..outs.len()]);
    }
}

#[test]
fn a_worker_that_is_stopped_is_hung_after_the_limit_that_was_set_last() {
    let bench = Bench::new();
    let mut spec = bench.spec(bench.sample());
    spec.options.push(option("x.sample.delay-us", OptionValue::Int(100_000)));
    let mut link = open_worker(&exe(), &spec).unwrap();
    link.begin(&long_plan(32)).unwrap();
    let mut out = StepOut::default();
    link.next(&mut out).unwrap();
    rustix::process::kill_process(pid(link.as_ref()), Signal::STOP).unwrap();
    link.set_step_limit(Duration::from_millis(300));
    let error = loop {
        match link.next(&mut out) {
            Ok(()) => assert!(!out.last, "a stopped worker has finished"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, EngineError::Hung { call: "step", limit_ms: 300 });
}

#[test]
fn a_worker_ends_a_tick_whose_answers_would_not_fit() {
    const LANES: u32 = 256;
    const STEPS: u32 = 4000;
    let bench = Bench::new();
    let mut spec = bench.spec(bench.noop());
    spec.lanes_max = LANES;
    let mut link = open_worker(&exe(), &spec).unwrap();
    let open = |lane| LaneOp::Open { lane: LaneId(lane), spec: LaneSpec::default() };
    let feed = |pos0| {
        move |lane| Feed { lane: LaneId(lane), tokens: lane..lane + 1, pos0, sample: true, more: STEPS - 1 }
    };
    let mut plan = StepPlan { ops: (0..LANES).map(open).collect(), steps_max: STEPS, ..StepPlan::default() };
    plan.tokens = vec![Token(7); LANES as usize];
    let mut pos = 0;
    for seq in 1..3 {
        (plan.seq, plan.feeds) = (seq, (0..LANES).map(feed(pos)).collect());
        link.begin(&plan).unwrap();
        let mut out = StepOut::default();
        while !out.last {
            link.next(&mut out).unwrap();
            assert!(out.lanes.iter().all(|told| matches!(told.result, Ok(Some(_)))), "{out:?}");
        }
        assert!((100..STEPS - 1).contains(&out.step), "{}", out.step);
        pos += out.step + 1;
        plan.ops.clear();
    }
}

#[test]
fn lanes_that_change_hands_or_come_back_from_a_copy_hold_what_they_held() {
    let bench = Bench::new();
    let (lane, other, key) = (LaneId(0), LaneId(1), StashKey(9));
    let spec = LaneSpec::default;
    let story = story(&bench, 12);
    let ops = |ops: Vec<LaneOp>, seq| StepPlan { seq, ops, steps_max: 1, ..StepPlan::default() };
    let fault = |out: &StepOut| match &out.lanes[..] {
        [told] => told.result.clone().unwrap_err().code,
        other => panic!("{other:?}"),
    };
    for mut link in both(&bench) {
        assert!(link.opened().fork && link.opened().stash);
        let (outs, _) = tick(link.as_mut(), &long_plan(8));
        assert_eq!(drawn(&outs), story[..8]);
        // Lane 0 holds the prompt and seven drawn tokens. It is copied, given to another request and closed.
        let gone = ops(
            vec![
                LaneOp::Stash { lane, upto: 9, key },
                LaneOp::Adopt { lane, upto: 1, spec: spec() },
                LaneOp::Close { lane },
            ],
            2,
        );
        let out = step(link.as_mut(), &gone).unwrap();
        assert!(out.lanes.is_empty(), "{out:?}");
        let told: Vec<_> =
            out.moves.iter().map(|moved| (moved.key, moved.direction, moved.positions)).collect();
        assert_eq!(told, [(key, Direction::Stashed, 9)]);
        assert_eq!(out.moves[0].bytes, 24 + 9 * 8);
        // It comes back, and goes on where it was cut.
        let mut back = go_on(3, 9, story[6], 2);
        back.ops.push(LaneOp::Restore { key, lane, spec: spec() });
        let (outs, _) = tick(link.as_mut(), &back);
        assert_eq!((drawn(&outs), outs[0].moves.len(), outs[1].moves.len()), (story[7..9].to_vec(), 1, 0));
        // Another request takes the lane over from the prompt on, without computing it again.
        let mut adopted = go_on(4, 2, Token(3), 4);
        adopted.ops.push(LaneOp::Adopt { lane, upto: 2, spec: spec() });
        assert_eq!(drawn(&tick(link.as_mut(), &adopted).0), story[..4]);
        let out = step(
            link.as_mut(),
            &ops(vec![LaneOp::Restore { key: StashKey(1), lane: other, spec: spec() }], 5),
        );
        assert_eq!(fault(&out.unwrap()), sf_abi::SFR_E_NOT_FOUND);
    }
}

#[test]
fn a_runtime_without_copies_refuses_them_in_words_and_says_so_when_it_opens() {
    let bench = Bench::new();
    let spec = bench.spec(bench.noop());
    for mut link in [open_in_process(&spec).unwrap(), open_worker(&exe(), &spec).unwrap()] {
        assert!(!link.opened().fork && !link.opened().stash);
        step(link.as_mut(), &first_plan()).unwrap();
        let stash = LaneOp::Stash { lane: LaneId(0), upto: 3, key: StashKey(1) };
        let out = step(link.as_mut(), &StepPlan { seq: 2, ops: vec![stash], ..StepPlan::default() }).unwrap();
        let fault = out.lanes[0].result.clone().unwrap_err();
        assert_eq!(fault.code, LaneFault::UNSUPPORTED, "{}", fault.message);
    }
}

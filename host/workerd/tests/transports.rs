//! Both transports are the same engine: equal answers to equal plans, equal refusals.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Bench, exe, first_plan, option, step};
use sf_abi::{SFR_E_CANCELLED, SFR_E_FORMAT, SFR_E_NOT_FOUND, SFR_E_OPTION, SFR_E_STATE, SFR_SCOPE_CALL};
use sf_core::{Feed, LaneId, LaneOp, LaneSpec, OptionValue, SamplerSpec, StepOut, StepPlan, Token};
use sf_engine::{EngineError, Link, OpenSpec, open_in_process, open_worker};

fn both(spec: &OpenSpec) -> [Box<dyn Link>; 2] {
    [open_in_process(spec).unwrap(), open_worker(&exe(), spec).unwrap()]
}

/// A conversation of steps: lanes that differ in how they sample, a fork, a cut, a lane's fault, and closing.
struct Script {
    plan: StepPlan,
    lens: [u32; 4],
    last: [Token; 4],
}

impl Script {
    fn specs() -> [LaneSpec; 4] {
        let warm = || SamplerSpec { temperature: 0.9, top_p: 0.9, top_k: 20, seed: 7, ..Default::default() };
        let told = || SamplerSpec { logprobs: Some(5), ..warm() };
        let bias = (0..1024).map(|token| (Token(token % 97), 0.001 * token as f32)).collect();
        let pushed = SamplerSpec { repeat_penalty: 1.3, presence_penalty: 0.2, bias, ..told() };
        let spec = |sampler| LaneSpec { sampler, ends: [Token(3)].into(), prompt_len: 12 };
        [SamplerSpec::default(), warm(), told(), pushed].map(spec)
    }

    fn feed(&mut self, lane: u32, tokens: &[Token], sample: bool) {
        let start = self.plan.tokens.len() as u32;
        self.plan.tokens.extend_from_slice(tokens);
        let pos0 = self.lens[lane as usize];
        let tokens = start..self.plan.tokens.len() as u32;
        self.lens[lane as usize] += tokens.end - tokens.start;
        self.plan.feeds.push(Feed { lane: LaneId(lane), tokens, pos0, sample, more: 0 });
    }

    fn take(&mut self, out: &StepOut) {
        for lane in &out.lanes {
            if let Ok(Some(sampled)) = &lane.result {
                self.last[lane.lane.0 as usize] = sampled.token;
            }
        }
    }

    /// The plan of step `at`; `false` after the last one.
    fn next(&mut self, at: u64) -> bool {
        self.plan.clear();
        self.plan.seq = at + 1;
        let prompt: Vec<Token> = (0..12).map(|token| Token(token * 7 % 97)).collect();
        match at {
            0 => {
                for (lane, spec) in Script::specs().into_iter().take(3).enumerate() {
                    self.plan.ops.push(LaneOp::Open { lane: LaneId(lane as u32), spec });
                    self.feed(lane as u32, &prompt[lane..], lane != 2);
                }
            }
            1 => {
                let spec = Script::specs()[3].clone();
                self.plan.ops.push(LaneOp::Fork { from: LaneId(0), upto: 6, lane: LaneId(3), spec });
                self.lens[3] = 6;
                self.feed(3, &prompt[..2], true);
                self.feed(2, &prompt[..1], true);
            }
            2..20 => {
                for lane in 0..4 {
                    self.feed(lane, &[self.last[lane as usize]], true);
                }
            }
            20 => {
                // Lane 1 is told a wrong position; lane 2 is cut.
                self.plan.ops.push(LaneOp::Truncate { lane: LaneId(2), len: 5 });
                self.lens[2] = 5;
                self.feed(2, &prompt[..3], true);
                self.feed(1, &prompt[..1], true);
                self.plan.feeds[1].pos0 += 1;
                self.feed(0, &prompt[..1], true);
            }
            21 => self.plan.ops.extend([0, 2, 3].map(|lane| LaneOp::Close { lane: LaneId(lane) })),
            22 => self.plan.ops.push(LaneOp::Truncate { lane: LaneId(9), len: 0 }),
            _ => return false,
        }
        true
    }
}

#[test]
fn both_transports_answer_equal_plans_equally() {
    let bench = Bench::new();
    let spec = bench.spec(bench.sample());
    let [mut here, mut there] = both(&spec);
    assert_eq!(here.opened(), there.opened());
    assert_eq!(here.opened().description.model.vocab, 97);
    assert_eq!(here.opened().interfaces, ["sf.kv/1"]);
    assert_eq!((here.pid(), there.pid().is_some()), (None, true));

    let mut script = Script { plan: StepPlan::default(), lens: [0; 4], last: [Token(0); 4] };
    let mut at = 0;
    while script.next(at) {
        let (a, b) =
            (step(here.as_mut(), &script.plan).unwrap(), step(there.as_mut(), &script.plan).unwrap());
        assert_eq!((a.seq, &a.lanes), (b.seq, &b.lanes), "step {at}");
        match at {
            1 => {
                let sampled = a.lanes[0].result.clone().unwrap().unwrap();
                assert_eq!((sampled.logprob.is_some(), sampled.top.len()), (true, 5));
            }
            2..20 => assert!(a.lanes.iter().all(|lane| matches!(lane.result, Ok(Some(_)))), "{a:?}"),
            20 => {
                let codes: Vec<_> =
                    a.lanes.iter().map(|lane| lane.result.as_ref().map_err(|f| f.code)).collect();
                assert!(matches!(codes[..], [Ok(Some(_)), Err(SFR_E_STATE), Ok(Some(_))]), "{codes:?}");
            }
            22 => assert!(a.lanes.len() == 1 && a.lanes[0].result.is_err(), "{a:?}"),
            _ => {}
        }
        script.take(&a);
        at += 1;
    }
    assert_eq!(at, 23);
    let (a, b) = (here.stats().unwrap(), there.stats().unwrap());
    assert_eq!(a, b);
    assert!(a.steps > 15, "{a:?}");
}

#[test]
fn a_refusal_names_the_same_code_and_field_on_both() {
    let bench = Bench::new();
    let spec = bench.spec(bench.sample());
    let check = |change: &dyn Fn(&mut OpenSpec), code: i32, field: &str| {
        let mut spec = spec.clone();
        change(&mut spec);
        let here = open_in_process(&spec).err().unwrap();
        let there = open_worker(&exe(), &spec).err().unwrap();
        assert_eq!(here, there);
        match here {
            EngineError::Refused { call: "open", code: got, field: name, ref message, .. } => {
                assert_eq!((got, name.as_str()), (code, field), "{message}");
            }
            other => panic!("{other}"),
        }
    };
    check(&|s| s.options.push(option("ctx.max", OptionValue::Int(-1))), SFR_E_OPTION, "ctx.max");
    check(
        &|s| s.options.push(option("x.sample.nope", OptionValue::Bool(true))),
        SFR_E_OPTION,
        "x.sample.nope",
    );
    check(&|s| s.lanes_max = 100_000, SFR_E_OPTION, "lanes.max");
    check(&|s| s.models = vec!["/nonexistent.gguf".into()], SFR_E_NOT_FOUND, "paths");
    check(&|s| s.models = vec![s.library.clone()], SFR_E_FORMAT, "paths");
}

#[test]
fn a_library_that_cannot_be_loaded_says_why_on_both() {
    let bench = Bench::new();
    let check = |library: PathBuf, expect: &str| {
        let spec = bench.spec(library);
        let here = open_in_process(&spec).err().unwrap();
        let there = open_worker(&exe(), &spec).err().unwrap();
        assert_eq!(here, there);
        assert!(matches!(here, EngineError::Load { .. }), "{here}");
        assert!(here.to_string().contains(expect), "{here}");
    };
    check(bench.path().join("absent.so"), "No such file");
    check("relative.so".into(), "not absolute");
    check(bench.model(), "invalid ELF header");
    check(bench.bad("null_entry"), "ABI");

    // A library whose dependency is gone: the dependency is what the message is about.
    let needed = bench.compile("noop/noop_runtime.c", "needed", &["-Wl,-soname,libneeded.so.7"]);
    let needed = needed.to_string_lossy().into_owned();
    let needs = bench.compile("sample/sample_runtime.c", "needs", &["-Wl,--no-as-needed", &needed]);
    check(needs, "it needs libneeded.so.7");
}

#[test]
fn a_step_at_the_wrong_moment_is_refused_and_costs_nothing() {
    let bench = Bench::new();
    let spec = bench.spec(bench.sample());
    for mut link in both(&spec) {
        let refused = |result: Result<(), EngineError>| {
            let error = result.unwrap_err();
            let state =
                matches!(error, EngineError::Refused { code: SFR_E_STATE, scope: SFR_SCOPE_CALL, .. });
            assert!(state && !error.is_fatal(), "{error}");
        };
        let mut out = StepOut::default();
        refused(link.next(&mut out));
        link.begin(&first_plan()).unwrap();
        refused(link.begin(&first_plan()));
        refused(link.stats().map(drop));
        link.next(&mut out).unwrap();
        assert!(matches!(out.lanes[0].result, Ok(Some(_))));
    }
}

#[test]
fn an_abort_reaches_a_running_step_on_both() {
    let bench = Bench::new();
    let mut spec = bench.spec(bench.sample());
    spec.options.push(option("x.sample.delay-us", OptionValue::Int(1_000_000)));
    for mut link in both(&spec) {
        let control = link.control().unwrap();
        let done = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            // The runtime compares with what it saw when the step began, so raising goes on until it has noticed.
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    control.raise_abort();
                    std::thread::yield_now();
                }
            });
            let result = step(link.as_mut(), &first_plan());
            done.store(true, Ordering::Relaxed);
            result
        });
        let fault = result.unwrap().lanes.remove(0).result.unwrap_err();
        assert_eq!(fault.code, SFR_E_CANCELLED, "{}", fault.message);
    }
}

#[test]
fn a_runtimes_prints_do_not_reach_the_shared_memory_or_the_socket() {
    let bench = Bench::new();
    let mut link = bench.open_bad("writes_stdout", Default::default()).unwrap();
    let out = step(link.as_mut(), &first_plan()).unwrap();
    assert!(matches!(out.lanes[0].result, Ok(Some(_))), "{out:?}");
}

#[test]
fn a_plan_that_does_not_fit_is_refused_and_the_link_lives_on() {
    let bench = Bench::new();
    let mut link = open_worker(&exe(), &bench.spec(bench.sample())).unwrap();
    let huge = StepPlan { seq: 1, tokens: vec![Token(0); 20 << 20], ..StepPlan::default() };
    let error = link.begin(&huge).unwrap_err();
    assert!(error.to_string().contains("exceeds the 75497472 that fit"), "{error}");
    assert!(!error.is_fatal());
    step(link.as_mut(), &first_plan()).unwrap();
}

//! The executor on the no-op runtime: what a plan does to lanes, and what becomes of a lane that fails.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(unsafe_code, reason = "binds the no-op runtime")]

use sf_abi::{SFR_E_ARG, SFR_E_CAPACITY, SFR_E_NOT_FOUND, SFR_E_OPTION, SFR_E_STATE, SFR_SCOPE_CALL};
use sf_core::{
    EngineOption, Feed, LaneId, LaneOp, LaneOut, OptionValue, SamplerSpec, StepOut, StepPlan, Token,
};
use sf_kit::{Executor, Honoured, KitError, OpenRequest, Runtime, StepBuffer, host, noop};

fn runtime() -> Runtime {
    // SAFETY: the no-op runtime keeps the header's rules.
    unsafe { Runtime::bind(noop::entry, host::host()) }.unwrap()
}

fn option(key: &str, value: i64, must: bool) -> EngineOption {
    EngineOption { key: key.to_owned(), value: OptionValue::Int(value), must }
}

fn request(options: Vec<EngineOption>) -> OpenRequest {
    OpenRequest { models: vec!["/none".into()], options, devices: vec![] }
}

fn executor(options: Vec<EngineOption>) -> Executor {
    Executor::new(runtime().open(&request(options)).unwrap())
}

fn open(lane: u32) -> LaneOp {
    LaneOp::Open { lane: LaneId(lane), sampler: SamplerSpec::default() }
}

/// Builds plans by hand.
#[derive(Default)]
struct Plan(StepPlan);

impl Plan {
    fn op(mut self, op: LaneOp) -> Plan {
        self.0.ops.push(op);
        self
    }

    fn feed(mut self, lane: u32, pos0: u32, run: &[u32], sample: bool) -> Plan {
        let start = self.0.tokens.len() as u32;
        self.0.tokens.extend(run.iter().map(|token| Token(*token)));
        let tokens = start..start + run.len() as u32;
        self.0.feeds.push(Feed { lane: LaneId(lane), tokens, pos0, sample });
        self
    }

    fn run(self, executor: &mut Executor) -> Vec<LaneOut> {
        let mut out = StepOut::default();
        executor.run(&self.0, &mut out).unwrap();
        out.lanes
    }
}

fn token(out: &LaneOut) -> u32 {
    match &out.result {
        Ok(Some(sampled)) => sampled.token.0,
        other => panic!("lane {} drew nothing: {other:?}", out.lane),
    }
}

fn code(out: &LaneOut) -> i32 {
    out.result.as_ref().err().map_or(0, |fault| fault.code)
}

/// The no-op model's largest logit after `last` at `position`.
fn greedy(last: u32, position: u32) -> u32 {
    let row = noop::row_of(last, position);
    (0..noop::VOCAB).max_by(|a, b| noop::logit(row, *a).total_cmp(&noop::logit(row, *b))).unwrap() as u32
}

#[test]
fn a_plan_opens_feeds_and_draws_in_its_order() {
    let mut executor = executor(vec![]);
    let out = Plan::default()
        .op(open(0))
        .op(open(1))
        .feed(1, 0, &[5, 6, 7], true)
        .feed(0, 0, &[9, 9], false)
        .run(&mut executor);
    assert_eq!(out.iter().map(|told| (told.lane.0, told.consumed)).collect::<Vec<_>>(), [(1, 3), (0, 2)]);
    assert_eq!(token(&out[0]), greedy(7, 2));
    assert_eq!(out[1].result, Ok(None));
    let next = token(&out[0]);
    let out = Plan::default().feed(0, 2, &[4], true).feed(1, 3, &[next], true).run(&mut executor);
    assert_eq!([token(&out[0]), token(&out[1])], [greedy(4, 2), greedy(next, 3)]);
    let stats = executor.stats().unwrap();
    assert_eq!((stats.lanes_live, stats.steps, stats.tokens_fed, stats.kv_cells_used), (2, 2, 7, 7));
}

#[test]
fn a_plan_without_feeds_only_keeps_the_books() {
    let mut executor = executor(vec![]);
    assert!(Plan::default().op(open(3)).run(&mut executor).is_empty());
    assert!(Plan::default().op(LaneOp::Close { lane: LaneId(3) }).run(&mut executor).is_empty());
    let stats = executor.stats().unwrap();
    assert_eq!((stats.lanes_live, stats.steps), (0, 0));
}

/// Tokens of one sampled lane, run among `others`.
fn story(others: u32, spec: &SamplerSpec) -> Vec<u32> {
    let mut executor = executor(vec![]);
    let mut plan = Plan::default();
    for lane in 0..others {
        let sampler = SamplerSpec { seed: u64::from(lane) + 100, temperature: 1.5, ..SamplerSpec::default() };
        plan = plan.op(LaneOp::Open { lane: LaneId(lane), sampler }).feed(lane, 0, &[1], true);
    }
    let us = others;
    let open = LaneOp::Open { lane: LaneId(us), sampler: spec.clone() };
    let mut out = plan.op(open).feed(us, 0, &[2, 3], true).run(&mut executor);
    let mut story = vec![token(out.last().unwrap())];
    for nth in 0..40 {
        let mut plan = Plan::default();
        for lane in 0..others {
            plan = plan.feed(lane, nth + 1, &[token(&out[lane as usize])], true);
        }
        out = plan.feed(us, nth + 2, &[*story.last().unwrap()], true).run(&mut executor);
        story.push(token(out.last().unwrap()));
    }
    story
}

#[test]
fn a_seed_gives_the_same_tokens_whatever_runs_beside_it() {
    let spec = SamplerSpec {
        temperature: 1.2,
        top_p: 0.95,
        seed: 9,
        frequency_penalty: 0.3,
        ..SamplerSpec::default()
    };
    let alone = story(0, &spec);
    assert_eq!(story(1, &spec), alone);
    assert_eq!(story(13, &spec), alone);
    assert_ne!(story(0, &SamplerSpec { seed: 10, ..spec }), alone);
}

#[test]
fn a_lane_cut_and_fed_again_draws_as_before() {
    let sampler = SamplerSpec { temperature: 1.0, seed: 4, presence_penalty: 1.0, ..SamplerSpec::default() };
    let mut executor = executor(vec![]);
    let opened = LaneOp::Open { lane: LaneId(0), sampler };
    let first = Plan::default().op(opened).feed(0, 0, &[1, 2, 3], true).run(&mut executor);
    let cut = LaneOp::Truncate { lane: LaneId(0), len: 1 };
    let again = Plan::default().op(cut).feed(0, 1, &[2, 3], true).run(&mut executor);
    assert_eq!(token(&first[0]), token(&again[0]));
}

#[test]
fn a_penalty_on_generated_tokens_follows_the_lane_and_spares_its_prompt() {
    let sampler = SamplerSpec { presence_penalty: 100.0, ..SamplerSpec::default() };
    let mut executor = executor(vec![]);
    let opened = LaneOp::Open { lane: LaneId(0), sampler };
    let prompt: Vec<u32> = (0..noop::VOCAB as u32).collect();
    let mut out = Plan::default().op(opened).feed(0, 0, &prompt, true).run(&mut executor);
    let mut drawn = vec![token(&out[0])];
    while drawn.len() < noop::VOCAB {
        let pos = (prompt.len() + drawn.len() - 1) as u32;
        out = Plan::default().feed(0, pos, &[*drawn.last().unwrap()], true).run(&mut executor);
        drawn.push(token(&out[0]));
    }
    assert_eq!(drawn[0], greedy(63, 63), "the prompt is not penalised");
    drawn.sort_unstable();
    assert_eq!(drawn, prompt, "no token came twice");
}

#[test]
fn a_fork_goes_on_from_its_parents_positions_and_leaves_it_alone() {
    let mut executor = executor(vec![]);
    Plan::default().op(open(0)).feed(0, 0, &[1, 2, 3], false).run(&mut executor);
    let sampler = SamplerSpec::default();
    let fork = |from, upto, lane| LaneOp::Fork {
        from: LaneId(from),
        upto,
        lane: LaneId(lane),
        sampler: sampler.clone(),
    };
    let out =
        Plan::default().op(fork(0, 2, 1)).feed(1, 2, &[8], true).feed(0, 3, &[8], true).run(&mut executor);
    assert_eq!([token(&out[0]), token(&out[1])], [greedy(8, 2), greedy(8, 3)]);
    let out = Plan::default().op(fork(0, 9, 2)).op(fork(7, 0, 3)).op(fork(0, 1, 1)).run(&mut executor);
    assert_eq!(out.iter().map(code).collect::<Vec<_>>(), [SFR_E_ARG, SFR_E_NOT_FOUND, SFR_E_STATE]);
}

#[test]
fn a_bad_feed_or_operation_fails_its_own_lane_only() {
    let mut executor = executor(vec![option("lanes.max", 2, true)]);
    Plan::default().op(open(0)).op(open(1)).run(&mut executor);
    let check = |executor: &mut Executor, plan: Plan, expect: &[i32]| {
        let codes: Vec<i32> = plan.run(executor).iter().map(code).collect();
        assert_eq!(codes, expect);
    };
    let big = noop::VOCAB as u32;
    check(&mut executor, Plan::default().feed(0, 0, &[1], true).feed(1, 5, &[1], true), &[0, SFR_E_STATE]);
    check(&mut executor, Plan::default().feed(0, 1, &[big], true).feed(1, 0, &[1], true), &[SFR_E_ARG, 0]);
    check(
        &mut executor,
        Plan::default().feed(0, 1, &[1 << 31], true).feed(1, 1, &[1], true),
        &[SFR_E_ARG, 0],
    );
    check(&mut executor, Plan::default().feed(0, 1, &[], true).feed(1, 2, &[1], true), &[SFR_E_ARG, 0]);
    check(&mut executor, Plan::default().feed(0, 1, &[1], false).feed(0, 2, &[1], false), &[0, SFR_E_ARG]);
    check(
        &mut executor,
        Plan::default().feed(7, 0, &[1], false).feed(1, 3, &[1], true),
        &[SFR_E_NOT_FOUND, 0],
    );
    // A lane that could not be opened fails its feed too, and once more as the operation.
    let full = Plan::default().op(open(2)).feed(2, 0, &[1], true).feed(1, 4, &[1], true);
    check(&mut executor, full, &[SFR_E_CAPACITY, 0, SFR_E_CAPACITY]);
    let broken = SamplerSpec { top_p: 0.0, ..SamplerSpec::default() };
    let ops = Plan::default()
        .op(open(0))
        .op(open(9999))
        // A scheduler closes a lane whose opening failed: no fault, which would hit the lane's next owner.
        .op(LaneOp::Close { lane: LaneId(5) })
        .op(LaneOp::Truncate { lane: LaneId(5), len: 0 })
        .op(LaneOp::Close { lane: LaneId(0) })
        .op(LaneOp::Open { lane: LaneId(0), sampler: broken });
    check(&mut executor, ops, &[SFR_E_STATE, SFR_E_ARG, SFR_E_NOT_FOUND, SFR_E_ARG]);
}

#[test]
fn begin_and_finish_come_in_turns() {
    let mut executor = executor(vec![]);
    let mut out = StepOut::default();
    let refused = |answer: Result<(), KitError>| match answer {
        Err(KitError::Refused { code, scope, .. }) => {
            assert_eq!((code, scope), (SFR_E_STATE, SFR_SCOPE_CALL));
        }
        other => panic!("{other:?}"),
    };
    refused(executor.finish(&mut out));
    let plan = Plan::default().op(open(0)).feed(0, 0, &[1], true).0;
    executor.begin(&plan).unwrap();
    refused(executor.begin(&plan));
    executor.finish(&mut out).unwrap();
    assert_eq!(token(&out.lanes[0]), greedy(1, 0));
    // Dropped with a step in flight: the model is closed only after the step is over.
    executor.begin(&Plan::default().feed(0, 1, &[1], true).0).unwrap();
    drop(executor);
}

#[test]
fn options_are_honoured_or_refused_by_name() {
    let check = |options: Vec<EngineOption>, expect: Option<&str>| match runtime().open(&request(options)) {
        Ok(_) => assert_eq!(expect, None),
        Err(KitError::Refused { code, field, .. }) => {
            assert_eq!((code, Some(field.as_str())), (SFR_E_OPTION, expect));
        }
        Err(other) => panic!("{other}"),
    };
    check(vec![option("ctx.max", 4096, true), option("threads", 1, true)], None);
    check(vec![option("ctx.max", 4096, true), option("x.acme.magic", 1, true)], Some("x.acme.magic"));
    let model =
        runtime().open(&request(vec![option("threads", 3, true), option("x.acme.magic", 1, false)])).unwrap();
    let told: Vec<_> = model.honoured().iter().map(|(key, answer)| (key.as_str(), *answer)).collect();
    assert_eq!(told, [("threads", Honoured::Exactly), ("x.acme.magic", Honoured::Unseen)]);
    assert_eq!(model.interfaces(), ["sf.kv/1"]);
}

#[test]
fn a_refusal_keeps_the_runtimes_words_and_the_probe_answers() {
    let error = runtime().open(&OpenRequest::default()).unwrap_err();
    assert_eq!(error.to_string(), "open refused: no model file was named (code -6)");
    let answer = runtime().probe(0, std::time::Duration::from_secs(1)).unwrap();
    let answer: sf_abi::descriptor::ProbeAnswer = serde_json::from_str(&answer).unwrap();
    assert!(answer.available);
    assert_eq!(runtime().inspect(&request(vec![])), Ok(None));
    assert_eq!(runtime().estimate(&request(vec![])).unwrap().map(|found| found.confidence), None);
    assert!(runtime().tokenizer(&request(vec![])).unwrap().is_none());
    assert!(runtime().interfaces().is_empty());
}

#[test]
fn a_step_of_the_model_shows_every_wanted_row() {
    let mut model = runtime().open(&request(vec![])).unwrap();
    let (a, b) = (model.lane_create().unwrap(), model.lane_create().unwrap());
    let mut step = StepBuffer::default();
    step.push(a, &[Token(1), Token(2), Token(3)], 0, 0..3);
    step.push(b, &[Token(4), Token(5)], 0, 1..1);
    let view = model.step(&mut step).unwrap();
    assert_eq!((view.rows(0).len(), view.rows(1).len(), view.run(1)), (3, 0, &[4, 5][..]));
    for (nth, row) in view.rows(0).iter().enumerate() {
        assert_eq!((row.pos, view.logits(row).len()), (nth as u32, noop::VOCAB));
    }
    assert!(!view.yielded());
    let mut again = StepBuffer::default();
    assert!(model.step_end(&mut again).is_err(), "a buffer that was not begun has no answer");
}

//! The executor on the no-op runtime: what a plan does to lanes, and what becomes of a lane that fails.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Plan, code, executor, greedy, open, open_with, option, request, runtime, token};
use sf_abi::{SFR_E_ARG, SFR_E_CAPACITY, SFR_E_NOT_FOUND, SFR_E_OPTION, SFR_E_STATE, SFR_SCOPE_CALL};
use sf_core::{EngineOption, LaneId, LaneOp, LaneSpec, SamplerSpec, StepOut, Token};
use sf_kit::{Executor, Honoured, KitError, OpenRequest, StepBuffer, noop};

#[test]
fn a_plan_opens_feeds_and_draws_in_its_order() {
    let mut executor = executor(vec![]);
    let out = Plan::new()
        .op(open(0))
        .op(open(1))
        .feed(1, 0, &[5, 6, 7], true)
        .feed(0, 0, &[9, 9], false)
        .run(&mut executor);
    assert_eq!(out.iter().map(|told| (told.lane.0, told.consumed)).collect::<Vec<_>>(), [(1, 3), (0, 2)]);
    assert_eq!(token(&out[0]), greedy(7, 2));
    assert_eq!(out[1].result, Ok(None));
    let next = token(&out[0]);
    let out = Plan::new().feed(0, 2, &[4], true).feed(1, 3, &[next], true).run(&mut executor);
    assert_eq!([token(&out[0]), token(&out[1])], [greedy(4, 2), greedy(next, 3)]);
    let stats = executor.stats().unwrap();
    assert_eq!((stats.lanes_live, stats.steps, stats.tokens_fed, stats.kv_cells_used), (2, 2, 7, 7));
}

#[test]
fn a_plan_without_feeds_only_keeps_the_books() {
    let mut executor = executor(vec![]);
    assert!(Plan::new().op(open(3)).run(&mut executor).is_empty());
    assert!(Plan::new().op(LaneOp::Close { lane: LaneId(3) }).run(&mut executor).is_empty());
    let stats = executor.stats().unwrap();
    assert_eq!((stats.lanes_live, stats.steps), (0, 0));
}

/// Tokens of one sampled lane, run among `others`.
fn story(others: u32, spec: &SamplerSpec) -> Vec<u32> {
    let mut executor = executor(vec![]);
    let mut plan = Plan::new();
    for lane in 0..others {
        let sampler = SamplerSpec { seed: u64::from(lane) + 100, temperature: 1.5, ..SamplerSpec::default() };
        plan = plan.op(open_with(lane, sampler, 1)).feed(lane, 0, &[1], true);
    }
    let us = others;
    let open =
        LaneOp::Open { lane: LaneId(us), spec: LaneSpec { sampler: spec.clone(), ..LaneSpec::default() } };
    let mut out = plan.op(open).feed(us, 0, &[2, 3], true).run(&mut executor);
    let mut story = vec![token(out.last().unwrap())];
    for nth in 0..40 {
        let mut plan = Plan::new();
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
    let opened = open_with(0, sampler, 3);
    let first = Plan::new().op(opened).feed(0, 0, &[1, 2, 3], true).run(&mut executor);
    let cut = LaneOp::Truncate { lane: LaneId(0), len: 1 };
    let again = Plan::new().op(cut).feed(0, 1, &[2, 3], true).run(&mut executor);
    assert_eq!(token(&first[0]), token(&again[0]));
}

/// What a softmax over the no-op model's whole row says of `token` after `last` at `position`.
fn scored(last: u32, position: u32, token: u32) -> f32 {
    let row = noop::row_of(last, position);
    let sum: f64 = (0..noop::VOCAB).map(|id| f64::from(noop::logit(row, id)).exp()).sum();
    (f64::from(noop::logit(row, token as usize)) - sum.ln()) as f32
}

#[test]
fn prompt_tokens_are_scored_however_the_prompt_is_cut() {
    let prompt: Vec<u32> = (0..9).map(|at| at * 5 % 64).collect();
    let sampler = || SamplerSpec { logprobs: Some(2), scores_prompt: true, ..SamplerSpec::default() };
    let check = |cuts: &[usize]| {
        let mut executor = executor(vec![]);
        let mut plan = Plan::new().op(open_with(0, sampler(), prompt.len() as u32));
        let (mut scores, mut drawn, mut at) = (Vec::new(), None, 0);
        for cut in cuts {
            let last = *cut == prompt.len();
            plan = plan.feed(0, at as u32, &prompt[at..*cut], last);
            // The token behind a run that ends inside the prompt.
            plan.0.tokens.extend(prompt.get(*cut).map(|token| Token(*token)));
            let mut outs = std::mem::replace(&mut plan, Plan::new()).tick(&mut executor);
            scores.append(&mut outs[0].scores);
            drawn = outs[0].lanes[0].result.clone().unwrap();
            at = *cut;
        }
        assert_eq!(drawn.unwrap().token.0, greedy(prompt[8], 8));
        assert_eq!(scores.iter().map(|score| score.position).collect::<Vec<_>>(), (1..9).collect::<Vec<_>>());
        for score in &scores {
            let (at, sampled) = (score.position, &score.sampled);
            let (last, token) = (prompt[at as usize - 1], prompt[at as usize]);
            let expect = scored(last, at - 1, token);
            assert_eq!((score.lane, sampled.token.0), (LaneId(0), token));
            assert!((sampled.logprob.unwrap() - expect).abs() < 1e-4, "{score:?}: {expect}");
            assert_eq!((sampled.top.len(), sampled.top[0].0.0), (2, greedy(last, at - 1)));
        }
    };
    check(&[9]);
    check(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    check(&[4, 8, 9]);

    let mut executor = executor(vec![]);
    let plan = Plan::new().op(open_with(0, sampler(), 9)).feed(0, 0, &[1, 2], false);
    assert_eq!(code(&plan.run(&mut executor)[0]), SFR_E_ARG, "nothing stands behind the run");
}

#[test]
fn a_penalty_on_generated_tokens_follows_the_lane_and_spares_its_prompt() {
    let sampler = SamplerSpec { presence_penalty: 100.0, ..SamplerSpec::default() };
    let mut executor = executor(vec![]);
    let opened = open_with(0, sampler, noop::VOCAB as u32);
    let prompt: Vec<u32> = (0..noop::VOCAB as u32).collect();
    let mut out = Plan::new().op(opened).feed(0, 0, &prompt, true).run(&mut executor);
    let mut drawn = vec![token(&out[0])];
    while drawn.len() < noop::VOCAB {
        let pos = (prompt.len() + drawn.len() - 1) as u32;
        out = Plan::new().feed(0, pos, &[*drawn.last().unwrap()], true).run(&mut executor);
        drawn.push(token(&out[0]));
    }
    assert_eq!(drawn[0], greedy(63, 63), "the prompt is not penalised");
    drawn.sort_unstable();
    assert_eq!(drawn, prompt, "no token came twice");
}

#[test]
fn a_fork_goes_on_from_its_parents_positions_and_leaves_it_alone() {
    let mut executor = executor(vec![]);
    Plan::new().op(open(0)).feed(0, 0, &[1, 2, 3], false).run(&mut executor);
    let fork = |from, upto, lane| LaneOp::Fork {
        from: LaneId(from),
        upto,
        lane: LaneId(lane),
        spec: LaneSpec::default(),
    };
    let out = Plan::new().op(fork(0, 2, 1)).feed(1, 2, &[8], true).feed(0, 3, &[8], true).run(&mut executor);
    assert_eq!([token(&out[0]), token(&out[1])], [greedy(8, 2), greedy(8, 3)]);
    let out = Plan::new().op(fork(0, 9, 2)).op(fork(7, 0, 3)).op(fork(0, 1, 1)).run(&mut executor);
    assert_eq!(out.iter().map(code).collect::<Vec<_>>(), [SFR_E_ARG, SFR_E_NOT_FOUND, SFR_E_STATE]);
}

#[test]
fn a_bad_feed_or_operation_fails_its_own_lane_only() {
    let mut executor = executor(vec![option("lanes.max", 2, true)]);
    Plan::new().op(open(0)).op(open(1)).run(&mut executor);
    let check = |executor: &mut Executor, plan: Plan, expect: &[i32]| {
        let codes: Vec<i32> = plan.run(executor).iter().map(code).collect();
        assert_eq!(codes, expect);
    };
    let big = noop::VOCAB as u32;
    check(&mut executor, Plan::new().feed(0, 0, &[1], true).feed(1, 5, &[1], true), &[0, SFR_E_STATE]);
    check(&mut executor, Plan::new().feed(0, 1, &[big], true).feed(1, 0, &[1], true), &[SFR_E_ARG, 0]);
    check(&mut executor, Plan::new().feed(0, 1, &[1 << 31], true).feed(1, 1, &[1], true), &[SFR_E_ARG, 0]);
    check(&mut executor, Plan::new().feed(0, 1, &[], true).feed(1, 2, &[1], true), &[SFR_E_ARG, 0]);
    check(&mut executor, Plan::new().feed(0, 1, &[1], false).feed(0, 2, &[1], false), &[0, SFR_E_ARG]);
    check(&mut executor, Plan::new().feed(7, 0, &[1], false).feed(1, 3, &[1], true), &[SFR_E_NOT_FOUND, 0]);
    // A lane that could not be opened fails its feed too, and once more as the operation.
    let full = Plan::new().op(open(2)).feed(2, 0, &[1], true).feed(1, 4, &[1], true);
    check(&mut executor, full, &[SFR_E_CAPACITY, 0, SFR_E_CAPACITY]);
    let broken = SamplerSpec { top_p: 0.0, ..SamplerSpec::default() };
    let ops = Plan::new()
        .op(open(0))
        .op(open(9999))
        // A scheduler closes a lane whose opening failed: no fault, which would hit the lane's next owner.
        .op(LaneOp::Close { lane: LaneId(5) })
        .op(LaneOp::Truncate { lane: LaneId(5), len: 0 })
        .op(LaneOp::Close { lane: LaneId(0) })
        .op(open_with(0, broken, 0));
    check(&mut executor, ops, &[SFR_E_STATE, SFR_E_ARG, SFR_E_NOT_FOUND, SFR_E_ARG]);
}

#[test]
fn a_plan_is_begun_and_run_to_its_last_step_before_the_next() {
    let mut executor = executor(vec![]);
    let mut out = StepOut::default();
    let refused = |answer: Result<(), KitError>| match answer {
        Err(KitError::Refused { code, scope, .. }) => {
            assert_eq!((code, scope), (SFR_E_STATE, SFR_SCOPE_CALL));
        }
        other => panic!("{other:?}"),
    };
    refused(executor.next(&mut out));
    let plan = Plan::new().op(open(0)).feed(0, 0, &[1], true).0;
    executor.begin(&plan, 0).unwrap();
    refused(executor.begin(&plan, 0));
    executor.next(&mut out).unwrap();
    assert_eq!(token(&out.lanes[0]), greedy(1, 0));
    // Dropped with a step in flight: the model is closed only after the step is over.
    executor.begin(&Plan::new().feed(0, 1, &[1], true).0, 0).unwrap();
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

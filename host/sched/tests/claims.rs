//! The scheduler's promises, held against a model engine that answers any plan.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use sf_core::{
    FinishReason, LaneFault, LaneId, LaneOp, LaneOut, RequestId, Sampled, SamplerSpec, StepOut, StepPlan,
    Token,
};
use sf_sched::{Admission, Outcome, Scheduler, SchedulerSettings, Stop};

const EOS: Token = Token(0);

fn settings() -> SchedulerSettings {
    SchedulerSettings { lanes_max: 3, step_tokens_max: 16, prefill_tokens_busy_max: 4, queue_max: 8 }
}

fn admission(request: u64, prompt: u32, tokens_max: u32) -> Admission {
    Admission {
        request: RequestId(request),
        prompt: (0..prompt).map(|i| Token(100 + i)).collect(),
        sampler: SamplerSpec::default(),
        stop: Stop { end_tokens: Arc::from([EOS]), tokens_max, positions_max: 1000 },
        retried: false,
    }
}

/// An engine that checks every plan against the contract and draws the lane's length as the next token.
#[derive(Default)]
struct ModelEngine {
    lanes: HashMap<LaneId, Vec<Token>>,
}

impl ModelEngine {
    fn run(&mut self, plan: &StepPlan, limits: SchedulerSettings) -> StepOut {
        for op in &plan.ops {
            match op {
                LaneOp::Open { lane, .. } => {
                    assert!(self.lanes.insert(*lane, Vec::new()).is_none(), "lane {lane} opened twice");
                }
                LaneOp::Close { lane } => assert!(self.lanes.remove(lane).is_some(), "lane {lane} not open"),
                other => panic!("not planned today: {other:?}"),
            }
        }
        assert!(self.lanes.len() <= limits.lanes_max as usize);
        assert!(plan.tokens.len() <= limits.step_tokens_max as usize, "step over budget");
        let mut out = StepOut { seq: plan.seq, ..StepOut::default() };
        for feed in &plan.feeds {
            let lane = self.lanes.get_mut(&feed.lane).expect("a fed lane is open");
            assert_eq!(lane.len() as u32, feed.pos0, "position of lane {}", feed.lane);
            let run = &plan.tokens[feed.tokens.start as usize..feed.tokens.end as usize];
            assert!(!run.is_empty(), "an empty run");
            lane.extend(run);
            let sampled = feed.sample.then(|| Sampled {
                token: Token(lane.len() as u32),
                logprob: None,
                top: Vec::new(),
            });
            out.lanes.push(LaneOut { lane: feed.lane, consumed: run.len() as u32, result: Ok(sampled) });
        }
        out
    }
}

fn run_until_idle(scheduler: &mut Scheduler, engine: &mut ModelEngine, steps_max: usize) -> Vec<Outcome> {
    let (mut plan, mut outcomes) = (StepPlan::default(), Vec::new());
    for _ in 0..steps_max {
        if !scheduler.plan(&mut plan) {
            return outcomes;
        }
        let out = engine.run(&plan, settings());
        scheduler.apply(&out, &mut outcomes);
    }
    panic!("not idle after {steps_max} steps");
}

fn tokens_of(outcomes: &[Outcome], id: u64) -> Vec<u32> {
    outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Token { request, sampled } if request.0 == id => Some(sampled.token.0),
            _ => None,
        })
        .collect()
}

#[test]
fn every_request_gets_exactly_its_tokens() {
    let mut scheduler = Scheduler::new(settings());
    for id in 0..7 {
        scheduler.submit(admission(id, 5 + id as u32 * 9, 4)).unwrap();
    }
    let mut engine = ModelEngine::default();
    let outcomes = run_until_idle(&mut scheduler, &mut engine, 200);
    for id in 0..7_u64 {
        let first = 5 + id as u32 * 9;
        assert_eq!(tokens_of(&outcomes, id), (first..first + 4).collect::<Vec<_>>());
        let end = Outcome::Finished { request: RequestId(id), reason: FinishReason::Length, drawn: 4 };
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == end).count(), 1);
    }
    assert!(engine.lanes.is_empty(), "all lanes are closed when idle");
}

#[test]
fn first_tokens_come_in_the_order_of_arrival() {
    let mut scheduler = Scheduler::new(settings());
    for id in 0..3 {
        scheduler.submit(admission(id, 30, 2)).unwrap();
    }
    let outcomes = run_until_idle(&mut scheduler, &mut ModelEngine::default(), 100);
    let firsts: Vec<u64> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Token { request, sampled } if sampled.token == Token(30) => Some(request.0),
            _ => None,
        })
        .collect();
    assert_eq!(firsts, [0, 1, 2]);
}

#[test]
fn a_long_prompt_does_not_stop_a_decoding_lane() {
    let mut scheduler = Scheduler::new(settings());
    scheduler.submit(admission(1, 3, 50)).unwrap();
    let (mut engine, mut plan, mut outcomes) = (ModelEngine::default(), StepPlan::default(), Vec::new());
    for step in 0..20 {
        if step == 2 {
            scheduler.submit(admission(2, 60, 1)).unwrap();
        }
        assert!(scheduler.plan(&mut plan));
        let out = engine.run(&plan, settings());
        let before = tokens_of(&outcomes, 1).len();
        scheduler.apply(&out, &mut outcomes);
        assert_eq!(tokens_of(&outcomes, 1).len(), before + 1, "step {step}");
    }
}

#[test]
fn an_end_token_ends_the_answer_and_is_not_reported() {
    let mut scheduler = Scheduler::new(settings());
    scheduler.submit(admission(1, 2, 10)).unwrap();
    let mut plan = StepPlan::default();
    assert!(scheduler.plan(&mut plan));
    let lane = plan.feeds[0].lane;
    let sampled = Sampled { token: EOS, logprob: None, top: Vec::new() };
    let out = StepOut {
        seq: plan.seq,
        lanes: vec![LaneOut { lane, consumed: 2, result: Ok(Some(sampled)) }],
        device_ns: 0,
    };
    let mut outcomes = Vec::new();
    scheduler.apply(&out, &mut outcomes);
    let end = Outcome::Finished { request: RequestId(1), reason: FinishReason::Stop, drawn: 1 };
    assert_eq!(outcomes, [end]);
}

#[test]
fn a_full_window_ends_the_answer_with_length() {
    let mut scheduler = Scheduler::new(settings());
    let mut wanted = admission(1, 3, 100);
    wanted.stop.positions_max = 6;
    scheduler.submit(wanted).unwrap();
    let outcomes = run_until_idle(&mut scheduler, &mut ModelEngine::default(), 50);
    // Three prompt positions leave three to feed; the draw after the last position is the fourth.
    assert_eq!(tokens_of(&outcomes, 1), [3, 4, 5, 6]);
    assert!(matches!(outcomes.last(), Some(Outcome::Finished { reason: FinishReason::Length, .. })));
}

#[test]
fn a_lane_fault_fails_its_request_only() {
    let mut scheduler = Scheduler::new(settings());
    scheduler.submit(admission(1, 2, 3)).unwrap();
    scheduler.submit(admission(2, 2, 3)).unwrap();
    let (mut engine, mut plan, mut outcomes) = (ModelEngine::default(), StepPlan::default(), Vec::new());
    assert!(scheduler.plan(&mut plan));
    let mut out = engine.run(&plan, settings());
    let fault = LaneFault { code: -16, message: "wrong position".into() };
    out.lanes[0].result = Err(fault.clone());
    scheduler.apply(&out, &mut outcomes);
    outcomes.extend(run_until_idle(&mut scheduler, &mut engine, 20));
    assert!(outcomes.contains(&Outcome::Failed { request: RequestId(1), fault }));
    assert_eq!(tokens_of(&outcomes, 2), [2, 3, 4]);
    assert!(engine.lanes.is_empty());
}

#[test]
fn a_cancelled_request_frees_its_lane_in_the_next_plan() {
    let mut scheduler = Scheduler::new(settings());
    for id in 0..4 {
        scheduler.submit(admission(id, 2, 100)).unwrap();
    }
    let (mut engine, mut plan, mut outcomes) = (ModelEngine::default(), StepPlan::default(), Vec::new());
    assert!(scheduler.plan(&mut plan));
    let out = engine.run(&plan, settings());
    scheduler.cancel(RequestId(0));
    scheduler.cancel(RequestId(99));
    scheduler.apply(&out, &mut outcomes);
    assert_eq!(tokens_of(&outcomes, 0), [] as [u32; 0]);
    assert!(scheduler.plan(&mut plan));
    assert!(matches!(plan.ops[..], [LaneOp::Close { .. }, LaneOp::Open { .. }]), "{:?}", plan.ops);
    assert_eq!((scheduler.running(), scheduler.waiting()), (3, 0));
}

#[test]
fn a_full_queue_refuses_by_number() {
    let mut scheduler = Scheduler::new(settings());
    for id in 0..8 {
        scheduler.submit(admission(id, 1, 1)).unwrap();
    }
    let refused = scheduler.submit(admission(9, 1, 1)).unwrap_err();
    assert_eq!(refused.to_string(), "8 requests wait for a lane already, the limit is 8 (queue.full)");
}

#[test]
fn a_lost_engine_fails_what_was_answering_and_keeps_the_rest() {
    let mut scheduler = Scheduler::new(settings());
    scheduler.submit(admission(0, 2, 9)).unwrap();
    let (mut engine, mut plan, mut outcomes) = (ModelEngine::default(), StepPlan::default(), Vec::new());
    assert!(scheduler.plan(&mut plan));
    scheduler.apply(&engine.run(&plan, settings()), &mut outcomes);
    for id in 1..5 {
        scheduler.submit(admission(id, 2, 3)).unwrap();
    }
    assert!(scheduler.plan(&mut plan));
    assert_eq!(scheduler.engine_lost(), [RequestId(0)], "its client has seen a token");
    // Requests 1 and 2 go back to the head of the queue; the next engine dies as well.
    assert!(scheduler.plan(&mut plan));
    assert_eq!(scheduler.engine_lost(), [RequestId(1), RequestId(2)], "no third try");
    let outcomes = run_until_idle(&mut scheduler, &mut ModelEngine::default(), 50);
    assert_eq!(tokens_of(&outcomes, 3), [2, 3, 4]);
    assert_eq!(tokens_of(&outcomes, 4), [2, 3, 4]);
}

#[derive(Clone, Debug)]
enum Event {
    Submit { prompt: u32, tokens: u32 },
    Cancel(u64),
    Step,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (1_u32..60, 1_u32..12).prop_map(|(prompt, tokens)| Event::Submit { prompt, tokens }),
        (0_u64..30).prop_map(Event::Cancel),
        Just(Event::Step),
        Just(Event::Step),
    ]
}

/// Plays `events`, then runs dry; returns every plan and outcome.
fn play(events: &[Event]) -> (Vec<StepPlan>, Vec<Outcome>, Vec<u64>, Vec<u64>) {
    let (mut scheduler, mut engine) = (Scheduler::new(settings()), ModelEngine::default());
    let (mut plans, mut outcomes, mut plan) = (Vec::new(), Vec::new(), StepPlan::default());
    let (mut taken, mut cancelled, mut next) = (Vec::new(), Vec::new(), 0_u64);
    let drain = std::iter::repeat_n(&Event::Step, 2000);
    for event in events.iter().chain(drain) {
        match event {
            Event::Submit { prompt, tokens } => {
                if scheduler.submit(admission(next, *prompt, *tokens)).is_ok() {
                    taken.push(next);
                }
                next += 1;
            }
            Event::Cancel(id) => {
                scheduler.cancel(RequestId(*id));
                cancelled.push(*id);
            }
            Event::Step => {
                if scheduler.plan(&mut plan) {
                    let out = engine.run(&plan, settings());
                    plans.push(plan.clone());
                    scheduler.apply(&out, &mut outcomes);
                }
            }
        }
    }
    assert!(engine.lanes.is_empty() && scheduler.waiting() == 0 && scheduler.running() == 0);
    (plans, outcomes, taken, cancelled)
}

proptest! {
    /// Whatever arrives and is cancelled: no plan breaks the contract or its budget (the model engine asserts it), every
    /// request that was not cancelled finishes once, and the same input gives the same plans.
    #[test]
    fn nothing_starves_and_replay_is_exact(events in prop::collection::vec(event(), 0..60)) {
        let (plans, outcomes, taken, cancelled) = play(&events);
        for id in taken {
            let ends = outcomes
                .iter()
                .filter(|outcome| matches!(outcome, Outcome::Finished { request, .. } if request.0 == id))
                .count();
            prop_assert!(ends == 1 || (ends == 0 && cancelled.contains(&id)), "request {} ended {} times", id, ends);
        }
        prop_assert_eq!(plans, play(&events).0);
    }
}

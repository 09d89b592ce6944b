//! Requests get their own tokens, all of them and no others, and end when they should.

use std::sync::Arc;

use sf_core::{FinishReason, QosClass, StepPlan, Token};
use sf_sched::{Failure, SchedulerSettings};

use crate::support::ask::{ask, ask_as};
use crate::support::chance::Odds;
use crate::support::checks::End;
use crate::support::drive::{Drive, Event};
use crate::support::engine::Setup;

/// Lanes, and as many again for prefixes.
fn drive(batch: u32) -> Drive {
    Drive::new(SchedulerSettings::new(batch, 2048), Setup::new(batch * 2, 0))
}

#[test]
fn every_request_gets_exactly_its_tokens() {
    let mut drive = drive(3);
    for request in 0..7 {
        drive.submit(ask(request, 5 + request as u32 * 40, 4 + request as u32));
    }
    drive.run(300);
    for request in 0..7 {
        assert!(drive.of(request).is_complete(), "{:?}", drive.of(request));
        assert_eq!(drive.of(request).tokens.len(), 4 + request as usize);
    }
}

#[test]
fn an_end_token_ends_the_answer_and_is_not_reported() {
    let mut drive = drive(2);
    let mut wanted = ask(1, 20, 500);
    wanted.stop.end_tokens = (0..100).map(Token).collect::<Vec<_>>().into();
    drive.submit(wanted);
    drive.run(300);
    let Some(End::Finished { reason, drawn, .. }) = drive.of(1).end else { panic!("{:?}", drive.of(1)) };
    assert_eq!(reason, FinishReason::Stop);
    assert_eq!(drawn as usize, drive.of(1).tokens.len() + 1);
    assert!(drive.of(1).tokens.iter().all(|token| token.0 >= 100));
}

#[test]
fn a_full_window_ends_the_answer_with_length() {
    let mut drive = drive(2);
    let mut wanted = ask(1, 3, 100);
    wanted.stop.positions_max = 6;
    drive.submit(wanted);
    drive.run(50);
    // Three prompt positions leave three to feed; the draw after the last position is the fourth.
    assert_eq!(drive.of(1).tokens.len(), 4);
    assert!(matches!(drive.of(1).end, Some(End::Finished { reason: FinishReason::Length, drawn: 4, .. })));
}

#[test]
fn a_full_window_of_the_model_ends_the_answer_too() {
    let mut drive = Drive::new(SchedulerSettings::new(2, 512), Setup::new(2, 1024));
    drive.submit(ask(1, 500, 100));
    drive.submit(ask(2, 511, 100));
    drive.run(200);
    assert_eq!(drive.of(1).tokens.len(), 13);
    assert_eq!(drive.of(2).tokens.len(), 2);
}

#[test]
fn a_lane_fault_fails_its_request_only() {
    let mut setup = Setup::new(8, 0);
    setup.noise.lane = Odds::new(100, 1);
    let mut drive = Drive::new(SchedulerSettings::new(4, 2048), setup);
    drive.rules.exact_cells = false;
    (0..4).for_each(|request| drive.submit(ask(request, 10, 40)));
    drive.run(300);
    let failed = |drive: &Drive| {
        (0..4).filter(|one| matches!(drive.of(*one).end, Some(End::Failed(Failure::Lane(_))))).count()
    };
    assert_eq!(failed(&drive), 1);
    assert_eq!((0..4).filter(|one| drive.of(*one).is_complete()).count(), 3);
}

#[test]
fn a_lane_that_cannot_be_opened_fails_its_request_only() {
    let check = |failures: u32, failed: u64| {
        let mut setup = Setup::new(2, 0);
        setup.noise.op = Odds::new(1000, failures);
        let mut drive = Drive::new(SchedulerSettings::new(1, 2048), setup);
        drive.rules.exact_cells = false;
        (0..4).for_each(|request| drive.submit(ask(request, 10, 10)));
        drive.run(100);
        let is_failed = |one: &u64| matches!(drive.of(*one).end, Some(End::Failed(Failure::Lane(_))));
        assert_eq!((0..4).filter(is_failed).count() as u64, failed, "after {failures} failed openings");
        assert!((failed..4).all(|request| drive.of(request).is_complete()));
    };
    check(1, 0);
    check(2, 1);
    check(3, 1);
    check(4, 2);
}

#[test]
fn a_cancelled_request_is_gone_in_the_next_plan_whatever_it_does() {
    let check = |is_so: &dyn Fn(&Drive) -> bool, victim: u64| {
        let mut drive = drive(2);
        drive.submit(ask(0, 300, 100));
        drive.submit(ask(1, 20, 60));
        drive.submit(ask(2, 20, 30));
        drive.run_until(50, is_so);
        drive.now(Event::Cancel(victim));
        drive.now(Event::Cancel(99));
        assert_eq!((drive.scheduler.running(), drive.scheduler.waiting()), (1, 1));
        assert!(drive.tick());
        assert_eq!(drive.scheduler.running(), 2, "the freed lane is given to the next one at once");
        drive.run(300);
        assert!((0..3).all(|request| request == victim || drive.of(request).is_complete()));
    };
    let prefills = |drive: &Drive| drive.rules.ticks == 1;
    let decodes = |drive: &Drive| drive.of(0).tokens.len() > 2 && drive.of(1).tokens.len() > 2;
    check(&prefills, 0);
    check(&prefills, 1);
    check(&decodes, 0);
    check(&decodes, 1);
    let mut drive = drive(1);
    drive.submit(ask(0, 20, 30));
    drive.submit(ask(1, 20, 30));
    drive.tick();
    drive.now(Event::Cancel(1));
    assert_eq!(drive.scheduler.waiting(), 0);
    drive.run(100);
    assert!(drive.of(0).is_complete());
}

#[test]
fn a_full_queue_refuses_by_number() {
    let settings = SchedulerSettings { queue_max: 8, ..SchedulerSettings::new(2, 2048) };
    let mut drive = Drive::new(settings, Setup::new(4, 0));
    (0..8).for_each(|request| drive.submit(ask(request, 3, 1)));
    let refused = drive.scheduler.submit(drive.now, ask(9, 3, 1)).unwrap_err();
    assert_eq!(refused.to_string(), "8 requests wait for a lane already, the limit is 8 (queue.full)");
    drive.tick();
    drive.submit(ask(10, 3, 1));
    drive.run(50);
    assert!(drive.of(10).is_complete());
}

#[test]
fn a_request_dropped_with_its_model_is_named_oldest_first() {
    let mut drive = drive(2);
    (0..5).for_each(|request| drive.submit(ask(request, 20, 30)));
    (0..3).for_each(|_| assert!(drive.tick()));
    let dropped: Vec<u64> = drive.scheduler.drop_all().into_iter().map(|request| request.0).collect();
    assert_eq!(dropped, [0, 1, 2, 3, 4]);
    assert_eq!((drive.scheduler.running(), drive.scheduler.waiting()), (0, 0));
}

#[test]
fn decode_ticks_take_as_long_as_they_should() {
    let mut drive = drive(4);
    (0..4).for_each(|request| drive.submit(ask(request, 20, 300)));
    drive.run_until(100, |drive| drive.of(3).tokens.len() > 100);
    // A step of four lanes takes 22 ms; 250 ms hold eleven.
    let (ticks, steps) = (drive.rules.ticks, drive.engine.done.steps);
    drive.run_until(20, |drive| drive.of(3).tokens.len() > 200);
    let per_tick = (drive.engine.done.steps - steps) as f64 / (drive.rules.ticks - ticks) as f64;
    assert!((8.0..=13.0).contains(&per_tick), "{per_tick} steps a tick");
}

#[test]
fn an_arrival_with_a_place_to_take_ends_the_tick() {
    let check = |class: QosClass| {
        let mut drive = drive(2);
        drive.submit(ask(0, 20, 500));
        drive.submit_at(900, ask_as(class, 1, 20, 5));
        drive.run(1000);
        // One step of one lane, its own prompt of 20 tokens beside a decode, and the step's own cost.
        assert!(drive.of(1).ttft_ms() < 60.0, "{class}: {}", drive.of(1).ttft_ms());
    };
    check(QosClass::Interactive);
    check(QosClass::Completion);
    check(QosClass::Agent);
}

#[test]
fn idle_lanes_are_empty_when_nothing_is_to_be_kept() {
    let mut drive = drive(3);
    for request in 0..6 {
        let mut wanted = ask(request, 100, 20);
        wanted.reuse = false;
        drive.submit(wanted);
    }
    drive.run(300);
    assert!(drive.engine.lanes.is_empty(), "{} lanes are open", drive.engine.lanes.len());
    assert_eq!(drive.scheduler.levels().kv_cells_used, 0);
}

#[test]
fn a_plan_is_filled_anew_each_time() {
    let mut drive = drive(1);
    let mut plan = StepPlan { tokens: vec![Token(1); 9], steps_max: 77, ..StepPlan::default() };
    assert!(!drive.scheduler.plan(drive.now, &mut plan, &mut Vec::new()), "there is nothing to do");
    drive.submit(ask(0, 12, 1));
    assert!(drive.scheduler.plan(drive.now, &mut plan, &mut Vec::new()));
    assert_eq!(plan.tokens.len(), 12);
    assert!(plan.steps_max <= 1);
    let ends: Arc<[Token]> = Arc::from([]);
    assert!(
        matches!(&plan.ops[..], [sf_core::LaneOp::Open { spec, .. }] if spec.ends == ends && spec.prompt_len == 12)
    );
}

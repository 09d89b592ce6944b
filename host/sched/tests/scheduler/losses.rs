//! Engines that die, clients that fall behind, deadlines that pass: what is delivered stays, and what can go on does.

use std::time::Duration;

use sf_core::{FinishReason, Moment, QosClass, limits};
use sf_sched::{Admission, Failure, SchedulerSettings};

use crate::support::ask::{ask, ask_as, ask_shared};
use crate::support::checks::End;
use crate::support::drive::{Drive, Event};
use crate::support::engine::Setup;

fn drive(batch: u32) -> Drive {
    Drive::new(SchedulerSettings::new(batch, 2048), Setup::new(batch * 2, u64::from(batch) * 2048))
}

fn ms(ms: u64) -> Moment {
    Moment(ms * 1_000_000)
}

#[test]
fn an_engine_may_die_in_any_step() {
    let started = |die_in: Option<u64>| {
        let mut drive = drive(3);
        (0..4).for_each(|one| drive.submit(ask_shared(one % 2, 100, one, 90)));
        if let Some(step) = die_in {
            drive.run_until(300, |drive| drive.engine.done.steps >= step);
            drive.now(Event::Kill);
        }
        drive.run(600);
        assert!((0..4).all(|one| drive.of(one).is_complete()), "died in step {die_in:?}");
        drive
    };
    let steps = started(None).engine.done.steps;
    for step in 0..steps {
        let drive = started(Some(step));
        assert!(drive.scheduler.totals().resumes <= 3);
    }
}

#[test]
fn a_request_is_carried_over_so_many_times_and_no_more() {
    let mut drive = drive(2);
    drive.submit(ask(0, 20, 1000));
    let mut deaths = 0;
    while drive.of(0).end.is_none() {
        let before = drive.of(0).tokens.len();
        drive.run_until(50, |drive| drive.of(0).tokens.len() > before);
        drive.now(Event::Kill);
        drive.tick();
        deaths += 1;
    }
    assert_eq!(deaths, limits::RESUMES_MAX + 1);
    assert_eq!(drive.of(0).end, Some(End::Failed(Failure::EnginesLost { engines: deaths })));
    drive.submit(ask(1, 20, 10));
    drive.run(50);
    assert!(drive.of(1).is_complete());
}

#[test]
fn who_only_waited_is_not_blamed_for_dead_engines() {
    let mut drive = drive(1);
    drive.submit(ask_as(QosClass::Interactive, 0, 20, 1000));
    drive.submit(ask(1, 20, 10));
    while drive.of(0).end.is_none() {
        let before = drive.of(0).tokens.len();
        drive.run_until(50, |drive| drive.of(0).tokens.len() > before);
        drive.now(Event::Kill);
        drive.tick();
    }
    drive.run(100);
    assert!(drive.of(1).is_complete());
}

#[test]
fn a_request_that_ends_every_engine_fails_alone() {
    for killer in 0..8 {
        let mut drive = drive(8);
        drive.engine.killer = Some(killer);
        (0..8).for_each(|one| drive.submit(ask(one, 40, 100)));
        drive.run_until(1000, |drive| drive.of(killer).end.is_some());
        // Who comes meanwhile, and whoever comes later, is served as well.
        drive.submit(ask(8, 20, 10));
        drive.run(1000);
        let fate = &drive.of(killer).end;
        assert!(matches!(fate, Some(End::Failed(Failure::EnginesLost { .. }))), "{killer}: {fate:?}");
        let others = (0..9).filter(|one| *one != killer);
        others.for_each(|one| assert!(drive.of(one).is_complete(), "{killer} took {one} with it"));
    }
}

#[test]
fn engines_that_die_now_and_then_do_not_add_up() {
    let mut drive = drive(2);
    drive.submit(ask(0, 20, 1000));
    for _ in 0..10 {
        let before = drive.of(0).tokens.len();
        drive.run_until(200, |drive| drive.of(0).tokens.len() >= before + 80);
        drive.now(Event::Kill);
        drive.tick();
    }
    drive.run(1000);
    assert!(drive.of(0).is_complete());
}

#[test]
fn resumed_requests_go_before_their_class() {
    let mut drive = drive(2);
    (0..6).for_each(|one| drive.submit(ask(one, 50, 60)));
    drive.run_until(50, |drive| drive.of(1).tokens.len() > 10);
    drive.now(Event::Kill);
    drive.run(500);
    let first_end = (2..6).filter_map(|one| drive.of(one).started).min().unwrap();
    let resumed = drive.of(0).ended.unwrap().min(drive.of(1).ended.unwrap());
    assert!(first_end >= resumed, "the others wait until one of the resumed is done");
}

#[test]
fn a_held_lane_is_left_out_and_goes_on_where_it_was() {
    let mut drive = drive(2);
    drive.submit(ask(0, 20, 100));
    drive.submit(ask(1, 20, 100));
    drive.run_until(50, |drive| drive.of(0).tokens.len() > 5 && drive.of(1).tokens.len() > 5);
    drive.now(Event::Hold(0, true));
    let held = drive.of(0).tokens.len();
    drive.run_until(100, |drive| drive.of(1).is_complete());
    assert_eq!(drive.of(0).tokens.len(), held);
    assert!(!drive.tick() || !drive.tick(), "nothing to do while all are held");
    drive.now(Event::Hold(0, false));
    drive.run(100);
    assert!(drive.of(0).is_complete());
}

#[test]
fn a_held_prompt_does_not_stop_the_others() {
    let mut drive = drive(2);
    drive.submit(ask(0, 1000, 10));
    drive.tick();
    drive.now(Event::Hold(0, true));
    drive.submit(ask(1, 300, 10));
    drive.run_until(100, |drive| drive.of(1).is_complete());
    assert!(drive.of(0).tokens.is_empty());
    drive.now(Event::Hold(0, false));
    drive.run(100);
}

#[test]
fn a_held_leader_does_not_stop_those_who_wait_for_its_prefix() {
    let mut drive = drive(4);
    (0..3).for_each(|one| drive.submit(ask_shared(1, 1000, one, 20)));
    drive.tick();
    drive.now(Event::Hold(0, true));
    drive.run_until(300, |drive| drive.of(1).is_complete() && drive.of(2).is_complete());
    drive.now(Event::Hold(0, false));
    drive.run(100);
}

#[test]
fn a_held_request_can_be_cancelled_and_outlives_an_engine() {
    let mut drive = drive(2);
    drive.submit(ask(0, 20, 100));
    drive.submit(ask(1, 20, 100));
    drive.run_until(50, |drive| drive.of(1).tokens.len() > 5);
    drive.now(Event::Hold(0, true));
    drive.now(Event::Hold(1, true));
    drive.now(Event::Kill);
    while drive.tick() {}
    drive.now(Event::Cancel(0));
    drive.now(Event::Hold(1, false));
    drive.run(100);
    assert!(drive.of(1).is_complete());
    assert_eq!(drive.scheduler.running(), 0);
}

#[test]
fn a_running_request_ends_at_its_deadline_with_what_it_has() {
    let mut drive = drive(2);
    drive.submit(Admission { deadline: Some(ms(3000)), ..ask(0, 20, 2000) });
    drive.submit(ask(1, 20, 800));
    drive.run(1000);
    let Some(End::Finished { reason: FinishReason::Deadline, .. }) = drive.of(0).end else {
        panic!("{:?}", drive.of(0).end)
    };
    assert!(drive.of(0).tokens.len() > 100);
    let (ended, _) = drive.of(0).ended.unwrap();
    assert!((ms(3000)..ms(3300)).contains(&ended), "{ended:?}");
    assert!(drive.of(1).is_complete());
    assert_eq!(drive.scheduler.totals().deadlines, 1);
}

#[test]
fn a_deadline_may_pass_while_the_prompt_is_computed() {
    let mut drive = drive(2);
    drive.submit(Admission { deadline: Some(ms(600)), ..ask(0, 2000, 10) });
    drive.run(100);
    assert_eq!(drive.of(0).end, Some(End::Finished { reason: FinishReason::Deadline, drawn: 0, cached: 0 }));
}

#[test]
fn a_queued_request_past_its_deadline_never_starts() {
    let mut drive = drive(1);
    drive.submit(ask(0, 20, 300));
    drive.submit(Admission { deadline: Some(ms(700)), ..ask(1, 20, 10) });
    drive.run(500);
    assert_eq!(drive.of(1).end, Some(End::Failed(Failure::Expired)));
    assert!(drive.of(1).ended.unwrap().0 < ms(1100));
}

#[test]
fn deadlines_are_kept_while_nothing_else_happens() {
    let mut drive = drive(1);
    drive.submit(Admission { deadline: Some(ms(2000)), ..ask(0, 20, 500) });
    drive.submit(Admission { deadline: Some(ms(1500)), ..ask(1, 20, 500) });
    drive.run_until(50, |drive| drive.of(0).tokens.len() > 5);
    drive.now(Event::Hold(0, true));
    while drive.tick() {}
    assert_eq!(drive.scheduler.next_wake(), Some(ms(1500)));
    drive.run(50);
    assert_eq!(drive.of(1).end, Some(End::Failed(Failure::Expired)));
    assert!(matches!(drive.of(0).end, Some(End::Finished { reason: FinishReason::Deadline, .. })));
    assert_eq!(drive.scheduler.next_wake(), None);
}

#[test]
fn a_preempted_request_past_its_deadline_ends_with_what_it_has() {
    let mut drive = drive(1);
    drive.submit(Admission { deadline: Some(ms(1500)), ..ask(0, 20, 500) });
    drive.submit_at(1000, ask_as(QosClass::Interactive, 1, 20, 200));
    drive.run(500);
    assert!(!drive.of(0).tokens.is_empty());
    assert!(matches!(drive.of(0).end, Some(End::Finished { reason: FinishReason::Deadline, .. })));
}

#[test]
fn a_dead_engine_and_a_passed_deadline_go_together() {
    let mut drive = drive(1);
    drive.submit(Admission { deadline: Some(Moment(0) + Duration::from_millis(520)), ..ask(0, 20, 500) });
    drive.at(500, Event::Kill);
    drive.run(500);
    assert!(matches!(drive.of(0).end, Some(End::Finished { reason: FinishReason::Deadline, .. })));
}

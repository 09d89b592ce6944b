//! Too few lanes or too few cells: who gives way, and that it costs nobody a token.

use sf_core::QosClass;
use sf_sched::{Failure, SchedulerSettings};

use crate::support::ask::{ask, ask_as};
use crate::support::chance::Odds;
use crate::support::checks::End;
use crate::support::drive::{Drive, Event};
use crate::support::engine::Setup;

#[test]
fn a_chat_takes_the_lane_of_the_agent_that_started_last() {
    let check = |class: QosClass, residents: u32| {
        let mut drive = Drive::new(SchedulerSettings::new(2, 2048), Setup::new(2 + residents, 0));
        drive.submit(ask(0, 300, 300));
        drive.submit_at(1000, ask(1, 300, 300));
        drive.submit_at(4000, ask_as(class, 2, 30, 10));
        drive.run_until(200, |drive| {
            drive.rules.requests.contains_key(&2) && drive.of(2).first_tick.is_some()
        });
        assert!(drive.of(2).waited_ticks() <= 1, "{class}");
        assert_eq!(drive.scheduler.totals().preemptions, 1);
        let (first, last) = (drive.of(0).tokens.len(), drive.of(1).tokens.len());
        drive.tick();
        assert!(drive.of(0).tokens.len() > first, "the first agent goes on");
        assert_eq!(drive.of(1).tokens.len(), last, "the last one waits");
        let before = drive.engine.done.prompt_tokens;
        drive.run(500);
        if residents > 0 {
            let again = drive.engine.done.prompt_tokens - before;
            assert!(again < 40, "its KV was kept: {again} tokens computed again");
        }
    };
    check(QosClass::Interactive, 2);
    check(QosClass::Completion, 2);
    check(QosClass::Interactive, 0);
}

#[test]
fn only_a_lower_class_gives_way() {
    let check = |running: QosClass, arriving: QosClass, expect: u64| {
        let mut drive = Drive::new(SchedulerSettings::new(1, 2048), Setup::new(2, 0));
        drive.submit(ask_as(running, 0, 30, 200));
        drive.submit_at(500, ask_as(arriving, 1, 30, 5));
        drive.run(400);
        assert_eq!(drive.scheduler.totals().preemptions, expect, "{arriving} behind {running}");
    };
    check(QosClass::Interactive, QosClass::Interactive, 0);
    check(QosClass::Completion, QosClass::Interactive, 1);
    check(QosClass::Completion, QosClass::Completion, 0);
    check(QosClass::Agent, QosClass::Interactive, 1);
    check(QosClass::Agent, QosClass::Completion, 1);
    check(QosClass::Agent, QosClass::Agent, 0);
    check(QosClass::Background, QosClass::Agent, 1);
    check(QosClass::Background, QosClass::Interactive, 1);
    check(QosClass::Background, QosClass::Background, 0);
}

#[test]
fn preempted_again_and_again_an_agent_still_ends() {
    let mut drive = Drive::new(SchedulerSettings::new(1, 2048), Setup::new(2, 0));
    drive.submit(ask(0, 200, 100));
    (1..60).for_each(|one| drive.submit_at(one * 400, ask_as(QosClass::Interactive, one, 30, 8)));
    drive.run(3000);
    assert!(drive.of(0).is_complete());
}

/// `requests` of 1,900 tokens and a reply of 100 on lanes of 2,048 positions; all are answered, and one more after them.
fn exhaust(batch: u32, setup: Setup, requests: u64) -> Drive {
    let mut drive = Drive::new(SchedulerSettings::new(batch, 2048), setup);
    (0..requests).for_each(|one| drive.submit(ask(one, 1900, 100)));
    drive.run(6000);
    assert!((0..requests).all(|one| drive.of(one).is_complete()));
    drive.submit(ask(100, 60, 10));
    drive.run(100);
    assert!(drive.of(100).is_complete(), "a fresh request is admitted after");
    drive
}

#[test]
fn twelve_long_requests_fit_four_lanes() {
    exhaust(4, Setup::new(8, 4 * 2048), 12);
    exhaust(4, Setup::new(4, 4 * 2048), 12);
}

#[test]
fn more_lanes_than_cells_for_them_work_too() {
    let drive = exhaust(8, Setup::new(8, 4096), 12);
    let computed = drive.engine.done.prompt_tokens as f64 / (12.0 * 1900.0);
    assert!(computed < 1.3, "{computed} times computed: lanes throw each other out");
}

#[test]
fn an_engine_that_does_not_know_its_cells_is_believed_when_it_refuses() {
    for cells in [8192, 4096, 2100] {
        let mut setup = Setup::new(8, cells);
        setup.facts.kv_cells = 0;
        exhaust(8, setup, 12);
    }
}

#[test]
fn an_engine_without_fork_and_truncate_works_under_pressure() {
    let mut setup = Setup::new(6, 4096);
    (setup.facts.fork, setup.facts.truncate, setup.facts.stash) = (false, false, false);
    exhaust(4, setup, 12);
}

#[test]
fn what_never_fits_fails_alone_and_by_number() {
    let check = |known: bool| {
        let mut setup = Setup::new(4, 1000);
        setup.facts.kv_cells = if known { 1000 } else { 0 };
        let mut drive = Drive::new(SchedulerSettings::new(4, 2048), setup);
        drive.submit(ask(0, 100, 50));
        drive.submit(ask(1, 1500, 50));
        drive.submit(ask(2, 100, 50));
        drive.run(1000);
        let end = drive.of(1).end.as_ref();
        assert!(
            matches!(end, Some(End::Failed(Failure::KvExhausted { needed, .. })) if *needed > 1000),
            "{end:?}"
        );
        assert!(drive.of(0).is_complete() && drive.of(2).is_complete());
    };
    check(true);
    check(false);
}

#[test]
fn a_refusal_now_and_then_fails_nobody_who_has_neighbours() {
    for seed in 0..20 {
        let mut setup = Setup::new(8, 8192);
        (setup.seed, setup.noise.capacity) = (seed, Odds::new(30, 5));
        let mut drive = Drive::new(SchedulerSettings::new(4, 2048), setup);
        (0..8).for_each(|one| drive.submit(ask(one, 150, 60)));
        // Refusals come only while there are many.
        drive.run_until(500, |drive| drive.rules.living().count() < 4);
        drive.engine.setup.noise.capacity = Odds::default();
        drive.run(1000);
        // Who had no neighbour left at that moment may fail.
        let is_fine = |one: u64| drive.of(one).is_complete() || drive.engine.refused_alone.contains(&one);
        assert!((0..8).all(is_fine), "seed {seed}");
    }
}

#[test]
fn idle_prefixes_stay_below_the_high_watermark() {
    let mut drive = Drive::new(SchedulerSettings::new(2, 2048), Setup::new(16, 8192));
    for one in 0..30 {
        drive.submit(ask(one, 700, 5));
        drive.run(50);
        let levels = drive.scheduler.levels();
        assert!(levels.kv_cells_used <= 8192 * 85 / 100 + 705, "{levels:?}");
    }
    assert!(drive.scheduler.totals().evictions > 10);
    assert!(drive.scheduler.levels().residents >= 4, "not more is evicted than must be");
}

#[test]
fn the_prefix_used_last_is_evicted_last() {
    let settings = SchedulerSettings { stash_bytes_max: 0, ..SchedulerSettings::new(1, 2048) };
    let mut drive = Drive::new(settings, Setup::new(8, 4096));
    for one in 0..4 {
        drive.submit(ask(one, 700, 5));
        drive.run(50);
    }
    // The oldest is used again, so that the second one is the next to go.
    for (request, same) in [(10, 0), (11, 50), (12, 51)] {
        drive.submit(crate::support::ask::with_prompt(
            request,
            crate::support::ask::prompt(0, 0, same, 700),
            5,
        ));
        drive.run(50);
    }
    drive.submit(crate::support::ask::with_prompt(20, crate::support::ask::prompt(0, 0, 0, 700), 5));
    drive.run(50);
    assert_eq!(drive.of(20).cached, 699);
    drive.submit(crate::support::ask::with_prompt(21, crate::support::ask::prompt(0, 0, 1, 700), 5));
    drive.run(50);
    assert_eq!(drive.of(21).cached, 0);
}

#[test]
fn memory_pressure_drops_what_is_idle() {
    let mut drive = Drive::new(SchedulerSettings::new(2, 2048), Setup::new(8, 16_384));
    for one in 0..6 {
        drive.submit(ask(one, 900, 5));
        drive.run(50);
    }
    drive.submit(ask(9, 100, 50));
    drive.run_until(50, |drive| drive.of(9).tokens.len() > 3);
    drive.now(Event::Shed);
    drive.run(100);
    assert!(drive.of(9).is_complete());
    let levels = drive.scheduler.levels();
    assert_eq!(levels.stash_bytes, 0, "{levels:?}");
    assert!(levels.kv_cells_used <= 16_384 * 70 / 100, "{levels:?}");
}

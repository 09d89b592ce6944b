//! What one request computed is not computed again for another.

use std::time::Duration;

use sf_core::Moment;
use sf_sched::{Admission, SchedulerSettings};

use crate::support::ask::{ask, ask_shared, prompt, with_prompt};
use crate::support::chance::Odds;
use crate::support::drive::{Drive, Event};
use crate::support::engine::Setup;

fn drive(batch: u32, setup: Setup) -> Drive {
    Drive::new(SchedulerSettings::new(batch, 4096), setup)
}

/// How often a shared prefix was computed when everything else was computed once.
fn prefills(drive: &Drive, shared: u32, own: u32, requests: u64) -> f64 {
    let own = requests * u64::from(own);
    drive.engine.done.prompt_tokens.saturating_sub(own) as f64 / f64::from(shared)
}

#[test]
fn a_burst_with_one_long_prefix_computes_it_once() {
    let check = |requests: u64, apart_ms: u64| {
        let mut drive = drive(8, Setup::new(16, 32_768));
        (0..requests).for_each(|one| drive.submit_at(one * apart_ms, ask_shared(1, 1500, one, 40)));
        drive.run(600);
        let prefills = prefills(&drive, 1500, 40, requests);
        assert!(prefills <= 1.2, "{requests} requests {apart_ms} ms apart: {prefills} prefills");
        assert_eq!((1..requests).filter(|one| drive.of(*one).cached >= 1500).count() as u64, requests - 1);
    };
    check(8, 0);
    check(12, 0);
    check(12, 100);
    check(12, 900);
}

#[test]
fn a_burst_has_its_first_tokens_soon_after_the_prefix() {
    let mut drive = drive(8, Setup::new(16, 32_768));
    (0..8).for_each(|one| drive.submit(ask_shared(1, 1500, one, 20)));
    drive.run(600);
    let mut firsts: Vec<f64> = (0..8).map(|one| drive.of(one).ttft_ms()).collect();
    firsts.sort_by(f64::total_cmp);
    // The prefix alone takes 2.3 s; all eight prompts would take 18 s.
    assert!(firsts[7] < 4000.0, "{firsts:?}");
}

#[test]
fn two_bursts_do_not_hold_each_other_up() {
    let mut drive = drive(8, Setup::new(16, 32_768));
    for one in 0..4 {
        drive.submit(ask_shared(1, 800, one, 30));
        drive.submit(ask_shared(2, 800, one + 4, 30));
    }
    drive.run(600);
    let prefills = prefills(&drive, 800, 30, 8);
    assert!(prefills <= 2.3, "{prefills} prefills of two prefixes");
}

#[test]
fn a_follower_goes_on_when_its_leader_is_cancelled() {
    let mut drive = drive(4, Setup::new(8, 16_384));
    (0..4).for_each(|one| drive.submit(ask_shared(1, 1000, one, 30)));
    drive.at(300, Event::Cancel(0));
    drive.run(400);
    assert!((1..4).all(|one| drive.of(one).is_complete()));
    assert!(prefills(&drive, 1000, 30, 3) <= 1.4);
}

#[test]
fn a_second_turn_computes_only_what_is_new() {
    let check = |name: &str, fork: bool, truncate: bool| {
        let mut setup = Setup::new(4, 8192);
        (setup.facts.fork, setup.facts.truncate) = (fork, truncate);
        let mut drive = drive(2, setup);
        drive.submit(ask(1, 700, 50));
        drive.run(200);
        let mut tokens = prompt(0, 0, 1, 700);
        tokens.extend(&drive.of(1).tokens);
        tokens.extend(prompt(0, 0, 99, 60));
        drive.submit(with_prompt(2, tokens, 20));
        let before = drive.engine.done.prompt_tokens;
        drive.run(200);
        // The last drawn token was never fed.
        assert_eq!(drive.of(2).cached, 749, "{name}");
        assert_eq!(drive.engine.done.prompt_tokens - before, 61, "{name}");
        assert_eq!(drive.scheduler.totals().prefix_tokens, 749, "{name}");
    };
    check("an engine that can do all", true, true);
    check("no fork", false, true);
    check("no truncate", true, false);
    check("neither", false, false);
}

#[test]
fn the_same_prompt_again_computes_its_last_token() {
    let check = |name: &str, fork: bool, truncate: bool, cached: u32| {
        let mut setup = Setup::new(4, 8192);
        (setup.facts.fork, setup.facts.truncate) = (fork, truncate);
        let mut drive = drive(2, setup);
        drive.submit(with_prompt(1, prompt(0, 0, 5, 400), 10));
        drive.run(100);
        drive.submit(with_prompt(2, prompt(0, 0, 5, 400), 10));
        drive.run(100);
        assert_eq!(drive.of(2).cached, cached, "{name}");
    };
    check("an engine that can do all", true, true, 399);
    check("no fork", false, true, 399);
    check("no truncate", true, false, 399);
    check("neither", false, false, 0);
}

#[test]
fn a_short_common_start_is_not_worth_it() {
    let mut drive = drive(2, Setup::new(4, 8192));
    drive.submit(ask_shared(1, 15, 1, 50));
    drive.run(100);
    drive.submit(ask_shared(1, 15, 2, 50));
    drive.run(100);
    assert_eq!(drive.of(2).cached, 0);
    assert_eq!((drive.scheduler.totals().prefix_hits, drive.scheduler.totals().prefix_misses), (0, 2));
}

#[test]
fn who_wants_no_reuse_gets_none_and_leaves_nothing() {
    let private = |request: u64| Admission { reuse: false, ..ask_shared(1, 500, request, 20) };
    let mut drive = drive(2, Setup::new(4, 8192));
    drive.submit(ask_shared(1, 500, 1, 20));
    drive.run(100);
    drive.submit(private(2));
    drive.run(100);
    assert_eq!(drive.of(2).cached, 0);
    assert_eq!(drive.scheduler.levels().residents, 1, "only what the first one left");
}

#[test]
fn a_failed_fork_or_adoption_costs_time_and_nothing_else() {
    for fails in 0..6 {
        let mut setup = Setup::new(6, 8192);
        setup.seed = fails;
        let mut drive = drive(3, setup);
        drive.rules.exact_cells = false;
        drive.submit(ask_shared(1, 500, 0, 20));
        drive.run(100);
        // The burst opens no lane from nothing, unless a fork failed before.
        drive.engine.setup.noise.op = Odds::new(400, 1);
        (1..4).for_each(|one| drive.submit(ask_shared(1, 500, one, 20)));
        drive.run(200);
        assert!((0..4).all(|one| drive.of(one).is_complete()), "seed {fails}");
    }
}

#[test]
fn pins_outlive_pressure_until_they_end() {
    let settings = SchedulerSettings { stash_bytes_max: 0, ..SchedulerSettings::new(2, 2048) };
    let mut drive = Drive::new(settings, Setup::new(6, 4096));
    let pinned = Admission { pin: Some(Duration::from_secs(60)), ..ask_shared(1, 600, 0, 20) };
    drive.submit(pinned);
    drive.run(100);
    assert!(drive.scheduler.levels().kv_cells_pinned >= 620, "{:?}", drive.scheduler.levels());
    (1..9).for_each(|one| drive.submit(ask(one, 1200, 10)));
    drive.run(600);
    assert!(drive.scheduler.totals().evictions > 0);
    drive.submit(ask_shared(1, 600, 20, 20));
    drive.run(100);
    assert_eq!(drive.of(20).cached, 600);
    drive.now = Moment(drive.now.0 + 70_000_000_000);
    (30..39).for_each(|one| drive.submit(ask(one, 1200, 10)));
    drive.run(600);
    assert_eq!(drive.scheduler.levels().kv_cells_pinned, 0);
    drive.submit(ask_shared(1, 600, 50, 20));
    drive.run(100);
    assert_eq!(drive.of(50).cached, 0, "the pin is over");
}

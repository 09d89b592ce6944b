//! Prefixes in host memory: taken back when that was measured to be faster, and never a reason to fail.

use sf_sched::SchedulerSettings;

use crate::support::ask::{prompt, with_prompt};
use crate::support::chance::Odds;
use crate::support::drive::Drive;
use crate::support::engine::{Cost, POSITION_BYTES, Setup};

/// Six conversations on a lane that holds three of them, `rounds` times around.
fn rounds(settings: SchedulerSettings, setup: Setup, rounds: u64) -> Drive {
    let mut drive = Drive::new(settings, setup);
    drive.rules.exact_cells = drive.engine.setup.noise.op.left == 0;
    for round in 0..rounds {
        for one in 0..6 {
            drive.submit(with_prompt(round * 10 + one, prompt(one + 1, 600, round * 10 + one, 20), 5));
            drive.run(100);
        }
    }
    drive
}

fn setup(restore_ns: u64) -> Setup {
    let mut setup = Setup::new(4, 2200);
    setup.cost = Cost { restore: restore_ns, ..Cost::CPU };
    setup
}

#[test]
fn an_evicted_prefix_comes_back_from_memory_when_that_is_faster() {
    let drive = rounds(SchedulerSettings::new(1, 2048), setup(20_000), 4);
    assert!(drive.engine.done.restores >= 12, "{:?}", drive.engine.done);
    assert_eq!(drive.scheduler.totals().restores, drive.engine.done.restores);
    assert_eq!(drive.scheduler.totals().stashes, drive.engine.done.stashes);
    let warm = (30..36).filter(|one| drive.of(*one).cached >= 600).count();
    assert_eq!(warm, 6);
}

#[test]
fn a_slow_way_back_is_not_taken_again() {
    let drive = rounds(SchedulerSettings::new(1, 2048), setup(20_000_000), 4);
    assert!(drive.engine.done.restores <= 2, "{:?}", drive.engine.done);
}

#[test]
fn nothing_is_copied_without_a_budget_or_the_means() {
    let settings = SchedulerSettings { stash_bytes_max: 0, ..SchedulerSettings::new(1, 2048) };
    assert_eq!(rounds(settings, setup(20_000), 2).engine.done.stashes, 0);
    let mut unable = setup(20_000);
    unable.facts.stash = false;
    assert_eq!(rounds(SchedulerSettings::new(1, 2048), unable, 2).engine.done.stashes, 0);
}

#[test]
fn copies_stay_within_their_budget() {
    let stash_bytes_max = 1500 * POSITION_BYTES;
    let settings = SchedulerSettings { stash_bytes_max, ..SchedulerSettings::new(1, 2048) };
    let drive = rounds(settings, setup(20_000), 4);
    assert!(drive.engine.done.stashes > 0);
    assert!(drive.engine.stash_bytes() <= stash_bytes_max, "{}", drive.engine.stash_bytes());
}

#[test]
fn a_failed_copy_costs_time_and_nothing_else() {
    for seed in 0..30 {
        let mut setup = setup(20_000);
        (setup.seed, setup.noise.op) = (seed, Odds::new(150, 6));
        let drive = rounds(SchedulerSettings::new(1, 2048), setup, 4);
        let failed = drive.rules.requests.values().filter(|one| !one.is_complete()).count();
        assert!(failed <= drive.engine.faults.len(), "seed {seed}: only a failed opening may fail a request");
    }
}

//! Who goes first: classes, their caps, parties, the background divisor, and the bound on waiting.

use sf_core::QosClass;
use sf_sched::{Admission, SchedulerSettings};

use crate::support::ask::{ask, ask_as, ask_shared};
use crate::support::checks::Tracked;
use crate::support::drive::{Drive, Event};
use crate::support::engine::Setup;

fn drive(settings: SchedulerSettings) -> Drive {
    let batch = settings.batch_max;
    Drive::new(settings, Setup::new(batch * 2, 0))
}

/// Requests in the order in which they got their lanes.
fn order(drive: &Drive) -> Vec<u64> {
    let mut all: Vec<(&u64, &Tracked)> = drive.rules.requests.iter().collect();
    all.sort_by_key(|(_, one)| one.times[0]);
    all.into_iter().map(|(request, _)| *request).collect()
}

#[test]
fn a_higher_class_goes_first_and_arrival_decides_inside_one() {
    let mut drive = drive(SchedulerSettings::new(1, 2048));
    let classes = [QosClass::Background, QosClass::Agent, QosClass::Completion, QosClass::Interactive];
    for (at, class) in classes.into_iter().enumerate() {
        drive.submit(ask_as(class, at as u64 * 2, 10, 1));
        drive.submit(ask_as(class, at as u64 * 2 + 1, 10, 1));
    }
    drive.run(100);
    assert_eq!(order(&drive), [6, 7, 4, 5, 2, 3, 0, 1]);
}

#[test]
fn an_agent_is_not_starved_by_a_flood() {
    let check = |class: QosClass, starvation: u32, batch: u32| {
        let settings =
            SchedulerSettings { starvation_ticks: starvation, ..SchedulerSettings::new(batch, 2048) };
        let every = u64::from(settings.background_every);
        let mut drive = drive(settings);
        (1..400).for_each(|one| drive.submit(ask_as(QosClass::Interactive, one, 8, 4)));
        (0..3).for_each(|_| assert!(drive.tick()));
        drive.submit(ask_as(class, 1000, 8, 4));
        drive.run_until(600, |drive| drive.of(1000).started.is_some());
        let patience = u64::from(starvation) * if class == QosClass::Background { every } else { 1 };
        // Then one of the next two lanes that end is its own: a chat takes its prompt's tick and one or two more.
        let waited = drive.of(1000).waited_ticks();
        assert!(waited <= patience + 8, "{class}, {starvation} ticks of patience: {waited}");
        assert!(drive.scheduler.totals().starvation_grants >= 1);
        drive.run_until(600, |drive| drive.of(1000).is_complete());
    };
    check(QosClass::Agent, 8, 2);
    check(QosClass::Agent, 1, 2);
    check(QosClass::Agent, 30, 4);
    check(QosClass::Completion, 8, 2);
    check(QosClass::Background, 8, 2);
    check(QosClass::Background, 3, 4);
}

#[test]
fn a_quiet_party_gets_its_half_beside_a_flood() {
    let mut drive = drive(SchedulerSettings::new(2, 2048));
    let of = |party: u64, request: u64| Admission { party, ..ask(request, 60, 40) };
    (0..30).for_each(|one| drive.submit(of(1, one)));
    (100..105).for_each(|one| drive.submit_at(2000, of(2, one)));
    drive.run(2000);
    let arrived = drive.of(100).submitted;
    let last = drive.of(104).started.unwrap().0;
    let between = (0..30).filter(|one| (arrived..=last).contains(&drive.of(*one).started.unwrap().0)).count();
    assert!(between <= 7, "{between} of the flood started while five waited");
    let first = drive.of(100).waited_ticks();
    assert!(first <= 20, "it waits for a lane and not for the flood: {first} ticks");
}

#[test]
fn a_party_cannot_save_up_for_later() {
    let mut drive = drive(SchedulerSettings::new(1, 2048));
    let of = |party: u64, request: u64| Admission { party, ..ask(request, 60, 20) };
    (0..10).for_each(|one| drive.submit(of(1, one)));
    drive.run(1000);
    // The second party was away all that time. It does not go first ten times now.
    (10..20).for_each(|one| drive.submit(of(1, one)));
    (20..30).for_each(|one| drive.submit(of(2, one)));
    drive.run(2000);
    let after: Vec<u64> = order(&drive).into_iter().filter(|one| *one >= 10).collect();
    let firsts = after[..10].iter().filter(|one| **one >= 20).count();
    assert!((4..=6).contains(&firsts), "{after:?}");
}

#[test]
fn service_counts_tokens_and_not_requests() {
    let mut drive = drive(SchedulerSettings::new(1, 2048));
    for one in 0..20 {
        drive.submit(Admission { party: 1, ..ask(one, 300, 10) });
        drive.submit(Admission { party: 2, ..ask(100 + one, 20, 10) });
    }
    drive.run(3000);
    // A small request costs a tenth of a large one, so that many small ones go before the second large one.
    let order = order(&drive);
    let second = order.iter().filter(|one| **one < 100).nth(2).unwrap();
    let small = order.iter().take_while(|one| *one != second).filter(|one| **one >= 100).count();
    assert!(small >= 12, "{order:?}");
}

#[test]
fn a_capped_class_leaves_lanes_to_the_others() {
    let mut settings = SchedulerSettings::new(4, 2048);
    settings.class_lanes[QosClass::Agent.index()] = 2;
    let mut drive = drive(settings);
    (0..8).for_each(|one| drive.submit(ask(one, 40, 100)));
    (0..6).for_each(|_| assert!(drive.tick()));
    assert_eq!(drive.scheduler.running(), 2);
    drive.submit(ask_as(QosClass::Completion, 20, 10, 5));
    drive.submit(ask_as(QosClass::Background, 21, 10, 5));
    drive.tick();
    assert_eq!(drive.scheduler.running(), 4);
    drive.run(2000);
    assert!((0..8).all(|one| drive.of(one).is_complete()));
}

/// Of `ticks` ticks in which an agent runs, those in which background runs too.
fn background_ticks(drive: &mut Drive, ticks: usize) -> usize {
    let mut count = 0;
    for _ in 0..ticks {
        let before = drive.of(1).tokens.len();
        assert!(drive.tick());
        count += usize::from(drive.of(1).tokens.len() > before);
    }
    count
}

#[test]
fn background_takes_part_in_every_nth_tick_and_n_can_be_changed() {
    let settings = SchedulerSettings { background_every: 4, ..SchedulerSettings::new(2, 4096) };
    let mut drive = drive(settings);
    drive.submit(ask(0, 10, 3000));
    drive.submit(ask_as(QosClass::Background, 1, 10, 3000));
    drive.run_until(50, |drive| !drive.of(1).tokens.is_empty());
    let share = background_ticks(&mut drive, 40);
    assert!((9..=11).contains(&share), "{share} of 40");
    drive.now(Event::Background(1));
    assert!(background_ticks(&mut drive, 20) >= 19);
    drive.now(Event::Background(10));
    let share = background_ticks(&mut drive, 40);
    assert!((3..=5).contains(&share), "{share} of 40");
}

#[test]
fn background_runs_freely_when_nobody_else_does() {
    let settings = SchedulerSettings { background_every: 100, ..SchedulerSettings::new(2, 2048) };
    let mut drive = drive(settings);
    (0..4).for_each(|one| drive.submit(ask_as(QosClass::Background, one, 100, 50)));
    drive.run(100);
    assert!((0..4).all(|one| drive.of(one).is_complete()));
}

#[test]
fn who_waits_for_a_prefix_does_not_hold_others_up() {
    let mut drive = drive(SchedulerSettings::new(3, 4096));
    drive.submit(ask_shared(1, 2000, 0, 20));
    drive.submit(ask_shared(1, 2000, 1, 20));
    drive.submit(ask(2, 30, 5));
    drive.submit(ask(3, 30, 5));
    drive.run(500);
    assert!(drive.of(3).started.unwrap().0 < drive.of(1).started.unwrap().0);
    assert!(drive.of(1).cached >= 2000);
}

#[test]
fn a_chat_never_waits_for_background_however_long_that_waited() {
    for batch in [1, 2, 4] {
        let mut drive = drive(SchedulerSettings::new(batch, 2048));
        (0..12).for_each(|one| drive.submit(ask_as(QosClass::Background, one, 700, 150)));
        (0..30).for_each(|one| {
            drive.submit_at(1000 + one * 1300, ask_as(QosClass::Interactive, 100 + one, 30, 5));
        });
        drive.run(5000);
        let slowest = (100..130).map(|one| drive.of(one).waited_ticks()).max().unwrap();
        // One lane may be safe for a few ticks; where there is no other, a chat waits for them.
        assert!(slowest <= if batch == 1 { 6 } else { 2 }, "{batch} lanes: a chat waited {slowest} ticks");
        assert!((0..12).all(|one| drive.of(one).is_complete()));
    }
}

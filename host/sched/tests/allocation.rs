//! Planning and applying allocates nothing in the steady state: counted over a thousand ticks.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use sf_core::{Moment, QosClass, StepOut, StepPlan};
use sf_counting::allocations_of;
use sf_sched::{Admission, Outcome, Scheduler, SchedulerSettings};

mod support;

use support::ask::ask;
use support::engine::{ModelEngine, Setup};

/// Allocations of the scheduler in `ticks` ticks of `requests`, after some to get going, and the steps it planned.
fn measure(settings: SchedulerSettings, setup: Setup, requests: Vec<Admission>, ticks: u32) -> (u64, u64) {
    let mut scheduler = Scheduler::new(settings.clone());
    scheduler.engine_opened(setup.facts);
    let count = requests.len();
    requests.into_iter().for_each(|request| scheduler.submit(Moment(0), request).unwrap());
    let mut engine = ModelEngine::new(setup, settings);
    let (mut plan, mut out) = (StepPlan::default(), StepOut::default());
    let mut outcomes: Vec<Outcome> = Vec::with_capacity(1024);
    let mut now = Moment(0);
    let (mut counted, mut steps) = (0, 0);
    for tick in 0..ticks + 100 {
        let mut spent = allocations_of(|| assert!(scheduler.plan(now, &mut plan, &mut outcomes)));
        engine.begin(&plan);
        out.last = false;
        while !out.last {
            now = now + Duration::from_nanos(engine.step_ns());
            engine.next(&mut out).unwrap();
            spent += allocations_of(|| scheduler.apply(now, &out, &mut outcomes));
            allocations_of(|| _ = scheduler.should_yield());
            steps += u64::from(tick >= 100);
            assert!(!outcomes.iter().any(|outcome| matches!(outcome, Outcome::Finished { .. })), "too short");
            outcomes.clear();
        }
        counted += if tick >= 100 { spent } else { 0 };
    }
    assert_eq!(scheduler.running(), count);
    (counted, steps)
}

fn requests(lanes: u64) -> Vec<Admission> {
    let class = |one: u64| if one == 0 { QosClass::Background } else { QosClass::Agent };
    let long = |one: u64| Admission { class: class(one), party: one % 3, ..ask(one, 100, 60_000) };
    let long = (0..lanes).map(long);
    long.map(|mut one| {
        one.stop.positions_max = 65_536;
        one
    })
    .collect()
}

#[test]
fn a_thousand_ticks_allocate_nothing() {
    let check = |name: &str, settings: SchedulerSettings, cells: u64| {
        let (single, batch) = (settings.tick_decode_budget == settings.batch_max, settings.batch_max);
        let setup = Setup::new(batch * 2, cells);
        let (count, steps) = measure(settings, setup, requests(u64::from(batch)), 1000);
        assert_eq!(count, 0, "{name}: {count} allocations in 1,000 ticks of {steps} steps");
        assert!((steps == 1000) == single, "{name}: {steps} steps");
    };
    let many = SchedulerSettings::new(8, 65_536);
    let one = SchedulerSettings { tick_decode_budget: 8, ..SchedulerSettings::new(8, 65_536) };
    check("single steps", one.clone(), 0);
    check("single steps, cells counted", one, 8 * 65_536);
    check("ticks of many steps", many.clone(), 0);
    check("ticks of many steps, cells counted", many, 8 * 65_536);
}

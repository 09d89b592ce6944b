//! Opening and closing workers leaves nothing behind. Alone in its binary: it counts what the whole process holds.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use common::{Bench, exe, first_plan, step};
use rustix::process::{WaitId, WaitIdOptions};
use sf_engine::{WorkerProber, open_worker};

use sf_core::ports::Prober;

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Threads that were told to end may still be ending; the count must come down to `most` all the same.
fn threads_come_down_to(most: usize) -> bool {
    (0..100_000).any(|_| {
        std::thread::yield_now();
        entries("/proc/self/task") <= most
    })
}

#[test]
fn fifty_lives_and_deaths_leave_no_descriptor_thread_or_zombie() {
    let bench = Bench::new();
    let (good, bad) = (bench.noop(), bench.bad("crash_step"));
    let prober = WorkerProber::new(exe());
    let round = |at: u32| match at % 4 {
        0 => {
            let mut link = open_worker(&exe(), &bench.spec(bad.clone())).unwrap();
            step(link.as_mut(), &first_plan()).unwrap_err();
        }
        1 => {
            let mut link = open_worker(&exe(), &bench.spec(good.clone())).unwrap();
            step(link.as_mut(), &first_plan()).unwrap();
        }
        2 => {
            // Dropped with a step in flight.
            let mut link = open_worker(&exe(), &bench.spec(good.clone())).unwrap();
            link.begin(&first_plan()).unwrap();
        }
        _ => drop(prober.probe(&good, &[], 0).unwrap()),
    };
    (0..4).for_each(round);
    assert!(threads_come_down_to(2), "the test's thread and the harness's");
    let fds = entries("/proc/self/fd");
    (0..50).for_each(round);
    assert!(threads_come_down_to(2));
    assert_eq!(entries("/proc/self/fd"), fds);
    let child = rustix::process::waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    assert_eq!(child.err(), Some(rustix::io::Errno::CHILD), "no child is left, dead or alive");
}

//! How far apart the first two CPUs are: a figure of two threads means something only beside it.

use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::Instant;

const TURNS: u32 = 20_000;
const TRIES: usize = 5;

/// Nanoseconds that a cache line takes from one CPU to the other, one way; the best of some tries. `None` where there is one CPU,
/// or threads cannot be pinned.
pub(crate) fn line_ns() -> Option<f64> {
    if crate::sysinfo::cpus() < 2 {
        return None;
    }
    let tries = (0..TRIES).map(|_| once()).collect::<Option<Vec<_>>>()?;
    tries.into_iter().reduce(f64::min)
}

fn pin(cpu: usize) -> Option<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).ok()
}

/// Two threads hand a number to and fro.
fn once() -> Option<f64> {
    let line = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            pin(1)?;
            (0..TURNS).for_each(|turn| pass(&line, 2 * turn + 1));
            Some(())
        });
        let own = scope.spawn(|| {
            pin(0)?;
            let start = Instant::now();
            for turn in 0..TURNS {
                line.store(2 * turn + 1, Release);
                await_number(&line, 2 * turn + 2);
            }
            Some(start.elapsed().as_secs_f64() * 1e9 / f64::from(2 * TURNS))
        });
        let (own, other) = (own.join().ok()?, other.join().ok()?);
        other.and(own)
    })
}

fn pass(line: &AtomicU32, number: u32) {
    await_number(line, number);
    line.store(number + 1, Release);
}

fn await_number(line: &AtomicU32, number: u32) {
    let mut spins = 0_u32;
    while line.load(Acquire) != number {
        spins += 1;
        // The other CPU may be busy with somebody else.
        if spins.is_multiple_of(100_000) {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

//! Threads that share out the units of one operation after the other.
//!
//! Units are claimed, so that nobody waits for a thread that the system has put aside: only for one that is in the middle
//! of a claimed chunk. Waiting is a short spin and then sleep, for the threads and for whoever asked: two processes that
//! want the same cores take turns instead of spinning against each other.
#![expect(
    unsafe_code,
    reason = "a job is borrowed by threads that live longer than it, and given back before it ends"
)]

use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Looks at the ticket before a thread goes to sleep: some tens of microseconds, more than any pause inside of a step.
const SPINS: u32 = 1500;
/// Chunks per thread: small enough that the last one is not waited for long.
const CHUNKS: usize = 4;
/// Chunks of one job; their numbers have sixteen bits.
const CHUNKS_MAX: usize = u16::MAX as usize;

/// Computes some units.
type Job<'a> = dyn Fn(Range<usize>) + Sync + 'a;

/// On a cache line of its own.
#[repr(align(128))]
struct Apart<T>(T);

struct Shared {
    /// Number of the job (32 bits), its chunks (16), and the next chunk nobody claimed (16).
    ticket: Apart<AtomicU64>,
    done: Apart<AtomicU32>,
    /// Of the job of the ticket; written before it, read after a chunk of it was claimed.
    job: UnsafeCell<Option<(*const Job<'static>, usize)>>,
    sleepers: AtomicU32,
    /// Whoever asked sleeps until all chunks are done.
    waiting: AtomicBool,
    failed: AtomicBool,
    stop: AtomicBool,
    lock: Mutex<()>,
    begun: Condvar,
    ended: Condvar,
}

// SAFETY: `job` is written by the one that runs jobs while no chunk can be claimed, and read by threads that claimed one.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in it is only used as said above.
unsafe impl Send for Shared {}

/// The threads of a model; the caller is one more.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({})", self.threads.len() + 1)
    }
}

impl Pool {
    /// `threads` counts the caller.
    pub(crate) fn new(threads: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            ticket: Apart(AtomicU64::new(0)),
            done: Apart(AtomicU32::new(0)),
            job: UnsafeCell::new(None),
            sleepers: AtomicU32::new(0),
            waiting: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            lock: Mutex::new(()),
            begun: Condvar::new(),
            ended: Condvar::new(),
        });
        let mut pool = Pool { shared, threads: Vec::new() };
        for number in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new().name(format!("basert-{number}"));
            pool.threads.push(thread.spawn(move || shared.serve())?);
        }
        Ok(pool)
    }

    /// Runs `job` over `units`, in chunks of at least `least`, and returns when all are done.
    ///
    /// # Panics
    /// If the job did on any thread.
    pub(crate) fn run(&mut self, units: usize, least: usize, job: &Job<'_>) {
        let threads = self.threads.len() + 1;
        let size = units.div_ceil(threads * CHUNKS).max(least).max(units.div_ceil(CHUNKS_MAX));
        let chunks = units.div_ceil(size.max(1));
        if threads == 1 || chunks <= 1 {
            job(0..units);
            return;
        }
        let shared = &*self.shared;
        let erased = core::ptr::from_ref(job);
        // SAFETY: only the lifetime changes; `finish` below does not return before the last chunk is done, and no chunk of
        // this job can be claimed after that.
        let erased: *const Job<'static> = unsafe { core::mem::transmute(erased) };
        // SAFETY: all chunks of the job before are claimed and done, so nobody reads this now; `&mut self` keeps others out.
        unsafe { *shared.job.get() = Some((erased, units)) };
        shared.done.0.store(0, Relaxed);
        let number = (shared.ticket.0.load(Relaxed) >> 32) + 1;
        shared.ticket.0.store(number << 32 | (chunks as u64) << 16, SeqCst);
        if shared.sleepers.load(SeqCst) > 0 {
            let _guard = shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
            shared.begun.notify_all();
        }
        while shared.chunk() {}
        shared.finish(chunks as u32);
        if shared.failed.swap(false, AcqRel) {
            panic!("a kernel panicked on one of its threads");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        {
            let _guard = self.shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.begun.notify_all();
        }
        for thread in self.threads.drain(..) {
            // A thread catches what its jobs throw.
            let _ = thread.join();
        }
    }
}

/// Chunks of a ticket, and the next of them.
fn parts(ticket: u64) -> (u64, u64) {
    (ticket >> 16 & 0xffff, ticket & 0xffff)
}

impl Shared {
    fn open(&self) -> bool {
        let (chunks, next) = parts(self.ticket.0.load(SeqCst));
        next < chunks
    }

    /// Claims a chunk and computes it; false if there is none.
    fn chunk(&self) -> bool {
        let mut ticket = self.ticket.0.load(Acquire);
        let (chunks, next) = loop {
            let (chunks, next) = parts(ticket);
            if next >= chunks {
                return false;
            }
            match self.ticket.0.compare_exchange_weak(ticket, ticket + 1, AcqRel, Acquire) {
                Ok(_) => break (chunks, next),
                Err(now) => ticket = now,
            }
        };
        // SAFETY: the claimed chunk keeps the job from being replaced.
        let job = unsafe { *self.job.get() };
        if let Some((job, units)) = job {
            let size = units.div_ceil(chunks as usize);
            // Rounding up may leave the last chunks empty.
            let begin = (next as usize * size).min(units);
            let range = begin..((next as usize + 1) * size).min(units);
            // SAFETY: whoever gave it waits until this chunk is counted.
            let work = AssertUnwindSafe(|| unsafe { (*job)(range) });
            if let Err(payload) = catch_unwind(work) {
                // A payload may panic when it is dropped.
                core::mem::forget(payload);
                self.failed.store(true, Release);
            }
        }
        if u64::from(self.done.0.fetch_add(1, SeqCst)) + 1 == chunks && self.waiting.load(SeqCst) {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.ended.notify_all();
        }
        true
    }

    /// Waits for chunks that others claimed.
    fn finish(&self, chunks: u32) {
        for _ in 0..SPINS {
            if self.done.0.load(Acquire) == chunks {
                return;
            }
            core::hint::spin_loop();
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.store(true, SeqCst);
        while self.done.0.load(SeqCst) != chunks {
            guard = self.ended.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.store(false, SeqCst);
    }

    /// A thread's life.
    fn serve(&self) {
        let mut spins = 0;
        while !self.stop.load(Relaxed) {
            if self.chunk() {
                spins = 0;
            } else if spins < SPINS {
                spins += 1;
                core::hint::spin_loop();
            } else {
                self.sleep();
                spins = 0;
            }
        }
    }

    fn sleep(&self) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, SeqCst);
        while !self.open() && !self.stop.load(SeqCst) {
            guard = self.begun.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_computed_once() {
        for threads in [1, 2, 5] {
            let mut pool = Pool::new(threads).unwrap();
            for units in [0, 1, 2, 7, 100, 4099] {
                for least in [1, 3, 64] {
                    let counts: Vec<AtomicU32> = (0..units).map(|_| AtomicU32::new(0)).collect();
                    pool.run(units, least, &|range| {
                        range.for_each(|unit| _ = counts[unit].fetch_add(1, Relaxed));
                    });
                    assert!(counts.iter().all(|count| count.load(Relaxed) == 1), "{threads} {units} {least}");
                }
            }
        }
    }

    #[test]
    fn a_job_that_panics_is_reported_and_the_pool_goes_on() {
        let mut pool = Pool::new(3).unwrap();
        let failing = catch_unwind(AssertUnwindSafe(|| {
            pool.run(64, 1, &|range| assert!(!range.contains(&63), "as planned"));
        }));
        assert!(failing.is_err());
        let sum = AtomicU64::new(0);
        pool.run(64, 1, &|range| range.for_each(|unit| _ = sum.fetch_add(unit as u64, Relaxed)));
        assert_eq!(sum.into_inner(), 63 * 64 / 2);
    }
}

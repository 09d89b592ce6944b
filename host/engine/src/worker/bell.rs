//! A word in shared memory that one process rings and another waits for: first by spinning, then by futex.
//!
//! Only one side rings a bell; it may ring several times before the other looks. The system call to wake is made only when the other side sleeps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;

/// How long a waiter looks at the word before it sleeps. A wake by futex costs 20 to 60 µs on a small machine, one seen
/// while spinning under 2 µs; spinning longer than a wake costs gains nothing.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// Waits that may end after their spin before spinning stops. The other side is slow then, or it needs the very
/// processor on which this side spins.
const CREDIT_MAX: u8 = 4;
/// Waits without a spin before the next attempt.
const REST: u8 = 200;
/// Looks at the word between two looks at the clock.
const LOOKS: u32 = 24;

/// Set when the ringing side is gone.
const CLOSED: u32 = 1 << 31;

/// One bell. Lives in shared memory at an offset that is a multiple of 64.
#[repr(C, align(64))]
pub(crate) struct Bell {
    /// Grows by one per ring, modulo 2^31; the top bit is `CLOSED`.
    seq: AtomicU32,
    sleepers: AtomicU32,
}

/// What a wait is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The number taken last.
    pub(crate) after: u32,
    /// How many rings may have come since; more are nonsense.
    pub(crate) most: u32,
    /// When to give up.
    pub(crate) deadline: Option<Instant>,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// The bell rang at least once.
    Rung,
    /// The ringing side is gone.
    Closed,
    /// The deadline passed.
    Late,
    /// The word has a value that the ringing side never stores.
    Foreign(u32),
}

/// The number that follows `seq`.
pub(crate) fn next(seq: u32) -> u32 {
    seq.wrapping_add(1) & !CLOSED
}

impl Bell {
    /// Announces number `seq` to the other side.
    pub(crate) fn ring(&self, seq: u32) {
        // SeqCst on both words: either this side sees the sleeper, or the sleeper sees the number.
        self.seq.store(seq, Ordering::SeqCst);
        self.wake();
    }

    /// Marks the bell for good, whatever was rung before.
    pub(crate) fn close(&self) {
        self.seq.fetch_or(CLOSED, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            // Not private: the sleeper is another process. The call cannot fail for a mapped, aligned word.
            let _ = futex::wake(&self.seq, futex::Flags::empty(), 1);
        }
    }

    /// `None` while nothing came after `old`. At most `most` rings may have come.
    pub(crate) fn look(&self, old: u32, most: u32) -> Option<Wake> {
        let seq = self.seq.load(Ordering::Acquire);
        let rings = seq.wrapping_sub(old) & !CLOSED;
        match (rings, seq & CLOSED != 0) {
            (0, false) => None,
            // What was rung before the end is still there to be taken.
            (rings, _) if rings > 0 && rings <= most => Some(Wake::Rung),
            (_, true) => Some(Wake::Closed),
            (_, false) => Some(Wake::Foreign(seq)),
        }
    }
}

/// The waiting side's memory of whether spinning pays.
#[derive(Debug)]
pub(crate) struct Waiter {
    credit: u8,
    rest: u8,
    spins: bool,
}

impl Waiter {
    /// Spins at first, unless there is one processor only: the other side could not run meanwhile.
    pub(crate) fn new() -> Self {
        Waiter::that(std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1))
    }

    fn that(spins: bool) -> Self {
        Waiter { credit: CREDIT_MAX, rest: 0, spins }
    }

    /// Waits for a ring.
    pub(crate) fn wait(&mut self, bell: &Bell, wanted: Wanted) -> Wake {
        bell.look(wanted.after, wanted.most)
            .or_else(|| self.spin(bell, wanted))
            .unwrap_or_else(|| sleep(bell, wanted))
    }

    fn spin(&mut self, bell: &Bell, wanted: Wanted) -> Option<Wake> {
        if !self.spins {
            return None;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let wake = spin(bell, wanted);
        self.credit = match wake {
            Some(_) => CREDIT_MAX.min(self.credit + 1),
            None => self.credit.saturating_sub(1),
        };
        if self.credit == 0 {
            self.rest = REST;
        }
        wake
    }
}

fn spin(bell: &Bell, wanted: Wanted) -> Option<Wake> {
    let started = Instant::now();
    while started.elapsed() < SPIN_MAX {
        for _ in 0..LOOKS {
            if let Some(wake) = bell.look(wanted.after, wanted.most) {
                return Some(wake);
            }
            std::hint::spin_loop();
        }
    }
    None
}

fn sleep(bell: &Bell, wanted: Wanted) -> Wake {
    let Wanted { after, most, deadline } = wanted;
    bell.sleepers.store(1, Ordering::SeqCst);
    let wake = loop {
        if bell.seq.load(Ordering::SeqCst) != after
            && let Some(wake) = bell.look(after, most)
        {
            break wake;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            break Wake::Late;
        }
        let left = left.map(|left| left.try_into().expect("a wait is shorter than 2^63 seconds"));
        // Every way to return (woken, the word has changed, interrupted, late) leads to another look.
        let _ = futex::wait(&bell.seq, futex::Flags::empty(), after, left.as_ref());
    };
    bell.sleepers.store(0, Ordering::SeqCst);
    wake
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bell() -> Bell {
        Bell { seq: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
    }

    /// Exactly one more ring, however long it takes.
    fn one(after: u32) -> Wanted {
        Wanted { after, most: 1, deadline: None }
    }

    #[test]
    fn every_ring_reaches_a_waiter_that_spins_or_sleeps() {
        const ROUNDS: u32 = 3000;
        for spins in [true, false] {
            let (ping, pong) = (bell(), bell());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut waiter = Waiter::that(spins);
                    for seq in 0..ROUNDS {
                        assert_eq!(waiter.wait(&ping, one(seq)), Wake::Rung);
                        pong.ring(next(seq));
                    }
                });
                let mut waiter = Waiter::that(spins);
                for seq in 0..ROUNDS {
                    ping.ring(next(seq));
                    assert_eq!(waiter.wait(&pong, one(seq)), Wake::Rung);
                }
            });
        }
    }

    #[test]
    fn what_stands_in_the_word_decides() {
        let check = |word: u32, after: u32, most: u32, expect: Wake| {
            let bell = bell();
            bell.seq.store(word, Ordering::Relaxed);
            let wanted = Wanted { after, most, deadline: Some(Instant::now()) };
            assert_eq!(Waiter::new().wait(&bell, wanted), expect, "{word} after {after}, at most {most}");
        };
        check(5, 5, 1, Wake::Late);
        check(6, 5, 1, Wake::Rung);
        check(6 | CLOSED, 5, 1, Wake::Rung);
        check(5 | CLOSED, 5, 1, Wake::Closed);
        check(9, 5, 1, Wake::Foreign(9));
        check(9, 5, 4, Wake::Rung);
        check(9 | CLOSED, 5, 4, Wake::Rung);
        check(9 | CLOSED, 5, 3, Wake::Closed);
        check(4, 5, 32, Wake::Foreign(4));
        check(0, CLOSED - 1, 1, Wake::Rung);
        check(2, CLOSED - 2, 4, Wake::Rung);
        check(3, CLOSED - 2, 4, Wake::Foreign(3));
    }

    #[test]
    fn closing_wakes_a_sleeper() {
        let bell = bell();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| Waiter::that(false).wait(&bell, one(0)));
            bell.close();
            assert_eq!(waiter.join().unwrap(), Wake::Closed);
        });
    }

    #[test]
    fn waits_that_outlast_the_spin_turn_it_off_until_an_attempt_succeeds() {
        let (mut waiter, bell) = (Waiter::that(true), bell());
        for _ in 0..CREDIT_MAX {
            assert_eq!(waiter.spin(&bell, one(0)), None);
        }
        bell.ring(1);
        for _ in 0..REST {
            assert_eq!(waiter.spin(&bell, one(0)), None, "it does not even look");
        }
        assert_eq!(waiter.spin(&bell, one(0)), Some(Wake::Rung), "an attempt");
        assert_eq!(waiter.spin(&bell, one(0)), Some(Wake::Rung), "and on");
    }
}

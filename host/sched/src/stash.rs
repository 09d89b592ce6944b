//! Copies of evicted prefixes in the engine's host memory, and whether making and using them pays.

use sf_core::{Direction, LaneId, LaneOp, Move, StashKey, StepPlan, Token};

use crate::job::common;

/// Fewest positions worth a copy.
pub(crate) const STASH_POSITIONS_MIN: u32 = 64;
/// Copies at most: each is compared with every prompt that is admitted.
const COPIES_MAX: usize = 256;
/// Copies in a row that nobody took back, after which only some are made: they may all be in vain.
const UNUSED_MAX: u32 = 32;
/// One of so many is still made then.
const UNUSED_EVERY: u32 = 8;
/// Copies that failed in a row after which none is tried any more.
const FAILURES_MAX: u32 = 3;

#[derive(Debug)]
struct Copy {
    key: StashKey,
    /// Where it was made from.
    lane: LaneId,
    tokens: Vec<Token>,
    /// As expected until it is made.
    bytes: u64,
    ready: bool,
    stamp: u64,
}

/// The copies of one engine.
#[derive(Debug, Default)]
pub(crate) struct Stash {
    bytes_max: u64,
    copies: Vec<Copy>,
    /// Of `copies`.
    bytes: u64,
    next_key: u64,
    /// In a row.
    failures: u32,
    /// Copies worth making since one was taken back.
    unused: u32,
    /// Not to be dropped now.
    locked: Option<StashKey>,
    /// Lanes whose copying failed in the tick in flight.
    failed: Vec<LaneId>,
    /// Nanoseconds per 1024 positions, out and back in; 0 = unknown.
    out_ns: u64,
    back_ns: u64,
    /// Bytes per 1024 positions; 0 = unknown.
    size: u64,
    /// To be dropped by the next plan, and their bytes.
    forgets: Vec<StashKey>,
    doomed: u64,
    pub(crate) stashes: u64,
    pub(crate) restores: u64,
}

/// A copy that begins like a prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) key: StashKey,
    /// Positions of the copy.
    pub(crate) positions: u32,
    /// Positions that agree.
    pub(crate) len: u32,
}

impl Stash {
    /// Another engine, which has no copies; `bytes_max` 0 = it shall get none.
    pub(crate) fn reset(&mut self, bytes_max: u64) {
        self.copies.clear();
        self.forgets.clear();
        self.failed.clear();
        (self.bytes, self.doomed, self.bytes_max, self.failures) = (0, 0, bytes_max, 0);
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.doomed
    }

    /// Drops what was given up since the last plan.
    pub(crate) fn flush(&mut self, plan: &mut StepPlan) {
        plan.ops.extend(self.forgets.drain(..).map(|key| LaneOp::Forget { key }));
        self.doomed = 0;
    }

    /// Whether a copy of so many positions pays when a prompt token takes `prompt_ns`.
    fn pays(&self, positions: u32, prompt_ns: Option<u64>) -> bool {
        if positions < STASH_POSITIONS_MIN || self.failures >= FAILURES_MAX {
            return false;
        }
        // Until one was measured, one is worth trying: the two directions cost about the same.
        let back = if self.back_ns > 0 { self.back_ns } else { self.out_ns };
        match prompt_ns {
            Some(prompt_ns) if back > 0 => back < prompt_ns.saturating_mul(1024),
            _ => true,
        }
    }

    /// Whether a copy of so many positions is worth a look at their tokens.
    pub(crate) fn wants(&self, positions: u32, prompt_ns: Option<u64>) -> bool {
        self.bytes_max > 0 && self.pays(positions, prompt_ns)
    }

    /// Copies an idle lane that is about to be closed, if that pays.
    pub(crate) fn keep(&mut self, lane: LaneId, tokens: Vec<Token>, pace: Option<u64>, plan: &mut StepPlan) {
        let positions = tokens.len() as u32;
        if !self.wants(positions, pace) {
            return;
        }
        // With nothing measured yet one copy is in the making at most, so that its size is known before the next.
        if self.size == 0 && self.copies.iter().any(|copy| !copy.ready) {
            return;
        }
        self.unused = self.unused.saturating_add(1);
        if self.unused > UNUSED_MAX && !self.unused.is_multiple_of(UNUSED_EVERY) {
            return;
        }
        let bytes = self.size.saturating_mul(u64::from(positions)) / 1024;
        if bytes > self.bytes_max {
            return;
        }
        if let Some(copy) = self.copies.iter_mut().find(|copy| common(&copy.tokens, &tokens) == positions) {
            self.next_key += 1;
            copy.stamp = self.next_key;
            return;
        }
        self.shrink(self.bytes_max - bytes, COPIES_MAX - 1);
        self.flush(plan);
        if self.bytes + bytes > self.bytes_max {
            return;
        }
        self.next_key += 1;
        let key = StashKey(self.next_key);
        plan.ops.push(LaneOp::Stash { lane, upto: positions, key });
        self.copies.push(Copy { key, lane, tokens, bytes, ready: false, stamp: key.0 });
        self.bytes += bytes;
    }

    /// The copy that agrees longest with `tokens`, if taking it back pays. `whole` accepts only copies that agree in all
    /// of their positions.
    pub(crate) fn best(&self, tokens: &[Token], whole: bool, prompt_ns: Option<u64>) -> Option<Found> {
        let mut best: Option<Found> = None;
        for copy in self.copies.iter().filter(|copy| copy.ready) {
            let positions = copy.tokens.len() as u32;
            let len = common(&copy.tokens, tokens);
            let better = best.is_none_or(|best| len > best.len);
            if better && (len == positions || !whole) && self.worth(len, positions, prompt_ns) {
                best = Some(Found { key: copy.key, positions, len });
            }
        }
        best
    }

    /// Whether moving `positions` costs less than computing `len` of them.
    fn worth(&self, len: u32, positions: u32, prompt_ns: Option<u64>) -> bool {
        if len < STASH_POSITIONS_MIN || !self.pays(positions, prompt_ns) {
            return false;
        }
        let back = if self.back_ns > 0 { self.back_ns } else { self.out_ns };
        prompt_ns.is_none_or(|ns| {
            u64::from(positions).saturating_mul(back) / 1024 <= u64::from(len).saturating_mul(ns)
        })
    }

    /// A copy is about to be used: it is not dropped until [`Stash::unlock`].
    pub(crate) fn lock(&mut self, key: StashKey) {
        self.next_key += 1;
        let stamp = self.next_key;
        if let Some(copy) = self.copies.iter_mut().find(|copy| copy.key == key) {
            copy.stamp = stamp;
        }
        self.locked = Some(key);
    }

    /// Ends [`Stash::lock`].
    pub(crate) fn unlock(&mut self) {
        self.locked = None;
    }

    /// Whether a fault of `lane` is that of making a copy of it; each is asked for once.
    pub(crate) fn is_to_blame(&mut self, lane: LaneId) -> bool {
        let at = self.failed.iter().position(|failed| *failed == lane);
        at.map(|at| self.failed.swap_remove(at)).is_some()
    }

    /// Taking a copy back failed: nobody tries it again.
    pub(crate) fn spoil(&mut self, key: StashKey) {
        self.failures += 1;
        self.drop_if(|copy| copy.key == key);
    }

    /// Takes what the first step of a tick says about its moves; a copy in the making without a word has failed.
    pub(crate) fn settle(&mut self, moves: &[Move]) {
        for done in moves {
            self.moved(done);
        }
        self.failed.clear();
        self.failed.extend(self.copies.iter().filter(|copy| !copy.ready).map(|copy| copy.lane));
        if self.copies.iter().any(|copy| !copy.ready) {
            self.failures += 1;
            self.drop_if(|copy| !copy.ready);
        }
        self.shrink(self.bytes_max, COPIES_MAX);
    }

    fn moved(&mut self, done: &Move) {
        self.failures = 0;
        let positions = u64::from(done.positions.max(1));
        let per = |amount: u64| (amount.saturating_mul(1024) / positions).max(1);
        let mean = match done.direction {
            Direction::Stashed => &mut self.out_ns,
            Direction::Restored => &mut self.back_ns,
        };
        let sample = per(done.took_ns);
        *mean = if *mean == 0 { sample } else { *mean - *mean / 4 + sample / 4 };
        self.size = per(done.bytes);
        match done.direction {
            Direction::Restored => {
                self.restores += 1;
                self.unused = 0;
            }
            Direction::Stashed => {
                self.stashes += 1;
                self.made(done);
            }
        }
    }

    /// A copy is there; those of its beginning are of no use any more.
    fn made(&mut self, done: &Move) {
        let Some(copy) = self.copies.iter_mut().find(|copy| copy.key == done.key) else { return };
        self.bytes = self.bytes - copy.bytes + done.bytes;
        (copy.bytes, copy.ready) = (done.bytes, true);
        let tokens = std::mem::take(&mut copy.tokens);
        self.drop_if(|copy| copy.ready && copy.key != done.key && tokens.starts_with(&copy.tokens));
        if let Some(copy) = self.copies.iter_mut().find(|copy| copy.key == done.key) {
            copy.tokens = tokens;
        }
    }

    /// Drops the least recently used copies beyond the bounds.
    fn shrink(&mut self, bytes_max: u64, count_max: usize) {
        while self.bytes > bytes_max || self.copies.len() > count_max {
            let free = self.copies.iter().filter(|copy| copy.ready && Some(copy.key) != self.locked);
            let oldest = free.min_by_key(|copy| copy.stamp);
            let Some(key) = oldest.map(|copy| copy.key) else { return };
            self.drop_if(|copy| copy.key == key);
        }
    }

    /// Drops all.
    pub(crate) fn clear(&mut self) {
        self.drop_if(|copy| copy.ready);
    }

    fn drop_if(&mut self, gone: impl Fn(&Copy) -> bool) {
        let (forgets, bytes, doomed) = (&mut self.forgets, &mut self.bytes, &mut self.doomed);
        let locked = self.locked;
        self.copies.retain(|copy| {
            let gone = Some(copy.key) != locked && gone(copy);
            if gone {
                forgets.push(copy.key);
                *bytes -= copy.bytes;
                *doomed += copy.bytes;
            }
            !gone
        });
    }
}

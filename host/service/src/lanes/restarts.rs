//! How often an engine may die without having done anything in between, and how long to wait before the next one.

use std::time::Duration;

use sf_core::limits::{RESTART_PAUSE_MAX, RESTART_PAUSE_MIN, RESTART_TOKENS_MIN, RESTARTS_MAX};

/// Deaths in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Restarts {
    in_a_row: u32,
    /// Tokens drawn and answers finished when the engine was opened.
    at_opening: (u64, u64),
}

impl Restarts {
    /// An engine was opened when so much had been done.
    pub(super) fn opened(&mut self, tokens: u64, finished: u64) {
        self.at_opening = (tokens, finished);
    }

    /// It died when so much had been done. The pause before the next attempt; `None` = that was one death too many.
    pub(super) fn died(&mut self, tokens: u64, finished: u64) -> Option<Duration> {
        let (tokens_before, finished_before) = self.at_opening;
        if finished > finished_before || tokens - tokens_before >= RESTART_TOKENS_MIN {
            self.in_a_row = 0;
        }
        self.at_opening = (tokens, finished);
        self.failed()
    }

    /// An attempt to open one failed.
    pub(super) fn failed(&mut self) -> Option<Duration> {
        self.in_a_row += 1;
        let doublings = (self.in_a_row - 1).min(16);
        let pause = (RESTART_PAUSE_MIN * (1 << doublings)).min(RESTART_PAUSE_MAX);
        (self.in_a_row <= RESTARTS_MAX).then_some(pause)
    }

    /// Which attempt in a row the next one is.
    pub(super) fn attempt(&self) -> u32 {
        self.in_a_row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_without_work_in_between_are_bounded_and_their_pauses_grow() {
        let mut restarts = Restarts::default();
        restarts.opened(0, 0);
        let pauses: Vec<_> = (0..RESTARTS_MAX).map(|_| restarts.died(0, 0).unwrap()).collect();
        assert!(pauses.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(restarts.died(RESTART_TOKENS_MIN - 1, 0), None);
        // Loaded on request afterwards, it gets one chance.
        assert_eq!(restarts.died(RESTART_TOKENS_MIN - 1, 0), None);
    }

    #[test]
    fn an_engine_that_did_something_may_die() {
        let mut restarts = Restarts::default();
        restarts.opened(0, 0);
        for death in 1..100 {
            assert_eq!(restarts.died(death * RESTART_TOKENS_MIN, 0), Some(RESTART_PAUSE_MIN));
        }
        for death in 1..100 {
            assert_eq!(restarts.died(99 * RESTART_TOKENS_MIN, death), Some(RESTART_PAUSE_MIN));
        }
    }
}

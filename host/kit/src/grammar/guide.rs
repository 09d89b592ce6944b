//! Follows one answer through its grammar and says which tokens may come next.

use std::time::{Duration, Instant};

use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;
use sf_core::Token;

/// One lane's place in its grammar.
pub(crate) struct Guide {
    /// The grammar's first state, to begin again from.
    start: Matcher,
    here: Matcher,
    /// Generated tokens that `here` and `ahead` are behind.
    taken: usize,
    /// Generated tokens that were handed over and not followed yet.
    ahead: Vec<u32>,
    mask: Result<SimpleVob, String>,
    /// Time that the last mask took.
    took: Duration,
}

impl std::fmt::Debug for Guide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guide").field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl Guide {
    /// In a grammar's first state.
    pub(super) fn new(start: Matcher) -> Guide {
        let here = start.clone();
        let mask = Err("no mask was computed yet".to_owned());
        Guide { start, here, taken: 0, ahead: Vec::new(), mask, took: Duration::ZERO }
    }

    /// Takes over what was generated: `held` is in the lane, `run` comes next. What was cut from the lane since is
    /// forgotten.
    pub(crate) fn follow(&mut self, held: &[u32], run: &[Token]) {
        if self.taken > held.len() {
            self.here = self.start.clone();
            self.taken = 0;
        }
        self.ahead.clear();
        self.ahead.extend_from_slice(&held[self.taken..]);
        self.ahead.extend(run.iter().map(|token| token.0));
        self.taken += self.ahead.len();
    }

    /// Computes which tokens may follow.
    pub(super) fn compute(&mut self) {
        let begun = Instant::now();
        let (here, ahead) = (&mut self.here, &mut self.ahead);
        let line = |error: &dyn std::fmt::Display| super::one_line(&error.to_string());
        self.mask = match here.consume_tokens(ahead) {
            Err(error) => Err(format!("the answer left its grammar behind: {} (grammar.lost)", line(&error))),
            Ok(()) => here.compute_mask_or_eos().map_err(|error| {
                format!("the grammar is too complex to go on with: {} (grammar.limit)", line(&error))
            }),
        };
        ahead.clear();
        self.took = begun.elapsed();
    }

    /// One bit per token, set where it may follow; or why nobody knows.
    pub(crate) fn mask(&self) -> Result<&[u32], &str> {
        self.mask.as_ref().map(SimpleVob::as_slice).map_err(String::as_str)
    }

    /// Time that the last mask took.
    pub(super) fn took(&self) -> Duration {
        self.took
    }
}

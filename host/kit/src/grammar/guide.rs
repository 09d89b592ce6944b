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
    /// Which tokens may come next, once computed, or why nobody knows.
    mask: Option<Result<SimpleVob, String>>,
    /// Whether the last token was not what would have been drawn without a grammar.
    strays: bool,
    /// Time spent since it was asked for last.
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
        // Hardly any model opens a form by itself.
        Guide { start, here, taken: 0, ahead: Vec::new(), mask: None, strays: true, took: Duration::ZERO }
    }

    /// Takes over what was generated: `held` is in the lane, `run` comes next. What was cut from the lane since is
    /// forgotten.
    pub(crate) fn follow(&mut self, held: &[u32], run: &[Token]) {
        if self.taken > held.len() {
            self.here = self.start.clone();
            self.taken = 0;
        }
        self.mask = None;
        self.ahead.clear();
        self.ahead.extend_from_slice(&held[self.taken..]);
        self.ahead.extend(run.iter().map(|token| token.0));
        self.taken += self.ahead.len();
    }

    /// Computes which tokens may follow, if nobody did yet.
    pub(crate) fn compute(&mut self) {
        if self.mask.is_some() {
            return;
        }
        let begun = Instant::now();
        let caught_up = self.catch_up();
        self.mask = Some(caught_up.and_then(|()| {
            self.here.compute_mask_or_eos().map_err(|error| {
                format!("the grammar is too complex to go on with: {} (grammar.limit)", line(&error))
            })
        }));
        self.took += begun.elapsed();
    }

    /// Whether a token may follow: from the mask where there is one, else without one, which costs far less. A token that
    /// stands for no text is told by a mask only, and `false` without one.
    pub(crate) fn allows(&mut self, token: Token) -> bool {
        if let Some(mask) = &self.mask {
            return mask.as_ref().is_ok_and(|mask| token.0 < mask.len() as u32 && mask.is_allowed(token.0));
        }
        let begun = Instant::now();
        let known = self.here.tok_env().is_ok_and(|env| {
            let tree = env.tok_trie();
            tree.eos_tokens().contains(&token.0)
                || (token.0 < tree.vocab_size() as u32 && !tree.token(token.0).is_empty())
        });
        let allowed = match self.catch_up() {
            Ok(()) => known && self.here.validate_tokens(&[token.0]).is_ok_and(|valid| valid == 1),
            Err(error) => {
                self.mask = Some(Err(error));
                false
            }
        };
        self.took += begun.elapsed();
        allowed
    }

    /// Follows what was handed over.
    fn catch_up(&mut self) -> Result<(), String> {
        let followed = self.here.consume_tokens(&self.ahead);
        self.ahead.clear();
        followed
            .map_err(|error| format!("the answer left its grammar behind: {} (grammar.lost)", line(&error)))
    }

    /// One bit per token, set where it may follow; or why nobody knows.
    pub(crate) fn mask(&self) -> Result<&[u32], &str> {
        match &self.mask {
            Some(mask) => mask.as_ref().map(SimpleVob::as_slice).map_err(String::as_str),
            None => Err("no mask was computed yet"),
        }
    }

    /// Notes whether the grammar changed what was drawn. Then it is likely to do so again.
    pub(crate) fn note(&mut self, strays: bool) {
        self.strays = strays;
    }

    /// Whether a mask will likely be needed.
    pub(crate) fn strays(&self) -> bool {
        self.strays
    }

    /// Time spent since this was asked for last.
    pub(crate) fn take_time(&mut self) -> Duration {
        std::mem::take(&mut self.took)
    }
}

fn line(error: &dyn std::fmt::Display) -> String {
    super::one_line(&error.to_string())
}

/// One answer that keeps to a grammar, token by token, for whoever wants to know what a grammar lets through.
#[derive(Debug)]
pub struct Walk {
    guide: Guide,
    taken: Vec<u32>,
    took: Duration,
}

impl Walk {
    pub(super) fn new(guide: Guide) -> Walk {
        Walk { guide, taken: Vec::new(), took: Duration::ZERO }
    }

    /// Tokens that may come next.
    ///
    /// # Errors
    /// Why nobody knows: a token was taken that the grammar does not allow, or it is too complex to go on with.
    pub fn allowed(&mut self) -> Result<Vec<Token>, String> {
        self.guide.follow(&self.taken, &[]);
        self.guide.compute();
        self.took = self.guide.take_time();
        let mask = self.guide.mask().map_err(str::to_owned)?;
        let bits = mask.iter().zip(0_u32..).flat_map(|(word, at)| {
            (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| Token(at * 32 + bit))
        });
        Ok(bits.collect())
    }

    /// Goes on with a token.
    pub fn take(&mut self, token: Token) {
        self.taken.push(token.0);
    }

    /// Time that computing the last answer of [`Walk::allowed`] took, without making a list of it.
    pub fn took(&self) -> Duration {
        self.took
    }
}

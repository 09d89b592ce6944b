//! Scores a token that was given instead of drawn: its log-probability in a row of logits, as a drawn one has it.

use sf_core::{Sampled, Token};

use super::{Logits, Sampler};

impl Sampler {
    /// The log-probability of `token` under the unmodified row, and the `count` likeliest tokens with theirs; negative
    /// infinity for a token outside the row. `room` is reused for [`Sampled::top`].
    pub fn score(
        &mut self,
        logits: Logits<'_>,
        token: Token,
        count: u32,
        room: Vec<(Token, f32)>,
    ) -> Sampled {
        let mut top = room;
        top.clear();
        let row = logits.widen(&mut self.wide);
        let logprob = if (token.0 as usize) < row.len() {
            self.drawer.logprobs(row, token.0, count, &mut top)
        } else {
            f32::NEG_INFINITY
        };
        Sampled { token, logprob: Some(logprob), top }
    }
}

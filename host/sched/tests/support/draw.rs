//! What the model says: the next token is a digest of everything in the lane, the seed and where the prompt ends.

use sf_core::{FinishReason, LaneSpec, Token};
use sf_sched::Admission;

use super::chance::mix;

/// Size of the vocabulary; end tokens are the first ones.
pub(crate) const VOCAB: u64 = 1000;
/// Digest of an empty lane.
pub(crate) const EMPTY: u64 = 0x5eed;

/// Digest of a lane after one token more.
pub(crate) fn digest(before: u64, token: Token) -> u64 {
    mix(before, u64::from(token.0))
}

/// The token that follows `len` tokens with that digest. Depends on the whole of what a lane must be told, so that a lane
/// opened with another request's end tokens or prompt length says something else.
pub(crate) fn draw(digest: u64, len: usize, spec: &LaneSpec) -> Token {
    let ends = spec.ends.iter().fold(1, |all, token| mix(all, u64::from(token.0)));
    let told = mix(mix(spec.sampler.seed, u64::from(spec.prompt_len)), ends);
    Token((mix(mix(digest, len as u64), told) % VOCAB) as u32)
}

/// What a request gets when nobody else is there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Alone {
    /// The tokens it reports.
    pub(crate) tokens: Vec<Token>,
    /// Tokens drawn, an end-of-text token included.
    pub(crate) drawn: u32,
    /// Why it ends.
    pub(crate) reason: FinishReason,
}

/// Answers a request without any scheduler.
pub(crate) fn alone(admission: &Admission) -> Alone {
    let spec = LaneSpec {
        sampler: admission.sampler.clone(),
        ends: admission.stop.end_tokens.clone(),
        prompt_len: admission.prompt.len() as u32,
    };
    let mut all = admission.prompt.iter().fold(EMPTY, |all, token| digest(all, *token));
    let mut len = admission.prompt.len();
    let mut alone = Alone { tokens: Vec::new(), drawn: 0, reason: FinishReason::Length };
    loop {
        let token = draw(all, len, &spec);
        alone.drawn += 1;
        if spec.ends.contains(&token) {
            alone.reason = FinishReason::Stop;
            return alone;
        }
        alone.tokens.push(token);
        if alone.drawn >= admission.stop.tokens_max || len >= admission.stop.positions_max as usize {
            return alone;
        }
        all = digest(all, token);
        len += 1;
    }
}

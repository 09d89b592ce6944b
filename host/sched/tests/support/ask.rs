//! Requests for tests: their prompts, and defaults for everything a test does not care about.

use std::sync::Arc;

use sf_core::{QosClass, RequestId, SamplerSpec, Token};
use sf_sched::{Admission, Stop};

use super::chance::mix;

/// Where prompts start to differ from each other; no two requests share a token by chance alone for long.
fn token(of: u64, at: u32) -> Token {
    Token((mix(of, u64::from(at)) % 50_000) as u32 + 2000)
}

/// `shared` tokens that everybody with the same `prefix` has, then `own` tokens of this request.
pub(crate) fn prompt(prefix: u64, shared: u32, request: u64, own: u32) -> Vec<Token> {
    let common = (0..shared).map(|at| token(mix(7, prefix), at));
    common.chain((0..own).map(|at| token(mix(11, request), at))).collect()
}

/// An agent request with its own prompt of `tokens` tokens and a reply of exactly `reply`. Its seed is its number: that is
/// how the model engine knows whose lane it works on.
pub(crate) fn ask(request: u64, tokens: u32, reply: u32) -> Admission {
    with_prompt(request, prompt(0, 0, request, tokens), reply)
}

/// [`ask`] of a class.
pub(crate) fn ask_as(class: QosClass, request: u64, tokens: u32, reply: u32) -> Admission {
    Admission { class, ..ask(request, tokens, reply) }
}

/// [`ask`] whose first `shared` tokens everybody with the same `prefix` has.
pub(crate) fn ask_shared(prefix: u64, shared: u32, request: u64, own: u32) -> Admission {
    with_prompt(request, prompt(prefix, shared, request, own), 8)
}

/// [`ask`] with a given prompt.
pub(crate) fn with_prompt(request: u64, prompt: Vec<Token>, reply: u32) -> Admission {
    Admission {
        request: RequestId(request),
        prompt,
        sampler: SamplerSpec { seed: request, ..SamplerSpec::default() },
        stop: Stop { end_tokens: Arc::from([]), tokens_max: reply, positions_max: u32::MAX },
        class: QosClass::Agent,
        party: 0,
        deadline: None,
        reuse: true,
        pin: None,
    }
}

//! How the next token is chosen: what a request asks for, and the resolved parameters of one lane.

use crate::grammar::Grammar;
use crate::ids::Token;

/// Sampling fields of a request; `None` = not given. Resolved against the operator's flags and the model's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingParams {
    /// `[0, 2]`; 0 = greedy.
    pub temperature: Option<f32>,
    /// `(0, 1]`.
    pub top_p: Option<f32>,
    /// 0 = off.
    pub top_k: Option<u32>,
    /// `[0, 1]`.
    pub min_p: Option<f32>,
    /// `(0, 2]`; 1 = off.
    pub repeat_penalty: Option<f32>,
    /// `[-2, 2]`; 0 = off.
    pub presence_penalty: Option<f32>,
    /// `[-2, 2]`; 0 = off.
    pub frequency_penalty: Option<f32>,
    /// Absent = drawn at random for this request.
    pub seed: Option<u64>,
    /// Added to a token's logit before anything else, `[-100, 100]`.
    pub bias: Vec<(Token, f32)>,
}

/// Resolved parameters of one lane. The draw at a position depends on `(seed, position)` only.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerSpec {
    /// 0 = greedy: the largest logit, the lowest token id among equals.
    pub temperature: f32,
    /// 0 = off.
    pub top_k: u32,
    /// 1 = off.
    pub top_p: f32,
    /// 0 = off.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in the last `penalty_last_n`; 1 = off.
    pub repeat_penalty: f32,
    /// Subtracted once from tokens that were generated; 0 = off.
    pub presence_penalty: f32,
    /// Subtracted per occurrence from tokens that were generated; 0 = off.
    pub frequency_penalty: f32,
    /// Tokens of the lane (prompt included) that `repeat_penalty` looks back on.
    pub penalty_last_n: u32,
    /// Key of the Philox 4x32-10 stream.
    pub seed: u64,
    /// Added to logits before anything else.
    pub bias: Vec<(Token, f32)>,
    /// `Some(n)`: report the chosen token's log-probability and the `n` likeliest.
    pub logprobs: Option<u32>,
    /// Report the log-probability of every prompt token but the first as well; needs `logprobs`.
    pub scores_prompt: bool,
    /// Generated tokens before which none that ends the request is drawn; 0 = off.
    pub min_tokens: u32,
    /// The form of the generated text.
    pub grammar: Option<Grammar>,
}

impl Default for SamplerSpec {
    /// Greedy, everything off.
    fn default() -> Self {
        SamplerSpec {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 64,
            seed: 0,
            bias: Vec::new(),
            logprobs: None,
            scores_prompt: false,
            min_tokens: 0,
            grammar: None,
        }
    }
}

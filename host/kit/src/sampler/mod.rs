//! Chooses a token from a row of logits.
//!
//! The order, each part of which a test repeats against a plain reference:
//! 1. bias; 2. repeat penalty over the last `penalty_last_n` tokens, prompt included; 3. frequency and presence penalty
//!    over the generated tokens;
//! 4. temperature 0: the largest logit, the lowest id among equals; NaN and negative infinity are never chosen;
//! 5. else top-k, then top-p over what top-k left, then min-p relative to the likeliest: all on the distribution at
//!    temperature 1, as llama.cpp's default chain has them;
//! 6. the temperature over what is left;
//! 7. the draw: the first token **in order of ids** at which the cumulated weight exceeds `u` times the total, with `u`
//!    from [`philox::uniform`] of the lane's seed and the drawn token's position.
//!
//! Log-probabilities are natural, of the unmodified row.
//!
//! Every filter keeps a prefix of the tokens sorted by (logit, lower id), so that all of them together are one *cut*;
//! nothing is ever sorted but the few tokens that remain.

mod logits;
pub mod philox;
mod recipe;
mod scan;

pub use logits::Logits;
pub use recipe::{Recipe, RecipeFault};

use sf_core::{Sampled, SamplerSpec, Token};
use thiserror::Error;

use crate::history::History;
use recipe::Patches;
use scan::Candidate;

/// Candidates tried in turn when only top-p bounds them; the last resort is all of them.
const TRIES: [usize; 3] = [256, 4096, usize::MAX];
/// More survivors than this are drawn by passing over the row instead of sorting them by id.
const SPARSE_MAX: usize = 4096;
/// Tokens whose weights are summed as one.
const BLOCK: usize = 1024;

/// Why no token could be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "no token can be chosen at position {position}: all {vocab} logits are NaN or forbidden (sampler.empty)"
)]
pub struct SampleFault {
    /// Position of the token that was to be drawn.
    pub position: u32,
    /// Logits in the row.
    pub vocab: usize,
}

/// Chooses tokens. Holds no lane, only memory that is reused.
#[derive(Default)]
pub struct Sampler {
    wide: Vec<f32>,
    patched: Vec<f32>,
    patches: Patches,
    drawer: Drawer,
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").finish_non_exhaustive()
    }
}

impl Sampler {
    /// Chooses the token that follows a history. `room` is reused for [`Sampled::top`].
    ///
    /// # Errors
    /// When no logit is a number above negative infinity.
    pub fn sample(
        &mut self,
        logits: Logits<'_>,
        recipe: &Recipe,
        history: &History,
        room: Vec<(Token, f32)>,
    ) -> Result<Sampled, SampleFault> {
        let mut top = room;
        top.clear();
        let spec = recipe.spec();
        let row = logits.widen(&mut self.wide);
        let patches = self.patches.apply(row, recipe, history);
        let chosen = if spec.temperature == 0.0 {
            scan::argmax(row, patches)
        } else {
            let number = philox::uniform(spec.seed, history.len());
            if patches.is_empty() {
                self.drawer.draw(row, spec, number)
            } else {
                self.patched.clear();
                self.patched.extend_from_slice(row);
                for &(token, logit) in patches {
                    self.patched[token as usize] = logit;
                }
                self.drawer.draw(&self.patched, spec, number)
            }
        };
        let Some(token) = chosen else {
            return Err(SampleFault { position: history.len(), vocab: row.len() });
        };
        let logprob = spec.logprobs.map(|count| self.drawer.logprobs(row, token, count, &mut top));
        Ok(Sampled { token: Token(token), logprob, top })
    }
}

/// The draw and its memory.
#[derive(Default)]
struct Drawer {
    candidates: Vec<Candidate>,
    weights: Vec<f32>,
    blocks: Vec<f64>,
}

impl Drawer {
    /// Filters and draws; `number` is in `[0, 1)`.
    fn draw(&mut self, row: &[f32], spec: &SamplerSpec, number: f64) -> Option<u32> {
        let max = scan::max_of(row);
        if max.is_infinite() {
            // An infinite logit takes the whole distribution.
            return scan::argmax(row, &[]);
        }
        let floor = if spec.min_p > 0.0 { max + spec.min_p.ln() } else { f32::NEG_INFINITY };
        let k = spec.top_k as usize;
        let limited = (1..row.len()).contains(&k);
        let temperature = spec.temperature;
        let shape = Shape { max, temperature, floor };
        match (limited, spec.top_p < 1.0) {
            (false, false) => return self.dense(row, shape, None, number),
            (true, nucleus) => {
                scan::select_top(row, k, f32::NEG_INFINITY, &mut self.candidates);
                if nucleus {
                    let total: f64 = self.candidates.iter().map(|one| shape.mass(*one)).sum();
                    self.cut(shape, f64::from(spec.top_p) * total);
                }
                self.candidates.retain(|one| one.logit() >= floor);
            }
            (false, true) => self.nucleus(row, shape, f64::from(spec.top_p) * scan::mass(row, max)),
        }
        if self.candidates.len() > SPARSE_MAX {
            let worst = self.candidates.iter().min().copied();
            return self.dense(row, shape, worst, number);
        }
        self.sparse(shape, number)
    }

    /// Leaves the fewest likeliest tokens whose masses reach `target`, none below the floor.
    fn nucleus(&mut self, row: &[f32], shape: Shape, target: f64) {
        for most in TRIES {
            scan::select_top(row, most, shape.floor, &mut self.candidates);
            let total: f64 = self.candidates.iter().map(|one| shape.mass(*one)).sum();
            if total >= target {
                return self.cut(shape, target);
            }
            if self.candidates.len() < most {
                // The floor lies above the cut: it alone decides.
                return;
            }
        }
    }

    /// Keeps the fewest likeliest candidates whose masses reach `target`; at least one.
    fn cut(&mut self, shape: Shape, target: f64) {
        let (mut low, mut high) = (0, self.candidates.len());
        let mut before = 0.0;
        // The last one to keep is in low..high, and all before `low` are likelier and weigh `before`.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            self.candidates[low..high].select_nth_unstable_by(middle - low, scan::descending);
            let upper: f64 = self.candidates[low..middle].iter().map(|one| shape.mass(*one)).sum();
            if before + upper >= target {
                high = middle;
            } else {
                before += upper;
                low = middle;
            }
        }
        self.candidates.truncate(low + 1);
    }

    /// Draws from the candidates.
    fn sparse(&mut self, shape: Shape, number: f64) -> Option<u32> {
        self.candidates.sort_unstable_by_key(|one| one.token());
        self.weights.clear();
        let weigh = |one: &Candidate| scan::exp_neg((one.logit() - shape.max) / shape.temperature);
        self.weights.extend(self.candidates.iter().map(weigh));
        let total: f64 = self.weights.iter().map(|weight| f64::from(*weight)).sum();
        let at = walk(&self.weights, number * total)?;
        Some(self.candidates[at].token())
    }

    /// Draws by one pass over the row; `worst` is the least likely token that was kept, `None` = all.
    fn dense(&mut self, row: &[f32], shape: Shape, worst: Option<Candidate>, number: f64) -> Option<u32> {
        // Up to the worst token's id a logit may equal its, after it a logit must exceed it.
        let (split, until, after) = match worst {
            None => (row.len(), shape.floor, shape.floor),
            Some(worst) => {
                let logit = worst.logit();
                (worst.token() as usize + 1, shape.floor.max(logit), shape.floor.max(logit.next_up()))
            }
        };
        self.weights.resize(row.len(), 0.0);
        self.blocks.clear();
        for (nth, (values, weights)) in row.chunks(BLOCK).zip(self.weights.chunks_mut(BLOCK)).enumerate() {
            let within = split.saturating_sub(nth * BLOCK).min(values.len());
            let (left, right) = weights.split_at_mut(within);
            let Shape { max, temperature, .. } = shape;
            let mut sum = scan::weigh(&values[..within], left, max, temperature, until);
            sum += scan::weigh(&values[within..], right, max, temperature, after);
            self.blocks.push(sum);
        }
        let target = number * self.blocks.iter().sum::<f64>();
        let mut before = 0.0;
        let mut found = None;
        for (nth, sum) in self.blocks.iter().enumerate() {
            if *sum > 0.0 {
                found = Some((nth, before));
            }
            before += sum;
            if before > target {
                break;
            }
        }
        let (nth, before) = found?;
        let block = &self.weights[nth * BLOCK..row.len().min((nth + 1) * BLOCK)];
        walk(block, target - before).map(|at| (nth * BLOCK + at) as u32)
    }

    /// The log-probability of `token` and the `count` likeliest tokens with theirs, best first.
    fn logprobs(&mut self, row: &[f32], token: u32, count: u32, top: &mut Vec<(Token, f32)>) -> f32 {
        let max = scan::max_of(row);
        let log_total = scan::mass(row, max).ln();
        let of = |logit: f32| {
            if max == f32::INFINITY {
                return if logit == max { 0.0 } else { f32::NEG_INFINITY };
            }
            (f64::from(logit - max) - log_total) as f32
        };
        if count > 0 {
            scan::select_top(row, count as usize, f32::NEG_INFINITY, &mut self.candidates);
            self.candidates.sort_unstable_by(scan::descending);
            top.extend(self.candidates.iter().map(|one| (Token(one.token()), of(one.logit()))));
        }
        of(row[token as usize])
    }
}

/// What the weights of a draw depend on.
#[derive(Clone, Copy)]
struct Shape {
    /// The largest logit.
    max: f32,
    /// Above 0.
    temperature: f32,
    /// Logits below it are out (min-p).
    floor: f32,
}

impl Shape {
    /// A candidate's share at temperature 1, relative to the likeliest.
    fn mass(self, one: Candidate) -> f64 {
        f64::from(scan::exp_neg(one.logit() - self.max))
    }
}

/// The first index at which the cumulated weight exceeds `target`; when rounding lets none, the last with any weight.
fn walk(weights: &[f32], target: f64) -> Option<usize> {
    let mut sum = 0.0;
    let mut last = None;
    for (at, weight) in weights.iter().enumerate() {
        if *weight > 0.0 {
            last = Some(at);
            sum += f64::from(*weight);
            if sum > target {
                break;
            }
        }
    }
    last
}

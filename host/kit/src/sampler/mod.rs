//! Chooses a token from a row of logits.
//!
//! What a mask forbids counts as negative infinity throughout. The order, each part of which a test repeats against a plain
//! reference:
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
mod score;
mod wide;

pub use logits::Logits;
pub use recipe::{Recipe, RecipeFault};

use sf_core::{Sampled, SamplerSpec, Token};
use thiserror::Error;

use crate::history::History;
use recipe::Patches;
use scan::{Candidate, Survey};
use wide::{BLOCK, Scale};

/// Candidates that are looked at when only top-p bounds them, before all tokens are ranked.
const NUCLEUS_TRIED: usize = 256;
/// More survivors than this are drawn by passing over the row instead of sorting them by id.
const SPARSE_MAX: usize = 4096;

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
        self.sample_allowed(logits, None, (recipe, history), room)
    }

    /// [`Sampler::sample`] among tokens that a mask allows: one bit per token, the lowest first; what the mask does not
    /// reach is forbidden. Forbidden tokens count as negative infinity from the start.
    ///
    /// # Errors
    /// When no allowed logit is a number above negative infinity.
    pub fn sample_allowed(
        &mut self,
        logits: Logits<'_>,
        mask: Option<&[u32]>,
        (recipe, history): (&Recipe, &History),
        room: Vec<(Token, f32)>,
    ) -> Result<Sampled, SampleFault> {
        let mut top = room;
        top.clear();
        let spec = recipe.spec();
        let row = logits.widen(&mut self.wide);
        let patches = self.patches.apply(row, recipe, history);
        let greedy = recipe.is_greedy();
        let changed = match mask {
            None if greedy || patches.is_empty() => None,
            None => {
                self.patched.clear();
                self.patched.extend_from_slice(row);
                for &(token, logit) in patches {
                    self.patched[token as usize] = logit;
                }
                Some(&self.patched)
            }
            Some(mask) => {
                allow(row, mask, &mut self.patched);
                let allowed = |token: u32| {
                    mask.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
                };
                for &(token, logit) in patches.iter().filter(|(token, _)| allowed(*token)) {
                    self.patched[token as usize] = logit;
                }
                Some(&self.patched)
            }
        };
        let number = || philox::uniform(spec.seed, history.len());
        let chosen = match (changed, greedy) {
            (None, true) => scan::argmax(row, patches),
            (Some(changed), true) => scan::argmax(changed, &[]),
            (None, false) => self.drawer.draw(row, spec, number()),
            (Some(changed), false) => self.drawer.draw(changed, spec, number()),
        };
        let Some(token) = chosen else {
            return Err(SampleFault { position: history.len(), vocab: row.len() });
        };
        let logprob = spec.logprobs.map(|count| self.drawer.logprobs(row, token, count, &mut top));
        Ok(Sampled { token: Token(token), logprob, top })
    }
}

/// The row with negative infinity in place of what the mask forbids.
fn allow(row: &[f32], mask: &[u32], into: &mut Vec<f32>) {
    into.clear();
    into.resize(row.len(), f32::NEG_INFINITY);
    for ((from, to), &word) in row.chunks(32).zip(into.chunks_mut(32)).zip(mask) {
        match word {
            0 => {}
            u32::MAX => to.copy_from_slice(from),
            _ => {
                for (bit, (from, to)) in from.iter().zip(to).enumerate() {
                    if word >> bit & 1 == 1 {
                        *to = *from;
                    }
                }
            }
        }
    }
}

/// The draw and its memory.
#[derive(Default)]
struct Drawer {
    survey: Survey,
    candidates: Vec<Candidate>,
    weights: Vec<f32>,
    blocks: Vec<f64>,
}

impl Drawer {
    /// Filters and draws; `number` is in `[0, 1)`.
    fn draw(&mut self, row: &[f32], spec: &SamplerSpec, number: f64) -> Option<u32> {
        let max = self.survey.of(row);
        if max.is_infinite() {
            // An infinite logit takes the whole distribution.
            return scan::argmax(row, &[]);
        }
        let floor = if spec.min_p > 0.0 { max + spec.min_p.ln() } else { f32::NEG_INFINITY };
        // The filters look at the distribution as it is, the draw at the one that the temperature makes of it.
        let plain = Scale::new(max, 1.0, f32::NEG_INFINITY);
        let shaped = Scale::new(max, spec.temperature, floor);
        let k = spec.top_k as usize;
        let limited = (1..row.len()).contains(&k);
        match (limited, spec.top_p < 1.0) {
            (true, nucleus) => {
                self.survey.select_top(row, k, f32::NEG_INFINITY, &mut self.candidates);
                if nucleus {
                    let target = f64::from(spec.top_p) * scan::total(&self.candidates, plain);
                    scan::cut(&mut self.candidates, plain, target);
                }
                self.candidates.retain(|one| one.logit() >= floor);
            }
            (false, true) => {
                let target = f64::from(spec.top_p) * self.mass(row, plain);
                if !self.nucleus(row, (plain, floor), target) {
                    let worst = self.survey.last_of_share(row, plain, target, &mut self.candidates);
                    return self.dense(row, shaped, worst, number);
                }
            }
            (false, false) if floor > f32::NEG_INFINITY => {
                self.survey.select_top(row, SPARSE_MAX + 1, floor, &mut self.candidates);
                if self.candidates.len() > SPARSE_MAX {
                    return self.dense(row, shaped, None, number);
                }
            }
            (false, false) => return self.dense(row, shaped, None, number),
        }
        if self.candidates.len() > SPARSE_MAX {
            let worst = self.candidates.iter().min().copied();
            return self.dense(row, shaped, worst, number);
        }
        self.sparse(shaped, number)
    }

    /// The weight of a whole row.
    fn mass(&mut self, row: &[f32], scale: Scale) -> f64 {
        self.blocks.clear();
        wide::sums(row, scale, &mut self.blocks);
        self.blocks.iter().sum()
    }

    /// Leaves the fewest likeliest tokens whose weights reach `target`, none below the floor. False when they are too
    /// many to be told like this.
    fn nucleus(&mut self, row: &[f32], (scale, floor): (Scale, f32), target: f64) -> bool {
        self.survey.select_top(row, NUCLEUS_TRIED, floor, &mut self.candidates);
        if scan::total(&self.candidates, scale) >= target {
            scan::cut(&mut self.candidates, scale, target);
            return true;
        }
        // Fewer than could be: the floor lies above the cut and alone decides.
        self.candidates.len() < NUCLEUS_TRIED
    }

    /// Draws from the candidates.
    fn sparse(&mut self, scale: Scale, number: f64) -> Option<u32> {
        self.candidates.sort_unstable_by_key(|one| one.token());
        self.weights.clear();
        self.weights.extend(self.candidates.iter().map(|one| scale.weight(one.logit())));
        let total: f64 = self.weights.iter().map(|weight| f64::from(*weight)).sum();
        let at = walk(&self.weights, number * total)?;
        Some(self.candidates[at].token())
    }

    /// Draws by one pass over the row; `worst` is the least likely token that was kept, `None` = all.
    fn dense(&mut self, row: &[f32], scale: Scale, worst: Option<Candidate>, number: f64) -> Option<u32> {
        // Up to the worst token's id a logit may equal its, after it a logit must exceed it.
        let (split, until, after) = match worst {
            None => (row.len(), scale, scale),
            Some(worst) => {
                let logit = worst.logit();
                let from = |least: f32| scale.with_floor(least);
                (worst.token() as usize + 1, from(logit), from(logit.next_up()))
            }
        };
        // Blocks before the one with the worst token in it, that one in two parts, blocks after it.
        let (low, high) = (split / BLOCK * BLOCK, split.next_multiple_of(BLOCK).min(row.len()));
        let parts = [(0..low, until), (low..split, until), (split..high, after), (high..row.len(), after)];
        self.blocks.clear();
        for (part, scale) in &parts {
            wide::sums(&row[part.clone()], *scale, &mut self.blocks);
        }
        let blocks = parts.iter().flat_map(|(part, scale)| {
            let ends = move |start| (start, part.end.min(start + BLOCK), *scale);
            part.clone().step_by(BLOCK).map(ends)
        });
        let target = number * self.blocks.iter().sum::<f64>();
        let mut before = 0.0;
        let mut found = None;
        for (block, sum) in blocks.zip(&self.blocks) {
            if *sum > 0.0 {
                found = Some((block, before));
            }
            before += sum;
            if before > target {
                break;
            }
        }
        let ((start, end, scale), before) = found?;
        wide::weigh(&row[start..end], scale, &mut self.weights);
        walk(&self.weights, target - before).map(|at| start + at).and_then(|at| u32::try_from(at).ok())
    }

    /// The log-probability of `token` and the `count` likeliest tokens with theirs, best first.
    fn logprobs(&mut self, row: &[f32], token: u32, count: u32, top: &mut Vec<(Token, f32)>) -> f32 {
        let max = self.survey.of(row);
        let log_total = self.mass(row, Scale::new(max, 1.0, f32::NEG_INFINITY)).ln();
        let of = |logit: f32| {
            if max == f32::INFINITY {
                return if logit == max { 0.0 } else { f32::NEG_INFINITY };
            }
            (f64::from(logit - max) - log_total) as f32
        };
        if count > 0 {
            self.survey.select_top(row, count as usize, f32::NEG_INFINITY, &mut self.candidates);
            self.candidates.sort_unstable_by(scan::descending);
            top.extend(self.candidates.iter().map(|one| (Token(one.token()), of(one.logit()))));
        }
        of(row[token as usize])
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

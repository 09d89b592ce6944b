//! When two rows of logits count as the same, and the seeded numbers that make prompts and mutations.

use crate::journal::{Broken, broken, ensure};

/// How far apart two rows may be for a runtime that does not claim `determinism.batch_invariant`.
///
/// Quantized activations and 16-bit accumulators are chaotic: another order of the same KV cells was seen to move a row
/// of a small model by 0.28 of its spread, evenly over all tokens, without another best token. A lost or foreign token
/// moves it by 0.24 to 20, and mostly changes the best token. So the root mean square is bounded as a share of the row's
/// own spread (its standard deviation), and the best token decides.
const SPREAD_SHARE_MAX: f64 = 0.5;
/// Largest difference of one logit, as a share of the row's largest magnitude.
const LOGIT_SHARE_MAX: f32 = 0.2;
/// By how much of the row's largest magnitude a best token may lead and still lose its place.
const LEAD_SHARE_MAX: f32 = 0.05;

/// How equal two rows must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closeness {
    /// Every value: the runtime claims that the shape of a batch never shows in its numbers.
    Exact,
    /// As near as quantized arithmetic allows, and the same best token unless it is almost a tie.
    Near,
}

impl Closeness {
    /// The root mean square of the differences, as a share of the wanted row's standard deviation.
    pub(crate) fn judge(self, want: &[f32], got: &[f32], what: &str) -> Result<f32, Broken> {
        ensure!(want.len() == got.len(), "{what}: {} logits instead of {}", got.len(), want.len());
        ensure!(got.iter().all(|value| value.is_finite()), "{what}: a logit is not a finite number");
        let gap = want.iter().zip(got).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        if gap == 0.0 {
            return Ok(0.0);
        }
        let scale = want.iter().fold(0f32, |max, value| max.max(value.abs())).max(1e-3);
        let share = distance(want, got);
        ensure!(
            self == Closeness::Near,
            "{what}: the rows are {share:.2e} of their spread apart, though determinism.batch_invariant is claimed"
        );
        ensure!(
            share <= SPREAD_SHARE_MAX && gap <= LOGIT_SHARE_MAX * scale,
            "{what}: the rows are {share:.2} of their spread apart (at most {SPREAD_SHARE_MAX}), and one logit by {:.2} \
             of the magnitude (at most {LOGIT_SHARE_MAX})",
            gap / scale
        );
        let (wanted, found) = (argmax(want), argmax(got));
        let lead = want[wanted] - want[found];
        ensure!(
            lead <= LEAD_SHARE_MAX * scale,
            "{what}: the best token is {found} instead of {wanted}, which led by {lead}"
        );
        Ok(share as f32)
    }
}

/// Root mean square of the differences over the standard deviation of the wanted row.
fn distance(want: &[f32], got: &[f32]) -> f64 {
    let count = want.len() as f64;
    let mean = want.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
    let spread: f64 = want.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum();
    let apart: f64 = want.iter().zip(got).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (apart / spread.max(1e-6)).sqrt()
}

/// Index of the largest logit, the first of equals. 0 for an empty row.
pub(crate) fn argmax(row: &[f32]) -> usize {
    let mut best = 0;
    for (at, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = at;
        }
    }
    best
}

/// The best token of a row.
pub(crate) fn best_token(row: &[f32]) -> Result<u32, Broken> {
    u32::try_from(argmax(row)).map_err(|_| broken!("a row of more than 2^32 logits"))
}

/// Seeded numbers (SplitMix64): the same run every time, on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 when the bound is 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        let drawn = self.next() % u64::from(bound.max(1));
        u32::try_from(drawn).expect("less than a u32 bound")
    }

    /// One of the values.
    pub(crate) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        let bound = u32::try_from(values.len()).expect("a short list");
        values[self.below(bound) as usize]
    }

    /// `len` tokens below `vocab`.
    pub(crate) fn tokens(&mut self, vocab: u32, len: u32) -> Vec<u32> {
        (0..len).map(|_| self.below(vocab)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_means_every_value_and_near_means_close_and_the_same_choice() {
        let check = |closeness: Closeness, want: &[f32], got: &[f32], same: bool| {
            assert_eq!(closeness.judge(want, got, "row").is_ok(), same, "{closeness:?} {want:?} {got:?}");
        };
        check(Closeness::Exact, &[1.0, 2.0], &[1.0, 2.0], true);
        check(Closeness::Exact, &[1.0, 2.0], &[1.0, 2.000_001], false);
        check(Closeness::Near, &[1.0, 2.0, 9.0], &[1.1, 2.1, 9.1], true);
        check(Closeness::Near, &[1.0, 2.0, 9.0], &[3.0, 4.0, 7.0], false);
        check(Closeness::Near, &[-9.0, 9.0, 8.9], &[-9.0, 8.9, 9.0], true);
        check(Closeness::Near, &[-9.0, 9.0, 8.5], &[-9.0, 8.5, 9.0], false);
        check(Closeness::Near, &[1.0, 2.0], &[1.0], false);
        check(Closeness::Near, &[1.0, 2.0], &[f32::NAN, 2.0], false);
    }

    #[test]
    fn dice_repeat_and_stay_below_their_bound() {
        let draw = || Dice::new(3).tokens(10, 50);
        assert_eq!(draw(), draw());
        assert!(draw().iter().all(|token| *token < 10));
        assert_eq!(Dice::new(1).below(0), 0);
    }
}

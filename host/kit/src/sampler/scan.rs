//! Loops over a whole row, shaped so that the compiler makes vectors of them: largest value, masses, best candidates.

use std::cmp::Ordering;

/// Values in one chunk of a search; its hit is looked up again within it.
const CHUNK: usize = 1024;
/// Independent partial results of a reduction.
const WIDE: usize = 16;

/// The largest value; NaN counts for nothing, an empty or all-NaN row gives negative infinity.
pub(crate) fn max_of(row: &[f32]) -> f32 {
    let mut best = [f32::NEG_INFINITY; WIDE];
    let (whole, rest) = row.as_chunks::<WIDE>();
    for chunk in whole {
        for (best, value) in best.iter_mut().zip(chunk) {
            // Written so that a NaN compares false and loses.
            *best = if *value > *best { *value } else { *best };
        }
    }
    let all = best.iter().chain(rest);
    all.fold(f32::NEG_INFINITY, |best, value| if *value > best { *value } else { best })
}

/// The token with the largest logit, the lowest among equals, after `patches` (sorted by token) replaced theirs. `None`
/// when every value is NaN or negative infinity.
pub(crate) fn argmax(row: &[f32], patches: &[(u32, f32)]) -> Option<u32> {
    let mut best = Best { value: f32::NEG_INFINITY, token: None };
    let mut from = 0;
    for &(token, value) in patches {
        let at = (token as usize).min(row.len());
        best.among(&row[from..at], from);
        best.one(token, value);
        from = (at + 1).min(row.len());
    }
    best.among(&row[from..], from);
    best.token
}

struct Best {
    value: f32,
    token: Option<u32>,
}

impl Best {
    fn one(&mut self, token: u32, value: f32) {
        if value > self.value {
            *self = Best { value, token: Some(token) };
        }
    }

    fn among(&mut self, segment: &[f32], offset: usize) {
        let mut hit = None;
        for (nth, chunk) in segment.chunks(CHUNK).enumerate() {
            let max = max_of(chunk);
            if max > self.value {
                self.value = max;
                hit = Some((nth * CHUNK, chunk));
            }
        }
        if let Some((at, chunk)) = hit {
            let within = chunk.iter().position(|value| *value == self.value).unwrap_or(0);
            self.token = Some((offset + at + within) as u32);
        }
    }
}

/// `e^x` for `x <= 0`, relative error below 3e-7; 0 below -87 and for NaN.
///
/// Our own, so that it becomes vector code and gives the same bits on every machine.
pub(crate) fn exp_neg(x: f32) -> f32 {
    /// Adding it leaves the rounded value in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let mut sum = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = sum * r + coefficient;
    }
    // 2^n by its exponent bits; n is at least -126 where the result is used.
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    if x > -87.0 { sum * scale } else { 0.0 }
}

/// Writes `e^((value - max) / temperature)` for each value of at least `floor`, 0 for the others, and returns the sum.
pub(crate) fn weigh(row: &[f32], weights: &mut [f32], max: f32, temperature: f32, floor: f32) -> f64 {
    for (weight, value) in weights.iter_mut().zip(row) {
        let power = exp_neg((*value - max) / temperature);
        *weight = if *value >= floor { power } else { 0.0 };
    }
    let mut sums = [0.0_f64; 8];
    let (whole, rest) = weights.as_chunks::<8>();
    for chunk in whole {
        for (sum, weight) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(*weight);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|weight| f64::from(*weight)).sum::<f64>()
}

/// The sum of `e^(value - max)` over a row.
pub(crate) fn mass(row: &[f32], max: f32) -> f64 {
    let mut weights = [0.0_f32; CHUNK];
    row.chunks(CHUNK)
        .map(|chunk| weigh(chunk, &mut weights[..chunk.len()], max, 1.0, f32::NEG_INFINITY))
        .sum()
}

/// A token with its logit, ordered by logit and then by lower id: the greater is the likelier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate(u64);

impl Candidate {
    /// `logit` is not NaN.
    pub(crate) fn new(logit: f32, token: u32) -> Candidate {
        // Both zeroes are one logit.
        let bits = (logit + 0.0).to_bits();
        let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        Candidate(u64::from(ordered) << 32 | u64::from(!token))
    }

    pub(crate) fn logit(self) -> f32 {
        let ordered = (self.0 >> 32) as u32;
        f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
    }

    pub(crate) fn token(self) -> u32 {
        !(self.0 as u32)
    }
}

/// Likeliest first.
pub(crate) fn descending(a: &Candidate, b: &Candidate) -> Ordering {
    b.cmp(a)
}

/// Collects the `k` likeliest tokens whose logit is at least `floor`, in no order; fewer when there are not so many.
/// NaN and negative infinity are never among them.
pub(crate) fn select_top(row: &[f32], k: usize, floor: f32, out: &mut Vec<Candidate>) {
    out.clear();
    let k = k.clamp(1, row.len().max(1));
    let room = (2 * k).max(k + 256).min(row.len());
    out.reserve(room);
    // Later tokens lose a tie, so that from here on only larger logits come in.
    let mut above = floor.next_down();
    for (nth, chunk) in row.chunks(256).enumerate() {
        let hopeless = max_of(chunk) <= above;
        if hopeless {
            continue;
        }
        for (at, value) in chunk.iter().enumerate() {
            if *value > above {
                if out.len() == room {
                    above = shrink(out, k);
                    if *value <= above {
                        continue;
                    }
                }
                out.push(Candidate::new(*value, (nth * 256 + at) as u32));
            }
        }
    }
    if out.len() > k {
        shrink(out, k);
    }
}

/// Keeps the `k` best, of more than `k`, and returns the worst logit kept.
fn shrink(out: &mut Vec<Candidate>, k: usize) -> f32 {
    let (_, worst, _) = out.select_nth_unstable_by(k - 1, descending);
    let worst = worst.logit();
    out.truncate(k);
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;

    #[test]
    fn greedy_takes_the_largest_and_the_lowest_id_among_equals() {
        let check =
            |row: &[f32], patches: &[(u32, f32)], expect| assert_eq!(argmax(row, patches), expect, "{row:?}");
        check(&[1.0, 3.0, 2.0], &[], Some(1));
        check(&[3.0, 3.0, 3.0], &[], Some(0));
        check(&[-0.0, 0.0], &[], Some(0));
        check(&[NAN, -INF, -7.0, NAN], &[], Some(2));
        check(&[NAN, INF, INF], &[], Some(1));
        check(&[NAN, -INF], &[], None);
        check(&[], &[], None);
        check(&[1.0, 3.0, 2.0], &[(1, 0.0)], Some(2));
        check(&[1.0, 3.0, 2.0], &[(0, 3.0)], Some(0));
        check(&[1.0, 3.0, 2.0], &[(0, -INF), (1, NAN), (2, -INF)], None);
        check(&[1.0, 3.0, 2.0], &[(2, 3.0)], Some(1));
    }

    #[test]
    fn a_long_row_is_searched_to_its_end() {
        for at in [0, 15, 16, CHUNK - 1, CHUNK, 3 * CHUNK + 5] {
            let mut row = vec![0.5; 3 * CHUNK + 6];
            row[at] = 0.75;
            assert_eq!(argmax(&row, &[]), Some(at as u32));
            let around = [(at.saturating_sub(1) as u32, 0.75)];
            assert_eq!(argmax(&row, &around), Some(around[0].0));
        }
    }

    #[test]
    fn our_exponential_is_the_exponential() {
        for step in 0..870_000 {
            let x = -(step as f32) / 10_000.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp_neg(x)) - exact).abs() / exact;
            assert!(error < 3e-7, "{x}: {error}");
        }
        assert_eq!([exp_neg(0.0), exp_neg(-88.0), exp_neg(-INF), exp_neg(NAN)], [1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn candidates_order_by_logit_then_by_lower_id() {
        let order = [(INF, 9), (1.5, 3), (1.5, 4), (0.0, 1), (-0.0, 2), (-1.0, 0), (f32::MIN, 7)];
        for pair in order.windows(2) {
            let [better, worse] = [pair[0], pair[1]].map(|(logit, token)| Candidate::new(logit, token));
            assert!(better > worse, "{pair:?}");
            assert_eq!((worse.logit(), worse.token()), (pair[1].0, pair[1].1));
        }
    }

    #[test]
    fn the_best_k_are_found_without_sorting_the_row() {
        let row: Vec<f32> = (0..5000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as f32).collect();
        for k in [1, 2, 40, 1000, 4999, 5000, 9000] {
            let mut found = Vec::new();
            select_top(&row, k, -INF, &mut found);
            let mut all: Vec<Candidate> =
                (0..).zip(&row).map(|(token, logit)| Candidate::new(*logit, token)).collect();
            all.sort_unstable_by(descending);
            all.truncate(k);
            found.sort_unstable_by(descending);
            assert!(found == all, "{k}");
        }
        let mut found = Vec::new();
        select_top(&[NAN, -INF, 1.0, 2.0], 4, -INF, &mut found);
        assert_eq!(found.len(), 2);
        select_top(&[NAN, -INF, 1.0, 2.0], 4, 2.0, &mut found);
        assert_eq!(found.len(), 1);
    }
}

//! Finds the tokens that can be drawn among all of a row: the largest logit, the best few, those that hold a share.

use std::cmp::Ordering;

use super::wide::{self, CHUNK, RANKS, Scale};

/// Values in one chunk of a search for the largest; its hit is looked up again within it.
const SEARCHED: usize = 4096;

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
        for (nth, chunk) in segment.chunks(SEARCHED).enumerate() {
            let max = wide::max_of(chunk);
            if max > self.value {
                self.value = max;
                hit = Some((nth * SEARCHED, chunk));
            }
        }
        if let Some((at, chunk)) = hit {
            let within = chunk.iter().position(|value| *value == self.value).unwrap_or(0);
            self.token = Some((offset + at + within) as u32);
        }
    }
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
        f32::from_bits(if ordered >> 31 == 1 { ordered ^ 1 << 31 } else { !ordered })
    }

    pub(crate) fn token(self) -> u32 {
        !(self.0 as u32)
    }
}

/// Likeliest first.
pub(crate) fn descending(a: &Candidate, b: &Candidate) -> Ordering {
    b.cmp(a)
}

/// A row seen once: its chunks' largest values tell where the best tokens are without another look at the others.
#[derive(Default)]
pub(crate) struct Survey {
    maxima: Vec<f32>,
    sorted: Vec<f32>,
    ranks: Vec<u32>,
    weights: Vec<f32>,
    shares: Vec<f64>,
}

impl Survey {
    /// Looks over a row and returns its largest value.
    pub(crate) fn of(&mut self, row: &[f32]) -> f32 {
        wide::maxima(row, &mut self.maxima);
        wide::max_of(&self.maxima)
    }

    /// Collects the `k` likeliest tokens whose logit is at least `floor`, in no order; fewer when there are not so many.
    /// NaN and negative infinity are never among them. `row` is the one surveyed last.
    pub(crate) fn select_top(&mut self, row: &[f32], k: usize, floor: f32, out: &mut Vec<Candidate>) {
        out.clear();
        let k = k.clamp(1, row.len().max(1));
        let room = (2 * k).max(k + 256).min(row.len());
        out.reserve(room);
        let mut least = floor;
        if k < self.maxima.len() {
            // The k best chunks hold at least k values as large as the least of their largest.
            self.sorted.clear();
            self.sorted.extend_from_slice(&self.maxima);
            let (_, bound, _) = self.sorted.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
            least = least.max(*bound);
        }
        // Later tokens lose a tie, so that from the first cut on only larger logits come in.
        let mut above = least.next_down();
        for ((nth, chunk), max) in row.chunks(CHUNK).enumerate().zip(&self.maxima) {
            if *max <= above {
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
                    out.push(Candidate::new(*value, (nth * CHUNK + at) as u32));
                }
            }
        }
        if out.len() > k {
            shrink(out, k);
        }
    }

    /// The least likely of the fewest likeliest tokens whose weights reach `target`, however many they are; `None` when
    /// all together do not. Leaves `candidates` in disorder. `row` is the one surveyed last.
    pub(crate) fn last_of_share(
        &mut self,
        row: &[f32],
        scale: Scale,
        target: f64,
        candidates: &mut Vec<Candidate>,
    ) -> Option<Candidate> {
        wide::ranks(row, scale, &mut self.ranks);
        wide::weigh(row, scale, &mut self.weights);
        self.shares.clear();
        self.shares.resize(RANKS, 0.0);
        for (rank, weight) in self.ranks.iter().zip(&self.weights) {
            self.shares[*rank as usize] += f64::from(*weight);
        }
        let mut before = 0.0;
        let within = self.shares.iter().position(|share| {
            let reached = before + share >= target;
            if !reached {
                before += share;
            }
            reached
        })?;
        candidates.clear();
        for (token, (rank, weight)) in (0..).zip(self.ranks.iter().zip(&self.weights)) {
            if *rank as usize == within && *weight > 0.0 {
                candidates.push(Candidate::new(row[token as usize], token));
            }
        }
        cut(candidates, scale, target - before);
        candidates.iter().min().copied()
    }
}

/// Keeps the `k` best, of more than `k`, and returns the worst logit kept.
fn shrink(out: &mut Vec<Candidate>, k: usize) -> f32 {
    let (_, worst, _) = out.select_nth_unstable_by(k - 1, descending);
    let worst = worst.logit();
    out.truncate(k);
    worst
}

/// The weights of some candidates together.
pub(crate) fn total(candidates: &[Candidate], scale: Scale) -> f64 {
    candidates.iter().map(|one| f64::from(scale.weight(one.logit()))).sum()
}

/// Keeps the fewest likeliest candidates whose weights reach `target`; at least one.
pub(crate) fn cut(candidates: &mut Vec<Candidate>, scale: Scale, target: f64) {
    let (mut low, mut high) = (0, candidates.len());
    let mut before = 0.0;
    // The last one to keep is in low..high, and all before `low` are likelier and weigh `before`.
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        candidates[low..high].select_nth_unstable_by(middle - low, descending);
        let upper = total(&candidates[low..middle], scale);
        if before + upper >= target {
            high = middle;
        } else {
            before += upper;
            low = middle;
        }
    }
    candidates.truncate(low + 1);
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
        for at in [0, 15, 16, SEARCHED - 1, SEARCHED, 3 * SEARCHED + 5] {
            let mut row = vec![0.5; 3 * SEARCHED + 6];
            row[at] = 0.75;
            assert_eq!(argmax(&row, &[]), Some(at as u32));
            let around = [(at.saturating_sub(1) as u32, 0.75)];
            assert_eq!(argmax(&row, &around), Some(around[0].0));
        }
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

    fn top(row: &[f32], k: usize, floor: f32) -> Vec<Candidate> {
        let (mut survey, mut found) = (Survey::default(), Vec::new());
        survey.of(row);
        survey.select_top(row, k, floor, &mut found);
        found.sort_unstable_by(descending);
        found
    }

    fn sorted(row: &[f32]) -> Vec<Candidate> {
        let mut all: Vec<Candidate> =
            (0..).zip(row).map(|(token, logit)| Candidate::new(*logit, token)).collect();
        all.sort_unstable_by(descending);
        all
    }

    /// Values on a lattice, so that ties are common, in disorder.
    fn lattice(count: u32, shift: u32) -> Vec<f32> {
        (0..count).map(|i| (i.wrapping_mul(2_654_435_761) >> shift) as f32).collect()
    }

    #[test]
    fn the_best_k_are_found_without_sorting_the_row() {
        for shift in [14, 20, 28] {
            let row = lattice(50_000, shift);
            let all = sorted(&row);
            for k in [1, 2, 40, 390, 391, 4999, 50_000, 90_000] {
                assert!(top(&row, k, -INF) == all[..k.min(all.len())], "{k} {shift}");
            }
        }
        assert_eq!(top(&[NAN, -INF, 1.0, 2.0], 4, -INF).len(), 2);
        assert_eq!(top(&[NAN, -INF, 1.0, 2.0], 4, 2.0).len(), 1);
        assert!(top(&[NAN; 500], 2, -INF).is_empty() && top(&[], 2, -INF).is_empty());
    }

    #[test]
    fn the_last_token_of_a_share_is_the_one_a_sort_would_find() {
        for (shift, temperature) in [(14, 4000.0), (20, 300.0), (28, 1.0), (20, 0.1)] {
            let row = lattice(20_000, shift);
            let (mut survey, mut room) = (Survey::default(), Vec::new());
            let scale = Scale::new(survey.of(&row), temperature, -INF);
            let all = sorted(&row);
            let whole = total(&all, scale);
            for share in [1e-9, 0.1, 0.5, 0.9, 0.999] {
                let mut kept = all.clone();
                cut(&mut kept, scale, share * whole);
                let found = survey.last_of_share(&row, scale, share * whole, &mut room).unwrap();
                // Sums in another order may differ in their last bits: the border may move by one token.
                let at = all.iter().position(|one| *one == found).unwrap();
                assert!((at + 1).abs_diff(kept.len()) <= 1, "{at} {} {share} {shift}", kept.len());
            }
            assert!(survey.last_of_share(&row, scale, whole * 1.1, &mut room).is_none());
        }
    }
}

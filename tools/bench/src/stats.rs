//! Medians and percentiles; nothing here hides an outlier by averaging it away.

use std::time::Duration;

/// The `p`-th percentile (nearest rank) in `[0, 100]`; 0 for no values.
pub(crate) fn percentile(values: &[f64], p: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (p / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The median; of an even number of values the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> f64 {
    let upper = values.len() / 2 + 1;
    match values.len() {
        0 => 0.0,
        even if even % 2 == 0 => {
            let at = |rank: usize| percentile(values, rank as f64 / even as f64 * 100.0);
            f64::midpoint(at(upper - 1), at(upper))
        }
        _ => percentile(values, 50.0),
    }
}

/// For each rank the median over the rows of the value at that rank: `[[b1, a1], [a2, b2]]` gives medians of a and of b
/// for a ≤ b. Rows are of one length.
pub(crate) fn median_by_rank(rows: &[Vec<f64>]) -> Vec<f64> {
    let sorted: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| {
            let mut row = row.clone();
            row.sort_by(f64::total_cmp);
            row
        })
        .collect();
    let ranks = sorted.iter().map(Vec::len).min().unwrap_or(0);
    (0..ranks).map(|rank| median(&sorted.iter().map(|row| row[rank]).collect::<Vec<_>>())).collect()
}

/// Milliseconds.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// A small random stream (SplitMix64): the same seed gives the same moments and words.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// In `[0, below)`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        (self.unit() * below as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let check = |p, expect: f64| assert_eq!(percentile(&values, p), expect);
        check(50.0, 50.0);
        check(99.0, 99.0);
        check(100.0, 100.0);
        check(0.0, 1.0);
    }

    #[test]
    fn medians_lie_in_the_middle() {
        let check = |values: &[f64], expect: f64| assert_eq!(median(values), expect, "{values:?}");
        check(&[], 0.0);
        check(&[4.0], 4.0);
        check(&[3.0, 1.0], 2.0);
        check(&[3.0, 1.0, 2.0], 2.0);
        check(&[9.0, 1.0, 2.0, 4.0], 3.0);
        check(&[6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 3.5);
        assert_eq!(median_by_rank(&[vec![3.0, 1.0], vec![2.0, 6.0], vec![9.0, 2.0]]), [2.0, 6.0]);
        assert!(median_by_rank(&[]).is_empty());
    }

    #[test]
    fn the_random_stream_is_uniform_enough() {
        let mut random = Random(1);
        let mut hits = [0; 10];
        (0..10_000).for_each(|_| hits[random.below(10)] += 1);
        assert!(hits.iter().all(|hits| (850..1150).contains(hits)), "{hits:?}");
        assert!((0..1000).map(|_| random.unit()).all(|unit| (0.0..1.0).contains(&unit)));
    }
}

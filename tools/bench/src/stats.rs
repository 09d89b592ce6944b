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
}

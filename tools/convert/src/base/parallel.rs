//! Work on many groups at once, whose results come in order.

use std::ops::Range;
use std::thread;

use crate::error::ConvertError;

/// Calls `work` for batches of the numbers below `count` on all CPUs, and `take` with what comes of each, in order. Batches
/// do not depend on how many CPUs there are, so that sums of what they give do not either.
pub(super) fn in_order<T: Send>(
    count: u64,
    batch: u64,
    work: impl Fn(Range<u64>) -> Result<T, ConvertError> + Sync,
    mut take: impl FnMut(T) -> Result<(), ConvertError>,
) -> Result<(), ConvertError> {
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut first = 0;
    while first < count {
        let round: Vec<Range<u64>> = (first..count)
            .step_by(batch as usize)
            .take(threads)
            .map(|first| first..(first + batch).min(count))
            .collect();
        first = round.last().map_or(count, |range| range.end);
        if let [only] = round.as_slice() {
            take(work(only.clone())?)?;
            continue;
        }
        thread::scope(|scope| {
            let work = &work;
            let workers: Vec<_> = round.into_iter().map(|range| scope.spawn(move || work(range))).collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(done) => take(done?),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once_and_in_order() {
        for (count, batch) in [(0, 1), (1, 4), (7, 2), (100, 3), (64, 64)] {
            let mut all = Vec::new();
            let work = |range: Range<u64>| Ok(range.collect::<Vec<u64>>());
            in_order(count, batch, work, |numbers| {
                all.extend(numbers);
                Ok(())
            })
            .expect("nothing fails");
            assert_eq!(all, (0..count).collect::<Vec<u64>>(), "{count} by {batch}");
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        let mut taken = 0;
        let work = |range: Range<u64>| match range.start {
            20 => Err(ConvertError::Stopped),
            _ => Ok(()),
        };
        let done = in_order(1000, 10, work, |()| {
            taken += 1;
            Ok(())
        });
        assert!(matches!(done, Err(ConvertError::Stopped)));
        assert_eq!(taken, 2);
    }
}

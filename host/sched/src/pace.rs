//! How long steps take, as measured, and what that means for the size of the next one.

use std::time::Duration;

use sf_core::Moment;

use crate::types::SchedulerSettings;

/// Sizes of chunks; each has a cost of its own, because kernels take blocks of rows and fall to slower paths below them.
const SIZES: [u32; 5] = [32, 64, 128, 256, 512];
/// Size of a chunk before anything was measured, as an index.
const SIZE_FIRST: usize = 2;
/// A smaller chunk is not worth it when its tokens cost more than this share of a larger one's, percent.
const WORTH_PCT: u64 = 130;
/// While prompts are pending, decode steps take at most about this part of the time, as its inverse.
const DECODE_SHARE: u64 = 8;
/// But a decoding lane is never out for longer than this many steps of the prefill target.
const OUT_STEPS_MAX: u64 = 2;
/// Decode steps of a tick before anything was measured.
const STEPS_FIRST: u32 = 4;
/// A sample counts at most this many times the mean: one stall must not shrink chunks for long.
const OUTLIER: u64 = 8;
/// Lane counts are kept apart by powers of two, up to 2^9.
const WIDTHS: usize = 10;

/// Measured step times; moving means of weight 1/4.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Nanoseconds per prompt token by size of the chunk; 0 = unknown.
    prompt_ns: [u64; SIZES.len()],
    /// Nanoseconds of a decode step by width; 0 = unknown.
    decode_ns: [u64; WIDTHS],
    /// When the step in flight began, as far as known.
    mark: Moment,
    /// When the last step with all decoding lanes began.
    decoded: Moment,
}

/// What one step fed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Lanes with one token each.
    pub(crate) decodes: u32,
    /// Prompt tokens.
    pub(crate) prompt: u32,
    /// Nanoseconds that copies between lanes and host memory took.
    pub(crate) moves_ns: u64,
}

impl Pace {
    /// A tick begins.
    pub(crate) fn begin(&mut self, now: Moment) {
        self.mark = now;
    }

    /// A step that fed `load` is over.
    pub(crate) fn learn(&mut self, now: Moment, load: Load) {
        let began = std::mem::replace(&mut self.mark, now);
        let took = nanos(now.since(began)).saturating_sub(load.moves_ns);
        if load.decodes > 0 && load.prompt == 0 {
            self.decoded = began;
        }
        if took == 0 {
            return;
        }
        if load.prompt == 0 && load.decodes > 0 {
            blend(&mut self.decode_ns[width(load.decodes)], took);
        } else if load.prompt >= SIZES[0] {
            // What the decoding lanes cost by themselves is not the prompt's; but never believe that it was free.
            let own = took.saturating_sub(self.decode_step(load.decodes)).max(took / 4);
            self.learn_prompt(size(load.prompt), (own / u64::from(load.prompt)).max(1));
        }
    }

    fn learn_prompt(&mut self, at: usize, sample: u64) {
        let before = self.prompt_ns[at];
        blend(&mut self.prompt_ns[at], sample);
        let after = self.prompt_ns[at];
        if before == 0 {
            return;
        }
        // Depth and load change the cost of all sizes alike.
        for (_, other) in self.prompt_ns.iter_mut().enumerate().filter(|(size, ns)| *size != at && **ns > 0) {
            let scaled = u128::from(*other) * u128::from(after) / u128::from(before);
            *other = u64::try_from(scaled).unwrap_or(u64::MAX).max(1);
        }
    }

    /// Nanoseconds per prompt token at the best, once measured.
    pub(crate) fn prompt_ns(&self) -> Option<u64> {
        self.prompt_ns.iter().copied().filter(|ns| *ns > 0).min()
    }

    /// Nanoseconds per token of a chunk of this size, by the nearest one that was measured, larger ones first.
    fn cost(&self, at: usize) -> Option<u64> {
        let above = self.prompt_ns[at..].iter().find(|ns| **ns > 0);
        above.or_else(|| self.prompt_ns[..at].iter().rev().find(|ns| **ns > 0)).copied()
    }

    /// Nanoseconds of a decode step of so many lanes, by the nearest width that was measured; 0 = unknown.
    fn decode_step(&self, lanes: u32) -> u64 {
        if lanes == 0 {
            return 0;
        }
        let at = width(lanes);
        let below = self.decode_ns[..=at].iter().rev().find(|ns| **ns > 0);
        let known = below.or_else(|| self.decode_ns[at..].iter().find(|ns| **ns > 0));
        known.copied().unwrap_or(0)
    }

    /// Prompt tokens of a step that so many decoding lanes share: the largest size that keeps to the target, but none so
    /// small that its tokens cost much more than a larger one's.
    pub(crate) fn chunk(&self, settings: &SchedulerSettings, decodes: u32) -> u32 {
        let target = nanos(settings.prefill_step_target);
        let left = target.saturating_sub(self.decode_step(decodes)).max(target / 2);
        let mut at = if self.prompt_ns().is_some() { SIZES.len() - 1 } else { SIZE_FIRST };
        while at > 0
            && let (Some(cost), Some(smaller)) = (self.cost(at), self.cost(at - 1))
            && cost.saturating_mul(u64::from(SIZES[at])) > left
            && smaller.saturating_mul(100) <= cost.saturating_mul(WORTH_PCT)
        {
            at -= 1;
        }
        let most = settings.prefill_budget.min(settings.step_tokens_max.saturating_sub(decodes));
        SIZES[at].min(most)
    }

    /// Whether so many decoding lanes should be in a step that prompts would fill by themselves. Where their step is
    /// dear (it computes the whole vocabulary for each of them), being in each would take what the prompts need. They
    /// are taken to be in it when the answer is yes.
    pub(crate) fn decodes_due(&mut self, settings: &SchedulerSettings, now: Moment, decodes: u32) -> bool {
        let share = match self.decode_step(decodes) {
            0 => u64::MAX,
            step => step.saturating_mul(DECODE_SHARE),
        };
        let most = nanos(settings.prefill_step_target).saturating_mul(OUT_STEPS_MAX);
        let due = nanos(now.since(self.decoded)) >= share.min(most);
        if due {
            self.decoded = now;
        }
        due
    }

    /// Decode steps of a tick of so many lanes, at least 1.
    pub(crate) fn steps(&self, settings: &SchedulerSettings, lanes: u32) -> u32 {
        let by_time = match self.decode_step(lanes) {
            0 => STEPS_FIRST,
            ns => u32::try_from(nanos(settings.tick_target) / ns).unwrap_or(u32::MAX),
        };
        by_time.min(settings.tick_decode_budget / lanes.max(1)).max(1)
    }
}

/// The size whose cost a chunk of so many tokens shows.
fn size(tokens: u32) -> usize {
    SIZES.iter().rposition(|size| *size <= tokens).unwrap_or(0)
}

fn width(lanes: u32) -> usize {
    (lanes.max(1).ilog2() as usize).min(WIDTHS - 1)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn blend(mean: &mut u64, sample: u64) {
    if *mean == 0 {
        *mean = sample.max(1);
        return;
    }
    let sample = sample.min(mean.saturating_mul(OUTLIER));
    *mean = (*mean - *mean / 4 + sample / 4).max(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn settings() -> SchedulerSettings {
        SchedulerSettings::new(8, 4096)
    }

    /// A pace that saw `count` steps of `load`, each of `took` nanoseconds.
    fn after(count: u64, took: u64, load: Load) -> Pace {
        let mut pace = Pace::default();
        for step in 0..count {
            pace.begin(Moment(step * took));
            pace.learn(Moment((step + 1) * took), load);
        }
        pace
    }

    #[test]
    fn chunks_aim_at_the_target_and_stay_within_their_bounds() {
        let check = |ns_per_token: u64, expect: u32| {
            let pace = after(20, ns_per_token * 128, Load { decodes: 0, prompt: 128, moves_ns: 0 });
            assert_eq!(pace.chunk(&settings(), 0), expect, "{ns_per_token} ns per token");
        };
        assert_eq!(Pace::default().chunk(&settings(), 0), 128);
        check(MS, 128);
        check(MS / 2, 256);
        check(100 * MS, 32);
        check(10, 512);
    }

    #[test]
    fn a_chunk_is_not_made_smaller_than_what_pays() {
        let mut pace = Pace::default();
        let (mut chunk, mut small) = (pace.chunk(&settings(), 0), 0);
        // Below 64 tokens each costs five times as much; and everything grows with depth.
        for step in 1..60 {
            let each = MS + MS * step / 20;
            let each = if chunk < 64 { 5 * each } else { each };
            pace.begin(Moment(0));
            pace.learn(Moment(each * u64::from(chunk)), Load { prompt: chunk, ..Load::default() });
            chunk = pace.chunk(&settings(), 0);
            small += u32::from(chunk < 64);
        }
        assert!(chunk == 64 && small <= 1, "{small} times too small, then {chunk}: {pace:?}");
        // A new prompt begins shallow: the larger size is found again.
        for _ in 0..30 {
            pace.begin(Moment(0));
            pace.learn(Moment(MS * u64::from(chunk)), Load { prompt: chunk, ..Load::default() });
            chunk = pace.chunk(&settings(), 0);
        }
        assert_eq!(chunk, 128, "{pace:?}");
    }

    #[test]
    fn ticks_aim_at_the_target_and_stay_within_their_budget() {
        let check = |took: u64, lanes: u32, expect: u32| {
            let pace = after(20, took, Load { decodes: lanes, prompt: 0, moves_ns: 0 });
            assert_eq!(pace.steps(&settings(), lanes), expect, "{took} ns, {lanes} lanes");
        };
        assert_eq!(Pace::default().steps(&settings(), 1), 4);
        check(25 * MS, 4, 10);
        check(MS, 8, 32);
        check(MS, 1, 250);
        check(900 * MS, 2, 1);
    }

    #[test]
    fn dear_decode_steps_are_rarer_while_prompts_are_pending() {
        let check = |took: u64, since: u64, due: bool| {
            let mut pace = after(20, took, Load { decodes: 8, ..Load::default() });
            let begun = Moment(MS * 100_000);
            assert!(pace.decodes_due(&settings(), begun, 8));
            assert_eq!(
                pace.decodes_due(&settings(), Moment(begun.0 + since), 8),
                due,
                "{took} ns, {since} ns since the last one began"
            );
        };
        let unknown = |now: u64| Pace::default().decodes_due(&settings(), Moment(now), 8);
        assert!(!unknown(399 * MS) && unknown(400 * MS));
        check(MS, 8 * MS, true);
        check(MS, 7 * MS, false);
        check(40 * MS, 300 * MS, false);
        check(40 * MS, 320 * MS, true);
        // At most twice the target of 200 ms.
        check(900 * MS, 399 * MS, false);
        check(900 * MS, 400 * MS, true);
    }

    #[test]
    fn one_stall_does_not_ruin_the_mean() {
        let mut pace = after(20, 128 * MS, Load { decodes: 0, prompt: 128, moves_ns: 0 });
        pace.begin(Moment(0));
        pace.learn(Moment(1_000_000 * MS), Load { decodes: 0, prompt: 128, moves_ns: 0 });
        assert!(pace.prompt_ns().is_some_and(|ns| ns < 3 * MS), "{pace:?}");
    }
}

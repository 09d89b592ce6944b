//! How long a step may take before the engine counts as hung, from how long steps of its kind took so far.

use std::time::Duration;

use sf_core::limits::{STEP_LIMIT_FACTOR, STEP_LIMIT_MIN, STEP_MAX, STEP_SAMPLES_MIN};
use sf_core::{LaneOp, StepPlan};

/// Steps that are alike enough to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One token per lane.
    Decode,
    /// With prompt tokens, or with KV moved.
    Mixed,
}

impl Kind {
    /// The kind of a plan's first step; the ones after it decode.
    pub(super) fn of(plan: &StepPlan) -> Kind {
        let moves = |op: &LaneOp| {
            matches!(
                op,
                LaneOp::Fork { .. } | LaneOp::Adopt { .. } | LaneOp::Stash { .. } | LaneOp::Restore { .. }
            )
        };
        if plan.feeds.iter().any(|feed| feed.tokens.len() > 1) || plan.ops.iter().any(moves) {
            Kind::Mixed
        } else {
            Kind::Decode
        }
    }
}

/// Step times of one engine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepWatch([Seen; 2]);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    steps: u32,
    slowest: Duration,
}

impl StepWatch {
    /// A step was measured.
    pub(super) fn note(&mut self, kind: Kind, took: Duration) {
        let seen = &mut self.0[kind as usize];
        seen.steps = seen.steps.saturating_add(1);
        seen.slowest = seen.slowest.max(took);
    }

    /// How long the next one may take.
    pub(super) fn limit(&self, kind: Kind) -> Duration {
        let seen = self.0[kind as usize];
        if seen.steps < STEP_SAMPLES_MIN {
            return STEP_MAX;
        }
        (seen.slowest * STEP_LIMIT_FACTOR).clamp(STEP_LIMIT_MIN, STEP_MAX)
    }
}

#[cfg(test)]
mod tests {
    use sf_core::{Feed, LaneId, LaneSpec};

    use super::*;

    #[test]
    fn the_limit_is_generous_until_enough_steps_of_the_kind_are_known() {
        let check = |steps: u32, slowest_ms: u64, limit: Duration| {
            let mut watch = StepWatch::default();
            for _ in 0..steps {
                watch.note(Kind::Decode, Duration::from_millis(slowest_ms));
            }
            assert_eq!(watch.limit(Kind::Decode), limit, "{steps} steps of {slowest_ms} ms");
            assert_eq!(watch.limit(Kind::Mixed), STEP_MAX);
        };
        check(0, 0, STEP_MAX);
        check(STEP_SAMPLES_MIN - 1, 1, STEP_MAX);
        check(STEP_SAMPLES_MIN, 1, STEP_LIMIT_MIN);
        check(STEP_SAMPLES_MIN, 400, Duration::from_secs(20));
        check(STEP_SAMPLES_MIN, 60_000, STEP_MAX);
    }

    #[test]
    fn a_plan_that_feeds_prompts_or_moves_kv_is_mixed() {
        let feed = |count: u32| Feed { lane: LaneId(0), tokens: 0..count, pos0: 0, sample: true, more: 0 };
        let plan = |feeds, ops| StepPlan { feeds, ops, ..StepPlan::default() };
        let open = LaneOp::Open { lane: LaneId(0), spec: LaneSpec::default() };
        let fork = LaneOp::Fork { from: LaneId(0), upto: 1, lane: LaneId(1), spec: LaneSpec::default() };
        assert_eq!(Kind::of(&plan(vec![feed(1)], vec![open])), Kind::Decode);
        assert_eq!(Kind::of(&plan(vec![feed(1), feed(2)], vec![])), Kind::Mixed);
        assert_eq!(Kind::of(&plan(vec![feed(1)], vec![fork])), Kind::Mixed);
    }
}

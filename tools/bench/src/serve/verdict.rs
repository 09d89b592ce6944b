//! One figure of a scenario: our values, the peer's, their ratio, what is asked of them, and whether they pass.

use serde::Serialize;

use crate::stats::median;

/// What is asked of a row; all that are given must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Target {
    /// Our figure at least.
    pub(crate) ours_min: Option<f64>,
    /// Our figure at most.
    pub(crate) ours_max: Option<f64>,
    /// Ours / peer at least.
    pub(crate) ratio_min: Option<f64>,
    /// Ours / peer at most.
    pub(crate) ratio_max: Option<f64>,
}

impl Target {
    /// Our figure at least this.
    pub(crate) fn at_least(limit: f64) -> Target {
        Target { ours_min: Some(limit), ..Target::default() }
    }

    /// Our figure at most this.
    pub(crate) fn at_most(limit: f64) -> Target {
        Target { ours_max: Some(limit), ..Target::default() }
    }

    /// Ours / peer at least this.
    pub(crate) fn ratio_at_least(limit: f64) -> Target {
        Target { ratio_min: Some(limit), ..Target::default() }
    }

    /// Ours / peer at most this.
    pub(crate) fn ratio_at_most(limit: f64) -> Target {
        Target { ratio_max: Some(limit), ..Target::default() }
    }

    /// What the table shows.
    pub(crate) fn text(&self) -> String {
        let parts = [
            self.ours_min.map(|limit| format!(">= {}", short(limit))),
            self.ours_max.map(|limit| format!("<= {}", short(limit))),
            self.ratio_min.map(|limit| format!(">= {}x", short(limit))),
            self.ratio_max.map(|limit| format!("<= {}x", short(limit))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// How a row stands to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// Every limit holds.
    Pass,
    /// One does not.
    Fail,
    /// Nothing is asked.
    Info,
    /// The peer's figure is missing.
    Unknown,
}

impl Verdict {
    fn of(ours: f64, ratio: Option<f64>, target: &Target) -> Verdict {
        let above = |value: f64, limit: Option<f64>| limit.is_none_or(|limit| value >= limit);
        let below = |value: f64, limit: Option<f64>| limit.is_none_or(|limit| value <= limit);
        let holds = above(ours, target.ours_min) && below(ours, target.ours_max);
        let by_ratio = target.ratio_min.is_some() || target.ratio_max.is_some();
        match ratio {
            _ if *target == Target::default() => Verdict::Info,
            _ if !holds => Verdict::Fail,
            None if by_ratio => Verdict::Unknown,
            Some(ratio) if !(above(ratio, target.ratio_min) && below(ratio, target.ratio_max)) => {
                Verdict::Fail
            }
            _ => Verdict::Pass,
        }
    }

    /// What the table shows.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Info => "",
            Verdict::Unknown => "no peer",
        }
    }
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// What is measured.
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    /// Median over the rounds.
    pub(crate) ours: f64,
    /// Median over the rounds.
    pub(crate) peer: Option<f64>,
    /// Ours / peer, of the medians.
    pub(crate) ratio: Option<f64>,
    pub(crate) target: Target,
    pub(crate) verdict: Verdict,
    /// What the figure tells, in a line.
    pub(crate) why: String,
    /// One value per round.
    pub(crate) ours_rounds: Vec<f64>,
    /// One value per round.
    pub(crate) peer_rounds: Vec<f64>,
}

impl Row {
    /// A figure of ours, with the peer's where there is one.
    pub(crate) fn new(what: impl Into<String>, unit: &'static str, ours: Vec<f64>, peer: Vec<f64>) -> Row {
        let our_median = median(&ours);
        let peer_median = (!peer.is_empty()).then(|| median(&peer));
        let ratio = peer_median.filter(|peer| *peer > 0.0).map(|peer| our_median / peer);
        Row {
            what: what.into(),
            unit,
            ours: our_median,
            peer: peer_median,
            ratio,
            target: Target::default(),
            verdict: Verdict::Info,
            why: String::new(),
            ours_rounds: ours,
            peer_rounds: peer,
        }
    }

    /// A figure that only we have.
    pub(crate) fn alone(what: impl Into<String>, unit: &'static str, ours: Vec<f64>) -> Row {
        Row::new(what, unit, ours, Vec::new())
    }

    /// With what is asked of it.
    pub(crate) fn target(mut self, target: Target) -> Row {
        self.verdict = Verdict::of(self.ours, self.ratio, &target);
        self.target = target;
        self
    }

    /// With its explanation.
    pub(crate) fn why(mut self, why: impl Into<String>) -> Row {
        self.why = why.into();
        self
    }
}

/// A number as short as it may be without losing what matters.
pub(crate) fn short(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 1000.0 => 0,
        middle if middle >= 100.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_follows_from_figures_and_target() {
        let row =
            |ours: f64, peer: &[f64], target| Row::new("x", "", vec![ours], peer.to_vec()).target(target);
        let check = |ours, peer: &[f64], target, expect| {
            assert_eq!(row(ours, peer, target).verdict, expect, "{ours} {peer:?} {target:?}");
        };
        check(1.0, &[1.0], Target::default(), Verdict::Info);
        check(1.0, &[1.0], Target::ratio_at_least(1.0), Verdict::Pass);
        check(0.99, &[1.0], Target::ratio_at_least(1.0), Verdict::Fail);
        check(0.6, &[1.0], Target::ratio_at_most(0.6), Verdict::Pass);
        check(0.61, &[1.0], Target::ratio_at_most(0.6), Verdict::Fail);
        check(0.61, &[], Target::ratio_at_most(0.6), Verdict::Unknown);
        check(95.0, &[], Target::at_least(95.0), Verdict::Pass);
        check(41.0, &[], Target::at_most(40.0), Verdict::Fail);
        let both = Target { ours_max: Some(400.0), ratio_max: Some(0.2), ..Target::default() };
        check(300.0, &[2000.0], both, Verdict::Pass);
        check(300.0, &[1000.0], both, Verdict::Fail);
        check(500.0, &[9000.0], both, Verdict::Fail);
        check(500.0, &[], both, Verdict::Fail);
        assert_eq!(both.text(), "<= 400, <= 0.2x");
        check(0.0, &[0.0], Target::ratio_at_most(1.0), Verdict::Unknown);
    }

    #[test]
    fn figures_are_medians_and_ratios_are_of_medians() {
        let row = Row::new("x", "ms", vec![1.0, 100.0, 3.0], vec![6.0, 6.0, 0.1]);
        assert_eq!((row.ours, row.peer, row.ratio), (3.0, Some(6.0), Some(0.5)));
    }

    #[test]
    fn numbers_are_short() {
        let check = |value, expect: &str| assert_eq!(short(value), expect);
        check(0.0, "0");
        check(1.0, "1");
        check(0.98, "0.98");
        check(94.567, "94.57");
        check(123.45, "123.5");
        check(100_000.4, "100000");
        check(1200.0, "1200");
    }
}

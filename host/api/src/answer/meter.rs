//! Times one answer: to its first text, between texts, to its end.

use metrics::{Histogram, histogram};
use tokio::time::Instant;

use super::progress::Piece;

/// Times kept back, so that a token seldom touches memory that all answers share.
const GAPS_MAX: usize = 64;

/// Counts into the process's recorder; an answer that is dropped before its end counts as cancelled.
pub(super) struct Meter {
    route: &'static str,
    model: String,
    arrived: Instant,
    /// When each choice last said something.
    said: Vec<Option<Instant>>,
    silent: bool,
    /// Seconds between texts that are not in `between` yet.
    gaps: Vec<f64>,
    between: Histogram,
    outcome: &'static str,
}

impl Meter {
    pub(super) fn new(route: &'static str, model: &str, choices: u32, arrived: Instant) -> Meter {
        let between = histogram!("superfluid_itl_seconds", "route" => route, "model" => model.to_owned());
        let said = vec![None; choices as usize];
        Meter {
            route,
            model: model.to_owned(),
            arrived,
            said,
            silent: true,
            gaps: Vec::with_capacity(GAPS_MAX),
            between,
            outcome: "cancelled",
        }
    }

    /// Notes a piece that was said at `now`.
    pub(super) fn note(&mut self, piece: &Piece, now: Instant) {
        match piece {
            Piece::Delta { choice, .. } | Piece::Part { choice, .. } => self.delta(*choice, now),
            Piece::Prompt { .. } | Piece::Finished { .. } => {}
            Piece::Done(_) => self.outcome = "done",
            Piece::Failed(_) => self.outcome = "failed",
        }
    }

    fn delta(&mut self, choice: u32, now: Instant) {
        if std::mem::take(&mut self.silent) {
            let first =
                histogram!("superfluid_ttft_seconds", "route" => self.route, "model" => self.model.clone());
            first.record(now - self.arrived);
        }
        if let Some(before) = self.said[choice as usize].replace(now) {
            self.gaps.push((now - before).as_secs_f64());
            if self.gaps.len() == GAPS_MAX {
                self.pass_on();
            }
        }
    }

    fn pass_on(&mut self) {
        for gap in self.gaps.drain(..) {
            self.between.record(gap);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.pass_on();
        let model = self.model.clone();
        histogram!("superfluid_e2e_seconds", "route" => self.route, "model" => model, "outcome" => self.outcome)
            .record(self.arrived.elapsed());
        tracing::debug!(outcome = self.outcome, "answer ended");
    }
}

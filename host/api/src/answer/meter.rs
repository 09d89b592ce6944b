//! Times one answer: to its first text, between texts, to its end.

use metrics::{Histogram, histogram};
use tokio::time::Instant;

use super::progress::Piece;

/// Counts into the process's recorder; an answer that is dropped before its end counts as cancelled.
pub(super) struct Meter {
    route: &'static str,
    model: String,
    arrived: Instant,
    /// When each choice last said something.
    said: Vec<Option<Instant>>,
    silent: bool,
    between: Histogram,
    outcome: &'static str,
}

impl Meter {
    pub(super) fn new(route: &'static str, model: &str, choices: u32, arrived: Instant) -> Meter {
        let between = histogram!("superfluid_itl_seconds", "route" => route, "model" => model.to_owned());
        let said = vec![None; choices as usize];
        Meter { route, model: model.to_owned(), arrived, said, silent: true, between, outcome: "cancelled" }
    }

    pub(super) fn note(&mut self, piece: &Piece) {
        match piece {
            Piece::Delta { choice, .. } => self.delta(*choice),
            Piece::Finished { .. } => {}
            Piece::Done(_) => self.outcome = "done",
            Piece::Failed(_) => self.outcome = "failed",
        }
    }

    fn delta(&mut self, choice: u32) {
        let now = Instant::now();
        if std::mem::take(&mut self.silent) {
            let first =
                histogram!("superfluid_ttft_seconds", "route" => self.route, "model" => self.model.clone());
            first.record(now - self.arrived);
        }
        if let Some(before) = self.said[choice as usize].replace(now) {
            self.between.record(now - before);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let model = self.model.clone();
        histogram!("superfluid_e2e_seconds", "route" => self.route, "model" => model, "outcome" => self.outcome)
            .record(self.arrived.elapsed());
        tracing::debug!(outcome = self.outcome, "answer ended");
    }
}

//! One round of load: all clients at once, and the round ends with the last answer.

use std::time::Instant;

use crate::client::{self, Answer, Ask};
use crate::error::BenchError;
use crate::server::Server;
use crate::stats::percentile;
use crate::sysinfo;

/// What one round of all clients brought.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) answers: Vec<Answer>,
    /// From the first request to the last answer's end.
    pub(crate) seconds: f64,
    /// CPU time of the server and its workers.
    pub(crate) cpu_seconds: f64,
}

impl Round {
    /// Sends all asks at once; every one must be answered in full.
    pub(crate) fn of(server: &Server, asks: &[Ask]) -> Result<Round, BenchError> {
        let cpu_before = sysinfo::tree_cpu_seconds(server.pid());
        let begun = Instant::now();
        let answers = client::all_complete(server, asks)?;
        let seconds = begun.elapsed().as_secs_f64();
        let cpu_seconds = sysinfo::tree_cpu_seconds(server.pid()) - cpu_before;
        Ok(Round { answers, seconds, cpu_seconds })
    }

    /// Completion tokens of all clients.
    pub(crate) fn tokens(&self) -> usize {
        self.answers.iter().map(|answer| answer.completion_tokens).sum()
    }

    /// Completion tokens of all clients per second of the round, prefill included.
    pub(crate) fn rate(&self) -> f64 {
        self.tokens() as f64 / self.seconds
    }

    /// A percentile of the clients' first tokens, ms.
    pub(crate) fn ttft_ms(&self, p: f64) -> f64 {
        percentile(&self.ttfts_ms(), p)
    }

    /// First tokens by client, ms.
    pub(crate) fn ttfts_ms(&self) -> Vec<f64> {
        self.answers.iter().map(Answer::ttft_ms).collect()
    }

    /// A percentile of the times between pieces of text, all clients together, ms.
    pub(crate) fn gap_ms(&self, p: f64) -> f64 {
        percentile(&self.answers.iter().flat_map(Answer::gaps_ms).collect::<Vec<_>>(), p)
    }

    /// CPU time of the server and its workers per token, ms.
    pub(crate) fn cpu_ms_per_token(&self) -> f64 {
        self.cpu_seconds * 1e3 / self.tokens().max(1) as f64
    }

    /// The texts, in the clients' order.
    pub(crate) fn texts(&self) -> Vec<&str> {
        self.answers.iter().map(|answer| answer.text.as_str()).collect()
    }
}

/// One figure of every round of every side: `[ours, peer]`, empty where there is no such side.
pub(crate) fn pair<T>(sides: &[Vec<T>], figure: impl Fn(&T) -> f64) -> [Vec<f64>; 2] {
    [0, 1].map(|side| sides.get(side).map(|rounds| rounds.iter().map(&figure).collect()).unwrap_or_default())
}

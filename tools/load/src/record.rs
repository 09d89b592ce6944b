//! What a client saw of each request, and what a whole run was.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Failure;

/// One request as its client saw it. Times count from `due`.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// [`crate::Shot::id`].
    pub shot: usize,
    /// [`crate::Shot::class`].
    pub class: Arc<str>,
    /// When it was to start, since the start of the run.
    pub due: Duration,
    /// How much later than due it did start: what the load generator itself added. Part of all other times, but for
    /// the clock's own coarseness.
    pub lag: Duration,
    /// HTTP status; 0 = no answer.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// To the first event with text; `None` when there was none, or the answer came in one piece.
    pub ttft: Option<Duration>,
    /// Between consecutive events with text, µs; events that arrived in one read are 0 apart.
    pub gaps_us: Vec<u32>,
    /// To the end of the answer.
    pub total: Duration,
    /// As the server counted.
    pub usage: Usage,
    /// Why generation ended, as the server says.
    pub finish_reason: Option<String>,
    /// The generated text, when it was to be kept.
    pub text: Option<String>,
}

/// How a request ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// With a complete answer.
    #[default]
    Ok,
    /// Not well.
    Failed(Failure),
    /// The client went away, or the run ended first.
    Cut,
}

/// The server's own counts; `None` = it did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: Option<u32>,
    /// Tokens of the answer.
    pub completion: Option<u32>,
    /// Tokens of the prompt that were not computed again.
    pub cached: Option<u32>,
}

impl Record {
    /// Whether the answer is complete.
    pub fn is_ok(&self) -> bool {
        self.outcome == Outcome::Ok
    }

    /// Events with text.
    pub fn events(&self) -> usize {
        self.ttft.map_or(0, |_| self.gaps_us.len() + 1)
    }

    /// Tokens of the answer: the server's count, else the events with text.
    pub fn tokens(&self) -> f64 {
        self.usage.completion.map_or(self.events() as f64, f64::from)
    }

    /// When it ended, since the start of the run.
    pub fn end(&self) -> Duration {
        self.due + self.total
    }

    /// Time per token after the first, however the tokens were bundled; `None` for fewer than two tokens or an answer
    /// in one piece.
    pub fn tpot(&self) -> Option<Duration> {
        let streamed: u64 = self.gaps_us.iter().map(|gap| u64::from(*gap)).sum();
        let tokens = self.tokens() - 1.0;
        (self.ttft.is_some() && tokens >= 1.0)
            .then(|| Duration::from_micros((streamed as f64 / tokens) as u64))
    }
}

/// Everything that was seen.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// One per request that was started, in the order of their ends.
    pub records: Vec<Record>,
    /// From the start of the run to its end.
    pub wall: Duration,
    /// CPU time of the thread that sent and received.
    pub client_cpu: Duration,
    /// Somebody ended it early.
    pub interrupted: bool,
}

impl Run {
    /// The first record that failed, to be shown.
    pub fn first_failure(&self) -> Option<&Failure> {
        self.records.iter().find_map(|record| match &record.outcome {
            Outcome::Failed(failure) => Some(failure),
            _ => None,
        })
    }

    /// The record of a shot.
    pub fn of(&self, shot: usize) -> Option<&Record> {
        self.records.iter().find(|record| record.shot == shot)
    }
}

//! Closed-loop load: every client sends one request, all at once, and the round ends with the last answer.

use std::time::Instant;

use serde_json::json;

use crate::client::{Answer, stream_completion};
use crate::error::BenchError;
use crate::server::Server;
use crate::sysinfo;

/// What one round of all clients brought.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) answers: Vec<Answer>,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
}

impl Round {
    /// Completion tokens of all clients.
    pub(crate) fn tokens(&self) -> usize {
        self.answers.iter().map(|answer| answer.completion_tokens).sum()
    }
}

/// Runs one round; prompts differ by client and round so that no prefix cache helps.
pub(crate) fn round(
    server: &Server,
    clients: usize,
    tokens: usize,
    seed: usize,
) -> Result<Round, BenchError> {
    let cpu_before = sysinfo::tree_cpu_seconds(server.pid());
    let begun = Instant::now();
    let answers = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..clients)
            .map(|client| {
                let body = json!({
                    "prompt": prompt(seed * 1000 + client),
                    "max_tokens": tokens,
                    "temperature": 0,
                    "stream": true,
                    "stream_options": {"include_usage": true},
                    "ignore_eos": true,
                    "cache_prompt": false,
                });
                scope.spawn(move || stream_completion(server.port, server.name, &body))
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("a client thread does not panic"))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_seconds = sysinfo::tree_cpu_seconds(server.pid()) - cpu_before;
    Ok(Round { answers, seconds, cpu_seconds })
}

/// About sixty tokens of plain English that differ from the first word on.
fn prompt(seed: usize) -> String {
    const PLACES: [&str; 8] =
        ["harbour", "mountain", "library", "desert", "railway", "market", "island", "laboratory"];
    const PEOPLE: [&str; 8] =
        ["sailor", "teacher", "baker", "engineer", "painter", "doctor", "farmer", "pilot"];
    format!(
        "Number {seed}. In the old {} by the river there lived a {} who counted {} stones every morning. One day, when \
         the wind came from the north, a stranger knocked on the door and asked for the way to the {}. The story of \
         what happened next goes like this:",
        PLACES[seed % 8],
        PEOPLE[seed / 8 % 8],
        seed % 97 + 3,
        PLACES[(seed / 3 + 5) % 8],
    )
}

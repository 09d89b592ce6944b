//! How much of llama.cpp's own decode rate reaches the clients: its batched bench, us and llama-server in turn.

use std::path::Path;
use std::process::Command;

use crate::client::{Ask, Drawing};
use crate::error::BenchError;
use crate::link::run_to_end;
use crate::round::Round;
use crate::serve::{Found, Row, Scenario, Setup, Stage, Target};
use crate::stats::median;
use crate::{prompts, scenarios::throughput::decode_rate};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "share",
    about: "8 clients, 256-token replies: tokens a second while all 8 decode, over HTTP, against llama-batched-bench of \
            the same build with as many prompt tokens, tokens, lanes and threads. 3 rounds at most: one has three runs.",
    minutes: 1.75,
    run,
};

const CLIENTS: usize = 8;
const WINDOW: usize = 2048;

fn run(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let Some(batched) = stage.batched_bench() else {
        found.note("left out: llama-batched-bench comes with the peer");
        return Ok(());
    };
    let servers = stage.both(&Setup::new(CLIENTS, WINDOW))?;
    stage.warm(&servers)?;
    let tokens = stage.size(256, 32);
    let asks = |round: usize| -> Vec<Ask> {
        let ask = |client| {
            Ask::completion(&prompts::story(300_000 + round * 100 + client), tokens, Drawing::Greedy)
        };
        (0..CLIENTS).map(ask).collect()
    };
    let first = Round::of(&servers[0], &asks(99).into_iter().take(1).collect::<Vec<_>>())?;
    let prompt_tokens = first.answers[0].prompt_tokens;
    let sides = stage.interleave(3, stage.pace(3, 100.0), |round, side| {
        if side == 2 {
            return bare_rate(stage, &batched, prompt_tokens, tokens);
        }
        decode_rate(&servers[side], &Round::of(&servers[side], &asks(round))?)
    })?;
    let [ours, peer, bare] = [&sides[0], &sides[1], &sides[2]];
    if bare.is_empty() {
        return Err(servers[0].failed("nothing to compare it with: llama-batched-bench failed".to_owned()));
    }
    let share = |rates: &[f64]| rates.iter().map(|rate| rate / median(bare) * 100.0).collect();
    found.row(
        Row::new("decode rate over HTTP", "tok/s", ours.clone(), peer.clone())
            .why(format!("llama-batched-bench alone: {:.1} tok/s", median(bare))),
    );
    found.row(
        Row::new("share of llama-batched-bench", "%", share(ours), share(peer))
            .target(Target::at_least(95.0))
            .why("what HTTP, scheduling, sampling and text leave of the bare decode rate"),
    );
    found.raw("llama-batched-bench tok/s", bare);
    found.raw("prompt tokens", prompt_tokens);
    Ok(())
}

fn bare_rate(stage: &Stage, program: &Path, prompt: usize, tokens: usize) -> Result<f64, BenchError> {
    let mut command = Command::new(program);
    command.arg("-m").arg(&stage.options.model);
    let pairs = [
        ("-c", CLIENTS * WINDOW),
        ("-npp", prompt),
        ("-ntg", tokens),
        ("-npl", CLIENTS),
        ("-t", stage.options.threads),
    ];
    for (flag, value) in pairs {
        command.args([flag, &value.to_string()]);
    }
    command.args(["-kvu", "--output-format", "jsonl"]);
    let text = run_to_end(&mut command)?;
    rate_in(&text).ok_or_else(|| BenchError::Command {
        command: program.display().to_string(),
        how: format!("printed no generation rate: {text:?}"),
    })
}

/// `speed_tg` of its last JSON line.
fn rate_in(text: &str) -> Option<f64> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line.trim()).ok());
    lines.filter_map(|line| line["speed_tg"].as_f64()).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_rate_is_found_among_other_lines() {
        let text = "main: n_kv_max = 16384\n{\"n_kv_max\": 16384, \"pl\": 8, \"speed_pp\": 900.5, \"speed_tg\": 231.25}\n\n";
        assert_eq!(rate_in(text), Some(231.25));
        assert_eq!(rate_in("nothing"), None);
    }
}

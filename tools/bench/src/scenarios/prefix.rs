//! A burst of requests with one long prefix: how often it is computed, and how long everybody waits.

use crate::client::{Ask, Drawing};
use crate::error::BenchError;
use crate::prompts;
use crate::round::{Round, pair};
use crate::serve::{Found, Row, Scenario, Setup, Stage, Target};
use crate::server::Server;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "prefix",
    about: "8 requests at once that share a new prefix of 1,500 tokens and differ in a short last sentence, 32-token \
            replies, prompt caches on in both servers. 3 rounds at most: each round has its own prefix, which the peer \
            computes 8 times.",
    minutes: 1.25,
    run,
};

const CLIENTS: usize = 8;
/// Ours, by preference; else what the answers' usage says.
const OUR_PREFILLED: &[&str] = &["superfluid_prefill_tokens_total"];
const PEER_PREFILLED: &[&str] = &["llamacpp:prompt_tokens_total"];

struct Burst {
    round: Round,
    /// Prompt tokens computed.
    prefilled: f64,
}

fn run(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let mut setup = Setup::new(CLIENTS, 2048);
    setup.peer_cache = true;
    let servers = stage.both(&setup)?;
    stage.warm(&servers)?;
    let (length, tokens) = (stage.size(1500, 256), stage.size(32, 8));
    let pace = stage.pace(3, 70.0);
    let prefixes = (0..pace.rounds)
        .map(|round| prompts::long(&servers[0], length, 20_000 + round))
        .collect::<Result<Vec<_>, _>>()?;
    let sides = stage.interleave(servers.len(), pace, |round, side| {
        let ask = |client| {
            let text = format!("{} Question {client}: what was it?", prefixes[round]);
            Ask::completion(&text, tokens, Drawing::Greedy).cached()
        };
        burst(&servers[side], &(0..CLIENTS).map(ask).collect::<Vec<_>>())
    })?;
    let [ours, peer] = pair(&sides, |burst| burst.prefilled / length as f64);
    found.row(
        Row::new("prompt tokens computed", "prefixes", ours, peer)
            .target(Target::at_most(1.2))
            .why("tails included; by the servers' own counters of prompt tokens that were computed"),
    );
    let [ours, peer] = pair(&sides, |burst| burst.round.ttft_ms(50.0));
    found.row(
        Row::new("TTFT p50", "ms", ours, peer)
            .target(Target::ratio_at_most(0.5))
            .why("with the prefix computed once, nobody waits for eight prefills"),
    );
    let [ours, peer] = pair(&sides, |burst| burst.round.ttft_ms(99.0));
    found.row(Row::new("TTFT p99", "ms", ours, peer));
    found.raw("prefix tokens", length);
    Ok(())
}

fn burst(server: &Server, asks: &[Ask]) -> Result<Burst, BenchError> {
    let names = if server.name == "llama-server" { PEER_PREFILLED } else { OUR_PREFILLED };
    let before = server.metric(names);
    let round = Round::of(server, asks)?;
    let prefilled = match (before, server.metric(names)) {
        (Ok(before), Ok(after)) => after - before,
        _ => {
            let computed = round.answers.iter().map(|answer| answer.prompt_tokens - answer.cached_tokens);
            computed.sum::<usize>() as f64
        }
    };
    Ok(Burst { round, prefilled })
}

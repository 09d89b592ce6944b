//! Total tokens a second by number of clients, greedy and sampled, with first tokens, gaps and CPU time.

use crate::client::{self, Ask, Drawing};
use crate::error::BenchError;
use crate::prompts;
use crate::round::{Round, pair};
use crate::serve::{Found, Row, Scenario, Setup, Stage, Target};
use crate::server::Server;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "throughput",
    about: "1, 2, 4, 8, 16 clients at once with distinct prompts of about 60 tokens and 256-token replies, greedy and \
            sampled (temperature 0.7, top-p 0.8, top-k 20). Sampled and 16-client cells run 3 rounds at most (16 sampled: 2): they take \
            half of the whole run's time, and sampling differs from greedy by its sampler only.",
    minutes: 9.5,
    run,
};

/// Clients, most rounds greedy, most rounds sampled, seconds of each of the two cells.
const WIDTHS: [(usize, usize, usize, f64); 5] =
    [(1, 5, 3, 32.0), (2, 5, 3, 44.0), (4, 5, 3, 66.0), (8, 5, 3, 108.0), (16, 3, 2, 110.0)];

fn run(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let servers = stage.both(&Setup::new(16, 2048))?;
    stage.warm(&servers)?;
    let quick = stage.options.quick;
    for (clients, greedy, sampled, seconds) in WIDTHS {
        if quick && !matches!(clients, 1 | 8) {
            continue;
        }
        for (name, rounds, sampling) in [("greedy", greedy, false), ("sampled", sampled, true)] {
            let seconds = seconds * rounds as f64 / greedy as f64;
            let sides = stage.interleave(servers.len(), stage.pace(rounds, seconds), |round, side| {
                let ask = |client| {
                    let seed = (clients * 100 + round) * 100 + client;
                    let drawing = if sampling { Drawing::Sampled(seed as u64) } else { Drawing::Greedy };
                    Ask::completion(&prompts::story(seed), stage.size(256, 16), drawing)
                };
                Round::of(&servers[side], &(0..clients).map(ask).collect::<Vec<_>>())
            })?;
            report(found, clients, name, &sides);
        }
    }
    Ok(())
}

fn report(found: &mut Found, clients: usize, drawing: &str, sides: &[Vec<Round>]) {
    let plural = if clients == 1 { "" } else { "s" };
    let mut row = |what: &str, unit, target: Target, why: &str, figure: &dyn Fn(&Round) -> f64| {
        let [ours, peer] = pair(sides, figure);
        let what = format!("{clients} client{plural} {drawing}: {what}");
        found.row(Row::new(what, unit, ours, peer).target(target).why(why));
    };
    let none = Target::default();
    row(
        "total",
        "tok/s",
        Target::ratio_at_least(1.0),
        "completion tokens of all clients over the time from the first request to the last answer",
        &Round::rate,
    );
    row("TTFT p50", "ms", none, "", &|round| round.ttft_ms(50.0));
    row("ITL p50", "ms", none, "", &|round| round.gap_ms(50.0));
    let p95 = if clients == 8 { Target::ratio_at_most(1.0) } else { none };
    row(
        "ITL p95",
        "ms",
        p95,
        "time between two pieces of text of one client, all clients together",
        &|round| round.gap_ms(95.0),
    );
    row("ITL p99", "ms", none, "", &|round| round.gap_ms(99.0));
    row("CPU per token", "ms", none, "server and worker together", &Round::cpu_ms_per_token);
    if let [ours, peer] = sides {
        let equal = ours.iter().zip(peer).filter(|(a, b)| a.texts() == b.texts()).count();
        found.raw(format!("{clients} {drawing}: rounds with equal texts"), equal);
    }
}

/// Rate of `server` while all clients decode, tokens a second; used by the share too.
pub(crate) fn decode_rate(server: &Server, round: &Round) -> Result<f64, BenchError> {
    client::common_decode(&round.answers)
        .map(|(seconds, tokens)| tokens / seconds)
        .ok_or_else(|| server.failed("at no time were all clients decoding".to_owned()))
}

//! More conversation than the KV cache holds: everybody is served or told why not, and the server stays usable.

use std::time::Instant;

use crate::client::{self, Answer, Ask, Drawing};
use crate::error::BenchError;
use crate::prompts;
use crate::round::pair;
use crate::serve::{Found, Row, Scenario, Setup, Stage, Target};
use crate::server::Server;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "exhaust",
    about: "12 requests at once of 1,900 tokens each (64 of them the reply) on 4 lanes of 2,048 cells, then a fresh one. \
            One round: 23,000 tokens for each server, and what is asked for is not a speed.",
    minutes: 1.25,
    run,
};

const REQUESTS: usize = 12;
const REPLY: usize = 64;

struct Burst {
    complete: f64,
    typed: f64,
    seconds: f64,
    fresh: f64,
    fresh_ttft_ms: f64,
    troubles: Vec<String>,
}

fn run(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let lanes = 4;
    let mut setup = Setup::new(lanes, 2048);
    setup.more = vec![format!("--llamacpp-kv-cells={}", lanes * 2048)];
    let servers = stage.both(&setup)?;
    stage.warm(&servers)?;
    let requests = stage.size(REQUESTS, 6);
    let asks = (0..requests)
        .map(|client| {
            let text = prompts::long(&servers[0], 1900 - REPLY, 60_000 + client)?;
            Ok(Ask::completion(&text, REPLY, Drawing::Greedy).cached())
        })
        .collect::<Result<Vec<_>, BenchError>>()?;
    let sides =
        stage.interleave(servers.len(), stage.pace(1, 1.0), |_, side| burst(&servers[side], &asks))?;
    let mut row = |what: &str, unit, target, why: &str, figure: fn(&Burst) -> f64| {
        let [ours, peer] = pair(&sides, figure);
        found.row(Row::new(what, unit, ours, peer).target(target).why(why));
    };
    row(
        &format!("of {requests}: complete or typed error"),
        "",
        Target::at_least(requests as f64),
        "an error is typed when it has a code",
        |burst| burst.complete + burst.typed,
    );
    row("complete", "", Target::default(), "", |burst| burst.complete);
    row("whole burst", "s", Target::default(), "", |burst| burst.seconds);
    row("fresh request admitted after", "", Target::at_least(1.0), "1 = it got all of its tokens", |burst| {
        burst.fresh
    });
    row("TTFT of the fresh request", "ms", Target::default(), "", |burst| burst.fresh_ttft_ms);
    for (server, bursts) in servers.iter().zip(&sides) {
        for trouble in bursts.iter().flat_map(|burst| &burst.troubles).take(3) {
            found.note(format!("{}: {trouble}", server.name));
        }
    }
    Ok(())
}

fn burst(server: &Server, asks: &[Ask]) -> Result<Burst, BenchError> {
    let begun = Instant::now();
    let answers = client::each(server, asks);
    let seconds = begun.elapsed().as_secs_f64();
    let fresh = client::stream(server, &Ask::completion(&prompts::story(1), 16, Drawing::Greedy))?;
    let troubles = answers.iter().filter_map(|answer| match answer {
        Ok(answer) => answer.error.clone(),
        Err(error) => Some(error.to_string()),
    });
    let count = |holds: fn(&Answer) -> bool| {
        answers.iter().filter(|answer| answer.as_ref().is_ok_and(holds)).count() as f64
    };
    Ok(Burst {
        complete: count(Answer::complete),
        typed: count(|answer| answer.error_code.is_some()),
        seconds,
        fresh: f64::from(u8::from(fresh.complete() && fresh.completion_tokens == 16)),
        fresh_ttft_ms: fresh.ttft_ms(),
        troubles: troubles.collect(),
    })
}

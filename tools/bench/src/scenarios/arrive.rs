//! First tokens when many clients come at once with long prompts of their own.

use crate::client::{Ask, Drawing};
use crate::error::BenchError;
use crate::prompts;
use crate::round::{Round, pair};
use crate::serve::{Found, Row, Scenario, Setup, Stage, Target, short};
use crate::stats::median_by_rank;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "arrive",
    about: "8 clients at once, distinct prompts of 512 tokens, 64-token replies: a server that prefills all together \
            gives everyone a late first token; one after the other most come early and the last no later.",
    minutes: 1.25,
    run,
};

const CLIENTS: usize = 8;

fn run(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let servers = stage.both(&Setup::new(CLIENTS, 2048))?;
    stage.warm(&servers)?;
    let (prompt, tokens) = (stage.size(512, 128), stage.size(64, 8));
    let pace = stage.pace(5, 70.0);
    let asks = (0..pace.rounds)
        .map(|round| {
            let ask = |client| {
                let text = prompts::long(&servers[0], prompt, 7_000 + round * 100 + client)?;
                Ok(Ask::completion(&text, tokens, Drawing::Greedy))
            };
            (0..CLIENTS).map(ask).collect::<Result<Vec<_>, BenchError>>()
        })
        .collect::<Result<Vec<_>, _>>()?;
    let sides =
        stage.interleave(servers.len(), pace, |round, side| Round::of(&servers[side], &asks[round]))?;
    let [ours, peer] = pair(&sides, |round| round.ttft_ms(50.0));
    found.row(
        Row::new("TTFT p50", "ms", ours, peer)
            .target(Target::ratio_at_most(0.6))
            .why("first text after the request, the middle one of the 8"),
    );
    let [ours, peer] = pair(&sides, |round| round.ttft_ms(99.0));
    found.row(
        Row::new("TTFT p99", "ms", ours, peer)
            .target(Target::ratio_at_most(1.0))
            .why("the last of the 8 must not pay for the others"),
    );
    let [ours, peer] = pair(&sides, Round::rate);
    found.row(Row::new("total", "tok/s", ours, peer).why("completion tokens over the whole round"));
    for (server, rounds) in servers.iter().zip(&sides) {
        let ranks = median_by_rank(&rounds.iter().map(Round::ttfts_ms).collect::<Vec<_>>());
        let text: Vec<String> = ranks.iter().map(|ttft| short(ttft.round())).collect();
        found.note(format!("first tokens of {} in order, ms: {}", server.name, text.join(" ")));
        found.raw(format!("first tokens in order, {}", server.name), ranks);
    }
    Ok(())
}

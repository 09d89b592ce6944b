//! What the worker process costs: ours with it against ours without.

use crate::client::{Ask, Drawing};
use crate::error::BenchError;
use crate::prompts;
use crate::round::{Round, pair};
use crate::serve::{Found, Row, Scenario, Setup, Stage, Target};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "transports",
    about: "Ours through the worker process against ours in-process (the column of the peer), 256-token replies, 1 and \
            8 clients. Each round starts a server of its own: where its memory happens to lie moves the speed of one server \
            by 15 percent.",
    minutes: 2.9,
    run,
};

fn run(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let setup = Setup::new(8, 2048);
    let in_process = Setup { in_process: true, ..setup.clone() };
    for (clients, rounds, seconds) in [(1, 15, 80.0), (8, 9, 90.0)] {
        let sides = stage.interleave(2, stage.pace(rounds, seconds), |round, side| {
            let server = stage.ours(if side == 0 { &setup } else { &in_process })?;
            stage.warm(std::slice::from_ref(&server))?;
            let ask = |client| {
                let seed = 500_000 + (clients * 100 + round) * 100 + client;
                Ask::completion(&prompts::story(seed), stage.size(256, 16), Drawing::Greedy)
            };
            Round::of(&server, &(0..clients).map(ask).collect::<Vec<_>>())
        })?;
        let [worker, own] = pair(&sides, Round::rate);
        let plural = if clients == 1 { "" } else { "s" };
        found.row(
            Row::new(format!("{clients} client{plural}: total"), "tok/s", worker, own)
                .target(Target::ratio_at_least(0.98))
                .why("worker / in-process: a crash barrier that costs nothing"),
        );
    }
    Ok(())
}

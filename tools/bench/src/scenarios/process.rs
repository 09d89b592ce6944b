//! What a server costs before anybody asks: time to its first answer, memory idle and after a burst.

use crate::client::{Ask, Drawing};
use crate::error::BenchError;
use crate::prompts;
use crate::round::{Round, pair};
use crate::serve::{Found, Row, Scenario, Setup, Stage};
use crate::server::Server;
use crate::stats::ms;
use crate::sysinfo;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "process",
    about: "Start to the first ready answer and resident memory, 8 lanes of 2048 positions.",
    minutes: 0.5,
    run,
};

struct Start {
    ready_ms: f64,
    idle_mib: f64,
    after_mib: f64,
}

fn run(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let setup = Setup::new(8, 2048);
    let sides = if stage.batched_bench().is_some() { 2 } else { 1 };
    let tokens = stage.size(32, 8);
    let starts = stage.interleave(sides, stage.pace(3, 30.0), |round, side| {
        let server = match side {
            0 => stage.ours(&setup)?,
            _ => stage.peer(&setup)?.expect("there is a peer when it has a side"),
        };
        let idle_mib = rss_mib(&server);
        let ask = |client| Ask::completion(&prompts::story(round * 100 + client), tokens, Drawing::Greedy);
        Round::of(&server, &(0..8).map(ask).collect::<Vec<_>>())?;
        Ok(Start { ready_ms: ms(server.ready_after), idle_mib, after_mib: rss_mib(&server) })
    })?;
    let mut row = |what: &str, unit, figure: fn(&Start) -> f64, why: &str| {
        let [ours, peer] = pair(&starts, figure);
        found.row(Row::new(what, unit, ours, peer).why(why));
    };
    row("start to ready", "ms", |start| start.ready_ms, "from spawning to the first 200 of the ready route");
    row("RSS idle", "MiB", |start| start.idle_mib, "server and worker together, before the first request");
    row("RSS after 8 answers", "MiB", |start| start.after_mib, "the same after one burst of 8 clients");
    Ok(())
}

fn rss_mib(server: &Server) -> f64 {
    sysinfo::tree_rss_bytes(server.pid()) as f64 / f64::from(1 << 20)
}

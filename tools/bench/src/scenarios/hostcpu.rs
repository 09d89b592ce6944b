//! CPU time of the server process alone, without its worker, per token that it streams.

use serde_json::json;
use sf_load::{Plan, Quiet, RunOptions, Shot, Target as Address};

use crate::error::BenchError;
use crate::prompts;
use crate::serve::{Found, Row, Scenario, Setup, Stage, Target};
use crate::server::Server;
use crate::sysinfo;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "hostcpu",
    about: "8 streaming clients, 256-token replies: CPU time of the server process, not of its worker, per token. \
            The load generator is one thread with one event loop. llama-server is one process and has no such figure.",
    minutes: 0.6,
    run,
};

const CLIENTS: usize = 8;

fn run(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let servers = [stage.ours(&Setup::new(CLIENTS, 2048))?];
    stage.warm(&servers)?;
    let server = &servers[0];
    let sides =
        stage.interleave(1, stage.pace(5, 34.0), |round, _| cost(server, round, stage.size(256, 16)))?;
    found.row(
        Row::alone("host CPU per token", "us", sides.into_iter().flatten().collect())
            .target(Target::at_most(40.0))
            .why("scheduling, text, JSON, HTTP and the prompt's part of them, all threads of the server process"),
    );
    Ok(())
}

/// Microseconds of the server process per token.
fn cost(server: &Server, round: usize, tokens: usize) -> Result<f64, BenchError> {
    let shots = (0..CLIENTS).map(|client| {
        let body = json!({
            "prompt": prompts::story(600_000 + round * 100 + client),
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": true,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        Shot::streamed(client, "/v1/completions", body.to_string().into_bytes())
    });
    let before = sysinfo::process_cpu_seconds(server.pid());
    let (address, mut plan) = (Address::local(server.port), Plan::burst(shots));
    let run = sf_load::run(&address, &mut plan, &RunOptions::default(), &mut Quiet)
        .map_err(|error| server.failed(error.to_string()))?;
    let seconds = sysinfo::process_cpu_seconds(server.pid()) - before;
    if let Some(failure) = run.first_failure() {
        return Err(server.failed(failure.to_string()));
    }
    let drawn: f64 = run.records.iter().map(sf_load::Record::tokens).sum();
    Ok(seconds * 1e6 / drawn.max(1.0))
}

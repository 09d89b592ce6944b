//! What the host alone can stream: a runtime that computes nothing, 256 connections, tokens through HTTP.

use serde_json::json;
use sf_load::{Plan, Quiet, RunOptions, Shot, Target as Address};

use super::toys::Toy;
use crate::error::BenchError;
use crate::prompts;
use crate::serve::{Found, Row, Scenario, Setup, Stage, Target};
use crate::server::Server;
use crate::stats::{median, percentile};
use crate::sysinfo;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "noop",
    about: "256 concurrent streams of 512 tokens from the no-op runtime behind the real server and its worker, with the \
            load generator on the same CPUs.",
    minutes: 0.5,
    run,
};

const WINDOW: u32 = 1024;

struct Flood {
    rate: f64,
    /// CPU microseconds per token: server, worker, load generator.
    cpu_us: [f64; 3],
    gap_ms_p95: f64,
    wall_cpus: f64,
    events_per_token: f64,
}

fn run(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let toy = Toy::noop(stage, WINDOW)?;
    let streams = stage.size(256, 32);
    let mut setup = Setup::new(streams, WINDOW as usize);
    setup.more = toy.args();
    let server = stage.ours_on(&toy.model, &setup)?;
    let tokens = stage.size(512, 64);
    flood(&server, streams, 32)?;
    let sides = stage.interleave(1, stage.pace(5, 28.0), |_, _| flood(&server, streams, tokens))?;
    let floods: Vec<Flood> = sides.into_iter().flatten().collect();
    let all = |figure: &dyn Fn(&Flood) -> f64| floods.iter().map(figure).collect::<Vec<_>>();
    found.row(
        Row::alone("tokens through HTTP", "tok/s", all(&|flood| flood.rate))
            .target(Target::at_least(100_000.0))
            .why("completion tokens from the first request to the last answer"),
    );
    for (index, who) in ["server", "worker", "load generator"].into_iter().enumerate() {
        found.row(Row::alone(format!("CPU per token, {who}"), "us", all(&|flood| flood.cpu_us[index])));
    }
    found.row(Row::alone("ITL p95", "ms", all(&|flood| flood.gap_ms_p95)));
    found.row(
        Row::alone("SSE chunks with text per token", "", all(&|flood| flood.events_per_token))
            .why("1 = every token went over the wire on its own"),
    );
    found.note(format!(
        "CPUs busy meanwhile, of {}: {:.2}; what is missing of them is waiting",
        sysinfo::cpus(),
        median(&all(&|flood| flood.wall_cpus)),
    ));
    Ok(())
}

fn flood(server: &Server, streams: usize, tokens: usize) -> Result<Flood, BenchError> {
    let shots = (0..streams).map(|client| {
        let body = json!({
            "prompt": prompts::story(client),
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": true,
            "cache_prompt": false,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        Shot::streamed(client, "/v1/completions", body.to_string().into_bytes())
    });
    let workers = server.workers();
    let cpu = || {
        let worker: f64 = workers.iter().map(|pid| sysinfo::process_cpu_seconds(*pid)).sum();
        [sysinfo::process_cpu_seconds(server.pid()), worker]
    };
    let before = cpu();
    let run = sf_load::run(
        &Address::local(server.port),
        &mut Plan::burst(shots),
        &RunOptions::default(),
        &mut Quiet,
    )
    .map_err(|error| server.failed(error.to_string()))?;
    let after = cpu();
    if let Some(failure) = run.first_failure() {
        return Err(server.failed(failure.to_string()));
    }
    let drawn: f64 = run.records.iter().map(sf_load::Record::tokens).sum();
    let wall = run.wall.as_secs_f64();
    let cpu_s = [after[0] - before[0], after[1] - before[1], run.client_cpu.as_secs_f64()];
    let gaps = run.records.iter().flat_map(|record| &record.gaps_us).map(|gap| f64::from(*gap) / 1e3);
    Ok(Flood {
        rate: drawn / wall,
        cpu_us: cpu_s.map(|seconds| seconds * 1e6 / drawn.max(1.0)),
        gap_ms_p95: percentile(&gaps.collect::<Vec<_>>(), 95.0),
        events_per_token: run.records.iter().map(sf_load::Record::events).sum::<usize>() as f64
            / drawn.max(1.0),
        wall_cpus: cpu_s.iter().sum::<f64>() / wall,
    })
}

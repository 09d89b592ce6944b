//! Clients that go away in the middle of their answers: how soon their lanes are free.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{self, Ask, Drawing};
use crate::error::BenchError;
use crate::round::pair;
use crate::serve::{Found, Pace, Row, Scenario, Setup, Stage, Target};
use crate::server::Server;
use crate::stats::ms;
use crate::{http, prompts};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "vanish",
    about: "8 streaming and 8 plain clients on 16 lanes drop their connections in the middle of 1,500-token replies: \
            time until no lane is busy and nobody waits, by the servers' own metrics (20 s = not in that time); then one \
            request as usual. The peer plays one round: it is no comparison of speed.",
    minutes: 0.5,
    run,
};

const EACH: usize = 8;
const BUSY_MAX: Duration = Duration::from_secs(60);
/// Lanes that are not free by then are not going to be.
const FREE_MAX: Duration = Duration::from_secs(20);
/// So that everybody is past the prompt.
const SETTLE: Duration = Duration::from_millis(1500);

struct Gone {
    free_ms: f64,
    next_ttft_ms: f64,
    next_normal: bool,
}

fn run(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let servers = stage.both(&Setup::new(2 * EACH, 2048))?;
    stage.warm(&servers)?;
    let pace = if stage.options.quick { stage.pace(1, 1.0) } else { Pace { rounds: 3, seconds: 28.0 } };
    let mut sides = stage.interleave(1, pace, |round, _| vanish(&servers[0], round))?;
    if let Some(peer) = servers.get(1) {
        sides.push(vec![vanish(peer, 0)?]);
    }
    let [ours, peer] = pair(&sides, |gone| gone.free_ms);
    found.row(
        Row::new("busy lanes 0 after", "ms", ours, peer)
            .target(Target::at_most(1000.0))
            .why("a request is cancelled within one step of its client's going"),
    );
    let [ours, peer] = pair(&sides, |gone| f64::from(u8::from(gone.next_normal)));
    found.row(
        Row::new("next request normal", "", ours, peer)
            .target(Target::at_least(1.0))
            .why("1 = it got all of its 32 tokens"),
    );
    let [ours, peer] = pair(&sides, |gone| gone.next_ttft_ms);
    found.row(Row::new("TTFT of the next request", "ms", ours, peer));
    Ok(())
}

fn vanish(server: &Server, round: usize) -> Result<Gone, BenchError> {
    let io = |error: std::io::Error| server.failed(format!("asking it: {error}"));
    let mut clients = Vec::new();
    for client in 0..2 * EACH {
        let mut ask = Ask::completion(&prompts::story(800_000 + round * 100 + client), 1500, Drawing::Greedy);
        ask.body["stream"] = json!(client < EACH);
        let body = ask.body.to_string();
        clients.push(http::start(server.port, "POST", ask.path, &[], body.as_bytes()).map_err(io)?);
    }
    if !wait_until(server, BUSY_MAX, |running, _| running as usize == 2 * EACH)? {
        return Err(server.failed(format!("does not run {} requests at once", 2 * EACH)));
    }
    std::thread::sleep(SETTLE);
    // Half of the streaming clients have read all there was and say goodbye; the others are cut off with data unread.
    clients.iter_mut().take(EACH / 2).for_each(drain);
    let begun = Instant::now();
    drop(clients);
    if !wait_until(server, FREE_MAX, |running, waiting| running + waiting == 0.0)? {
        return Ok(Gone { free_ms: ms(FREE_MAX), next_ttft_ms: 0.0, next_normal: false });
    }
    let free_ms = ms(begun.elapsed());
    let next = Ask::completion(&prompts::story(810_000 + round), 32, Drawing::Greedy);
    let next = client::stream(server, &next)?;
    let next_normal = next.complete() && next.completion_tokens == 32;
    Ok(Gone { free_ms, next_ttft_ms: next.ttft_ms(), next_normal })
}

fn drain(client: &mut TcpStream) {
    let mut sink = [0; 64 << 10];
    // Without blocking, an error means that there is no more.
    drop(client.set_nonblocking(true));
    while matches!(client.read(&mut sink), Ok(read) if read > 0) {}
}

/// Polls running and waiting requests until `enough` of them; false when that takes too long.
fn wait_until(
    server: &Server,
    most: Duration,
    enough: impl Fn(f64, f64) -> bool,
) -> Result<bool, BenchError> {
    let (running, waiting): (&[&str], &[&str]) = match server.name {
        "llama-server" => (&["llamacpp:requests_processing"], &["llamacpp:requests_deferred"]),
        _ => (&["superfluid_lanes_active", "superfluid_requests_running"], &["superfluid_requests_waiting"]),
    };
    let begun = Instant::now();
    loop {
        let (running, waiting) = (server.metric(running)?, server.metric(waiting)?);
        if enough(running, waiting) {
            return Ok(true);
        }
        if begun.elapsed() > most {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

//! A client that goes away frees what it held, whatever state its request is in, and its neighbours do not notice.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use sf_tests::{Events, Server, Toy, completion, piece_of, text_of};

fn streaming(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body
}

/// Answers that ended so.
fn generations(server: &Server, outcome: &str) -> f64 {
    let label = format!("outcome=\"{outcome}\"");
    let text = server.get_text("/metrics");
    let line =
        text.lines().find(|line| line.starts_with("superfluid_generations_total") && line.contains(&label));
    line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// A neighbour that runs meanwhile, and what it says when it is alone.
struct Neighbour {
    events: Events,
    said: String,
    alone: String,
}

impl Neighbour {
    fn begin(server: &Server) -> Neighbour {
        let body = completion("the neighbour", 300, 5);
        let alone = text_of(&server.post("/v1/completions", &body));
        let mut events = server.stream("/v1/completions", &streaming(body));
        let said = piece_of(&events.next().expect("a first event")).to_owned();
        Neighbour { events, said, alone }
    }

    fn end(mut self) {
        self.said.extend(self.events.map(|event| piece_of(&event).to_owned()));
        assert_eq!(self.said, self.alone);
    }
}

#[test]
fn engine_a_decoding_request_frees_its_lane() {
    let toy = Toy::default();
    let server = toy.serve(&["--sample-delay-us", "2000", "--max-batch", "2"]);
    let neighbour = Neighbour::begin(&server);
    let mut events = server.stream("/v1/completions", &streaming(completion("never ending", 900, 1)));
    events.next().expect("a first event");
    server.wait_for_metric("superfluid_lanes_active", 2.0);
    drop(events);
    server.wait_for_metric("superfluid_lanes_active", 1.0);
    neighbour.end();
    assert_eq!(generations(&server, "cancelled"), 1.0);
    // The neighbour's 300 twice, and far fewer than the other's 900.
    let tokens = server.metric("superfluid_generation_tokens_total");
    assert!((600.0..1200.0).contains(&tokens), "{tokens}");
}

#[test]
fn engine_a_prefilling_request_frees_its_lane() {
    let toy = Toy::default();
    let server = toy.serve(&[
        "--sample-delay-us",
        "5000",
        "--max-batch",
        "2",
        "--prefill-budget",
        "64",
        "--max-context",
        "16384",
    ]);
    let neighbour = Neighbour::begin(&server);
    let long = "a very long prompt ".repeat(800);
    let client = server.send("/v1/completions", &streaming(completion(&long, 5, 1)));
    server.wait_for_metric("superfluid_lanes_active", 2.0);
    drop(client);
    server.wait_for_metric("superfluid_lanes_active", 1.0);
    assert_eq!(generations(&server, "cancelled"), 1.0);
    // Of 16,000 prompt tokens most were never computed.
    let computed = server.metric("superfluid_prefill_tokens_total");
    neighbour.end();
    assert!(server.metric("superfluid_prefill_tokens_total") - computed < 512.0);
}

#[test]
fn engine_a_queued_request_is_forgotten() {
    let toy = Toy::default();
    let server = toy.serve(&["--sample-delay-us", "2000", "--max-batch", "1"]);
    let neighbour = Neighbour::begin(&server);
    let client = server.send("/v1/completions", &streaming(completion("me too", 5, 1)));
    server.wait_for_metric("superfluid_requests_waiting", 1.0);
    drop(client);
    server.wait_for_metric("superfluid_requests_waiting", 0.0);
    neighbour.end();
    assert_eq!(server.metric("superfluid_queue_seconds_count"), 2.0, "it never got a lane");
}

#[test]
fn engine_a_stop_string_frees_the_lane_for_who_waits() {
    let toy = Toy::default();
    let server = toy.serve(&["--sample-delay-us", "2000", "--max-batch", "1"]);
    let whole = text_of(&server.post("/v1/completions", &completion("abc", 60, 3)));
    let stop: String = whole.chars().skip(20).take(3).collect();
    let mut endless = completion("abc", 900, 3);
    endless["stop"] = json!([stop]);
    let before = server.metric("superfluid_generation_tokens_total");
    let stopped = text_of(&server.post("/v1/completions", &endless));
    assert_eq!(stopped, whole[..whole.find(&stop).unwrap()]);
    // The only lane is free for who comes now, long before the 900th token.
    assert_eq!(text_of(&server.post("/v1/completions", &completion("abc", 60, 3))), whole);
    let drawn = server.metric("superfluid_generation_tokens_total") - before;
    assert!((80.0..300.0).contains(&drawn), "{drawn}");
}

#[test]
fn engine_a_crowd_that_vanishes_leaves_no_lane_busy() {
    let toy = Toy::default();
    let server = toy.serve(&["--sample-delay-us", "1000"]);
    let body = |n: u64| completion("gone in a moment", 900, n);
    let expected = text_of(&server.post("/v1/completions", &completion("still here", 20, 1)));
    let clients: Vec<_> = (0..8)
        .flat_map(|n| [body(n), streaming(body(n + 8))])
        .map(|body| server.send("/v1/completions", &body))
        .collect();
    server.wait_for_metric("superfluid_lanes_active", 8.0);
    server.wait_for_metric("superfluid_requests_waiting", 8.0);
    drop(clients);
    server.wait_for_metric("superfluid_requests_waiting", 0.0);
    server.wait_for_metric("superfluid_lanes_active", 0.0);
    assert_eq!(generations(&server, "cancelled"), 16.0);
    assert_eq!(text_of(&server.post("/v1/completions", &completion("still here", 20, 1))), expected);
}

//! What is computed once is not computed again, KV that runs out costs time and no answer, and clients get what they asked
//! the scheduler for: classes, deadlines, pins.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use sf_tests::{Answer, Server, Toy, ToyModel, completion, piece_of, text_of};

fn large(context_length: u32) -> Toy {
    Toy::new(&ToyModel { context_length, ..ToyModel::default() })
}

/// Tokens of a prompt: each is a byte.
fn bytes(count: usize, salt: usize) -> Vec<u32> {
    (0..count).map(|at| (at * 7 + at / 26 * 3 + salt * 11) as u32 % 26 + u32::from(b'A')).collect()
}

/// Sends all bodies at the same time.
fn at_once(server: &Server, bodies: &[Value]) -> Vec<Answer> {
    std::thread::scope(|scope| {
        let ask = |body| scope.spawn(move || server.post("/v1/completions", body));
        let asked: Vec<_> = bodies.iter().map(ask).collect();
        asked.into_iter().map(|answer| answer.join().unwrap()).collect()
    })
}

fn cached(answer: &Answer) -> u64 {
    let details = &answer.body["usage"]["prompt_tokens_details"];
    details["cached_tokens"].as_u64().unwrap_or_else(|| panic!("no count of cached tokens: {answer:?}"))
}

fn prompt(tokens: &[u32], generate: u32, seed: u64) -> Value {
    let mut body = completion("", generate, seed);
    body["prompt"] = json!(tokens);
    body
}

#[test]
fn engine_more_requests_than_kv_holds_all_complete() {
    let toy = large(2048);
    let server = toy.serve(&["--max-batch", "4"]);
    let bodies: Vec<Value> = (0..12).map(|n| prompt(&bytes(1000, n), 900, n as u64)).collect();
    let answers = at_once(&server, &bodies);
    for (answer, body) in answers.iter().zip(&bodies) {
        assert_eq!(answer.body["usage"]["completion_tokens"], 900, "{answer:?}");
        assert_eq!(text_of(answer), text_of(&server.post("/v1/completions", body)));
    }
    assert_eq!(server.metric("superfluid_kv_cells"), 4.0 * 2048.0);
    assert!(server.metric("superfluid_kv_cells_used") <= 4.0 * 2048.0);
    server.wait_for_metric("superfluid_lanes_active", 0.0);
    assert_eq!(cached(&server.post("/v1/completions", &prompt(&bytes(500, 99), 5, 1))), 0);
}

#[test]
fn engine_a_burst_with_one_prefix_computes_it_once() {
    let toy = large(2048);
    let server = toy.serve(&["--sample-delay-us", "1000"]);
    assert!(
        server.log().contains("prefixes: shared by fork, up to 8 idle lanes, host memory 1024 MiB"),
        "{}",
        server.log()
    );
    let bodies: Vec<Value> =
        (0..8).map(|n| prompt(&[bytes(1500, 0), bytes(20, n + 1)].concat(), 30, n as u64)).collect();
    let answers = at_once(&server, &bodies);
    let computed = server.metric("superfluid_prefill_tokens_total");
    assert!(computed <= 1.2 * 1500.0 + 8.0 * 20.0, "{computed} tokens were computed");
    let counts: Vec<u64> = answers.iter().map(cached).collect();
    assert_eq!(counts.iter().filter(|count| **count >= 1500).count(), 7, "{counts:?}");
    assert_eq!(server.metric("superfluid_prefix_tokens_total"), counts.iter().sum::<u64>() as f64);
    assert_eq!(server.metric("superfluid_prefix_hits_total"), 7.0);
    for (answer, body) in answers.iter().zip(bodies) {
        let mut alone = body;
        alone["cache_prompt"] = json!(false);
        let alone = server.post("/v1/completions", &alone);
        assert_eq!((cached(&alone), text_of(&alone)), (0, text_of(answer)));
    }
}

#[test]
fn engine_a_chat_goes_on_from_what_it_said() {
    let toy = large(2048);
    let server = toy.serve(&[]);
    let mut messages = vec![json!({"role": "user", "content": "tell me a story ".repeat(20)})];
    let ask = |messages: &[Value]| {
        let body = json!({"messages": messages, "max_tokens": 40, "seed": 1, "ignore_eos": true});
        server.post("/v1/chat/completions", &body)
    };
    let first = ask(&messages);
    assert_eq!(cached(&first), 0);
    messages.push(json!({"role": "assistant", "content": first.body["choices"][0]["message"]["content"]}));
    messages.push(json!({"role": "user", "content": "and then?"}));
    let second = ask(&messages);
    let before = first.body["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(cached(&second) >= before, "{} of at least {before}", cached(&second));
}

#[test]
fn engine_a_pinned_prefix_outlives_what_others_need() {
    let toy = large(1024);
    let server = toy.serve(&["--max-batch", "2", "--prefix-blob-budget-mb", "0"]);
    let (pinned, not) = (bytes(600, 1), bytes(600, 2));
    let pin = server.post_with("/v1/completions", &[("x-superfluid-pin", "600")], &prompt(&pinned, 5, 1));
    text_of(&pin);
    assert!(server.metric("superfluid_kv_cells_pinned") >= 600.0);
    text_of(&server.post("/v1/completions", &prompt(&not, 5, 1)));
    for other in 0..8 {
        text_of(&server.post("/v1/completions", &prompt(&bytes(700, 10 + other), 5, 1)));
    }
    assert!(server.metric("superfluid_prefix_evictions_total") > 0.0);
    assert_eq!(cached(&server.post("/v1/completions", &prompt(&not, 5, 1))), 0);
    assert!(cached(&server.post("/v1/completions", &prompt(&pinned, 5, 1))) >= 599);
}

#[test]
fn engine_a_class_keeps_within_its_lanes() {
    let toy = Toy::default();
    let server =
        toy.serve(&["--max-batch", "3", "--class-lanes", "background=1", "--sample-delay-us", "1000"]);
    let mut body = completion("whenever", 900, 1);
    body["stream"] = json!(true);
    let background = [("x-superfluid-qos", "background")];
    let streams: Vec<_> = (0..2).map(|_| server.stream_with("/v1/completions", &background, &body)).collect();
    server.wait_for_metric("superfluid_lanes_active", 1.0);
    server.wait_for_metric("superfluid_requests_waiting", 1.0);
    text_of(&server.post("/v1/completions", &completion("now", 5, 1)));
    server.wait_for_metric("superfluid_lanes_active", 1.0);
    drop(streams);
    server.wait_for_metric("superfluid_lanes_active", 0.0);

    let refused =
        server.post_with("/v1/completions", &[("x-superfluid-qos", "urgent")], &completion("x", 5, 1));
    assert_eq!(refused.status, 400, "{refused:?}");
}

#[test]
fn engine_the_background_divisor_is_set_at_run_time() {
    let toy = Toy::default();
    let server = toy.serve(&[]);
    assert_eq!(server.get("/v1/scheduling").body["background_every"], 4);
    assert_eq!(server.put("/v1/scheduling", &json!({"background_every": 16})).status, 200);
    assert_eq!(server.get("/v1/scheduling").body["background_every"], 16);
    assert_eq!(server.put("/v1/scheduling", &json!({"background_every": 0})).status, 400);
}

#[test]
fn engine_a_deadline_ends_an_answer_with_what_it_has() {
    let toy = Toy::default();
    let server = toy.serve(&["--sample-delay-us", "5000", "--max-batch", "1"]);
    let deadline = [("x-superfluid-deadline-ms", "300")];
    let body = completion("as far as it goes", 900, 1);
    let answer = server.post_with("/v1/completions", &deadline, &body);
    let choice = &answer.body["choices"][0];
    assert_eq!(
        (choice["finish_reason"].as_str(), choice["ended_by"].as_str()),
        (Some("length"), Some("deadline"))
    );
    let drawn = answer.body["usage"]["completion_tokens"].as_u64().unwrap();
    assert!((1..900).contains(&drawn), "{drawn}");

    // One that still waits never starts.
    let mut long = completion("first come", 900, 1);
    long["stream"] = json!(true);
    let mut events = server.stream("/v1/completions", &long);
    events.next().expect("a first event");
    let late = server.post_with("/v1/completions", &deadline, &body);
    assert_eq!(late.body["error"]["code"], "deadline_exceeded", "{late:?}");
    assert_eq!(server.metric("superfluid_deadlines_total"), 2.0);
}

#[test]
fn engine_a_slow_reader_is_waited_for_and_gets_everything() {
    let toy = large(1 << 16);
    let server = toy.serve(&["--max-context", "65536", "--max-batch", "2"]);
    // More than the connection's buffers take.
    let mut body = completion("a flood", 40_000, 1);
    body["logprobs"] = json!(5);
    let mut slow = body.clone();
    slow["stream"] = json!(true);
    let mut events = server.stream("/v1/completions", &slow);
    let mut text = piece_of(&events.next().expect("a first event")).to_owned();
    server.wait_for_metric("superfluid_client_holds_total", 1.0);
    text_of(&server.post("/v1/completions", &completion("a neighbour", 50, 1)));
    text.extend(events.map(|event| piece_of(&event).to_owned()));
    assert!(text == text_of(&server.post("/v1/completions", &body)), "the slow reader got another text");
}

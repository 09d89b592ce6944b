//! The server on the C sample runtime: the same answers on both transports, alone and in a crowd, through crashes and
//! vanishing clients.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::Signal;
use serde_json::{Value, json};
use sf_tests::{Toy, completion, piece_of, signal, streamed, text_of};

#[test]
fn engine_both_transports_give_the_same_answers_streamed_or_not() {
    let toy = Toy::default();
    let worker = toy.serve(&[]);
    let in_process = toy.serve(&["--no-worker-process"]);
    assert_eq!(worker.workers().len(), 1);
    assert_eq!(in_process.workers().len(), 0);
    for seed in 0..5 {
        let body = completion("Once upon a time", 60, seed);
        let whole = text_of(&worker.post("/v1/completions", &body));
        assert!(!whole.is_empty());
        assert_eq!(text_of(&in_process.post("/v1/completions", &body)), whole);
        assert_eq!(streamed(&worker, body.clone()), whole);
        assert_eq!(streamed(&in_process, body), whole);
    }
}

#[test]
fn engine_a_crowd_gets_the_answers_of_the_lonely() {
    let toy = Toy::default();
    let server = toy.serve(&["--max-batch", "4"]);
    let bodies: Vec<Value> = (0..12)
        .map(|n| completion(&"tell me more ".repeat(1 + n % 5), 30 + n as u32 * 3, n as u64))
        .collect();
    let alone: Vec<String> =
        bodies.iter().map(|body| text_of(&server.post("/v1/completions", body))).collect();
    let crowd: Vec<String> = std::thread::scope(|scope| {
        let server = &server;
        let handles: Vec<_> =
            bodies.iter().map(|body| scope.spawn(move || streamed(server, body.clone()))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    assert_eq!(crowd, alone);
}

#[test]
fn engine_chat_works_with_usage_and_choices() {
    let toy = Toy::default();
    let server = toy.serve(&[]);
    let body = json!({
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 12, "n": 3, "seed": 7, "ignore_eos": true, "logprobs": true, "top_logprobs": 2,
    });
    let answer = server.post("/v1/chat/completions", &body);
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let choices = answer.body["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 3);
    assert_ne!(choices[0]["message"]["content"], choices[1]["message"]["content"]);
    assert_eq!(choices[0]["logprobs"]["content"].as_array().unwrap().len(), 12);
    assert_eq!(answer.body["usage"]["completion_tokens"], 36);
    assert_eq!(
        server.post("/v1/chat/completions", &body).body["choices"],
        answer.body["choices"],
        "the seed reproduces"
    );
}

#[test]
fn engine_a_stop_string_ends_the_answer_before_it() {
    let toy = Toy::default();
    let server = toy.serve(&[]);
    let mut body = completion("abc", 80, 3);
    let whole = text_of(&server.post("/v1/completions", &body));
    let at = whole.char_indices().nth(20).expect("more than 20 characters").0;
    let stop: String = whole[at..].chars().take(3).collect();
    body["stop"] = json!([stop]);
    let cut = server.post("/v1/completions", &body);
    assert_eq!(text_of(&cut), whole[..whole.find(&stop).unwrap()]);
    assert_eq!(cut.body["choices"][0]["finish_reason"], "stop");
    server.wait_for_metric("superfluid_requests_running", 0.0);
    let metrics = server.get_text("/metrics");
    let cancelled = metrics.lines().find(|line| line.contains("outcome=\"cancelled\"")).unwrap();
    assert!(cancelled.ends_with(" 0"), "a stop string is an end, not a client that left: {cancelled}");
}

#[test]
fn engine_a_killed_worker_costs_a_pause_and_no_text() {
    let toy = Toy::default();
    let server = toy.serve(&["--sample-delay-us", "2000"]);
    let body = completion("a long story", 200, 1);
    let undisturbed = text_of(&server.post("/v1/completions", &body));

    let mut streaming = body;
    streaming["stream"] = json!(true);
    let mut events = server.stream("/v1/completions", &streaming);
    let mut text = piece_of(&events.next().expect("a first event")).to_owned();
    signal(server.workers()[0], Signal::KILL);
    text.extend(events.map(|event| piece_of(&event).to_owned()));
    assert_eq!(text, undisturbed);

    assert_eq!(server.metric("superfluid_worker_restarts_total"), 1.0);
    assert_eq!(server.metric("superfluid_worker_deaths_total"), 1.0);
    assert_eq!(server.metric("superfluid_resumes_total"), 1.0);
    assert!(server.log().contains("SIGKILL"), "{}", server.log());
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn engine_a_worker_killed_while_idle_costs_no_request() {
    let toy = Toy::default();
    let server = toy.serve(&[]);
    let body = completion("x", 10, 1);
    let before = text_of(&server.post("/v1/completions", &body));
    signal(server.workers()[0], Signal::KILL);
    let answer = server.post("/v1/completions", &body);
    assert_eq!(text_of(&answer), before);
}

#[test]
fn engine_a_vanished_client_frees_its_lane() {
    let toy = Toy::default();
    let server = toy.serve(&["--sample-delay-us", "1000", "--max-batch", "2"]);
    let mut body = completion("never ending", 900, 1);
    body["stream"] = json!(true);
    let streams: Vec<_> = (0..2)
        .map(|_| {
            let mut events = server.stream("/v1/completions", &body);
            events.next().expect("a first event");
            events
        })
        .collect();
    server.wait_for_metric("superfluid_requests_running", 2.0);
    drop(streams);
    server.wait_for_metric("superfluid_requests_running", 0.0);
    text_of(&server.post("/v1/completions", &completion("short", 5, 1)));
}

#[test]
fn engine_sigterm_lets_running_answers_finish() {
    let toy = Toy::default();
    let server = toy.serve(&["--sample-delay-us", "2000"]);
    let body = completion("the end", 150, 5);
    let whole = text_of(&server.post("/v1/completions", &body));
    let mut streaming = body;
    streaming["stream"] = json!(true);
    let mut events = server.stream("/v1/completions", &streaming);
    let mut received =
        events.next().expect("a first event")["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
    server.terminate();
    for event in events {
        received.push_str(event["choices"][0]["text"].as_str().unwrap_or_default());
    }
    assert_eq!(received, whole);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn engine_bad_requests_are_refused_and_the_next_good_one_is_answered() {
    let toy = Toy::default();
    let server = toy.serve(&["--max-context", "512"]);
    let check = |body: Value, status: u16, code: &str| {
        let answer = server.post("/v1/completions", &body);
        assert_eq!(
            (answer.status, answer.body["error"]["code"].as_str()),
            (status, Some(code)),
            "{body} → {answer:?}"
        );
    };
    check(json!({"prompt": "x".repeat(600)}), 400, "context_length_exceeded");
    check(json!({"prompt": [999_999]}), 400, "token_out_of_range");
    check(json!({"prompt": "x", "logit_bias": {"999999": 1}}), 400, "token_out_of_range");
    check(json!({"prompt": "x", "model": "nobody"}), 404, "model_not_found");
    check(json!({"prompt": ""}), 400, "empty_prompt");
    text_of(&server.post("/v1/completions", &completion("x", 3, 1)));
}

#[test]
fn engine_an_api_key_is_asked_for() {
    let toy = Toy::default();
    let server = toy.serve(&["--api-key", "sesame"]);
    assert_eq!(server.post("/v1/completions", &completion("x", 1, 1)).status, 401);
    assert_eq!(server.get("/health").status, 200);
    assert!(!server.log().contains("sesame"));
}

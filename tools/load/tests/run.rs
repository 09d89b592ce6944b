//! Runs against a server that answers well, badly, or not at all.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use common::{Asked, STREAM, Server, event, put, whole, words};
use sf_load::{
    Arrivals, Calibration, Classes, Connections, Failure, Generator, Leave, Lengths, Live, Outcome, Pacing,
    Plan, Quiet, Record, Route, Run, RunOptions, Shot, Start, Traffic, Usage, Watch, ask, calibrate,
    first_model, is_ready, run,
};

const PATH: &str = "/v1/completions";

fn shot() -> Shot {
    Shot::streamed(0, PATH, *b"{\"stream\":true}")
}

fn send(server: &Server, mut plan: Plan) -> Run {
    let options = RunOptions { timeout: Some(Duration::from_secs(20)), ..RunOptions::default() };
    run(&server.target, &mut plan, &options, &mut Quiet).unwrap()
}

fn one(shot: Shot, answer: impl Fn(&Asked, &mut TcpStream) -> bool + Send + Sync + 'static) -> Record {
    let mut run = send(&Server::start(answer), Plan::burst([shot]));
    assert_eq!(run.records.len(), 1);
    run.records.remove(0)
}

#[test]
fn a_stream_is_measured_and_counted() {
    let record = one(shot(), |asked, stream| {
        assert_eq!(asked.line, "POST /v1/completions HTTP/1.1\r\n");
        assert!(asked.headers.contains("Host: 127.0.0.1:"), "{}", asked.headers);
        assert_eq!(asked.body, r#"{"stream":true}"#);
        words(stream, 9)
    });
    assert_eq!(record.outcome, Outcome::Ok);
    assert_eq!((record.status, record.events(), record.tokens()), (200, 9, 9.0));
    assert_eq!(record.usage, Usage { prompt: Some(7), completion: Some(9), cached: Some(3) });
    assert_eq!(record.finish_reason.as_deref(), Some("length"));
    assert!(record.ttft.unwrap() <= record.total && record.text.is_none());
}

#[test]
fn text_is_kept_when_asked_for() {
    let record = one(Shot { keep_text: true, ..shot() }, |_, stream| words(stream, 3));
    assert_eq!(record.text.as_deref(), Some(" w0 w1 w2"));
    let body = r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":4,"completion_tokens":1}}"#;
    let chat = Shot { keep_text: true, ..Shot::plain(0, "/v1/chat/completions", *b"{}") };
    let record = one(chat, move |_, stream| whole(stream, "200 OK", body));
    assert_eq!((record.text.as_deref(), record.ttft, record.tokens()), (Some("hi"), None, 1.0));
    assert_eq!((record.outcome, record.usage.prompt), (Outcome::Ok, Some(4)));
}

#[test]
fn failures_have_their_kind() {
    let check = |shot: Shot, expect: &str, answer: fn(&Asked, &mut TcpStream) -> bool| {
        let record = one(shot, answer);
        let Outcome::Failed(failure) = record.outcome else { panic!("{expect}: {:?}", record.outcome) };
        assert_eq!(failure.label(), expect, "{failure}");
    };
    let plain = || Shot::plain(0, PATH, *b"{}");
    check(shot(), "429 queue_full", |_, stream| {
        whole(
            stream,
            "429 Too Many Requests",
            r#"{"error":{"message":"full","type":"t","code":"queue_full"}}"#,
        )
    });
    check(shot(), "500", |_, stream| whole(stream, "500 No", "<html>"));
    check(shot(), "stream engine_lost", |_, stream| {
        put(stream, STREAM)
            && event(stream, r#"{"error":{"message":"gone","code":"engine_lost"}}"#)
            && event(stream, "[DONE]")
            && put(stream, "0\r\n\r\n")
    });
    check(shot(), "closed", |_, stream| {
        put(stream, STREAM);
        event(stream, r#"{"choices":[{"text":"a"}]}"#);
        false
    });
    check(shot(), "closed", |_, _| false);
    check(shot(), "protocol", |_, stream| {
        put(stream, STREAM) && event(stream, r#"{"choices":[{"text":"a"}]}"#) && put(stream, "0\r\n\r\n")
    });
    check(shot(), "protocol", |_, stream| {
        put(stream, STREAM) && event(stream, "not json") && put(stream, "0\r\n\r\n")
    });
    check(shot(), "protocol", |_, stream| whole(stream, "200 OK", "{}"));
    check(shot(), "protocol", |_, stream| put(stream, "SSH-2.0-x\r\n\r\n"));
    check(plain(), "protocol", |_, stream| whole(stream, "200 OK", "not json"));
}

#[test]
fn an_answer_that_never_comes_times_out_and_others_do_not_mind() {
    let server = Server::start(|asked, stream| asked.body.contains("hang") || words(stream, 2));
    let mut plan = Plan::burst([Shot::streamed(0, PATH, *b"{\"hang\":1}"), shot()]);
    let options = RunOptions { timeout: Some(Duration::from_millis(300)), ..RunOptions::default() };
    let run = run(&server.target, &mut plan, &options, &mut Quiet).unwrap();
    assert_eq!(run.of(0).unwrap().outcome, Outcome::Failed(Failure::Timeout));
    assert!(run.of(1).unwrap().is_ok());
    assert_eq!(run.first_failure(), Some(&Failure::Timeout));
}

#[test]
fn a_port_where_nobody_listens_is_a_failed_connection() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = sf_load::Target::local(closed.local_addr().unwrap().port());
    drop(closed);
    let run = run(&target, &mut Plan::burst([shot()]), &RunOptions::default(), &mut Quiet).unwrap();
    assert_eq!(run.first_failure().unwrap().label(), "connect");
    assert!(ask(&target, "GET", "/", b"").is_err() && !is_ready(&target));
}

#[test]
fn a_stream_that_ends_with_the_connection_is_complete() {
    let record = one(shot(), |_, stream| {
        put(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]",
        );
        false
    });
    assert_eq!((record.outcome, record.status), (Outcome::Ok, 200));
    // Some servers close after [DONE] without the last chunk.
    let record = one(shot(), |_, stream| {
        put(stream, STREAM);
        event(stream, r#"{"choices":[{"text":"a"}]}"#);
        event(stream, "[DONE]");
        false
    });
    assert_eq!(record.outcome, Outcome::Ok);
}

#[test]
fn clients_that_leave_are_seen_by_the_server() {
    let (told, gone) = mpsc::channel();
    let told = Mutex::new(told);
    let server = Server::start(move |_, stream| {
        put(stream, STREAM);
        while event(stream, r#"{"choices":[{"text":"a"}]}"#) {
            std::thread::yield_now();
        }
        told.lock().unwrap().send(()).unwrap();
        false
    });
    let leave = |leave| Shot { leave: Some(leave), ..shot() };
    let run = send(
        &server,
        Plan::burst([leave(Leave::AfterEvents(5)), leave(Leave::After(Duration::from_millis(30)))]),
    );
    assert!(run.records.iter().all(|record| record.outcome == Outcome::Cut && record.status == 200));
    assert!(run.of(0).unwrap().events() >= 5);
    gone.recv_timeout(Duration::from_secs(20)).unwrap();
    gone.recv_timeout(Duration::from_secs(20)).unwrap();
}

/// What a server does with a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Keep,
    Close,
    /// Sends nothing any more, and listens on.
    HalfClose,
}

#[test]
fn connections_are_kept_as_told() {
    let check = |connections: Connections, shot: fn() -> Shot, then: Then, expect: usize| {
        let server = Server::start(move |asked, stream| {
            match asked.body.as_str() {
                "{}" => whole(stream, "200 OK", "{}"),
                _ => words(stream, 2),
            };
            if then == Then::HalfClose {
                // The client may be gone already.
                drop(stream.shutdown(std::net::Shutdown::Write));
            }
            then != Then::Close
        });
        let mut plan = Plan::chains([(0..3).map(|_| shot()).collect()]);
        let options = RunOptions { connections, ..RunOptions::default() };
        let run = run(&server.target, &mut plan, &options, &mut Quiet).unwrap();
        assert!(run.records.iter().all(Record::is_ok), "{:?}", run.first_failure());
        assert_eq!((run.records.len(), server.connections()), (3, expect), "{connections:?} {then:?}");
    };
    let plain = || Shot::plain(0, PATH, *b"{}");
    check(Connections::Auto, shot, Then::Keep, 3);
    check(Connections::Auto, plain, Then::Keep, 1);
    check(Connections::Kept, shot, Then::Keep, 1);
    check(Connections::Fresh, plain, Then::Keep, 3);
    // A server that closes although it said that it would not: the request is sent again.
    for then in [Then::Close, Then::HalfClose] {
        check(Connections::Kept, shot, then, 3);
        check(Connections::Auto, plain, then, 3);
    }
}

#[test]
fn chains_wait_and_start_times_are_kept() {
    let server = Server::start(|_, stream| words(stream, 1));
    let mut plan = Plan::new();
    let late = plan.push(Start::At(Duration::from_millis(60)), shot());
    let next = plan.push(Start::After { shot: late, pause: Duration::from_millis(20) }, shot());
    let first = plan.push(Start::At(Duration::ZERO), shot());
    let run = send(&server, plan);
    let order: Vec<usize> = run.records.iter().map(|record| record.shot).collect();
    assert_eq!(order, [first, late, next]);
    let of = |shot| run.of(shot).unwrap();
    assert!(
        of(late).due == Duration::from_millis(60)
            && of(next).due >= of(late).end() + Duration::from_millis(20)
    );
}

struct StopAfter(usize);

impl Watch for StopAfter {
    fn look(&mut self, live: &Live<'_>) -> bool {
        self.0 = self.0.saturating_sub(1);
        assert!(live.running <= 4 && live.events as usize >= live.records.len());
        self.0 > 0
    }
}

fn recipe(pacing: Pacing) -> Traffic {
    Traffic {
        pacing,
        requests: None,
        route: Route::Completions,
        streamed: true,
        prompts: Lengths::fixed(8),
        answers: Lengths::fixed(4),
        shared_prefix: 0,
        prefix_groups: 1,
        classes: Classes::read("agent:1,background:1").unwrap(),
        temperature: 0.0,
        top_p: None,
        ignore_eos: true,
        model: None,
        extra: serde_json::Map::new(),
        seed: 1,
    }
}

#[test]
fn a_closed_loop_ends_when_told_and_cuts_what_runs() {
    let server = Server::start(|asked, stream| {
        assert!(asked.headers.contains("X-Superfluid-QoS: "));
        // One of the requests never ends.
        if asked.headers.contains("background") { asked.nth == usize::MAX } else { words(stream, 4) }
    });
    let mut source = Generator::new(recipe(Pacing::Clients(4)), Calibration::default());
    let run = run(&server.target, &mut source, &RunOptions::default(), &mut StopAfter(2)).unwrap();
    assert!(run.interrupted);
    assert!(run.records.len() >= 4);

    let server = Server::start(|_, stream| {
        put(stream, STREAM) && {
            std::thread::park();
            true
        }
    });
    let mut source = Generator::new(recipe(Pacing::Clients(4)), Calibration::default());
    let until = Some(Duration::from_millis(50));
    let options = RunOptions { until, ..RunOptions::default() };
    let run = sf_load::run(&server.target, &mut source, &options, &mut Quiet).unwrap();
    assert!(!run.interrupted);
    assert!(run.records.len() == 4 && run.records.iter().all(|record| record.outcome == Outcome::Cut));
}

#[test]
fn an_open_loop_starts_requests_whether_or_not_others_have_ended() {
    let server = Server::start(|_, stream| {
        put(stream, STREAM) && {
            std::thread::park();
            true
        }
    });
    let pacing = Pacing::Rate { per_second: 1000.0, arrivals: Arrivals::Poisson };
    let traffic = Traffic { requests: Some(20), ..recipe(pacing) };
    let mut source = Generator::new(traffic.clone(), Calibration::default());
    let until = Some(Duration::from_secs(1));
    let options = RunOptions { until, ..RunOptions::default() };
    let run = run(&server.target, &mut source, &options, &mut Quiet).unwrap();
    assert_eq!(run.records.len(), 20);

    let mut source = Generator::new(traffic, Calibration::default());
    let options = RunOptions { running_max: 2, until: Some(Duration::from_millis(300)), ..options };
    let run = sf_load::run(&server.target, &mut source, &options, &mut Quiet).unwrap();
    assert_eq!(run.records.len(), 2, "no more at once than allowed");
}

#[test]
fn a_server_says_its_model_and_counts_tokens() {
    let server = Server::start(|asked, stream| match asked.line.split(' ').nth(1).unwrap() {
        "/ready" => whole(stream, "200 OK", "{}"),
        "/v1/models" => whole(stream, "200 OK", r#"{"data":[{"id":"smol"}]}"#),
        "/v1/tokenize" => {
            let body: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
            assert_eq!(body["model"], "smol");
            let (text, extra) = match body["prompt"].as_str() {
                Some(text) => (text, 0),
                None => (body["messages"][0]["content"].as_str().unwrap(), 30),
            };
            let tokens: Vec<usize> = (0..text.split(' ').count() * 2 + extra).collect();
            whole(stream, "200 OK", &format!(r#"{{"tokens":{tokens:?}}}"#))
        }
        _ => whole(stream, "404 Not Found", "{}"),
    });
    assert!(is_ready(&server.target));
    assert_eq!(first_model(&server.target).unwrap().as_deref(), Some("smol"));
    let writer = sf_load::prompt::Writer::new(1);
    let expect = Calibration { tokens_per_word: Some(2.0), chat_overhead: 30 };
    assert_eq!(calibrate(&server.target, Some("smol"), &writer), expect);

    let llama = Server::start(|asked, stream| match asked.line.contains(" /tokenize ") {
        true => whole(stream, "200 OK", &format!(r#"{{"tokens":{:?}}}"#, vec![1; 500])),
        false => whole(stream, "404 Not Found", "{}"),
    });
    let expect = Calibration { tokens_per_word: Some(1.25), chat_overhead: 0 };
    assert_eq!(calibrate(&llama.target, None, &writer), expect);

    let other = Server::start(|_, stream| whole(stream, "401 Unauthorized", "{}"));
    assert_eq!(calibrate(&other.target, None, &writer), Calibration::default());
    assert!(first_model(&other.target).unwrap_err().to_string().contains("--api-key"));
}

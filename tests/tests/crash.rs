//! Streams survive the death of their engine: text goes on where it stopped, restarts are bounded, and a model that cannot
//! be kept alive is retired and loaded again on request.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Condvar, Mutex};

use rustix::process::Signal;
use serde_json::{Value, json};
use sf_tests::{Server, Toy, completion, piece_of, signal, text_of};

const STREAMS: usize = 8;
/// Two of the streams wait for a lane at first.
const LANES: &str = "6";

/// How often a worker is killed: `SUPERFLUID_CRASHES`, or few enough for every day.
fn crashes() -> usize {
    std::env::var("SUPERFLUID_CRASHES").map_or(24, |count| count.parse().expect("a number"))
}

/// What was received by all streams together, in bytes of text, and who waits for how much.
#[derive(Default)]
struct Received {
    bytes: Mutex<usize>,
    more: Condvar,
}

impl Received {
    fn add(&self, bytes: usize) {
        *self.bytes.lock().unwrap() += bytes;
        self.more.notify_all();
    }

    fn wait_for(&self, bytes: usize) {
        drop(self.more.wait_while(self.bytes.lock().unwrap(), |received| *received < bytes).unwrap());
    }
}

/// Text, end and count of an answer.
type Whole = (String, String, Value);

fn body(stream: usize) -> Value {
    let mut body = completion(&"once more ".repeat(1 + stream * 4), 50 + 3 * stream as u32, stream as u64);
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    if stream.is_multiple_of(2) {
        body["frequency_penalty"] = json!(0.5);
        body["repeat_penalty"] = json!(1.1);
    }
    body
}

fn listen(server: &Server, stream: usize, received: &Received) -> Whole {
    let (mut text, mut end, mut count) = (String::new(), String::new(), Value::Null);
    for event in server.stream("/v1/completions", &body(stream)) {
        let piece = piece_of(&event);
        received.add(piece.len());
        text.push_str(piece);
        if let Some(reason) = event["choices"][0]["finish_reason"].as_str() {
            end.push_str(reason);
        }
        if event["usage"].is_object() {
            count = event["usage"]["completion_tokens"].clone();
        }
    }
    (text, end, count)
}

/// Runs all streams; the worker is killed once they have received `moment` bytes.
fn run(server: &Server, moment: Option<usize>) -> Vec<Whole> {
    let received = Received::default();
    std::thread::scope(|scope| {
        let received = &received;
        let streams: Vec<_> =
            (0..STREAMS).map(|stream| scope.spawn(move || listen(server, stream, received))).collect();
        if let Some(moment) = moment {
            received.wait_for(moment);
            signal(server.workers()[0], Signal::KILL);
        }
        streams.into_iter().map(|stream| stream.join().unwrap()).collect()
    })
}

#[test]
fn engine_a_worker_killed_at_any_moment_costs_no_text() {
    let toy = Toy::default();
    let server = toy.serve(&["--sample-delay-us", "300", "--max-batch", LANES]);
    let undisturbed = run(&server, None);
    let bytes: usize = undisturbed.iter().map(|(text, ..)| text.len()).sum();
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    for crash in 0..crashes() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let moment = random as usize % bytes;
        assert_eq!(
            run(&server, Some(moment)),
            undisturbed,
            "crash {crash} at byte {moment}: {}",
            server.log()
        );
    }
    // The last one may have come after the last text.
    text_of(&server.post("/v1/completions", &completion("and now", 5, 1)));
    assert_eq!(server.metric("superfluid_worker_deaths_total"), crashes() as f64);
    assert_eq!(server.metric("superfluid_worker_restarts_total"), crashes() as f64);
    assert!(server.metric("superfluid_resumes_total") > 0.0);
    assert_eq!(server.metric("superfluid_model_retirements_total"), 0.0);
    server.wait_for_metric("superfluid_lanes_active", 0.0);
}

#[test]
fn engine_a_worker_that_hangs_is_replaced_and_its_stream_goes_on() {
    let toy = Toy::default();
    let server = toy.serve(&["--sample-delay-us", "1000"]);
    let mut asked = completion("wait for me", 400, 3);
    let undisturbed = text_of(&server.post("/v1/completions", &asked));
    asked["stream"] = json!(true);
    let mut events = server.stream("/v1/completions", &asked);
    let mut text = piece_of(&events.next().expect("a first event")).to_owned();
    signal(server.workers()[0], Signal::STOP);
    text.extend(events.map(|event| piece_of(&event).to_owned()));
    assert_eq!(text, undisturbed);
    assert!(server.get_text("/metrics").contains("kind=\"hung\"} 1"), "{}", server.get_text("/metrics"));
}

#[test]
fn engine_a_model_that_kills_every_engine_is_retired_with_its_reason() {
    let check = |mode: &str, reason: &str, kind: &str| {
        let toy = Toy::bad(mode);
        let server = toy.serve(&[]);
        let ask = || {
            let answer = server.post("/v1/completions", &completion("x", 5, 1));
            (answer.status, answer.body["error"]["code"].as_str().unwrap_or_default().to_owned())
        };
        // What it was asked may be what kills it: the first request is given up before the model is.
        assert_eq!(ask(), (500, "engines_lost".to_owned()), "{mode}: {}", server.log());
        assert_eq!(ask(), (503, "model_retired".to_owned()), "{mode}: {}", server.log());
        let (state, why) = server.model_state();
        assert_eq!(state, "retired", "{mode}");
        assert!(why.contains(reason), "{mode}: {why}");
        assert_eq!(server.metric("superfluid_worker_restarts_total"), 5.0, "{mode}");
        assert_eq!(server.metric("superfluid_worker_deaths_total"), 6.0, "{mode}");
        assert!(server.get_text("/metrics").contains(&format!("kind=\"{kind}\"}} 6")), "{mode}");
        // One more chance for each later request, and no more than one.
        assert_eq!(ask(), (503, "model_retired".to_owned()), "{mode}: {}", server.log());
        assert_eq!(server.metric("superfluid_worker_deaths_total"), 7.0, "{mode}");
        assert_eq!(server.metric("superfluid_model_retirements_total"), 2.0, "{mode}");
    };
    check("abort_step", "SIGABRT", "died");
    check("exit_step", "exit code 3", "died");
    check("fatal_step", "wants a new process", "refused");
}

#[test]
fn engine_deadlines_hold_while_the_next_engine_is_slow_to_open() {
    let toy = Toy::default();
    let server = toy.serve(&["--sample-delay-us", "2000"]);
    std::fs::rename(&toy.model, toy.dir().join("away")).unwrap();
    // Opening it waits for a writer that never comes.
    assert!(std::process::Command::new("mkfifo").arg(&toy.model).status().unwrap().success());
    let mut body = completion("for ever", 900, 1);
    body["stream"] = json!(true);
    let mut events = server.stream_with("/v1/completions", &[("x-superfluid-deadline-ms", "1500")], &body);
    piece_of(&events.next().expect("a first event"));
    signal(server.workers()[0], Signal::KILL);
    let ends: Vec<Value> = events.filter(|event| event["choices"][0]["finish_reason"].is_string()).collect();
    let [end] = &ends[..] else { panic!("{ends:?}: {}", server.log()) };
    assert_eq!(end["choices"][0]["ended_by"], "deadline", "{end}");
    assert_eq!(server.model_state().0, "restarting");
}

#[test]
fn engine_a_retired_model_is_loaded_again_on_a_later_request() {
    let toy = Toy::default();
    let server = toy.serve(&[]);
    let body = completion("back again", 20, 1);
    let before = text_of(&server.post("/v1/completions", &body));
    let away = toy.dir().join("away");
    std::fs::rename(&toy.model, &away).unwrap();
    signal(server.workers()[0], Signal::KILL);
    let answer = server.post("/v1/completions", &body);
    assert_eq!((answer.status, answer.body["error"]["code"].as_str()), (503, Some("model_retired")));
    let (state, why) = server.model_state();
    assert_eq!(state, "retired");
    assert!(why.contains("cannot open"), "{why}");
    assert_eq!(server.get("/ready").status, 503);

    std::fs::rename(&away, &toy.model).unwrap();
    assert_eq!(text_of(&server.post("/v1/completions", &body)), before);
    assert_eq!(server.model_state(), ("ready".to_owned(), String::new()));
    assert_eq!(server.metric("superfluid_model_retirements_total"), 1.0);
}

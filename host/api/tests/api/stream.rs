//! Streams: writes, silence, cancellation, and that streamed and whole answers say the same.

use std::time::Duration;

use axum::body::Body;
use futures_util::FutureExt;
use http::Request;
use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use sf_core::limits::STREAM_SILENCE_MAX;
use sf_core::ports::ModelState;
use sf_core::{FinishReason, TurnEvent};

use crate::fake::{Fake, delta, end, post_of, respond, routes, send, token, within};

fn chat(stream: bool) -> Request<Body> {
    let body = json!({"messages": [{"role": "user", "content": "x"}], "stream": stream});
    post_of("/v1/chat/completions", body.to_string())
}

async fn frame(body: &mut Body) -> String {
    let frame = within(body.frame()).await.expect("the stream goes on").unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn events_that_wait_leave_in_one_write_and_none_is_held_back() {
    let (fake, events) = Fake::live();
    let mut body = respond(&routes(&fake), chat(true)).await.into_body();
    assert!(body.frame().now_or_never().is_none(), "there is nothing to write yet");
    for text in ["a", "b", "c"] {
        events.send(delta(0, text)).unwrap();
    }
    let first = frame(&mut body).await;
    // The role, and three texts.
    assert_eq!(first.matches("data: ").count(), 4, "{first}");
    events.send(delta(0, "d")).unwrap();
    assert_eq!(frame(&mut body).await.matches("data: ").count(), 1);
    events.send(end(0, FinishReason::Stop, 4)).unwrap();
    let last = frame(&mut body).await;
    assert!(last.contains("\"stop\"") && last.ends_with("data: [DONE]\n\n"), "{last}");
    assert!(within(body.frame()).await.is_none());
}

#[tokio::test]
async fn one_write_has_a_limit() {
    let fake = Fake::playing(vec![delta(0, "some text"); 10_000]);
    let mut body = respond(&routes(&fake), chat(true)).await.into_body();
    let length = frame(&mut body).await.len();
    let limit = sf_core::limits::STREAM_WRITE_BYTES_MAX;
    assert!((limit..limit + 1024).contains(&length), "{length}");
}

#[tokio::test(start_paused = true)]
async fn silence_is_broken_by_a_comment() {
    let (fake, events) = Fake::live();
    let mut body = respond(&routes(&fake), chat(true)).await.into_body();
    let comment = ": still here\n\n";
    assert_eq!(frame(&mut body).await, comment);
    assert_eq!(frame(&mut body).await, comment);
    // Text starts the silence anew: 10 s after it nothing is due, though the last comment is 20 s old.
    tokio::time::advance(Duration::from_secs(10)).await;
    events.send(delta(0, "a")).unwrap();
    assert!(frame(&mut body).await.contains("\"a\""));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(body.frame().now_or_never().is_none());
    assert_eq!(frame(&mut body).await, comment);
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_engine_is_started_again_pauses_and_goes_on() {
    let (fake, events) = Fake::live();
    let mut body = respond(&routes(&fake), chat(true)).await.into_body();
    events.send(delta(0, "before ")).unwrap();
    let mut all = frame(&mut body).await;
    fake.cards.lock().unwrap()[0].state = ModelState::Restarting;
    // Two silences long nothing comes from the engine.
    let pause = async {
        tokio::time::sleep(STREAM_SILENCE_MAX * 5 / 2).await;
        events.send(delta(0, "after")).unwrap();
        events.send(end(0, FinishReason::Stop, 2)).unwrap();
    };
    let rest = async {
        let mut rest = String::new();
        while !rest.ends_with("data: [DONE]\n\n") {
            rest += &frame(&mut body).await;
        }
        rest
    };
    let ((), rest) = tokio::join!(pause, rest);
    all += &rest;
    assert_eq!(all.matches(": still here\n\n").count(), 2, "{all}");
    let (before, after) = (all.find("before ").unwrap(), all.find("after").unwrap());
    let comments = before..after;
    assert!(comments.contains(&all.find(": still").unwrap()) && !all.contains("error"), "{all}");
    assert_eq!(fake.turns.lock().unwrap().len(), 1, "nobody asks twice");
}

#[tokio::test]
async fn dropping_a_response_cancels_its_turn() {
    let (fake, events) = Fake::live();
    events.send(delta(0, "a")).unwrap();
    let mut body = respond(&routes(&fake), chat(true)).await.into_body();
    frame(&mut body).await;
    assert_eq!(fake.streams_dropped(), 0);
    drop(body);
    assert_eq!(fake.streams_dropped(), 1);
}

#[tokio::test]
async fn dropping_a_request_that_waits_for_a_whole_answer_cancels_its_turn() {
    let (fake, _events) = Fake::live();
    let routes = routes(&fake);
    let mut waiting = Box::pin(respond(&routes, chat(false)));
    assert!((&mut waiting).now_or_never().is_none());
    assert_eq!((fake.turns.lock().unwrap().len(), fake.streams_dropped()), (1, 0));
    drop(waiting);
    assert_eq!(fake.streams_dropped(), 1);
}

#[tokio::test]
async fn a_failed_prompt_cancels_the_others() {
    let fake = Fake::new(|turn| match &turn.input {
        sf_core::Input::Text(text) if text == "bad" => {
            Err(sf_core::Fault::invalid("context_length_exceeded", "prompt", "too long"))
        }
        _ => Ok(crate::fake::Play::now(Vec::new())),
    });
    let body = json!({"prompt": ["good", "good", "bad"]}).to_string();
    let answer = send(&routes(&fake), post_of("/v1/completions", body)).await;
    assert_eq!(answer.status, 400);
    assert_eq!(fake.streams_dropped(), 2);
}

/// What an answer says, however it travelled: per choice text, tokens' texts and reason; then usage.
#[derive(Debug, PartialEq, Default)]
struct Said {
    choices: Vec<(String, Vec<Value>, String)>,
    usage: Value,
}

impl Said {
    fn add(&mut self, document: &Value) {
        for choice in document["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap() as usize;
            if self.choices.len() <= index {
                self.choices.resize_with(index + 1, Default::default);
            }
            let (text, tokens, reason) = &mut self.choices[index];
            let content = ["delta", "message"].iter().find_map(|side| choice[side]["content"].as_str());
            text.push_str(content.or(choice["text"].as_str()).unwrap_or_default());
            let logprobs = &choice["logprobs"];
            tokens.extend(logprobs["content"].as_array().into_iter().flatten().cloned());
            tokens.extend(logprobs["text_offset"].as_array().into_iter().flatten().cloned());
            tokens.extend(logprobs["top_logprobs"].as_array().into_iter().flatten().cloned());
            reason.push_str(choice["finish_reason"].as_str().unwrap_or_default());
        }
        if document["usage"].is_object() {
            self.usage = document["usage"].clone();
        }
    }
}

/// A text-completion chunk splits its arrays, so they are compared sorted.
fn sorted(mut said: Said) -> Said {
    for (_, tokens, _) in &mut said.choices {
        tokens.sort_by_key(Value::to_string);
    }
    said
}

fn events() -> impl Strategy<Value = (u32, Vec<TurnEvent>)> {
    let piece = (
        any::<u32>(),
        any::<String>(),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..3),
    );
    (1..4u32, prop::collection::vec(piece, 0..24)).prop_map(|(choices, pieces)| {
        let mut events: Vec<_> = pieces
            .into_iter()
            .map(|(choice, text, tokens)| TurnEvent::Delta {
                choice: choice % choices,
                text,
                tokens: tokens.iter().map(|bytes| token(1, bytes, -0.5, 3)).collect(),
            })
            .collect();
        events.extend((0..choices).rev().map(|choice| end(choice, FinishReason::Length, choice + 1)));
        (choices, events)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streamed_and_whole_answers_say_the_same((choices, events) in events()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let chat = json!({"messages": [{"role": "user", "content": "x"}], "logprobs": true, "top_logprobs": 3});
        for (path, mut body) in [
            ("/v1/chat/completions", chat),
            ("/v1/completions", json!({"prompt": "x", "logprobs": 3})),
        ] {
            body["n"] = json!(choices);
            let fake = Fake::playing(events.clone());
            let whole = runtime.block_on(send(&routes(&fake), post_of(path, body.to_string())));
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
            let streamed = runtime.block_on(send(&routes(&fake), post_of(path, body.to_string())));
            let (mut a, mut b) = (Said::default(), Said::default());
            a.add(&whole.json());
            for chunk in streamed.chunks() {
                b.add(&chunk);
            }
            prop_assert_eq!(sorted(a), sorted(b));
        }
    }
}

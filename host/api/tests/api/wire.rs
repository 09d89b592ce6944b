//! Every wire shape, byte for byte. `UPDATE_EXPECT=1` writes them anew.

use std::sync::Arc;

use expect_test::{ExpectFile, expect_file};
use http::Request;
use serde_json::{Value, json};
use sf_core::{Fault, FaultKind, FinishReason, Input, Json, Token, TokenInfo, TurnEvent};

use crate::fake::{Answer, Fake, delta, end, ended, hi, post, post_of, routes, send, token};

/// Without what differs from run to run.
fn stable(answer: &Answer) -> String {
    let mut text = format!(
        "{} {}\n{}",
        answer.status,
        answer.header("content-type").unwrap_or_default(),
        answer.text.replace(concat!("superfluid-", env!("CARGO_PKG_VERSION")), "superfluid-VERSION")
    );
    for (mark, until) in [("cmpl-", '"'), ("\"created\":17", ',')] {
        let mut from = 0;
        while let Some(at) = text[from..].find(mark) {
            let start = from + at + mark.len();
            let stop = start + text[start..].find(until).unwrap();
            text.replace_range(start..stop, "X");
            from = start;
        }
    }
    text
}

async fn check(events: Vec<TurnEvent>, path: &str, body: Value, expect: ExpectFile) {
    let fake = Fake::playing(events);
    expect.assert_eq(&stable(&post(&fake, path, body).await));
}

fn ask(more: &Value) -> Value {
    let mut body = json!({"model": "org/toy", "messages": [{"role": "user", "content": "hello"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn complete(more: &Value) -> Value {
    let mut body = json!({"model": "org/toy", "prompt": "Once"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Two choices, the second done first; with what JSON must escape.
fn two() -> Vec<TurnEvent> {
    vec![
        delta(0, "a\"\n"),
        delta(1, "é\u{1}"),
        delta(1, ""),
        delta(0, "b"),
        end(1, FinishReason::Length, 2),
        delta(0, "c"),
        end(0, FinishReason::Stop, 4),
    ]
}

fn with_tokens(top: usize) -> Vec<TurnEvent> {
    let event =
        |text: &str, token| TurnEvent::Delta { choice: 0, text: text.to_owned(), tokens: vec![token] };
    vec![
        event("", token(5, &[0xe2, 0x82], -0.5, top)),
        event("€", token(6, &[0xac], -0.25, top)),
        event(" x", token(7, b" x", -1.0, top)),
        end(0, FinishReason::Length, 3),
    ]
}

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const RENDER: &str = "/v1/chat/completions/render";

#[tokio::test]
async fn a_chat_has_openais_shapes() {
    let stream = json!({"stream": true});
    let usage = json!({"stream": true, "stream_options": {"include_usage": true}, "n": 2});
    check(hi(), CHAT, ask(&json!({})), expect_file!["wire/chat.txt"]).await;
    check(hi(), CHAT, ask(&stream), expect_file!["wire/chat_stream.txt"]).await;
    check(two(), CHAT, ask(&json!({"n": 2})), expect_file!["wire/chat_two.txt"]).await;
    check(two(), CHAT, ask(&usage), expect_file!["wire/chat_two_stream_usage.txt"]).await;
}

#[tokio::test]
async fn a_chats_logprobs_have_openais_shapes() {
    let two = json!({"logprobs": true, "top_logprobs": 3});
    let none = json!({"logprobs": true, "stream": true});
    check(with_tokens(3), CHAT, ask(&two), expect_file!["wire/chat_logprobs.txt"]).await;
    check(with_tokens(0), CHAT, ask(&none), expect_file!["wire/chat_logprobs_stream.txt"]).await;
}

#[tokio::test]
async fn a_completion_has_openais_shapes() {
    let stream = json!({"stream": true, "echo": true, "stream_options": {"include_usage": true}});
    check(hi(), TEXT, complete(&json!({})), expect_file!["wire/text.txt"]).await;
    check(hi(), TEXT, complete(&json!({"echo": true})), expect_file!["wire/text_echo.txt"]).await;
    check(hi(), TEXT, complete(&stream), expect_file!["wire/text_stream_echo_usage.txt"]).await;
}

#[tokio::test]
async fn a_completions_logprobs_have_openais_shapes() {
    let whole = json!({"logprobs": 3});
    let stream = json!({"logprobs": 0, "stream": true});
    check(with_tokens(3), TEXT, complete(&whole), expect_file!["wire/text_logprobs.txt"]).await;
    check(with_tokens(0), TEXT, complete(&stream), expect_file!["wire/text_logprobs_stream.txt"]).await;
}

#[tokio::test]
async fn a_scored_prompt_comes_before_each_answer() {
    let first = TokenInfo { logprob: None, ..token(1, b"", 0.0, 0) };
    let prompt = |choice, tokens| TurnEvent::Prompt { choice, tokens };
    let events = |top| {
        vec![
            prompt(0, vec![first.clone()]),
            prompt(0, vec![token(2, b"On", -4.0, top), token(3, b"ce", -0.125, top)]),
            TurnEvent::Delta { choice: 0, text: "!".to_owned(), tokens: vec![token(4, b"!", -1.5, top)] },
            end(0, FinishReason::Length, 1),
        ]
    };
    let whole = json!({"logprobs": 2, "echo": true, "max_tokens": 1});
    let stream = json!({"logprobs": 0, "echo": true, "max_tokens": 1, "stream": true});
    check(events(2), TEXT, complete(&whole), expect_file!["wire/text_scored.txt"]).await;
    check(events(0), TEXT, complete(&stream), expect_file!["wire/text_scored_stream.txt"]).await;

    let fake = Fake::playing(vec![end(0, FinishReason::Length, 0)]);
    for (more, scores, most) in [
        (json!({"logprobs": 0, "echo": true, "max_tokens": 0}), true, 0),
        (json!({"logprobs": 1}), false, 16),
        (json!({"echo": true, "max_tokens": 0}), false, 0),
    ] {
        assert_eq!(post(&fake, TEXT, complete(&more)).await.status, 200, "{more}");
        let turn = fake.turns.lock().unwrap().pop().unwrap();
        assert_eq!((turn.scores_prompt, turn.max_tokens), (scores, Some(most)), "{more}");
    }
}

#[tokio::test]
async fn a_service_tier_is_repeated_and_padding_is_not_added() {
    let whole = json!({"service_tier": "flex"});
    let stream = json!({
        "service_tier": "auto", "stream": true,
        "stream_options": {"include_usage": true, "include_obfuscation": true}
    });
    check(hi(), CHAT, ask(&whole), expect_file!["wire/chat_tier.txt"]).await;
    check(hi(), CHAT, ask(&stream), expect_file!["wire/chat_tier_stream.txt"]).await;
    let fake = Fake::playing(hi());
    for (path, body) in
        [(CHAT, ask(&json!({"service_tier": "gold"}))), (TEXT, complete(&json!({"service_tier": 1})))]
    {
        let answer = post(&fake, path, body).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("service_tier")));
    }
}

#[tokio::test]
async fn an_answer_that_its_deadline_ended_says_so() {
    let events = vec![
        delta(0, "whole"),
        delta(1, "cut"),
        end(0, FinishReason::Length, 1),
        end(1, FinishReason::Deadline, 1),
    ];
    let (whole, stream) = (json!({"n": 2}), json!({"n": 2, "stream": true}));
    check(events.clone(), CHAT, ask(&whole), expect_file!["wire/chat_deadline.txt"]).await;
    check(events.clone(), CHAT, ask(&stream), expect_file!["wire/chat_deadline_stream.txt"]).await;
    check(events.clone(), TEXT, complete(&whole), expect_file!["wire/text_deadline.txt"]).await;
    check(events, TEXT, complete(&stream), expect_file!["wire/text_deadline_stream.txt"]).await;
}

#[tokio::test]
async fn tokens_that_were_not_computed_again_are_counted_once_per_prompt() {
    let stop = FinishReason::Stop;
    let events = vec![ended(1, stop, 2, 6), ended(0, stop, 2, 5)];
    let (whole, stream) =
        (json!({"n": 2}), json!({"n": 2, "stream": true, "stream_options": {"include_usage": true}}));
    check(events.clone(), CHAT, ask(&whole), expect_file!["wire/chat_cached.txt"]).await;
    check(events.clone(), CHAT, ask(&stream), expect_file!["wire/chat_cached_stream.txt"]).await;
    let answer = post(&Fake::playing(events), TEXT, complete(&json!({"prompt": ["a", "b"], "n": 2}))).await;
    let usage = &answer.json()["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["prompt_tokens_details"]["cached_tokens"]),
        (&json!(14), &json!(10))
    );
}

#[tokio::test]
async fn several_prompts_are_turns_of_their_own_and_one_row_of_choices() {
    let fake = Fake::new(|turn| {
        let Input::Tokens(tokens) = &turn.input else { panic!("tokens") };
        let name = format!("<{}>", tokens[0]);
        let events = [1, 0].iter().flat_map(|c| [delta(*c, &name), end(*c, FinishReason::Stop, 1)]);
        Ok(crate::fake::Play::now(events.collect()))
    });
    let body = complete(&json!({"prompt": [[65], [66, 67]], "n": 2, "echo": true}));
    expect_file!["wire/text_prompts.txt"].assert_eq(&stable(&post(&fake, TEXT, body.clone()).await));
    let turns = fake.turns.lock().unwrap();
    assert_eq!(turns[1].input, Input::Tokens(vec![Token(66), Token(67)]));
    assert_ne!(turns[0].id, turns[1].id);
}

#[tokio::test]
async fn a_failure_before_the_answer_is_a_status_and_within_a_stream_an_event() {
    let fault = Fault::new(FaultKind::Engine, "worker_died", "the worker died").hint("ask again");
    let events = vec![delta(0, "Hi"), TurnEvent::Failed(fault)];
    let stream = ask(&json!({"stream": true}));
    check(events.clone(), CHAT, ask(&json!({})), expect_file!["wire/failed.txt"]).await;
    check(events, CHAT, stream.clone(), expect_file!["wire/failed_stream.txt"]).await;
    // An answer that just stops is our bug, and never looks like a complete one.
    check(vec![delta(0, "Hi")], CHAT, stream, expect_file!["wire/broken_stream.txt"]).await;
}

async fn get(fake: &Arc<Fake>, path: &str) -> Answer {
    send(&routes(fake), Request::get(path).body(axum::body::Body::empty()).unwrap()).await
}

#[tokio::test]
async fn models_health_and_tokens_have_their_shapes() {
    let fake = Fake::playing(hi());
    let mut all = String::new();
    for path in [
        "/health",
        "/ready",
        "/v1/models",
        "/v1/models/org/toy",
        "/v1/models/org%2Ftoy",
        "/v1/models/absent",
        "/metrics",
        "/nowhere",
        "/v1/responses/x/cancel",
        "/",
    ] {
        all += &format!("GET {path} -> {}\n", stable(&get(&fake, path).await));
    }
    for (path, body) in [
        ("/v1/tokenize", json!({"prompt": "ab"})),
        ("/v1/tokenize", json!({"messages": [{"role": "user", "content": "c"}]})),
        ("/v1/detokenize", json!({"tokens": [97, 98]})),
        ("/v1/models/load", json!({})),
        ("/v1/models/org/toy", json!({})),
    ] {
        all += &format!("POST {path} {body} -> {}\n", stable(&post(&fake, path, body.clone()).await));
    }
    expect_file!["wire/small.txt"].assert_eq(&all);
}

#[tokio::test]
async fn a_rendered_chat_has_its_shape() {
    let fake = Fake::playing(hi());
    let mut all = String::new();
    for more in [
        json!({}),
        json!({"add_generation_prompt": false, "frobnicate": 1, "chat_template_kwargs": {"mood": "calm"}}),
        json!({"messages": [
            {"role": "developer", "content": [{"type": "text", "text": "é"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "4"}
        ], "tools": [{"type": "function", "function": {"name": "f"}}], "stream": true}),
        json!({"add_generation_prompt": true, "continue_final_message": true}),
        json!({"model": "absent"}),
        json!({"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
        ]}]}),
    ] {
        let answer = post(&fake, RENDER, ask(&more)).await;
        all += &format!("POST {RENDER} {more} -> {}\n", stable(&answer));
    }
    expect_file!["wire/render.txt"].assert_eq(&all);
    assert!(fake.turns.lock().unwrap().is_empty(), "nothing ran");
    let mut strict = post_of(RENDER, ask(&json!({"chat_template_kwargs": {"mood": "calm"}})).to_string());
    strict.headers_mut().insert("x-superfluid-strict", "1".parse().unwrap());
    let strict = send(&routes(&fake), strict).await;
    assert_eq!((strict.status, &strict.json()["error"]["param"]), (400, &json!("mood")));
}

#[tokio::test]
async fn readiness_waits_for_a_model() {
    let fake = Fake::playing(hi());
    fake.cards.lock().unwrap().remove(0);
    let answer = get(&fake, "/ready").await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert_eq!(answer.json()["models"][0]["state"], "retired");
}

#[tokio::test]
async fn a_request_reaches_the_inference_as_it_was_given() {
    let fake = Fake::playing(hi());
    let body = ask(&json!({
        "max_completion_tokens": 9, "temperature": 0.5, "seed": 0, "stop": ["x", "y"], "logprobs": true,
        "top_logprobs": 2, "ignore_eos": true, "logit_bias": {"3": -1}
    }));
    assert_eq!(post(&fake, CHAT, body).await.status, 200);
    let turns = fake.turns.lock().unwrap();
    let turn = &turns[0];
    assert_eq!(turn.model.as_deref(), Some("org/toy"));
    assert_eq!(turn.max_tokens, Some(9));
    assert_eq!(turn.sampling.temperature, Some(0.5));
    assert_eq!(turn.sampling.seed, Some(0));
    assert_eq!(turn.sampling.bias, [(Token(3), -1.0)]);
    assert_eq!(turn.stop, ["x", "y"]);
    assert_eq!(turn.logprobs, Some(2));
    assert!(turn.ignore_eos);
}

#[tokio::test]
async fn unknown_fields_are_answered_and_named() {
    let fake = Fake::playing(hi());
    let answer = post(&fake, CHAT, ask(&json!({"frobnicate": 1, "naïve\n": 2, "user": "u"}))).await;
    assert_eq!(answer.status, 200);
    let named = answer.header("x-superfluid-warnings").unwrap();
    assert!(named.contains("frobnicate: it is not read"), "{named}");
    assert!(named.contains("na\\u{ef}ve\\n") && !named.contains("user"), "{named}");
    let listed = &answer.json()["warnings"];
    assert_eq!((&listed[0]["param"], listed.as_array().map(Vec::len)), (&json!("frobnicate"), Some(2)));
    let strictly = async |body: String| {
        let mut request = post_of(CHAT, body);
        request.headers_mut().insert("x-superfluid-strict", "1".parse().unwrap());
        send(&routes(&fake), request).await
    };
    let strict = strictly(ask(&json!({"frobnicate": 1})).to_string()).await;
    assert_eq!((strict.status, &strict.json()["error"]["code"]), (400, &json!("strict")));
    assert_eq!(strict.json()["error"]["param"], "frobnicate");
    let nameless = strictly(ask(&json!({"model": null})).to_string()).await;
    assert_eq!((nameless.status, &nameless.json()["error"]["param"]), (400, &json!("model")));
    let clean = strictly(ask(&json!({})).to_string()).await;
    assert_eq!((clean.status, clean.header("x-superfluid-warnings")), (200, None));
}

#[tokio::test]
async fn tools_calls_and_template_variables_reach_the_inference_and_unread_ones_are_named() {
    let fake = Fake::playing(hi());
    let body = json!({
        "model": "org/toy",
        "messages": [
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"b\":2,\"a\":2}"}}
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "4"}
        ],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}],
        "tool_choice": "auto",
        "chat_template_kwargs": {"enable_thinking": false, "mood": "calm"},
        "reasoning_effort": "low",
    });
    let answer = post(&fake, CHAT, body.to_string()).await;
    let warned = answer.header("x-superfluid-warnings").unwrap();
    assert!(
        warned.starts_with("mood: the chat template") && warned.contains("reasoning_effort: "),
        "{warned}"
    );
    assert_eq!(answer.status, 200);
    let turns = fake.turns.lock().unwrap();
    let Input::Chat(chat) = &turns[0].input else { panic!("a chat") };
    assert_eq!((chat.tools.len(), chat.tools[0].name.as_str()), (1, "add"));
    let call = &chat.messages[1].tool_calls[0];
    assert_eq!((chat.messages[1].content.as_ref(), call.name.as_str()), (None, "add"));
    let Json::Object(arguments) = &call.arguments else { panic!("an object") };
    assert_eq!(arguments.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(chat.messages[2].tool_call_id.as_deref(), Some("c1"));
    let names: Vec<&str> = chat.arguments.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["enable_thinking", "mood", "reasoning_effort"]);
}

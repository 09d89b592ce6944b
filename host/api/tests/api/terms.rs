//! How a request is to be served: class, deadline, pin, party, reuse; and what the schedulers are told.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use expect_test::expect_file;
use http::Request;
use serde_json::{Value, json};
use sf_api::{ApiSettings, Exposure, router};
use sf_core::{FaultKind, QosClass, Turn};

use crate::fake::{Answer, Fake, Play, hi, post, post_of, routes, send};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

type Headers<'a> = &'a [(&'static str, &'a str)];

fn asking(path: &str, headers: Headers<'_>, more: &Value) -> Request<Body> {
    let mut body = json!({});
    body[if path == CHAT { "messages" } else { "prompt" }] =
        if path == CHAT { json!([{"role": "user", "content": "x"}]) } else { json!("x") };
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut request = post_of(path, body.to_string());
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

/// The turn that a request becomes, and its answer.
async fn turn(settings: ApiSettings, path: &str, headers: Headers<'_>, more: &Value) -> (Turn, Answer) {
    let fake = Fake::playing(hi());
    let routes = router(fake.clone(), settings, Exposure::Network);
    let answer = send(&routes, asking(path, headers, more)).await;
    let turn = fake.turns.lock().unwrap().pop().unwrap_or_else(|| panic!("{}", answer.text));
    (turn, answer)
}

#[tokio::test(start_paused = true)]
async fn terms_reach_the_inference_from_both_endpoints() {
    let headers: Headers<'_> = &[
        ("x-superfluid-qos", "interactive"),
        ("x-superfluid-deadline-ms", "1500"),
        ("x-superfluid-pin", "60"),
    ];
    for path in [CHAT, TEXT] {
        let (turn, answer) = turn(ApiSettings::default(), path, headers, &json!({})).await;
        assert_eq!(turn.class, QosClass::Interactive);
        assert_eq!(turn.deadline, Some(Duration::from_millis(1500)));
        assert_eq!(turn.pin, Some(Duration::from_secs(60)));
        assert!(turn.reuse);
        assert_eq!(answer.header("x-superfluid-warnings"), None);
    }
}

#[tokio::test]
async fn a_request_without_terms_is_served_as_the_operator_says() {
    let settings = ApiSettings { default_class: QosClass::Background, ..ApiSettings::default() };
    let (turn, _) = turn(settings, CHAT, &[], &json!({})).await;
    assert_eq!(turn.class, QosClass::Background);
    assert_eq!((turn.deadline, turn.pin, turn.party, turn.reuse), (None, None, 0, true));
}

#[tokio::test]
async fn a_client_may_keep_out_of_the_shared_kv() {
    for path in [CHAT, TEXT] {
        for (value, reuse) in [(json!(false), false), (json!(true), true), (Value::Null, true)] {
            let (turn, answer) =
                turn(ApiSettings::default(), path, &[], &json!({"cache_prompt": value})).await;
            assert_eq!((turn.reuse, answer.header("x-superfluid-warnings")), (reuse, None));
        }
    }
}

#[tokio::test]
async fn parties_are_told_apart_by_key_and_user() {
    let keyed: Headers<'_> = &[("authorization", "Bearer sesame")];
    let mut parties = Vec::new();
    for (headers, more) in [
        (keyed, json!({})),
        (&[("x-api-key", "other")], json!({})),
        (keyed, json!({"user": "ann"})),
        (keyed, json!({"user": "bob"})),
        (&[], json!({"user": "ann"})),
    ] {
        let (first, _) = turn(ApiSettings::default(), CHAT, headers, &more).await;
        let (again, _) = turn(ApiSettings::default(), TEXT, headers, &more).await;
        assert_eq!(first.party, again.party);
        assert!(!parties.contains(&first.party) && first.party != 0, "{more}");
        parties.push(first.party);
    }
}

#[tokio::test]
async fn a_class_that_clients_may_not_name_is_ignored_and_said_so() {
    let settings = ApiSettings { qos_header: false, ..ApiSettings::default() };
    let headers: Headers<'_> = &[("x-superfluid-qos", "no class"), ("x-superfluid-pin", "5")];
    let (turn, answer) = turn(settings, CHAT, headers, &json!({"frobnicate": 1})).await;
    assert_eq!((turn.class, turn.pin), (QosClass::Agent, Some(Duration::from_secs(5))));
    assert_eq!(
        answer.header("x-superfluid-warnings"),
        Some("frobnicate: it is not read by this server; x-superfluid-qos: it is not read by this server")
    );
}

#[tokio::test]
async fn terms_out_of_range_are_refused_by_name() {
    let fake = Fake::playing(hi());
    let mut all = String::new();
    let rows: &[(Headers<'_>, Value)] = &[
        (&[("x-superfluid-qos", "urgent")], json!({})),
        (&[("x-superfluid-qos", "4")], json!({})),
        (&[("x-superfluid-qos", "")], json!({})),
        (&[("x-superfluid-qos", "agent"), ("x-superfluid-qos", "agent")], json!({})),
        (&[("x-superfluid-deadline-ms", "0")], json!({})),
        (&[("x-superfluid-deadline-ms", "86400001")], json!({})),
        (&[("x-superfluid-deadline-ms", "99999999999999999999999")], json!({})),
        (&[("x-superfluid-deadline-ms", "1.5")], json!({})),
        (&[("x-superfluid-deadline-ms", "-1")], json!({})),
        (&[("x-superfluid-pin", "86401")], json!({})),
        (&[("x-superfluid-pin", "1h")], json!({})),
        (&[("x-superfluid-pin", "60")], json!({"cache_prompt": false})),
        (&[], json!({"cache_prompt": 1})),
        (&[], json!({"user": 7})),
    ];
    for (headers, more) in rows {
        for path in [CHAT, TEXT] {
            let answer = send(&routes(&fake), asking(path, headers, more)).await;
            all += &format!("{path} {headers:?} {more} -> {} {}\n", answer.status, answer.text);
        }
    }
    expect_file!["wire/terms.txt"].assert_eq(&all);
    assert!(fake.turns.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_runs_from_the_arrival() {
    // The body takes 2 s to arrive: half of the deadline is over, or all of it.
    for (deadline, left) in [("4000", Some(2000)), ("2000", None), ("1", None)] {
        let fake = Fake::playing(hi());
        let request = asking(CHAT, &[("x-superfluid-deadline-ms", deadline)], &json!({}));
        let (parts, body) = request.into_parts();
        let late = futures_util::stream::once(async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
            Ok::<_, std::io::Error>(body)
        });
        let answer = send(&routes(&fake), Request::from_parts(parts, Body::from_stream(late))).await;
        let turn = fake.turns.lock().unwrap().pop();
        assert_eq!(turn.and_then(|turn| turn.deadline), left.map(Duration::from_millis), "{deadline}");
        if left.is_none() {
            assert_eq!((answer.status, &answer.json()["error"]["code"]), (504, &json!("deadline_exceeded")));
        }
    }
}

#[tokio::test]
async fn a_request_that_never_started_says_that_its_deadline_passed() {
    let fault =
        || sf_core::Fault::new(FaultKind::Deadline, "deadline_exceeded", "the deadline passed in the queue");
    let fake = Fake::new(move |_| Ok(Play::now(vec![sf_core::TurnEvent::Failed(fault())])));
    let answer = send(&routes(&fake), asking(CHAT, &[], &json!({}))).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (504, &json!("deadline_exceeded")));
    let streamed = send(&routes(&fake), asking(CHAT, &[], &json!({"stream": true}))).await;
    assert_eq!(streamed.status, 200);
    assert_eq!(streamed.chunks()[0]["error"]["code"], "deadline_exceeded");
}

async fn scheduling(fake: &Arc<Fake>, method: &str, body: Option<&Value>) -> Answer {
    let mut request = post_of("/v1/scheduling", body.map_or(String::new(), Value::to_string));
    *request.method_mut() = method.parse().unwrap();
    send(&routes(fake), request).await
}

#[tokio::test]
async fn schedulers_can_be_asked_and_told() {
    let fake = Fake::playing(hi());
    let mut all = String::new();
    for (method, body) in [
        ("GET", None),
        ("PUT", Some(json!({"background_every": 9, "frobnicate": 1}))),
        ("GET", None),
        ("PUT", Some(json!({"background_every": 0}))),
        ("PUT", Some(json!({"background_every": 1025}))),
        ("PUT", Some(json!({"background_every": "9"}))),
        ("PUT", Some(json!({}))),
        ("PUT", Some(json!([9]))),
        ("POST", Some(json!({"background_every": 2}))),
        ("GET", None),
    ] {
        let answer = scheduling(&fake, method, body.as_ref()).await;
        let warned = answer.header("x-superfluid-warnings").unwrap_or("nothing");
        let body = body.unwrap_or_default();
        all += &format!("{method} {body} -> {} {}, warned of {warned}\n", answer.status, answer.text);
    }
    expect_file!["wire/scheduling.txt"].assert_eq(&all);
}

#[tokio::test]
async fn schedulers_are_the_operators() {
    let settings = ApiSettings { api_key: Some(sf_api::ApiKey::new("sesame")), ..ApiSettings::default() };
    let routes = router(Fake::playing(hi()), settings, Exposure::Network);
    for method in ["GET", "PUT"] {
        let mut request = post_of("/v1/scheduling", json!({"background_every": 2}).to_string());
        *request.method_mut() = method.parse().unwrap();
        assert_eq!(send(&routes, request).await.status, 401);
    }
    let answer = post(&Fake::playing(hi()), "/v1/scheduling", json!({})).await;
    assert_eq!(answer.header("allow"), Some("GET,HEAD,PUT"));
}

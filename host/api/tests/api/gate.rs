//! Keys, browser guard, request ids, deadlines and panics.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use serde_json::json;
use sf_api::{ApiKey, ApiSettings, Exposure, router};
use sf_core::{Fault, FaultKind};

use crate::fake::{Answer, Fake, Play, delta, hi, post_of, routes, send};

type Headers = &'static [(&'static str, &'static str)];

fn keyed() -> Router {
    let metrics = Arc::new(|| "up 1\n".to_owned());
    let settings = ApiSettings {
        api_key: Some(ApiKey::new("sesame")),
        metrics: Some(metrics),
        ..ApiSettings::default()
    };
    router(Fake::playing(hi()), settings, Exposure::Network)
}

fn get(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let request =
        headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn everything_but_health_needs_the_key() {
    let routes = keyed();
    let render = post_of("/v1/chat/completions/render", "{}");
    assert_eq!(send(&routes, render).await.status, 401);
    let rows: &[(&str, Headers, u16)] = &[
        ("/health", &[], 200),
        ("/v1/models", &[], 401),
        ("/metrics", &[], 401),
        ("/ready", &[], 401),
        ("/nowhere", &[], 401),
        ("/v1/models", &[("authorization", "Bearer sesame")], 200),
        ("/v1/models", &[("authorization", "bearer  sesame ")], 200),
        ("/v1/models", &[("x-api-key", "sesame")], 200),
        ("/v1/models", &[("authorization", "Bearer other"), ("x-api-key", "sesame")], 200),
        ("/metrics", &[("x-api-key", "sesame")], 200),
        ("/v1/models", &[("authorization", "Bearer sesam")], 401),
        ("/v1/models", &[("authorization", "Bearer sesamee")], 401),
        ("/v1/models", &[("authorization", "Basic sesame")], 401),
        ("/v1/models", &[("authorization", "Bearer")], 401),
        ("/v1/models", &[("authorization", "")], 401),
        ("/v1/models", &[("x-api-key", "")], 401),
    ];
    for (path, headers, status) in rows {
        let answer = send(&routes, get(path, headers)).await;
        assert_eq!(answer.status, *status, "{path} {headers:?}");
        assert_eq!(answer.header("www-authenticate").is_some(), *status == 401, "{path}");
        if *status == 401 {
            assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
        }
    }
}

#[tokio::test]
async fn a_browser_cannot_be_used_against_a_loopback_listener() {
    let loopback = router(Fake::playing(hi()), ApiSettings::default(), Exposure::Loopback);
    let rows: &[(Headers, u16)] = &[
        (&[], 200),
        (&[("host", "localhost:8453")], 200),
        (&[("host", "127.0.0.1:8453"), ("origin", "http://localhost:3000")], 200),
        (&[("host", "[::1]:8453")], 200),
        (&[("host", "rebound.example")], 403),
        (&[("host", "localhost"), ("origin", "https://page.example")], 403),
        (&[("host", "localhost"), ("origin", "null")], 403),
    ];
    for (headers, status) in rows {
        assert_eq!(send(&loopback, get("/health", headers)).await.status, *status, "{headers:?}");
    }
    let network = routes(&Fake::playing(hi()));
    assert_eq!(send(&network, get("/health", &[("host", "my.server.example")])).await.status, 200);
}

#[tokio::test]
async fn every_response_has_a_request_id_and_a_clients_own_comes_back() {
    let routes = routes(&Fake::playing(hi()));
    let id = |answer: &Answer| answer.header("x-request-id").unwrap().to_owned();
    let first = id(&send(&routes, get("/health", &[])).await);
    assert_ne!(first, id(&send(&routes, get("/nowhere", &[])).await));
    assert_eq!(id(&send(&routes, get("/health", &[("x-request-id", "mine-1")])).await), "mine-1");
    assert_ne!(id(&send(&routes, get("/health", &[("x-request-id", "not plain")])).await), "not plain");
}

fn chat(stream: bool) -> Request<Body> {
    let body = json!({"messages": [{"role": "user", "content": "x"}], "stream": stream});
    post_of("/v1/chat/completions", body.to_string())
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_too_long_ends_at_its_deadline_and_frees_its_lane() {
    for (stream, status) in [(false, 504), (true, 200)] {
        let (fake, events) = Fake::live();
        events.send(delta(0, "Hi")).unwrap();
        let settings =
            ApiSettings { request_timeout: Some(Duration::from_secs(5)), ..ApiSettings::default() };
        let answer = send(&router(fake.clone(), settings, Exposure::Network), chat(stream)).await;
        assert_eq!(answer.status, status);
        assert!(answer.text.contains("\"code\":\"request_timeout\""), "{}", answer.text);
        fake.dropped(1).await;
    }
}

#[tokio::test]
async fn a_refusal_that_may_pass_says_when_to_come_back() {
    for (kind, status) in [(FaultKind::Busy, 429), (FaultKind::Unavailable, 503)] {
        let fake = Fake::new(move |_| Err(Fault::new(kind, "later", "not now")));
        let answer = send(&routes(&fake), chat(true)).await;
        assert_eq!((answer.status, answer.header("retry-after")), (status, Some("1")));
    }
}

#[tokio::test]
async fn a_panic_fails_its_own_request_only() {
    let fake = Fake::new(|turn| if turn.choices == 2 { panic!("scripted") } else { Ok(Play::now(hi())) });
    let routes = routes(&fake);
    let body = json!({"messages": [{"role": "user", "content": "x"}], "n": 2}).to_string();
    let answer = send(&routes, post_of("/v1/chat/completions", body)).await;
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (500, Some("panicked")));
    assert_eq!(send(&routes, chat(false)).await.status, 200);
}

//! Malformed requests: each gets its status, code and field, and the server goes on.

use axum::body::Body;
use http::Request;
use proptest::prelude::*;
use serde_json::{Value, json};
use sf_core::limits;

use crate::fake::{Fake, hi, post, post_of, routes, send};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const RENDER: &str = "/v1/chat/completions/render";

/// What is expected: status, code, param.
type Expect<'a> = (u16, &'a str, Option<&'a str>);

async fn check(path: &str, body: impl Into<Vec<u8>>, (status, code, param): Expect<'_>) {
    let fake = Fake::playing(hi());
    let body = body.into();
    let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
    let answer = send(&routes(&fake), post_of(path, body)).await;
    let error = &answer.json()["error"];
    assert_eq!(answer.status, status, "{shown} -> {error}");
    assert_eq!(error["code"], code, "{shown} -> {error}");
    assert_eq!(error["param"].as_str(), param, "{shown} -> {error}");
    assert!(!error["message"].as_str().unwrap().is_empty());
    assert!(fake.turns.lock().unwrap().is_empty(), "{shown} reached the inference");
}

#[tokio::test]
async fn bodies_that_are_no_object_are_refused() {
    let invalid = (400, "invalid_json", None);
    check(CHAT, "", invalid).await;
    check(CHAT, "{", invalid).await;
    check(CHAT, "{\"messages\":[}", invalid).await;
    check(CHAT, "{'messages':[]}", invalid).await;
    check(CHAT, "{\"messages\":[],}", invalid).await;
    check(CHAT, "{\"temperature\":NaN}", invalid).await;
    check(CHAT, "{\"temperature\":1e999}", invalid).await;
    check(CHAT, "{\"temperature\":.5}", invalid).await;
    check(CHAT, b"{\"model\":\"\xff\xfe\"}".to_vec(), invalid).await;
    check(CHAT, b"\x00\x01\x02".to_vec(), invalid).await;
    check(CHAT, "{\"model\":\"\\ud800\"}", invalid).await;
    check(CHAT, "{} trailing", invalid).await;
    check(CHAT, "[".repeat(1 << 20), invalid).await;
    check(CHAT, format!("{{\"a\":{}}}", "{\"a\":".repeat(10_000)), invalid).await;
    check(CHAT, "[]", (400, "invalid_type", None)).await;
    check(CHAT, "null", (400, "invalid_type", None)).await;
    check(CHAT, "\"x\"", (400, "invalid_type", None)).await;
    check(CHAT, "{\"n\":1,\"n\":2}", (400, "duplicate_field", Some("n"))).await;
    check(CHAT, format!("[{}0]", "0,".repeat(limits::JSON_VALUES_MAX)), (413, "too_many_values", None)).await;
}

#[tokio::test]
async fn messages_are_refused_by_path() {
    let rows = [
        (json!({}), "missing_required_parameter", "messages"),
        (json!({"messages": null}), "missing_required_parameter", "messages"),
        (json!({"messages": "hi"}), "invalid_type", "messages"),
        (json!({"messages": []}), "invalid_value", "messages"),
        (json!({"messages": [1]}), "invalid_type", "messages[0]"),
        (json!({"messages": [{}]}), "missing_required_parameter", "messages[0].role"),
        (json!({"messages": [{"role": "user"}]}), "missing_required_parameter", "messages[0].content"),
        (
            json!({"messages": [{"role": "user", "content": null}]}),
            "missing_required_parameter",
            "messages[0].content",
        ),
        (json!({"messages": [{"role": 1, "content": ""}]}), "invalid_type", "messages[0].role"),
        (json!({"messages": [{"role": "robot", "content": ""}]}), "invalid_value", "messages[0].role"),
        (
            json!({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": 5}]}),
            "invalid_type",
            "messages[1].content",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"text": "a"}]}]}),
            "missing_required_parameter",
            "messages[0].content[0].type",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}),
            "invalid_type",
            "messages[0].content[0].text",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "poem"}]}]}),
            "invalid_value",
            "messages[0].content[0].type",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}]}),
            "unsupported_input",
            "messages[0].content[0]",
        ),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{}]}]}),
            "missing_required_parameter",
            "messages[0].tool_calls[0].function",
        ),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}),
            "invalid_json",
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            json!({"messages": [{"role": "user", "content": "a", "tool_calls": [{"function": {"name": "f"}}]}]}),
            "invalid_value",
            "messages[0].tool_calls",
        ),
        (
            json!({"messages": [{"role": "assistant", "reasoning": "a", "reasoning_content": "b"}]}),
            "conflicting_parameters",
            "messages[0].reasoning_content",
        ),
        (
            json!({"messages": [{"role": "user", "content": "a", "name": {}}]}),
            "invalid_type",
            "messages[0].name",
        ),
        (json!({"messages": vec![Value::Null; limits::MESSAGES_MAX + 1]}), "too_many", "messages"),
    ];
    for (body, code, param) in rows {
        check(CHAT, body.to_string(), (400, code, Some(param))).await;
    }
}

/// Rows of a field, a value and a code; the field named is the field given unless said otherwise.
async fn check_fields(path: &str, base: Value, rows: Vec<(&str, Value, &str)>) {
    for (param, value, code) in rows {
        let mut body = base.clone();
        let field = param.split(['.', '[']).next().unwrap();
        body[field] = value;
        check(path, body.to_string(), (400, code, Some(param))).await;
    }
}

#[tokio::test]
async fn chat_fields_are_refused_by_name() {
    let long = "x".repeat(limits::STOP_BYTES_MAX + 1);
    let biases: Value = (0..=limits::BIASES_MAX).map(|id| (id.to_string(), json!(1))).collect();
    let rows = vec![
        ("model", json!(7), "invalid_type"),
        ("model", json!(""), "invalid_value"),
        ("temperature", json!(9), "out_of_range"),
        ("temperature", json!(-1), "out_of_range"),
        ("temperature", json!("hot"), "invalid_type"),
        ("top_p", json!(0), "out_of_range"),
        ("top_p", json!(5), "out_of_range"),
        ("top_k", json!(-1), "out_of_range"),
        ("top_k", json!(1.5), "invalid_type"),
        ("min_p", json!(1.01), "out_of_range"),
        ("presence_penalty", json!(2.5), "out_of_range"),
        ("frequency_penalty", json!(-2.5), "out_of_range"),
        ("repeat_penalty", json!(0), "out_of_range"),
        ("max_tokens", json!(0), "out_of_range"),
        ("max_tokens", json!(-1), "out_of_range"),
        ("max_tokens", json!(4294967296u64), "out_of_range"),
        ("max_completion_tokens", json!("16"), "invalid_type"),
        ("n", json!(0), "out_of_range"),
        ("n", json!(129), "out_of_range"),
        ("n", json!(true), "invalid_type"),
        ("seed", json!(0.5), "out_of_range"),
        ("seed", json!(1e30), "out_of_range"),
        ("seed", json!("x"), "invalid_type"),
        ("stop", json!(5), "invalid_type"),
        ("stop[0]", json!(""), "invalid_value"),
        ("stop[1]", json!(["a", 5]), "invalid_type"),
        ("stop[0]", json!([long]), "invalid_value"),
        ("stop", json!(vec!["a"; limits::STOPS_MAX + 1]), "too_many"),
        ("logprobs", json!(3), "invalid_type"),
        ("top_logprobs", json!(3), "invalid_value"),
        ("top_logprobs", json!(21), "out_of_range"),
        ("logit_bias", json!([]), "invalid_type"),
        ("logit_bias.x", json!({"x": 1}), "invalid_value"),
        ("logit_bias.05", json!({"05": 1}), "invalid_value"),
        ("logit_bias.5", json!({"5": 101}), "out_of_range"),
        ("logit_bias", biases, "too_many"),
        ("stream", json!("yes"), "invalid_type"),
        ("stream_options", json!(true), "invalid_type"),
        ("stream_options.include_usage", json!({"include_usage": 1}), "invalid_type"),
        (
            "stream_options.continuous_usage_stats",
            json!({"continuous_usage_stats": true}),
            "unsupported_parameter",
        ),
        ("ignore_eos", json!(1), "invalid_type"),
        ("tools", json!({}), "invalid_type"),
        ("tools[0].function", json!([{"type": "function"}]), "missing_required_parameter"),
        ("tools", json!(vec![Value::Null; limits::TOOLS_MAX + 1]), "too_many"),
        ("tool_choice", json!("required"), "invalid_value"),
        ("chat_template_kwargs.messages", json!({"messages": []}), "invalid_value"),
        ("enable_thinking", json!(1), "invalid_type"),
        ("reasoning_effort", json!([]), "invalid_type"),
        ("functions", json!([{}]), "unsupported_parameter"),
        ("response_format", json!("json"), "invalid_type"),
        ("response_format.type", json!({"type": "yaml"}), "invalid_value"),
        ("stop_token_ids", json!(5), "invalid_type"),
        ("stop_token_ids[1]", json!([5, -1]), "out_of_range"),
        ("min_tokens", json!(-1), "out_of_range"),
        ("grammar", json!("root ::= x"), "unsupported_parameter"),
        ("audio", json!({"voice": "x"}), "unsupported_parameter"),
        ("mirostat", json!(2), "unsupported_parameter"),
        ("prompt", json!("x"), "unsupported_parameter"),
    ];
    check_fields(CHAT, json!({"messages": [{"role": "user", "content": "x"}]}), rows).await;
    let twice =
        json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "max_completion_tokens": 2});
    check(CHAT, twice.to_string(), (400, "conflicting_parameters", Some("max_tokens"))).await;
}

#[tokio::test]
async fn completion_fields_are_refused_by_name() {
    let rows = vec![
        ("prompt", Value::Null, "missing_required_parameter"),
        ("prompt", json!(5), "invalid_type"),
        ("prompt", json!([]), "invalid_value"),
        ("prompt[0]", json!([true]), "invalid_type"),
        ("prompt[1]", json!(["a", 1]), "invalid_type"),
        ("prompt[1]", json!([1, "a"]), "invalid_type"),
        ("prompt[1]", json!([1, -1]), "out_of_range"),
        ("prompt[1]", json!([1, 4294967296u64]), "out_of_range"),
        ("prompt[0]", json!([[]]), "invalid_value"),
        ("prompt[0][1]", json!([[1, 1.5]]), "invalid_type"),
        ("prompt", json!(vec!["a"; 129]), "too_many"),
        ("suffix", json!("end"), "fim_unsupported"),
        ("best_of", json!(2), "unsupported_parameter"),
        ("logprobs", json!(21), "out_of_range"),
        ("logprobs", json!(true), "invalid_type"),
        ("echo", json!("yes"), "invalid_type"),
        ("max_tokens", json!(-1), "out_of_range"),
        ("messages", json!([{}]), "unsupported_parameter"),
        ("prompt_logprobs", json!(1), "unsupported_parameter"),
    ];
    check_fields(TEXT, json!({"prompt": "x"}), rows).await;
}

#[tokio::test]
async fn token_bodies_are_refused_by_name() {
    check("/v1/tokenize", "{}", (400, "missing_required_parameter", Some("prompt"))).await;
    let both = json!({"prompt": "a", "messages": []}).to_string();
    check("/v1/tokenize", both, (400, "conflicting_parameters", Some("prompt"))).await;
    check("/v1/tokenize", json!({"prompt": ["a"]}).to_string(), (400, "invalid_type", Some("prompt"))).await;
    check("/v1/detokenize", "{}", (400, "missing_required_parameter", Some("tokens"))).await;
    check("/v1/detokenize", json!({"tokens": ["a"]}).to_string(), (400, "invalid_type", Some("tokens[0]")))
        .await;
}

async fn check_request(request: Request<Body>, (status, code, _): Expect<'_>) {
    let answer = send(&routes(&Fake::playing(hi())), request).await;
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (status, Some(code)));
    assert!(answer.header("x-request-id").is_some());
}

#[tokio::test]
async fn requests_are_refused_before_their_body_is_read() {
    let request = |method: &str, path: &str| Request::builder().method(method).uri(path);
    let json = || Body::from("{}");
    let media = (415, "unsupported_media_type", None);
    let post = |kind: &str| request("POST", CHAT).header("content-type", kind).body(json()).unwrap();
    check_request(request("POST", CHAT).body(json()).unwrap(), media).await;
    check_request(post("text/plain"), media).await;
    check_request(post("application/jsonp"), media).await;
    check_request(post("multipart/form-data; boundary=x"), media).await;
    let packed = request("POST", CHAT).header("content-type", "application/json");
    check_request(packed.header("content-encoding", "gzip").body(json()).unwrap(), media).await;
    let huge =
        request("POST", CHAT).header("content-type", "application/json").header("content-length", u64::MAX);
    check_request(huge.body(json()).unwrap(), (413, "body_too_large", None)).await;
    let method = (405, "method_not_allowed", None);
    check_request(request("GET", CHAT).body(Body::empty()).unwrap(), method).await;
    check_request(request("PUT", TEXT).body(Body::empty()).unwrap(), method).await;
    check_request(request("OPTIONS", CHAT).body(Body::empty()).unwrap(), method).await;
    check_request(request("POST", "/health").body(json()).unwrap(), method).await;
    check_request(request("DELETE", "/v1/models/org/toy").body(Body::empty()).unwrap(), method).await;
    check_request(request("POST", "/v1/models/org/toy").body(json()).unwrap(), method).await;
    let unknown = (404, "unknown_path", None);
    check_request(request("GET", "/v2").body(Body::empty()).unwrap(), unknown).await;
    check_request(request("GET", "/v1/models/").body(Body::empty()).unwrap(), unknown).await;
    check_request(
        request("GET", "/v1/models/%ff").body(Body::empty()).unwrap(),
        (400, "invalid_value", None),
    )
    .await;
    check_request(request("POST", "/api/embed").body(json()).unwrap(), (501, "not_in_this_build", None))
        .await;
    check_request(request("GET", "/api/tags").body(Body::empty()).unwrap(), (501, "not_in_this_build", None))
        .await;
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_one() {
    let routes = routes(&Fake::playing(hi()));
    for (method, path, allow) in
        [("GET", CHAT, "POST"), ("POST", "/health", "GET,HEAD"), ("POST", "/v1/models/org/toy", "GET,HEAD")]
    {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        assert_eq!(send(&routes, request).await.header("allow"), Some(allow), "{method} {path}");
    }
}

#[tokio::test]
async fn a_model_that_is_not_there_is_404() {
    let body = json!({"model": "absent", "messages": [{"role": "user", "content": "x"}]});
    let answer = post(&Fake::playing(hi()), CHAT, body).await;
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (404, Some("model_not_found")));
}

/// Any JSON, with the names and words that the endpoints know more often than chance would have them.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..30u32).prop_map(Value::from),
        prop::sample::select(vec!["user", "system", "text", "none", "", "image_url"]).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        let name = prop_oneof![
            4 => prop::sample::select(vec![
                "model", "messages", "prompt", "role", "content", "type", "text", "name", "n", "stop", "seed",
                "stream", "stream_options", "include_usage", "logprobs", "top_logprobs", "logit_bias", "echo",
                "temperature", "top_p", "top_k", "max_tokens", "tools", "response_format", "tokens", "best_of",
            ]).prop_map(str::to_owned),
            1 => any::<String>(),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..8).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// A panic would show as 500.
    #[test]
    fn no_body_makes_the_server_fail(body in any_json(), bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let routes = routes(&Fake::playing(vec![crate::fake::end(0, sf_core::FinishReason::Stop, 0)]));
            for path in [CHAT, TEXT, RENDER, "/v1/tokenize", "/v1/detokenize"] {
                for body in [body.to_string().into_bytes(), bytes.clone()] {
                    let answer = send(&routes, post_of(path, body)).await;
                    // n > 1 asks for more choices than the script plays; that alone may be ours.
                    let broken = answer.status == 500 && answer.json()["error"]["code"] == "broken_answer";
                    prop_assert!(answer.status < 500 || broken, "{}", answer.text);
                }
            }
            Ok(())
        })?;
    }
}

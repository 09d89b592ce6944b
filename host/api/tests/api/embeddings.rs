//! Embeddings on the wire: both encodings, what is told beside them, and what is refused before anything runs.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::fake::{Fake, post, post_of, routes, send};

const PATH: &str = "/v1/embeddings";

async fn check(body: Value, expect: Expect) {
    let answer = post(&Fake::playing(Vec::new()), PATH, body).await;
    let warnings = answer.header("x-superfluid-warnings").map_or(String::new(), |text| format!("\n{text}"));
    expect.assert_eq(&format!(
        "{} {}{warnings}\n{}",
        answer.status,
        answer.header("content-type").unwrap_or_default(),
        answer.text
    ));
}

#[tokio::test]
async fn vectors_have_openais_shape_in_both_encodings() {
    check(json!({"model": "org/toy", "input": ["ab", "abc"]}), expect![[r#"
        200 application/json
        {"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.0,0.2]},{"object":"embedding","index":1,"embedding":[0.1,0.3]}],"model":"org/toy","usage":{"prompt_tokens":5,"total_tokens":5}}"#]]).await;
    check(json!({"input": [7, 8, 9], "encoding_format": "base64"}), expect![[r#"
        200 application/json
        {"object":"list","data":[{"object":"embedding","index":0,"embedding":"AAAAAJqZmT4="}],"model":"org/toy","usage":{"prompt_tokens":3,"total_tokens":3}}"#]]).await;
}

#[tokio::test]
async fn what_nobody_reads_is_named_or_refused_as_the_client_wants() {
    let body = json!({"input": "ab", "input_type": "query", "user": "me", "metadata": {}});
    check(body.clone(), expect![[r#"
        200 application/json
        input_type: it is not read by this server
        {"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.0,0.2]}],"model":"org/toy","usage":{"prompt_tokens":2,"total_tokens":2},"warnings":[{"param":"input_type","message":"it is not read by this server"}]}"#]]).await;
    let mut strict = post_of(PATH, body.to_string());
    strict.headers_mut().insert("x-superfluid-strict", "1".parse().unwrap());
    let answer = send(&routes(&Fake::playing(Vec::new())), strict).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!("strict")));
}

#[tokio::test]
async fn a_refusal_names_its_field() {
    check(json!({"input": ["a", ""]}), expect![[r#"
        400 application/json
        {"error":{"message":"`input[1]` is empty","type":"invalid_request_error","param":"input[1]","code":"invalid_value"}}"#]]).await;
    check(json!({"input": "a", "truncate": true}), expect![[r#"
        400 application/json
        {"error":{"message":"`truncate` is not in this build yet (hint: shorten what is too long: nothing is cut off in silence)","type":"invalid_request_error","param":"truncate","code":"unsupported_parameter"}}"#]]).await;
    check(
        json!({"model": "gone", "input": "a"}),
        expect![[r#"
        503 application/json
        {"error":{"message":"gone is retired","type":"server_error","param":null,"code":"model_retired"}}"#]],
    )
    .await;
}

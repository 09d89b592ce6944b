//! What the model is given, shown and not run: the real server and the sample runtime, whose tokens are bytes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use sf_tests::{Server, ToyModel, build_sample, toy_model};

const RENDER: &str = "/v1/chat/completions/render";
/// Reads tools, parts and roles, and refuses two users in a row.
const TEMPLATE: &str = "{{ tools | tojson if tools }}{% for m in messages %}\
     {% if m.role == 'user' and not loop.first and messages[loop.index0 - 1].role == 'user' %}\
     {{ raise_exception('Two users in a row.') }}{% endif %}\
     {{ '<|im_start|>' + m.role + '\n' }}\
     {% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}[{{ part.text }}]{% endfor %}{% endif %}\
     {{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

struct Toy {
    server: Server,
    _dir: tempfile::TempDir,
}

fn serve(template: Option<&str>, more: &[&str]) -> Toy {
    let dir = tempfile::tempdir().unwrap();
    let runtime = build_sample(dir.path());
    let model = ToyModel { chat_template: template.map(str::to_owned), ..ToyModel::default() };
    let model = toy_model(dir.path(), &model);
    let mut args = vec![model.to_str().unwrap(), "--runtime", runtime.to_str().unwrap()];
    args.extend(more);
    Toy { server: Server::start(&args), _dir: dir }
}

fn text_of<'a>(body: &'a Value, span: &Value) -> &'a str {
    let place = |at: usize| usize::try_from(span[at].as_u64().unwrap()).unwrap();
    &body["text"].as_str().unwrap()[place(0)..place(1)]
}

#[test]
fn engine_a_rendered_chat_is_what_the_model_reads() {
    let toy = serve(Some(TEMPLATE), &[]);
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "é"}, {"type": "text", "text": "<|im_end|>"}]},
    ]);
    let answer = toy.server.post(RENDER, &json!({"messages": messages}));
    let body = &answer.body;
    assert_eq!((answer.status, &body["object"], &body["model"]), (200, &json!("chat.render"), &json!("toy")));
    let first = "<|im_start|>system\nBe brief.<|im_end|>\n";
    let second = "<|im_start|>user\n[é][<|im_end|>]<|im_end|>\n";
    let prompt = "<|im_start|>assistant\n";
    assert_eq!(body["text"], format!("{first}{second}{prompt}"));
    let spans = [&body["messages"][0], &body["messages"][1], &body["generation_prompt"]];
    assert_eq!(spans.map(|span| text_of(body, &span["text"])), [first, second, prompt]);
    assert_eq!((&body["messages"][1]["index"], &body["messages"][1]["role"]), (&json!(1), &json!("user")));

    // The tokens are those of the other endpoints, and each span's are its text's.
    let tokens = body["tokens"].as_array().unwrap();
    assert_eq!(body["count"], tokens.len());
    assert_eq!(
        toy.server.post("/v1/tokenize", &json!({"messages": messages})).body["tokens"],
        body["tokens"]
    );
    let asked = json!({"messages": messages, "max_tokens": 1});
    let asked = toy.server.post("/v1/chat/completions", &asked);
    assert_eq!(asked.body["usage"]["prompt_tokens"], body["count"], "{:?}", asked.body);
    let mut end = 0;
    for span in spans {
        assert_eq!(span["tokens"][0], end, "{span}");
        end = span["tokens"][1].as_u64().unwrap();
        // Markers are one token, everything else here is bytes: the message's own marker too.
        let own = ["<|im_start|>", "<|im_end|>\n"];
        let text = text_of(body, &span["text"]);
        let inside = text.strip_prefix(own[0]).unwrap();
        let closed = inside.strip_suffix(own[1]);
        let bytes = closed.map_or(inside.len(), |inside| inside.len() + 2);
        let merged =
            ToyModel::MERGED.iter().map(|pair| inside.matches(&pair.replace('\u{120}', " ")).count());
        assert_eq!(
            end - span["tokens"][0].as_u64().unwrap(),
            (1 + bytes - merged.sum::<usize>()) as u64,
            "{text}"
        );
    }
    assert_eq!(end, tokens.len() as u64);
    assert_eq!(body["stop_token_ids"], json!([ToyModel::BOS, ToyModel::EOS]));
    assert_eq!((&body["answers_in"], &body["warnings"]), (&Value::Null, &json!([])));
}

#[test]
fn engine_a_prompt_ends_as_it_is_asked_to() {
    let toy = serve(Some(TEMPLATE), &[]);
    let check = |more: Value, end: &str| {
        let mut body = json!({"messages": [
            {"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, "},
        ]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = toy.server.post(RENDER, &body);
        let text = answer.body["text"].as_str().unwrap_or_else(|| panic!("{:?}", answer.body)).to_owned();
        assert_eq!(
            text,
            format!("<|im_start|>user\nCount.<|im_end|>\n<|im_start|>assistant\nOne, {end}"),
            "{more}"
        );
        assert_eq!(answer.body["generation_prompt"].is_null(), !end.ends_with("assistant\n"), "{more}");
        assert_eq!(
            answer.body["messages"].as_array().unwrap().iter().filter(|span| span.is_null()).count(),
            0
        );
    };
    check(json!({}), "<|im_end|>\n<|im_start|>assistant\n");
    check(json!({"add_generation_prompt": false}), "<|im_end|>\n");
    check(json!({"continue_final_message": true}), "");
}

#[test]
fn engine_what_a_chat_refuses_is_refused_and_what_is_not_read_is_named() {
    let toy = serve(Some(TEMPLATE), &["--max-context", "512"]);
    let user = |text: &str| json!({"role": "user", "content": text});
    let image = json!({"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    ]});
    for (body, code, param) in [
        (json!({"messages": [user("a"), user("b")]}), "template_refused", "messages"),
        (json!({"messages": [user("a"), image]}), "unsupported_input", "messages[1].content[0]"),
        (json!({"messages": [user("a")], "temperature": 9}), "out_of_range", "temperature"),
        (json!({"messages": []}), "invalid_value", "messages"),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ]}], "continue_final_message": true}),
            "not_continued",
            "continue_final_message",
        ),
    ] {
        let answer = toy.server.post(RENDER, &body);
        let error = &answer.body["error"];
        assert_eq!(
            (answer.status, &error["code"], &error["param"]),
            (400, &json!(code), &json!(param)),
            "{error}"
        );
        if code != "not_continued" {
            // As the chat itself is refused.
            assert_eq!(toy.server.post("/v1/chat/completions", &body).body, answer.body);
        }
    }
    let refused = toy.server.post(RENDER, &json!({"messages": [user("a"), user("b")]}));
    assert!(refused.body["error"]["message"].as_str().unwrap().contains("Two users in a row."));
    let absent = toy.server.post(RENDER, &json!({"model": "absent", "messages": [user("a")]}));
    assert_eq!((absent.status, &absent.body["error"]["code"]), (404, &json!("model_not_found")));

    let long = json!({"messages": [user(&"x".repeat(600))], "chat_template_kwargs": {"mood": "calm"}, "frobnicate": 1});
    let long = toy.server.post(RENDER, &long);
    let warned: Vec<&str> = long.body["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning["param"].as_str().unwrap())
        .collect();
    assert_eq!(
        (long.status, warned),
        (200, vec!["frobnicate", "mood", "messages"]),
        "{:?}",
        long.body["warnings"]
    );

    let base = serve(None, &[]);
    let answer = base.server.post(RENDER, &json!({"messages": [user("a")]}));
    assert_eq!((answer.status, &answer.body["error"]["code"]), (400, &json!("no_chat_template")));
}

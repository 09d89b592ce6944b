//! Tool calls through the real server: a small model that must call writes calls that its tools accept, streamed and whole.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use sf_tests::{Server, real_model, repository};

fn serve(more: &[&str]) -> Server {
    let model = real_model("SmolLM2-135M-Instruct.Q4_1.gguf");
    let mut args = vec![model.to_str().unwrap(), "--threads", "1", "--max-context", "2048"];
    args.extend(more);
    Server::start(&args)
}

/// A template that shows tools, in the format of Hermes, which SmolLM2's tokens can spell.
fn hermes() -> Server {
    let template = repository().join("host/codec/tests/templates/families/hermes.jinja");
    serve(&["--chat-template", template.to_str().unwrap()])
}

fn weather() -> Value {
    json!({"type": "function", "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "additionalProperties": false, "required": ["city", "days"], "properties": {
            "city": {"type": "string", "maxLength": 20},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
            "units": {"enum": ["celsius", "fahrenheit"]},
        }},
    }})
}

fn clock() -> Value {
    json!({"type": "function", "function": {"name": "get_time", "description": "What time it is.",
        "parameters": {"type": "object", "properties": {}}}})
}

#[expect(clippy::needless_pass_by_value, reason = "made on the spot by every caller")]
fn ask(more: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "What will the weather be in Oslo this week?"}],
        "tools": [weather(), clock()], "temperature": 0, "max_tokens": 120,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn fits(arguments: &str) {
    let value: Value = serde_json::from_str(arguments).unwrap_or_else(|error| panic!("{arguments}: {error}"));
    assert!(value["city"].as_str().is_some_and(|city| city.chars().count() <= 20), "{value}");
    assert!(value["days"].as_u64().is_some_and(|days| (1..=7).contains(&days)), "{value}");
}

#[test]
fn engine_a_model_that_must_call_calls_as_its_tools_say() {
    let server = hermes();
    let named = json!({"tool_choice": {"type": "function", "function": {"name": "get_weather"}}});
    let whole = server.post("/v1/chat/completions", &ask(named.clone()));
    assert_eq!(whole.status, 200, "{:?}", whole.body);
    let choice = &whole.body["choices"][0];
    let calls = choice["message"]["tool_calls"].as_array().unwrap_or_else(|| panic!("{choice}"));
    assert_eq!((calls.len(), &choice["message"]["content"]), (1, &Value::Null), "{choice}");
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(
        (&calls[0]["type"], &calls[0]["function"]["name"]),
        (&json!("function"), &json!("get_weather"))
    );
    assert!(calls[0]["id"].as_str().is_some_and(|id| id.starts_with("call_")));
    let arguments = calls[0]["function"]["arguments"].as_str().unwrap();
    fits(arguments);

    let mut body = ask(named);
    body["stream"] = json!(true);
    let (mut told, mut names, mut end) = (String::new(), Vec::new(), Value::Null);
    for event in server.stream("/v1/chat/completions", &body) {
        let choice = &event["choices"][0];
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            assert_eq!(call["index"], 0);
            told.push_str(call["function"]["arguments"].as_str().unwrap());
            names.extend(call["function"]["name"].as_str().map(str::to_owned));
        }
        assert!(choice["delta"]["content"].as_str().is_none_or(str::is_empty), "{event}");
        if choice["finish_reason"].is_string() {
            end = choice["finish_reason"].clone();
        }
    }
    assert_eq!((told.as_str(), names, end), (arguments, vec!["get_weather".to_owned()], json!("tool_calls")));

    let several = ask(json!({"tool_choice": "required", "temperature": 1.2, "seed": 3, "n": 4}));
    let several = server.post("/v1/chat/completions", &several);
    let choices = several.body["choices"].as_array().unwrap_or_else(|| panic!("{:?}", several.body));
    let called = choices.iter().filter(|choice| choice["message"]["tool_calls"].is_array()).count();
    assert_eq!((choices.len(), called), (4, 4), "{choices:?}");
    for choice in choices {
        for call in choice["message"]["tool_calls"].as_array().into_iter().flatten() {
            match (choice["finish_reason"].as_str(), call["function"]["name"].as_str().unwrap()) {
                (Some("tool_calls"), "get_weather") => fits(call["function"]["arguments"].as_str().unwrap()),
                (_, name) => assert!(["get_weather", "get_time"].contains(&name)),
            }
        }
    }
}

#[test]
fn engine_calls_are_held_in_every_way_of_writing_them() {
    let template = repository().join("host/codec/tests/templates/families/hermes.jinja");
    for wire in ["qwen3_coder", "glm45", "kimi_k2", "deepseek_v31", "lfm2", "gemma", "llama3_json"] {
        let server = serve(&["--chat-template", template.to_str().unwrap(), "--tool-call-parser", wire]);
        let named = json!({"type": "function", "function": {"name": "get_weather"}});
        // SmolLM2 spells these families' marks byte by byte.
        let answer =
            server.post("/v1/chat/completions", &ask(json!({"tool_choice": named, "max_tokens": 300})));
        let choice = &answer.body["choices"][0];
        let calls =
            choice["message"]["tool_calls"].as_array().unwrap_or_else(|| panic!("{wire}: {:?}", answer.body));
        assert_eq!((calls.len(), &choice["finish_reason"]), (1, &json!("tool_calls")), "{wire}: {choice}");
        assert_eq!(calls[0]["function"]["name"], "get_weather", "{wire}");
        fits(calls[0]["function"]["arguments"].as_str().unwrap());
    }
    // Its calls begin with a control token that SmolLM2 does not have.
    let server = serve(&["--chat-template", template.to_str().unwrap(), "--tool-call-parser", "mistral"]);
    let answer = server.post("/v1/chat/completions", &ask(json!({"tool_choice": "required"})));
    let error = &answer.body["error"];
    assert_eq!((answer.status, &error["param"]), (400, &json!("tool_choice")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("[TOOL_CALLS]"), "{error}");
}

#[test]
fn engine_strict_tools_are_held_whoever_decides_to_call() {
    let server = hermes();
    let mut strict = weather();
    strict["function"]["strict"] = json!(true);
    let free = ask(json!({"max_tokens": 40}));
    let held = ask(json!({"max_tokens": 40, "tools": [strict, clock()], "parallel_tool_calls": false}));
    let (free, held) =
        (server.post("/v1/chat/completions", &free), server.post("/v1/chat/completions", &held));
    assert_eq!((free.status, held.status), (200, 200), "{:?}", held.body);
    let masks = server.metric("superfluid_mask_seconds_count");
    assert!(masks > 0.0, "the answer of strict tools has a grammar");
    let message = &held.body["choices"][0]["message"];
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        if call["function"]["name"] == "get_weather" {
            fits(call["function"]["arguments"].as_str().unwrap());
        }
    }
    // A tool that calls nothing in text leaves the text as it is.
    if message["tool_calls"].is_null() && free.body["choices"][0]["message"]["tool_calls"].is_null() {
        assert_eq!(message["content"], free.body["choices"][0]["message"]["content"]);
    }
    let mut bad = weather();
    bad["function"]["strict"] = json!(true);
    bad["function"]["parameters"]["properties"]["city"]["uniqueItems"] = json!(true);
    let refused = server.post("/v1/chat/completions", &ask(json!({"tools": [clock(), bad]})));
    let error = &refused.body["error"];
    assert_eq!((refused.status, &error["param"]), (400, &json!("tools[1].function.parameters")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("/properties/city"), "{error}");
}

#[test]
fn engine_a_conversation_with_tools_goes_on() {
    let server = hermes();
    let call =
        json!({"id": "call_1", "type": "function", "function": {"name": "get_time", "arguments": "{}"}});
    let messages = json!([
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Half past nine."},
    ]);
    let answer = server.post("/v1/chat/completions", &ask(json!({"messages": messages, "max_tokens": 16})));
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert!(
        answer.body["usage"]["prompt_tokens"].as_u64() > Some(100),
        "the tools are shown: {:?}",
        answer.body
    );
    let hidden = ask(json!({"messages": messages, "max_tokens": 16, "tool_choice": "none"}));
    let hidden = server.post("/v1/chat/completions", &hidden);
    let count = |body: &Value| body["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(count(&hidden.body) < count(&answer.body) - 50, "{:?}", hidden.body);
}

#[test]
fn engine_what_tools_cannot_do_here_is_said_before_anything_runs() {
    let server = hermes();
    let refused = |server: &Server, body: Value| {
        let answer = server.post("/v1/chat/completions", &body);
        let error = &answer.body["error"];
        assert_eq!(answer.status, 400, "{error}");
        (error["param"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
    };
    let bad = json!({"type": "function", "function": {"name": "odd", "description": "", "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}});
    let (param, words) = refused(&server, ask(json!({"tools": [weather(), bad], "tool_choice": "required"})));
    assert_eq!(param, "tools[1].function.parameters");
    for part in ["\"odd\"", "at /properties/a: ", "`not`"] {
        assert!(words.contains(part), "{words} lacks {part}");
    }
    let (param, _) = refused(&server, ask(json!({"tool_choice": {"function": {"name": "nobody"}}})));
    assert_eq!(param, "tool_choice");
    for more in [json!({"min_tokens": 5}), json!({"ignore_eos": true})] {
        let name = more.as_object().unwrap().keys().next().unwrap().clone();
        let mut body = ask(json!({"tool_choice": "required"}));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(refused(&server, body).0, name);
    }
    let both = ask(json!({"tool_choice": "required", "response_format": {"type": "json_object"}}));
    assert_eq!(refused(&server, both).0, "tool_choice");

    // Its own template shows no tools.
    let plain = serve(&[]);
    let (param, words) = refused(&plain, ask(json!({})));
    assert_eq!(param, "tools");
    assert!(words.contains("tools"), "{words}");
}

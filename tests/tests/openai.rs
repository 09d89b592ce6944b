//! The OpenAI surface of the real server: the official Python client on a real model, and on the sample runtime what no
//! client library shows: headers, what was cached, and how an answer ended.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use serde_json::{Value, json};
use sf_tests::{Server, ToyModel, build_sample, python, real_model, repository, run, toy_model};

#[test]
fn engine_the_official_python_client_is_served() {
    let model = real_model("SmolLM2-135M-Instruct.Q4_1.gguf");
    // SmolLM2's own template shows no tools.
    let template = repository().join("host/codec/tests/templates/families/hermes.jinja");
    let server = Server::start(&[
        model.to_str().unwrap(),
        "--chat-template",
        template.to_str().unwrap(),
        "--threads",
        "1",
        "--max-context",
        "1024",
        "--api-key",
        "sesame",
    ]);
    run(Command::new(python("requirements.txt"))
        .arg(repository().join("tests/python/openai_conversation.py"))
        .args([&server.url("/v1"), "SmolLM2-135M-Instruct.Q4_1", "sesame"]));
}

/// The renderer that writes them is transformers' own; `host/codec/tests/templates.rs` holds ours against them.
#[test]
fn the_goldens_of_the_templates_are_what_transformers_says() {
    let folder = repository().join("host/codec/tests/templates");
    let output = Command::new(python("requirements.txt"))
        .arg(folder.join("golden.py"))
        .arg("--print")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let stored: Value = serde_json::from_slice(&std::fs::read(folder.join("goldens.json")).unwrap()).unwrap();
    let families = said["families"].as_object().unwrap();
    let mut different = Vec::new();
    let mut total = 0;
    for (family, chats) in families {
        for (name, golden) in chats.as_object().unwrap() {
            total += 1;
            if stored["families"][family][name] != *golden {
                different.push(format!("{family}, {name}"));
            }
        }
    }
    let equal = total - different.len();
    eprintln!("transformers: {} families, {total} renderings, {equal} are the stored ones", families.len());
    assert!(
        said == stored,
        "run {} and look at what changes in goldens.json: {different:?}",
        folder.join("golden.py").display()
    );
}

/// A server on the sample runtime, whose tokens are bytes.
struct Toy {
    server: Server,
    _dir: tempfile::TempDir,
}

fn toy(more: &[&str]) -> Toy {
    let dir = tempfile::tempdir().unwrap();
    let runtime = build_sample(dir.path());
    let model = toy_model(dir.path(), &ToyModel::default());
    let mut args = vec![model.to_str().unwrap(), "--runtime", runtime.to_str().unwrap()];
    args.extend(more);
    Toy { server: Server::start(&args), _dir: dir }
}

struct Asked {
    status: u16,
    ignored: Option<String>,
    body: Value,
}

impl Asked {
    fn cached(&self) -> u64 {
        assert_eq!(self.status, 200, "{}", self.body);
        self.body["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    }
}

impl Toy {
    fn ask(&self, body: &Value, headers: &[(&str, &str)]) -> Asked {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = agent.post(self.server.url("/v1/completions"));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let mut response = request.send_json(body).unwrap();
        let ignored = response.headers().get("x-superfluid-warnings");
        Asked {
            status: response.status().as_u16(),
            ignored: ignored.map(|names| names.to_str().unwrap().to_owned()),
            body: serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap(),
        }
    }

    fn tell(&self, body: &Value) -> (u16, Value) {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut response = agent.put(self.server.url("/v1/scheduling")).send_json(body).unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap())
    }
}

fn completion(prompt: &str, max_tokens: u32) -> Value {
    json!({"prompt": prompt, "max_tokens": max_tokens, "seed": 5, "temperature": 0.8, "ignore_eos": true})
}

#[test]
fn engine_a_prompt_that_was_seen_is_not_computed_again() {
    let toy = toy(&[]);
    let body = completion(&"a long story about rain ".repeat(8), 20);
    let first = toy.ask(&body, &[]);
    let prompt = first.body["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(first.cached(), 0);
    let again = toy.ask(&body, &[("x-superfluid-pin", "60")]);
    assert!((16..prompt).contains(&again.cached()), "{}", again.body);
    assert_eq!(again.body["choices"], first.body["choices"], "what is reused changes nothing");

    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    let last = toy.server.stream("/v1/completions", &streamed).last().unwrap();
    let cached = last["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!((16..prompt).contains(&cached), "{last}");

    let mut apart = body;
    apart["cache_prompt"] = json!(false);
    let apart = toy.ask(&apart, &[]);
    assert_eq!(apart.cached(), 0);
    assert_eq!(apart.body["choices"], first.body["choices"]);
}

#[test]
fn engine_a_request_that_keeps_out_of_the_cache_leaves_nothing_in_it() {
    let toy = toy(&[]);
    let mut body = completion(&"what nobody else may profit from ".repeat(6), 5);
    body["cache_prompt"] = json!(false);
    assert_eq!(toy.ask(&body, &[]).cached(), 0);
    body["cache_prompt"] = json!(true);
    assert_eq!(toy.ask(&body, &[]).cached(), 0);
}

#[test]
fn engine_tokens_end_an_answer_where_they_are_told_to() {
    let toy = toy(&[]);
    let mut body = completion("bytes are tokens here", 80);
    let text = |asked: &Asked| asked.body["choices"][0]["text"].as_str().unwrap().to_owned();
    let whole = text(&toy.ask(&body, &[]));
    let (at, stop) =
        whole.bytes().enumerate().skip(10).find(|(_, byte)| byte.is_ascii_alphanumeric()).unwrap();
    let at = whole.bytes().position(|byte| byte == stop).unwrap().min(at);
    let agent = toy.server.post("/v1/tokenize", &json!({"prompt": (stop as char).to_string()}));
    let id = agent.body["tokens"]
        .as_array()
        .and_then(|ids| ids.last())
        .unwrap_or_else(|| panic!("{:?}", agent.body));
    body["stop_token_ids"] = json!([id]);
    let cut = toy.ask(&body, &[]);
    assert_eq!(cut.body["choices"][0]["finish_reason"], "stop", "{}", cut.body);
    assert_eq!(text(&cut), whole[..at], "{whole:?} at {:?}", stop as char);

    // What would end it at once is drawn after six tokens at the earliest.
    let end = ToyModel::EOS.to_string();
    let early = json!({"prompt": "x", "max_tokens": 20, "temperature": 0, "logit_bias": {end: 100}});
    let drawn = |body: &Value| toy.ask(body, &[]).body["usage"]["completion_tokens"].as_u64().unwrap();
    assert_eq!(drawn(&early), 1);
    let mut later = early;
    later["min_tokens"] = json!(6);
    assert_eq!(drawn(&later), 7);
    later["min_tokens"] = json!(21);
    assert_eq!(toy.ask(&later, &[]).status, 400);
}

#[test]
fn engine_a_scored_prompt_is_what_drawing_it_would_have_told() {
    let toy = toy(&[]);
    let text = "every byte of this is a token of its own ".repeat(5);
    let tokens: Vec<u8> = text.bytes().collect();
    let asked = |prompt: &[u8], more: Value| {
        let mut body = json!({"prompt": prompt, "temperature": 0, "logprobs": 20});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let asked = toy.ask(&body, &[]);
        assert_eq!(asked.status, 200, "{}", asked.body);
        asked.body
    };
    let scored = asked(&tokens, json!({"echo": true, "max_tokens": 0}));
    assert_eq!(scored["choices"][0]["text"], text);
    assert_eq!(scored["usage"]["completion_tokens"], 0);
    let logprobs = &scored["choices"][0]["logprobs"];
    let offsets: Vec<usize> = (0..tokens.len()).collect();
    assert_eq!(logprobs["text_offset"], json!(offsets));
    assert_eq!((&logprobs["token_logprobs"][0], &logprobs["top_logprobs"][0]), (&Value::Null, &Value::Null));
    // Around the borders of the chunks in which it is computed too.
    for at in [1, 2, 63, 64, 65, 128, tokens.len() - 1] {
        let next = asked(&tokens[..at], json!({"max_tokens": 1}));
        let (drawn, told) =
            (&next["choices"][0]["logprobs"]["top_logprobs"][0], &logprobs["top_logprobs"][at]);
        for (token, value) in drawn.as_object().unwrap() {
            let other = told[token].as_f64().unwrap_or_else(|| panic!("{token:?} is not in {told}"));
            assert!((value.as_f64().unwrap() - other).abs() < 1e-4, "{at}, {token:?}: {value} {other}");
        }
        let own = &told[logprobs["tokens"][at].as_str().unwrap()];
        assert_eq!(&logprobs["token_logprobs"][at], own);
    }
    // What is there already is computed again, and serves whoever does not want scores.
    let again = asked(&tokens, json!({"echo": true, "max_tokens": 0}));
    assert_eq!((&again["choices"], &again["usage"]), (&scored["choices"], &scored["usage"]));
    let unscored = toy.ask(&json!({"prompt": tokens, "max_tokens": 2}), &[]);
    assert!(unscored.cached() > 100, "{}", unscored.body);
}

#[test]
fn engine_an_answer_ends_at_its_deadline_with_what_it_has() {
    let toy = toy(&["--sample-delay-us", "2000", "--max-batch", "1"]);
    let endless = completion("for ever and ever", 900);
    let cut = toy.ask(&endless, &[("x-superfluid-deadline-ms", "600")]);
    assert_eq!(cut.status, 200, "{}", cut.body);
    let choice = &cut.body["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["ended_by"]), (&json!("length"), &json!("deadline")));
    let drawn = cut.body["usage"]["completion_tokens"].as_u64().unwrap();
    assert!((1..900).contains(&drawn), "{drawn}");

    // The only lane is taken for longer than the next one can wait.
    let mut streamed = endless;
    streamed["stream"] = json!(true);
    let mut running = toy.server.stream("/v1/completions", &streamed);
    running.next().expect("a first event");
    let late = toy.ask(&completion("too late", 5), &[("x-superfluid-deadline-ms", "50")]);
    assert_eq!((late.status, &late.body["error"]["code"]), (504, &json!("deadline_exceeded")));
    drop(running);
    assert_eq!(toy.ask(&completion("in time", 5), &[]).body["choices"][0].get("ended_by"), None);
}

#[test]
fn engine_terms_are_checked_and_what_is_not_read_is_named() {
    let open = toy(&[]);
    let body = completion("x", 2);
    for (name, value, code) in [
        ("x-superfluid-qos", "urgent", "invalid_value"),
        ("x-superfluid-deadline-ms", "86400001", "out_of_range"),
        ("x-superfluid-pin", "soon", "invalid_type"),
    ] {
        let refused = open.ask(&body, &[(name, value)]);
        assert_eq!((refused.status, &refused.body["error"]["code"]), (400, &json!(code)));
        assert_eq!(refused.body["error"]["param"], name);
    }
    let fine = [("x-superfluid-qos", "interactive"), ("x-superfluid-deadline-ms", "60000")];
    let taken = open.ask(&body, &fine);
    assert_eq!((taken.status, taken.ignored), (200, None));

    let closed = toy(&["--no-http-qos-header", "--http-default-qos", "background"]);
    let ignored = closed.ask(&body, &[("x-superfluid-qos", "urgent")]);
    assert_eq!(
        (ignored.status, ignored.ignored.as_deref()),
        (200, Some("x-superfluid-qos: it is not read by this server"))
    );
}

#[test]
fn engine_the_schedulers_can_be_asked_and_told() {
    let toy = toy(&[]);
    assert_eq!(toy.server.get("/v1/scheduling").body, json!({"background_every": 4}));
    assert_eq!(toy.tell(&json!({"background_every": 7})), (200, json!({"background_every": 7})));
    assert_eq!(toy.tell(&json!({"background_every": 0})).0, 400);
    assert_eq!(toy.server.get("/v1/scheduling").body, json!({"background_every": 7}));
    assert_eq!(toy.ask(&completion("x", 3), &[("x-superfluid-qos", "background")]).status, 200);
}

//! Answers of a given form, through the real server: on a real model, on the sample runtime, and across a worker's death.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::Signal;
use serde_json::{Value, json};
use sf_tests::{Server, Toy, piece_of, real_model, signal, streamed, text_of};

fn person() -> Value {
    json!({"type": "object", "additionalProperties": false, "required": ["name", "age", "tags"], "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["old", "young", "tall"]}, "maxItems": 3},
    }})
}

fn named(schema: &Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "answer", "strict": true, "schema": schema}})
}

fn is_person(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert!(value["name"].as_str().is_some_and(|name| name.chars().count() <= 30), "{text}");
    assert!(value["age"].as_u64().is_some_and(|age| age <= 150), "{text}");
    let tags = value["tags"].as_array().unwrap();
    assert!(
        tags.len() <= 3 && tags.iter().all(|tag| ["old", "young", "tall"].contains(&tag.as_str().unwrap()))
    );
    assert_eq!(value.as_object().unwrap().len(), 3, "{text}");
}

#[test]
fn engine_a_real_model_answers_in_the_form_that_was_asked_for() {
    let model = real_model("SmolLM2-135M-Instruct.Q4_1.gguf");
    let server = Server::start(&[model.to_str().unwrap(), "--threads", "1", "--max-context", "1024"]);
    let ask = |more: Value| {
        let mut body = json!({
            "messages": [{"role": "user", "content": "Describe a person called Anna as JSON."}],
            "max_tokens": 200, "temperature": 0,
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let whole = server.post("/v1/chat/completions", &ask(json!({"response_format": named(&person())})));
    assert_eq!(whole.status, 200, "{:?}", whole.body);
    let choice = &whole.body["choices"][0];
    let text = choice["message"]["content"].as_str().unwrap();
    assert_eq!(choice["finish_reason"], "stop", "{choice}");
    is_person(text);

    let mut body = ask(json!({"response_format": named(&person())}));
    body["stream"] = json!(true);
    let events = server.stream("/v1/chat/completions", &body);
    let told: String = events
        .map(|event| event["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(told, text, "streamed and whole are one answer");

    let several = ask(json!({"response_format": named(&person()), "n": 4, "temperature": 1.3, "seed": 5}));
    let several = server.post("/v1/chat/completions", &several);
    let choices = several.body["choices"].as_array().unwrap_or_else(|| panic!("{:?}", several.body));
    assert_eq!(choices.len(), 4);
    assert!(choices.iter().any(|choice| choice["finish_reason"] == "stop"), "{choices:?}");
    for choice in choices {
        if choice["finish_reason"] == "stop" {
            is_person(choice["message"]["content"].as_str().unwrap());
        }
    }

    let check = |form: Value, good: &dyn Fn(&str) -> bool| {
        let answer = server.post("/v1/chat/completions", &ask(form));
        let text = answer.body["choices"][0]["message"]["content"].as_str().map(str::to_owned);
        assert!(text.as_deref().is_some_and(good), "{:?}", answer.body);
    };
    check(json!({"guided_choice": ["yes", "no"]}), &|text| ["yes", "no"].contains(&text));
    check(json!({"guided_regex": "[A-Z][a-z]{3,9}\\."}), &|text| text.ends_with('.') && text.len() < 12);
    check(json!({"structured_outputs": {"choice": ["yes", "no"]}}), &|text| ["yes", "no"].contains(&text));
    // Text runs free up to the first word that opens a tag, and again behind it.
    let begins = ['a', 'e', 'i', 'o'];
    let tag = |begin: &char| json!({"begin": begin, "schema": {"enum": ["<x>"]}, "end": "!"});
    let tags = json!({"type": "structural_tag", "triggers": begins, "structures": begins.iter().map(tag).collect::<Vec<_>>()});
    check(json!({"response_format": tags, "max_tokens": 60}), &|text| {
        let opened = text.matches(begins).count();
        let whole: usize = begins.iter().map(|begin| text.matches(&format!("{begin}\"<x>\"!")).count()).sum();
        // The last one may be cut.
        opened > 2 && (whole == opened || whole + 1 == opened)
    });
    check(json!({"response_format": {"type": "json_object"}, "max_tokens": 300}), &|text| {
        text.starts_with('{')
    });
    check(json!({"guided_grammar": "start: \"<\" /[a-z]{1,8}/ \">\""}), &|text| {
        text.starts_with('<') && text.ends_with('>')
    });
    assert!(server.metric("superfluid_mask_seconds_count") > 0.0);
}

/// A long answer of a form that the sample runtime, which knows nothing, would never keep to by itself.
fn long(seed: u64, stream: bool) -> Value {
    json!({"prompt": "count", "max_tokens": 400, "seed": seed, "temperature": 1.0, "stream": stream,
        "guided_regex": "([a-f]{3}[0-9]{2};){40}"})
}

#[test]
fn engine_a_form_outlives_the_engine() {
    let toy = Toy::default();
    let server = toy.serve(&["--sample-delay-us", "300"]);
    for seed in 0..6 {
        let undisturbed = text_of(&server.post("/v1/completions", &long(seed, false)));
        assert_eq!((undisturbed.len(), undisturbed.matches(';').count()), (240, 40), "{undisturbed}");
        let (mut told, mut killed) = (String::new(), false);
        for event in server.stream("/v1/completions", &long(seed, true)) {
            told.push_str(piece_of(&event));
            if told.len() > 30 + 25 * seed as usize && !killed {
                signal(server.workers()[0], Signal::KILL);
                killed = true;
            }
        }
        assert_eq!(told, undisturbed, "seed {seed}");
    }
    assert_eq!(server.metric("superfluid_worker_deaths_total"), 6.0);
}

#[test]
fn engine_neighbours_of_a_form_are_left_alone() {
    let toy = Toy::default();
    let server = toy.serve(&["--max-batch", "4"]);
    let plain = |seed: u64| json!({"prompt": "x", "max_tokens": 60, "seed": seed, "ignore_eos": true});
    let alone: Vec<String> = (0..2).map(|seed| streamed(&server, plain(seed))).collect();
    let formed = text_of(&server.post("/v1/completions", &long(3, false)));
    std::thread::scope(|scope| {
        let free: Vec<_> = (0..2)
            .map(|seed| {
                scope.spawn({
                    let server = &server;
                    move || streamed(server, plain(seed))
                })
            })
            .collect();
        let held: Vec<_> = (0..2).map(|_| scope.spawn(|| streamed(&server, long(3, true)))).collect();
        assert_eq!(free.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>(), alone);
        for one in held {
            assert_eq!(one.join().unwrap(), formed);
        }
    });
}

#[test]
fn engine_a_form_that_nobody_can_keep_is_refused_before_anything_runs() {
    let toy = Toy::default();
    let server = toy.serve(&[]);
    let check = |form: Value, param: &str, words: &str| {
        let mut body = json!({"prompt": "x", "max_tokens": 5});
        body.as_object_mut().unwrap().extend(form.as_object().unwrap().clone());
        let answer = server.post("/v1/completions", &body);
        let error = &answer.body["error"];
        assert_eq!((answer.status, error["param"].as_str()), (400, Some(param)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    };
    let bad = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"not": {}}}}});
    check(json!({"response_format": named(&bad)}), "response_format", "at /properties/a/items: ");
    check(json!({"guided_json": bad}), "guided_json", "at /properties/a/items: ");
    check(json!({"guided_regex": "(a"}), "guided_regex", "regular expression");
    check(json!({"structured_outputs": {"regex": "(a"}}), "structured_outputs", "regular expression");
    let tag = json!({"structures": [{"begin": "<a>", "schema": bad, "end": "</a>"}], "triggers": ["<a"]});
    check(
        json!({"structured_outputs": {"structural_tag": tag}}),
        "structured_outputs",
        "the grammar is refused",
    );
    let twice = json!({"regex": "a", "json_object": true});
    check(json!({"structured_outputs": twice}), "structured_outputs.regex", "both");
    check(json!({"guided_grammar": "begin: \"x\""}), "guided_grammar", "the grammar is refused");
    check(json!({"response_format": {"type": "yaml"}}), "response_format.type", "yaml");
    check(json!({"guided_regex": "a", "guided_choice": ["b"]}), "guided_choice", "both ask");
    check(json!({"guided_regex": "a", "ignore_eos": true}), "ignore_eos", "where the answer ends");
    check(json!({"guided_regex": "a", "min_tokens": 3}), "min_tokens", "where the answer ends");
    // Nothing of that reached an engine, which goes on.
    assert_eq!(text_of(&server.post("/v1/completions", &long(1, false))).len(), 240);
    assert_eq!(server.metric("superfluid_worker_deaths_total"), 0.0);
}

//! Embeddings as their users meet them: a real encoder is verified and served, alone and beside a model that makes text.
//!
//! Without a fetched MLX there is no runtime for it beside the binaries, and nothing here is run: `cargo xtask fetch mlx`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "says what is skipped")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sf_tests::{Server, Toy, binary, python, real_model, repository, run, verified};

const MODEL: &str = "all-MiniLM-L6-v2";

/// The model's directory, where there is a runtime that reads it.
fn encoder() -> Option<PathBuf> {
    let folder = binary("superfluid").with_file_name("runtimes").join("mlx");
    if !folder.join("runtime.json").is_file() {
        eprintln!("skipped: {} is missing, cargo xtask fetch mlx brings what it needs", folder.display());
        return None;
    }
    let weights = real_model(&format!("{MODEL}/model.safetensors"));
    Some(weights.parent().unwrap().to_owned())
}

fn serve(model: &Path, more: &[&str]) -> Server {
    let mut args = vec![model.to_str().unwrap(), "--threads", "1"];
    args.extend(more);
    Server::start(&args)
}

fn vectors(server: &Server, input: &Value) -> Vec<Vec<f32>> {
    let answer = server.post("/v1/embeddings", &json!({"input": input}));
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let data = answer.body["data"].as_array().unwrap();
    data.iter().map(|item| serde_json::from_value(item["embedding"].clone()).unwrap()).collect()
}

/// Texts, their tokens and vectors of an independent implementation; see `make_encoder.py` beside the file.
fn golden() -> Vec<(String, Vec<u32>, Vec<f64>)> {
    let path = repository().join(format!("runtimes/mlx/tests/golden/encoder/real/{MODEL}.json"));
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let of = |case: &Value, key: &str| case[key].clone();
    cases
        .iter()
        .map(|case| {
            (
                serde_json::from_value(of(case, "text")).unwrap(),
                serde_json::from_value(of(case, "tokens")).unwrap(),
                serde_json::from_value(of(case, "vector")).unwrap(),
            )
        })
        .collect()
}

#[test]
fn engine_an_encoder_passes_every_group_of_the_verifier() {
    let Some(model) = encoder() else { return };
    let groups = verified("mlx", &model);
    let embed = groups.iter().find(|group| group["name"] == "embed").unwrap();
    let checks = embed["checks"].as_array().unwrap();
    assert!(checks.len() > 10 && checks.iter().all(|check| check["verdict"] == "pass"), "{embed:#}");
}

#[test]
fn engine_vectors_and_tokens_are_those_of_an_independent_implementation() {
    let Some(model) = encoder() else { return };
    let (server, golden) = (serve(&model, &[]), golden());
    assert_eq!(golden.len(), 20);
    let texts: Vec<&str> = golden.iter().map(|(text, ..)| text.as_str()).collect();
    let found = vectors(&server, &json!(texts));
    for ((text, tokens, want), got) in golden.iter().zip(&found) {
        let cosine: f64 = want.iter().zip(got).map(|(a, b)| a * f64::from(*b)).sum();
        assert!(cosine > 0.9999, "{text:?}: a cosine of {cosine}");
        let answer = server.post("/v1/tokenize", &json!({"prompt": text}));
        assert_eq!(answer.body["tokens"], json!(tokens), "{text:?}");
    }
}

#[test]
fn engine_the_worker_gives_the_same_bits_as_this_process_and_company_does_not_show() {
    let Some(model) = encoder() else { return };
    let texts: Vec<String> = golden().into_iter().map(|(text, ..)| text).collect();
    let (behind, within) = (serve(&model, &[]), serve(&model, &["--no-worker-process"]));
    assert!(!behind.workers().is_empty() && within.workers().is_empty());
    let together = vectors(&behind, &json!(texts));
    assert_eq!(together, vectors(&within, &json!(texts)), "worker and in-process");
    for (text, among) in texts.iter().zip(&together) {
        assert_eq!(&vectors(&behind, &json!(text))[0], among, "{text:?} alone");
    }
    // More than one answer of the worker has room for.
    let many: Vec<&String> = texts.iter().cycle().take(2048).collect();
    let found = vectors(&behind, &json!(many));
    assert!(found.iter().zip(together.iter().cycle()).all(|(got, want)| got == want));
}

#[test]
fn engine_the_official_client_embeds() {
    let Some(model) = encoder() else { return };
    let server = serve(&model, &[]);
    let mut script = Command::new(python("requirements.txt"));
    script.arg(repository().join("tests/python/openai_embeddings.py"));
    run(script.args([&server.url("/v1"), MODEL]));
}

#[test]
fn engine_an_encoder_says_what_it_is_and_outlives_its_worker() {
    let Some(model) = encoder() else { return };
    let server = serve(&model, &[]);
    let card = server.get(&format!("/v1/models/{MODEL}")).body;
    assert_eq!((&card["workload"], &card["chat"]), (&json!("embedding"), &json!(false)));
    assert_eq!((&card["context_window"], &card["runtime"]), (&json!(256), &json!("mlx")));
    assert!(server.log().contains("an encoder makes no text"), "{}", server.log());
    let before = vectors(&server, &json!("again"));
    server.workers().into_iter().for_each(|worker| sf_tests::signal(worker, rustix::process::Signal::KILL));
    assert_eq!(vectors(&server, &json!("again")), before);
}

#[test]
fn engine_each_of_two_models_does_what_it_is_made_for() {
    let Some(model) = encoder() else { return };
    let toy = Toy::default();
    let runtime = format!("{}={}", toy.model.display(), toy.runtime.display());
    let server = serve(&model, &[toy.model.to_str().unwrap(), "--runtime", &runtime]);
    let ask = |path: &str, body: Value| server.post(path, &body);
    let text = json!({"model": "toy", "prompt": "a", "max_tokens": 3});
    assert_eq!(ask("/v1/completions", text).status, 200);
    assert_eq!(ask("/v1/embeddings", json!({"model": MODEL, "input": "a"})).status, 200);
    let refused = ask("/v1/embeddings", json!({"model": "toy", "input": "a"}));
    assert_eq!((refused.status, &refused.body["error"]["code"]), (400, &json!("not_an_embedding_model")));
    assert!(refused.body["error"]["message"].as_str().unwrap().contains(MODEL), "{:?}", refused.body);
    let refused = ask("/v1/completions", json!({"model": MODEL, "prompt": "a"}));
    assert_eq!((refused.status, &refused.body["error"]["code"]), (400, &json!("not_a_text_model")));
    assert!(refused.body["error"]["message"].as_str().unwrap().contains("toy"), "{:?}", refused.body);
}

#[test]
fn a_text_model_refuses_embeddings_and_says_what_would_make_them() {
    let server = Toy::default().serve(&[]);
    let refused = server.post("/v1/embeddings", &json!({"input": "a"}));
    assert_eq!((refused.status, &refused.body["error"]["code"]), (400, &json!("not_an_embedding_model")));
    let message = refused.body["error"]["message"].as_str().unwrap();
    assert!(["sample", "encoder", "mlx"].iter().all(|word| message.contains(word)), "{message}");
}

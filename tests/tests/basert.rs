//! Our own engine as its users meet it: a packed model is verified, served, answers as llama.cpp does, and goes on with the same
//! tokens when its worker is killed; an encoder's bundle makes vectors.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "shows the gaps where texts part")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};
use sf_convert::PackOptions;
use sf_tests::{QUESTIONS, Server, agree, real_model, repository, signal, verified};

const SOURCE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const WINDOW: [&str; 2] = ["--max-context", "1024"];
const ENCODER: &str = "all-MiniLM-L6-v2";

fn pack(source: &Path, dir: &Path) -> PathBuf {
    let to = dir.join("model.base");
    let go_on = &mut |_, _| ControlFlow::Continue(());
    sf_convert::pack(source, &to, &PackOptions::default(), go_on).unwrap();
    to
}

fn encoder(dir: &Path) -> PathBuf {
    let weights = real_model(&format!("{ENCODER}/model.safetensors"));
    pack(weights.parent().unwrap(), dir)
}

fn serve(model: &Path, more: &[&str]) -> Server {
    let mut args = vec![model.to_str().unwrap(), "--threads", "1"];
    args.extend(more);
    Server::start(&args)
}

#[test]
fn engine_basert_passes_every_group_of_the_verifier() {
    let (text, vectors) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    verified("basert", &pack(&real_model(SOURCE), text.path()));
    verified("basert", &encoder(vectors.path()));
}

#[test]
fn engine_basert_answers_as_llama_cpp_does_where_logits_are_not_close() {
    let dir = tempfile::tempdir().unwrap();
    // Nobody says which runtime: the file's format does.
    let ours = serve(&pack(&real_model(SOURCE), dir.path()), &WINDOW);
    let theirs = serve(&real_model(SOURCE), &[&WINDOW[..], &["--runtime", "llamacpp"]].concat());
    let equal = agree(&ours, &theirs, 0.5);
    eprintln!("{equal} of {} texts are equal", QUESTIONS.len());
    assert!(equal >= QUESTIONS.len() / 4, "{equal} texts are equal");
}

#[test]
fn engine_basert_says_the_same_through_the_worker_in_process_and_when_the_worker_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let model = pack(&real_model(SOURCE), dir.path());
    let worker = serve(&model, &WINDOW);
    let inside = serve(&model, &[&WINDOW[..], &["--no-worker-process"]].concat());
    let body = |question: &str| json!({"messages": [{"role": "user", "content": question}], "temperature": 0.8, "seed": 7, "max_tokens": 48});
    let text = |server: &Server, question: &str| {
        let answer = server.post("/v1/chat/completions", &body(question));
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        answer.body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    for question in &QUESTIONS[..3] {
        let expect = text(&inside, question);
        assert_eq!(text(&worker, question), expect, "{question}");
        let mut streamed = body(question);
        streamed["stream"] = json!(true);
        let (mut got, mut killed) = (String::new(), false);
        for event in worker.stream("/v1/chat/completions", &streamed) {
            got += event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
            if !killed && got.len() > 20 {
                worker.workers().into_iter().for_each(|pid| signal(pid, Signal::KILL));
                killed = true;
            }
        }
        assert!(killed, "{question}: {got}");
        assert_eq!(got, expect, "{question}, after a kill");
    }
}

#[test]
fn engine_basert_makes_the_vectors_of_an_independent_implementation() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(&encoder(dir.path()), &[]);
    let path = repository().join(format!("runtimes/mlx/tests/golden/encoder/real/{ENCODER}.json"));
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for case in cases {
        let answer = server.post("/v1/embeddings", &json!({"input": case["text"]}));
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        let of = |value: &Value| serde_json::from_value::<Vec<f64>>(value.clone()).unwrap();
        let (got, want) = (of(&answer.body["data"][0]["embedding"]), of(&case["vector"]));
        let dot: f64 = got.iter().zip(&want).map(|(a, b)| a * b).sum();
        let norm = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
        let cosine = dot / norm(&got) / norm(&want);
        // Keys and values are kept as halves.
        assert!(cosine > 0.999_99, "{}: {cosine}", case["text"]);
    }
}

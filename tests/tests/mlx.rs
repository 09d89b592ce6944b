//! The MLX runtime as its users meet it: a converted model is verified, served, and answers as llama.cpp does.
//!
//! Without a fetched MLX there is no such runtime beside the binaries, and nothing here is run: `cargo xtask fetch mlx`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "says what is skipped, and the gaps where texts part")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sf_convert::Options;
use sf_tests::{QUESTIONS, Server, binary, real_model};

const SOURCE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const TOKENS: usize = 24;
/// Logits that are closer than this may change places: llama.cpp rounds activations to eight bits.
const GAP: f64 = 0.5;

fn runtime() -> Option<PathBuf> {
    let folder = binary("superfluid").with_file_name("runtimes").join("mlx");
    let here = folder.join("runtime.json").is_file();
    if !here {
        eprintln!("skipped: {} is missing, cargo xtask fetch mlx brings what it needs", folder.display());
    }
    here.then_some(folder)
}

fn convert(dir: &Path) -> PathBuf {
    let to = dir.join("smollm2");
    let go_on = &mut |_, _| ControlFlow::Continue(());
    sf_convert::convert(&real_model(SOURCE), &to, &Options::default(), go_on).unwrap();
    to
}

#[test]
fn engine_mlx_passes_every_group_of_the_verifier() {
    let Some(runtime) = runtime() else { return };
    let dir = tempfile::tempdir().unwrap();
    let model = convert(dir.path());
    let mut command = Command::new(binary("superfluid"));
    command.args(["runtimes", "verify"]).arg(runtime).arg("--model").arg(model).args(["--quick", "--json"]);
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks =
        report["groups"].as_array().unwrap().iter().flat_map(|group| group["checks"].as_array().unwrap());
    let failed: Vec<&Value> = checks.filter(|check| check["verdict"] == "fail").collect();
    assert_eq!((failed.len(), output.status.code()), (0, Some(0)), "{failed:#?}");
}

/// An answer's text, and for each of its tokens the text so far and how far the next best token was.
fn ask(server: &Server, question: &str) -> (String, Vec<(usize, f64)>) {
    let body = json!({
        "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": TOKENS,
        "logprobs": true, "top_logprobs": 2,
    });
    let answer = server.post("/v1/chat/completions", &body);
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let choice = &answer.body["choices"][0];
    let mut end = 0;
    let tokens = choice["logprobs"]["content"].as_array().unwrap().iter().map(|token| {
        end += token["bytes"].as_array().map_or(0, Vec::len);
        let top = |at: usize| token["top_logprobs"][at]["logprob"].as_f64().unwrap();
        (end, top(0) - top(1))
    });
    (choice["message"]["content"].as_str().unwrap().to_owned(), tokens.collect())
}

#[test]
fn engine_mlx_answers_as_llama_cpp_does_where_logits_are_not_close() {
    if runtime().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let model = convert(dir.path());
    let serve = |model: &Path, runtime: &str| {
        Server::start(&[
            model.to_str().unwrap(),
            "--threads",
            "1",
            "--max-context",
            "1024",
            "--runtime",
            runtime,
        ])
    };
    // Nobody says which runtime: the directory's format does.
    let ours = Server::start(&[model.to_str().unwrap(), "--threads", "1", "--max-context", "1024"]);
    let theirs = serve(&real_model(SOURCE), "llamacpp");
    let mut equal = 0;
    for question in QUESTIONS {
        let ((one, tokens), (other, _)) = (ask(&ours, question), ask(&theirs, question));
        let parts = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        if one == other {
            equal += 1;
            continue;
        }
        let (_, gap) = tokens.iter().find(|(end, _)| *end > parts).copied().unwrap_or((0, 0.0));
        eprintln!("{question}: parted after {parts} bytes at a gap of {gap:.2}");
        assert!(gap < GAP, "{question}: {one:?}, llama.cpp says {other:?}");
    }
    eprintln!("{equal} of {} texts are equal", QUESTIONS.len());
    assert!(equal >= QUESTIONS.len() / 4, "{equal} texts are equal");
}

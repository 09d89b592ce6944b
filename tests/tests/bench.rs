//! The load generator against the real server on the C sample runtime: what it reports, and when it fails.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use sf_tests::{Server, ToyModel, binary, build_sample, toy_model};

struct Toy {
    _dir: tempfile::TempDir,
    runtime: PathBuf,
    model: PathBuf,
}

impl Toy {
    fn new() -> Toy {
        let dir = tempfile::tempdir().unwrap();
        let runtime = build_sample(dir.path());
        let model = toy_model(dir.path(), &ToyModel::default());
        Toy { runtime, model, _dir: dir }
    }
}

fn bench(args: &[&str]) -> Output {
    Command::new(binary("superfluid"))
        .arg("bench")
        .args(args)
        .env_remove("SUPERFLUID_RUNTIMES")
        .output()
        .unwrap()
}

fn report(output: &Output) -> Value {
    let words = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {words}"))
}

#[test]
fn engine_a_model_is_served_for_the_run_and_every_token_is_counted() {
    let toy = Toy::new();
    let (model, runtime) = (toy.model.to_str().unwrap(), toy.runtime.to_str().unwrap());
    let load = [
        "--clients",
        "4",
        "--requests",
        "12",
        "--answer-tokens",
        "20",
        "--prompt-tokens",
        "50",
        "--json",
        "-",
    ];
    let output = bench(&[&[model], &load[..], &["--api-key", "sesame", "--", "--runtime", runtime]].concat());
    let report = report(&output);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let total = &report["total"];
    assert_eq!(total["requests"]["ok"], 12);
    assert_eq!(total["tokens"]["completion"], 240.0);
    assert_eq!(total["requests"]["finish_reasons"]["length"], 12);
    assert_eq!(total["ttft_ms"]["count"], 12);
    // Byte-level tokens: prompts were written by what the server counted.
    let prompt = total["tokens"]["prompt"].as_u64().unwrap();
    assert!((400..800).contains(&prompt), "{prompt} tokens of 12 prompts of 50");
    assert!(report["load"]["tokens_per_word"].as_f64().unwrap() > 3.0);
    assert!(report["cpu"]["server_s"].is_number());
}

#[test]
fn engine_a_running_server_is_loaded_openly_and_by_chat() {
    let toy = Toy::new();
    let server = Server::start(&[toy.model.to_str().unwrap(), "--runtime", toy.runtime.to_str().unwrap()]);
    let url = server.url("");
    let more = [
        "--rate",
        "50",
        "--requests",
        "10",
        "--route",
        "chat",
        "--answer-tokens",
        "5-9",
        "--no-stream",
        "--json",
        "-",
    ];
    let output = bench(&[&["--url", &url], &more[..]].concat());
    let report = report(&output);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        (&report["total"]["requests"]["ok"], &report["load"]["arrivals"]),
        (&10.into(), &"poisson".into())
    );
    assert_eq!(report["total"]["ttft_ms"], Value::Null);

    // Longer than the window: every request is refused, and that is a failure unless it is allowed.
    let long = ["--requests", "3", "--clients", "1", "--prompt-tokens", "5000", "--json", "-"];
    let output = bench(&[&["--url", &url], &long[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("first failure: 400 "), "{output:?}");
    let output = bench(&[&["--url", &url, "--allow-failures"], &long[..]].concat());
    assert_eq!(output.status.code(), Some(0));
}

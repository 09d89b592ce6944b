//! The command line as a user meets it: exit codes, refusals with ways out, the catalog.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use sf_tests::{ToyModel, binary, build_bad, build_sample, toy_model};

fn superfluid(args: &[&str], runtimes: &Path) -> Output {
    Command::new(binary("superfluid"))
        .args(args)
        .env("SUPERFLUID_RUNTIMES", runtimes)
        .env("XDG_CACHE_HOME", runtimes.join("cache"))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Place {
    dir: tempfile::TempDir,
    model: String,
    foreign: String,
}

impl Place {
    /// The sample runtime, a model that it reads and one that it does not.
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        build_sample(dir.path());
        let model = toy_model(dir.path(), &ToyModel::default());
        let foreign =
            ToyModel { name: "foreign".into(), architecture: "llama".into(), ..ToyModel::default() };
        let foreign = toy_model(dir.path(), &foreign);
        let path = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
        Place { model: path(model), foreign: path(foreign), dir }
    }

    fn run(&self, args: &[&str]) -> Output {
        superfluid(args, self.dir.path())
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_loads() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let model = place.model.as_str();
    let check = |args: &[&str], code: i32, words: &[&str]| {
        let output = place.run(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        for word in words {
            assert!(stderr.contains(word), "{args:?}: no {word:?} in {stderr}");
        }
    };
    check(&["serve"], 2, &["superfluid serve"]);
    check(&["serve", model, "--prot", "1"], 2, &["--prot", "--port"]);
    check(&["serve", model, "--park"], 2, &["--park", "not in this build yet"]);
    check(&["serve", model, "--max-batch", "0"], 2, &["--max-batch", "0"]);
    check(&["serve", model, "--temperature=9"], 2, &["--temperature", "9"]);
    check(&["serve", model, "--worker-process", "--no-worker-process"], 2, &["--no-worker-process"]);
    check(&["serve", model, "--sample-delay-us", "9999999"], 2, &["--sample-delay-us", "9999999"]);
    check(&["serve", model, "--sample-dely-us", "1"], 2, &["--sample-delay-us"]);
    check(&["serve", model, "--kv-bits", "8"], 2, &["--kv-bits 8", "sample"]);
    check(&["serve", model, "--port", &port], 1, &[&port, "in use"]);
    check(&["serve", "/nowhere/model.gguf"], 1, &["/nowhere/model.gguf"]);
    check(&["serve", "org/model"], 2, &["not in this build yet"]);
    check(&["serve", model, "--runtime", "smaple"], 4, &["smaple", "sample"]);
    check(&["serve", &place.foreign], 4, &["sample", "llama"]);
    check(&["serve", &place.foreign, "--runtime", "sample"], 2, &["does not read"]);
    check(&["pull", "org/model"], 2, &["not in this build yet"]);
    check(&["frobnicate"], 2, &["frobnicate"]);
}

#[test]
fn damaged_models_are_refused_with_words() {
    let place = Place::new();
    let whole = std::fs::read(&place.model).unwrap();
    let path = place.dir.path().join("damaged.gguf");
    let mut cases: Vec<(String, Vec<u8>)> =
        [0, 3, 4, 8, 12, 20, 24, 40, 100, 500, 2000, whole.len() / 2, whole.len() - 1]
            .iter()
            .map(|&length| (format!("cut at {length}"), whole[..length].to_vec()))
            .collect();
    for at in [4, 8, 9, 15, 16, 17, 23, 24, 31, 56] {
        let mut bytes = whole.clone();
        bytes[at] = 0xFF;
        cases.push((format!("0xFF at {at}"), bytes));
    }
    cases.push(("text".into(), b"This is not a model.".to_vec()));
    for (what, bytes) in cases {
        std::fs::write(&path, bytes).unwrap();
        let output = place.run(&["serve", path.to_str().unwrap(), "--port", "0"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{what}: {stderr}");
        assert!(stderr.contains("damaged.gguf") && stderr.contains("(model."), "{what}: {stderr}");
    }
}

#[test]
fn the_catalog_says_who_is_here_and_why_not() {
    let place = Place::new();
    build_bad(place.dir.path(), "crash_probe");
    build_bad(place.dir.path(), "descriptor_mismatch");
    let output = place.run(&["runtimes", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runtimes = report["runtimes"].as_array().unwrap();
    let sample = runtimes.iter().find(|runtime| runtime["id"] == "sample").unwrap();
    assert_eq!(sample["usable"], true, "{sample}");
    let reasons: Vec<String> = runtimes
        .iter()
        .filter_map(|runtime| Some(runtime["reason"]["message"].as_str()?.to_owned()))
        .collect();
    assert_eq!(reasons.len(), 2, "{report}");
    assert!(reasons.iter().any(|reason| reason.contains("SIGSEGV")), "{reasons:?}");

    let table = text(&place.run(&["runtimes"]).stdout);
    assert!(table.contains("sample") && table.contains("SIGSEGV"), "{table}");
    let reads = place.run(&["runtimes", &place.model]);
    assert_eq!(reads.status.code(), Some(0));
    let none = place.run(&["runtimes", &place.foreign]);
    assert_eq!(none.status.code(), Some(4), "{}", text(&none.stdout));
    assert!(text(&none.stdout).contains("llama"), "{}", text(&none.stdout));
}

#[test]
fn engine_one_answer_needs_no_server() {
    let place = Place::new();
    let args = ["run", &place.model, "hello", "--temperature", "0", "--max-tokens", "20"];
    let worker = place.run(&args);
    assert!(worker.status.success(), "{}", text(&worker.stderr));
    assert!(worker.stdout.len() > 1);
    let in_process = place.run(&[&args[..], &["--no-worker-process"]].concat());
    assert_eq!(worker.stdout, in_process.stdout);
}

#[test]
fn help_names_the_runtimes_options() {
    let place = Place::new();
    let help = text(&place.run(&["serve", "--help"]).stdout);
    assert!(help.contains("--sample-delay-us"), "{help}");
    assert!(help.contains("--max-context"), "{help}");
    assert_eq!(place.run(&["help"]).status.code(), Some(0));
    assert!(text(&place.run(&["version"]).stdout).starts_with("superfluid "));
}

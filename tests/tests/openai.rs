//! The official `openai` Python client holds a scripted conversation with a real model.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

use sf_tests::{Server, real_model, repository};

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// A virtual environment with the pinned client, made once per pin.
fn python() -> PathBuf {
    let requirements = repository().join("tests/python/requirements.txt");
    let pins = std::fs::read_to_string(&requirements).unwrap();
    let name: String = pins.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    let dir = std::env::home_dir().unwrap().join(".cache/superfluid/python").join(name);
    let (python, done) = (dir.join("bin/python"), dir.join("complete"));
    if !done.is_file() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&dir));
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(&requirements));
        std::fs::write(&done, "").unwrap();
    }
    python
}

#[test]
fn engine_the_official_python_client_is_served() {
    let model = real_model("SmolLM2-135M-Instruct.Q4_1.gguf");
    let server = Server::start(&[
        model.to_str().unwrap(),
        "--threads",
        "1",
        "--max-context",
        "1024",
        "--api-key",
        "sesame",
    ]);
    run(Command::new(python()).arg(repository().join("tests/python/openai_conversation.py")).args([
        &server.url("/v1"),
        "SmolLM2-135M-Instruct.Q4_1",
        "sesame",
    ]));
}

//! Other people's client libraries against the real server: each converses with it by a script of `tests/python` or
//! `tests/node` and finds what it would find at OpenAI.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use serde_json::Value;
use sf_tests::{Node, Server, Toy, python, real_model, repository, run};

const MODEL: &str = "SmolLM2-135M-Instruct.Q4_1";
/// Everything that goes with the newest `openai`.
const CLIENTS: &str = "requirements.txt";
/// Instructor wants an older one.
const INSTRUCTOR: &str = "instructor.txt";

fn smol(more: &[&str]) -> Server {
    let model = real_model(&format!("{MODEL}.gguf"));
    // SmolLM2's own template shows no tools.
    let template = repository().join("host/codec/tests/templates/families/hermes.jinja");
    let mut args = vec![model.to_str().unwrap(), "--threads", "1", "--max-context", "2048"];
    args.extend(["--chat-template", template.to_str().unwrap()]);
    args.extend(more);
    Server::start(&args)
}

fn script(requirements: &str, name: &str) -> Command {
    let mut command = Command::new(python(requirements));
    command.arg(repository().join("tests/python").join(name));
    command
}

#[test]
fn engine_documents_and_chunks_are_of_the_official_types() {
    let server = smol(&[]);
    run(script(CLIENTS, "openai_shapes.py").args([&server.url("/v1"), MODEL]));
}

#[test]
fn engine_the_official_client_meets_a_full_and_a_slow_server() {
    let toy = Toy::default();
    let server = toy.serve(&["--max-batch", "1", "--sample-delay-us", "2000", "--api-key", "sesame"]);
    run(script(CLIENTS, "openai_limits.py").args([&server.url("/v1"), "toy", "sesame"]));
}

#[test]
fn engine_litellm_is_served() {
    let server = smol(&[]);
    run(script(CLIENTS, "litellm_calls.py").args([&server.url("/v1"), MODEL]));
}

#[test]
fn engine_instructor_is_served() {
    let server = smol(&[]);
    run(script(INSTRUCTOR, "instructor_forms.py").args([&server.url("/v1"), MODEL]));
}

#[test]
fn engine_agents_of_pydantic_ai_are_served() {
    let server = smol(&[]);
    run(script(CLIENTS, "pydantic_agent.py").args([&server.url("/v1"), MODEL]));
}

#[test]
fn engine_the_official_node_client_is_served() {
    let server = smol(&[]);
    run(Node::prepare().script("openai_client.mjs").args([&server.url("/v1"), MODEL]));
}

/// What needs an image, or a model that bears a name of OpenAI's, is beyond this server; nothing else may be.
#[test]
fn engine_a_compliance_suite_finds_nothing_else() {
    let server = smol(&["--temperature", "0", "--max-tokens", "200"]);
    let program = python(CLIENTS).with_file_name("llm-comply");
    // Strictly, because a request that names no model is one of its errors.
    let output = Command::new(program)
        .args([
            "--format",
            "openai-chat",
            "--model",
            MODEL,
            "--api-key",
            "unused",
            "--json",
            "--timeout",
            "240",
        ])
        .args(["--header", "X-Superfluid-Strict:1", "--base-url", &server.url("/v1")])
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let mut statuses = Vec::new();
    for result in said["results"].as_array().unwrap_or_else(|| panic!("{said:#}")) {
        let (id, status) = (result["id"].as_str().unwrap(), result["status"].as_str().unwrap());
        let expect = match id {
            "chat-image-input" => "failed",
            "chat-reasoning-summary" => "skipped",
            _ => "passed",
        };
        assert_eq!(status, expect, "{result:#}");
        assert!(expect != "passed" || result["warnings"].as_array().is_none_or(Vec::is_empty), "{result:#}");
        statuses.push(status);
    }
    assert_eq!(statuses.len(), 9, "{said:#}");
}

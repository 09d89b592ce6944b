//! The MLX runtime as its users meet it: a converted model is verified, served, and answers as llama.cpp does.
//!
//! Without a fetched MLX there is no such runtime beside the binaries, and nothing here is run: `cargo xtask fetch mlx`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "says what is skipped, and the gaps where texts part")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use sf_convert::Options;
use sf_tests::{QUESTIONS, Server, agree, binary, real_model, verified};

const SOURCE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

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
    if runtime().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    verified("mlx", &convert(dir.path()));
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
    let equal = agree(&ours, &theirs, 0.5);
    eprintln!("{equal} of {} texts are equal", QUESTIONS.len());
    assert!(equal >= QUESTIONS.len() / 4, "{equal} texts are equal");
}

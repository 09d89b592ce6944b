//! Developer commands: check, test, demo, engine build, fixtures.
//!
//! Everything that CI, the README and a developer do goes through here, so that they do the same. Each command is a
//! module; they share `shell` (running programs) and `tree` (where things lie), nothing else.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks on its terminal")]

mod check;
mod demo;
mod engine;
mod error;
mod fetch;
mod fuzz;
mod gate;
mod hash;
mod http;
mod mlx;
mod neon;
mod setup;
mod shell;
mod tidy;
mod tree;

use std::path::Path;
use std::process::ExitCode;

use error::TaskError;
use tree::Tree;

const HELP: &str = "\
cargo xtask <command>

  demo               install what is missing, build, fetch SmolLM2, serve it, stream one answer, leave it running
  test               what CI runs: setup, fetch, engine, then everything that check does  (also: ci)
  check              format, lints, tidy rules, tests and doc tests, with what is there
  tidy               the repository's own rules only
  setup              install missing system packages and cargo-nextest
  fetch [NAME]...    put real models into the cache: smollm2, gemma3, minilm  (default: all of them); mlx, mlx-cuda: MLX itself
  engine [llamacpp] [--portable] [--profile debug|release] [--where]
                     build the llama.cpp runtime into the engine cache and place it beside our binaries
  engine mlx [--cuda] [--profile debug|release] [--where]
                     build the MLX runtime against the fetched MLX and place both beside our binaries: the one for the
                     CPU on Linux, for Metal on macOS, with --cuda for NVIDIA's GPUs
  engine basert [--profile debug|release] [--where]
                     build our own engine and place it beside our binaries
  throughput MODEL [key=number]...
                     how fast the runtime steps by itself, compiled like the engine (for this machine's instructions)
  neon               test our own engine's NEON kernels: on this machine where it has them, else in an emulator
  fuzz [TARGET]... [--seconds N] [--keep] [--sanitizer address|none]
                     fuzz all targets of tests/fuzz, or these, each for N seconds (default 900); --keep takes the best of
                     what was learned into the committed corpus. Needs cargo-fuzz
  manifest LIBRARY   write runtime.json beside a runtime's library, from the descriptor inside it
  toy-model FILE     write the tiny GGUF that the C sample runtime reads
  gate OLD NEW       compare two versions of the C header: only legal growth passes

  SUPERFLUID_ENGINE_CACHE  where built engines are kept (default ~/.cache/superfluid/engines; off = target/engines)
  SUPERFLUID_MODELS        where models are kept (default ~/.cache/superfluid/models)
  SUPERFLUID_MLX_BUILDS    where MLX is kept (default ~/.cache/superfluid/mlx)
  SUPERFLUID_AARCH64       a folder with the compilers and the emulator for neon (default: the system's)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(TaskError::Usage(what)) => {
            eprintln!("xtask: {what}\n\n{HELP}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<(), TaskError> {
    let (command, rest) = match args.split_first() {
        None | Some((&("help" | "--help" | "-h"), _)) => {
            println!("{HELP}");
            return Ok(());
        }
        Some((command, rest)) => (*command, rest),
    };
    let no_more = || match rest.first() {
        None => Ok(()),
        Some(extra) => Err(TaskError::Usage(format!("{command} takes no argument {extra}"))),
    };
    match command {
        "tidy" => no_more().and_then(|()| tidy::run(&Tree::find()?)),
        "check" => no_more().and_then(|()| check::run(&Tree::find()?)),
        "test" | "ci" => no_more().and_then(|()| check::test(&Tree::find()?)),
        "setup" => no_more().and_then(|()| setup::run()),
        "demo" => no_more().and_then(|()| demo::run(&Tree::find()?)),
        "fetch" => fetch::run(rest),
        "engine" => engine::run(&Tree::find()?, &engine::Options::parse(rest)?),
        "throughput" => engine::throughput(&Tree::find()?, rest),
        "neon" => no_more().and_then(|()| neon::run(&Tree::find()?)),
        "fuzz" => fuzz::run(&Tree::find()?, &fuzz::Options::parse(rest)?),
        "gate" => gate::run(rest),
        "manifest" => one(rest, "a library").and_then(|path| engine::write_manifest(Path::new(path))),
        "toy-model" => one(rest, "a file name").and_then(|path| toy_model(Path::new(path))),
        unknown => Err(TaskError::Usage(format!("there is no command {unknown}"))),
    }
}

fn one<'a>(rest: &[&'a str], what: &str) -> Result<&'a str, TaskError> {
    match rest {
        [path] => Ok(path),
        _ => Err(TaskError::Usage(format!("this command takes {what}, and nothing else"))),
    }
}

fn toy_model(path: &Path) -> Result<(), TaskError> {
    std::fs::write(path, sf_tests::ToyModel::default().to_gguf()).map_err(TaskError::io(path))
}

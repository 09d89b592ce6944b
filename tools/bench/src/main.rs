//! Benchmarks: what the host costs on top of an engine, and how it compares with the engines' own servers.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints")]

mod client;
mod engines;
mod error;
mod grammar;
mod http;
mod link;
mod mlx;
mod peer;
mod prompts;
mod round;
mod scenarios;
mod serve;
mod server;
mod stats;
mod sysinfo;

use std::process::ExitCode;

use crate::error::BenchError;

const USAGE: &str = "\
usage: cargo run --release -p bench -- <command> [options]

commands
  serve     every serving figure, superfluid beside llama.cpp's own server, in one run of alternating rounds
  versus    serve --only process,throughput
  link      step round trip against a no-op runtime, in-process and through the worker
  mlx       the MLX runtime beside mlx_lm.server and llamacpp, on the same weights
  engines   MODEL...: tokens a second of the engines alone, each on the runtime that reads it, with ratios to the first
  numerics  --text FILE MODEL...: perplexity of a text, and how far logits are from the first model's
  grammar   compiling schemas and sets of tools for SmolLM2's vocabulary
  peer      fetch and build llama.cpp's own server and batched bench only (serve does it when needed)
  list      what the scenarios of serve play

options of serve
  --model smol|gemma|FILE   GGUF file (default: smol; `cargo xtask fetch` gets both)
  --bundle FILE             ours serves this .base bundle of the model, llama-server the model itself
  --only A,B / --skip A,B   some scenarios, or all but some
  --rounds N                measured rounds at most (default 5); slow scenarios have fewer and say why
  --all-rounds              that many rounds everywhere, whatever the time
  --quick                   one round of everything, short: a smoke run whose figures mean nothing
  --threads N               engine threads of every server (default: the CPUs of this machine)
  --kills N                 kills of the worker on the sample runtime (default 200)
  --bin-dir DIR             folder of superfluid and superfluid-workerd (default: beside this program)
  --peer FILE               an existing llama-server, with llama-batched-bench beside it
  --no-peer                 superfluid alone
options of mlx
  --only A,B                some of decode, clients, prefill, churn, reload
  --rounds N, --threads N, --quick, --bin-dir DIR   as above
  --openblas FILE           libopenblas.so for mlx_lm.server's f32 (default: where Debian's libopenblas0-pthread has it)
options of engines and numerics
  --threads 1,2             engine threads; numerics takes the last
  --rounds N                rounds of engines (default 5), in which models take turns
  --only A,B                some of decode-1, decode-8, prefill-512, decode-at-4000, prefill-4000, first-token
  --windows N               windows of 512 tokens of the text (default 20)
options of serve, versus, mlx, engines, numerics, link and grammar
  --json FILE               write all figures, raw ones too

A full run of serve is planned for less than 25 minutes on 2 CPUs with SmolLM2: every scenario has an allowance of
minutes (see list), 24 in all, after which it begins no further round; one round always runs. Build first: cargo build --release -p superfluid -p superfluid-workerd, and
cargo xtask engine --profile release. Nothing else should run meanwhile; the load average before is reported.

examples
  cargo run --release -p bench -- serve --json serve.json
  cargo run --release -p bench -- serve --model gemma --only arrive,prefix,chat --rounds 3
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_else(|| "help".to_owned());
    let args: Vec<String> = args.collect();
    let result = if args.iter().any(|arg| matches!(arg.as_str(), "--help" | "-h")) {
        print!("{USAGE}");
        Ok(())
    } else {
        command_named(&command, args)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(BenchError::Usage(what)) => {
            eprintln!("{what}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn command_named(command: &str, args: Vec<String>) -> Result<(), BenchError> {
    match command {
        "serve" => serve::run(serve::parse(args.into_iter())?),
        "versus" => {
            let only = ["--only", "process,throughput"].map(str::to_owned);
            serve::run(serve::parse(only.into_iter().chain(args))?)
        }
        "mlx" => mlx::run(&mlx::parse(args.into_iter())?),
        "link" => link::run(json_option(&args)?),
        "engines" => engines::speed(&engines::parse(args.into_iter())?),
        "numerics" => engines::numerics(&engines::parse(args.into_iter())?),
        "grammar" => grammar::run(json_option(&args)?),
        "peer" => peer::server_binary(None).map(|path| println!("{}", path.display())),
        "list" => {
            for scenario in scenarios::ALL {
                println!("{} ({} min)", scenario.name, scenario.minutes);
                serve::wrapped(scenario.about).iter().for_each(|line| println!("  {line}"));
            }
            Ok(())
        }
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(BenchError::Usage(format!("no command {other:?}"))),
    }
}

fn json_option(args: &[String]) -> Result<Option<&std::path::Path>, BenchError> {
    match args {
        [] => Ok(None),
        [flag, file] if flag == "--json" => Ok(Some(file.as_ref())),
        _ => Err(BenchError::Usage(format!("it takes --json FILE only, not {args:?}"))),
    }
}

//! Benchmarks: what the host costs on top of an engine, and how it compares with llama.cpp's own server.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints")]

mod client;
mod error;
mod link;
mod load;
mod peer;
mod report;
mod server;
mod stats;
mod sysinfo;
mod versus;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::BenchError;

const USAGE: &str = "\
usage: cargo run --release -p bench -- <command> [options]

commands
  link      step round trip against a no-op runtime, in-process and through the worker
  versus    superfluid beside llama.cpp's own server on one model: TTFT, inter-token latency, tokens/s, memory, start-up
  peer      fetch and build llama.cpp's own server only (versus does it when needed)

options of versus
  --model FILE       GGUF file (default: SmolLM2 from `cargo xtask fetch`)
  --clients 1,4,8    widths
  --threads N        engine threads of both servers (default 2)
  --tokens N         tokens per answer (default 128)
  --rounds N         measured rounds per width; the order of the two servers alternates (default 5)
  --window N         positions per lane (default 2048)
  --in-process       superfluid without its worker process
  --peer FILE        an existing llama-server instead of our build
options of all
  --json FILE        write the figures as JSON

example
  cargo run --release -p bench -- versus --clients 1,4,8 --json versus.json
";

/// Options shared by the commands.
struct Options {
    model: PathBuf,
    clients: Vec<usize>,
    threads: usize,
    tokens: usize,
    rounds: usize,
    window: usize,
    in_process: bool,
    peer: Option<PathBuf>,
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_else(|| "help".to_owned());
    let result = parse(args).and_then(|options| match command.as_str() {
        "link" => link::run(options.json.as_deref()),
        "versus" => versus::run(&options),
        "peer" => peer::server_binary(None).map(|path| println!("{}", path.display())),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(BenchError::Usage(format!("no command {other:?}"))),
    });
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

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, BenchError> {
    let mut options = Options {
        model: sysinfo::model_dir().join("SmolLM2-135M-Instruct.Q4_1.gguf"),
        clients: vec![1, 4, 8],
        threads: 2,
        tokens: 128,
        rounds: 5,
        window: 2048,
        in_process: false,
        peer: None,
        json: None,
    };
    while let Some(flag) = args.next() {
        if flag == "--in-process" {
            options.in_process = true;
            continue;
        }
        let value = args.next().ok_or_else(|| BenchError::Usage(format!("{flag} needs a value")))?;
        match flag.as_str() {
            "--model" => options.model = value.into(),
            "--clients" => {
                options.clients =
                    value.split(',').map(|part| number(&flag, part)).collect::<Result<_, _>>()?;
            }
            "--threads" => options.threads = number(&flag, &value)?,
            "--tokens" => options.tokens = number(&flag, &value)?,
            "--rounds" => options.rounds = number(&flag, &value)?,
            "--window" => options.window = number(&flag, &value)?,
            "--peer" => options.peer = Some(value.into()),
            "--json" => options.json = Some(value.into()),
            _ => return Err(BenchError::Usage(format!("no option {flag}"))),
        }
    }
    Ok(options)
}

fn number(flag: &str, value: &str) -> Result<usize, BenchError> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(BenchError::Usage(format!("{flag} takes whole numbers above 0, not {value:?}"))),
    }
}

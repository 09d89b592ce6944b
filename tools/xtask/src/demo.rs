//! From a fresh machine to a streamed answer: install, build, fetch, serve, ask; the server stays.

use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::TaskError;
use crate::tree::Tree;
use crate::{engine, fetch, http, setup, shell};

const START_MAX: Duration = Duration::from_secs(120);
const QUESTION: &str = "In two sentences: what is superfluidity?";

/// Runs the demonstration.
pub(crate) fn run(tree: &Tree) -> Result<(), TaskError> {
    setup::run()?;
    let binaries = ["build", "--release", "--locked", "-p", "superfluid", "-p", "superfluid-workerd"];
    shell::run(shell::cargo(tree.root()).args(binaries))?;
    for which in [engine::Which::LlamaCpp, engine::Which::Basert] {
        engine::run(tree, &engine::Options::native(which, "release"))?;
    }
    fetch::run(&["smollm2"])?;

    let address = free_address()?;
    let log = tree.target().join("demo.log");
    let mut server = start(tree, &address, &log)?;
    await_ready(&mut server, &address, &log)?;
    ask(&address)?;
    println!("\nsuperfluid serves on http://{address}  (OpenAI-compatible: http://{address}/v1)");
    println!("log: {}", log.display());
    println!("stop it with: kill {}", server.id());
    Ok(())
}

/// The usual port, or any when it is taken.
fn free_address() -> Result<String, TaskError> {
    let usual = TcpListener::bind("127.0.0.1:8453");
    let listener = usual.or_else(|_| TcpListener::bind("127.0.0.1:0")).map_err(TaskError::io("127.0.0.1"))?;
    Ok(listener.local_addr().map_err(TaskError::io("127.0.0.1"))?.to_string())
}

/// In a process group of its own, so that closing this command does not end it.
fn start(tree: &Tree, address: &str, log: &Path) -> Result<Child, TaskError> {
    let out = File::create(log).map_err(TaskError::io(log))?;
    let err = out.try_clone().map_err(TaskError::io(log))?;
    let exe = tree.target().join("release/superfluid");
    let model = fetch::models_dir()?.join(fetch::SMOLLM2);
    eprintln!("\n$ superfluid serve {} --http {address}", model.display());
    let mut command = Command::new(&exe);
    command.arg("serve").arg(&model).args(["--http", address]).process_group(0);
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    command.spawn().map_err(|source| TaskError::Start { program: exe.display().to_string(), source })
}

fn await_ready(server: &mut Child, address: &str, log: &Path) -> Result<(), TaskError> {
    let begin = Instant::now();
    let answers = |path: &str| http::send(address, "GET", path, "", |_| {}).unwrap_or(0);
    // A server without /ready is ready when it is healthy.
    while !(answers("/health") == 200 && matches!(answers("/ready"), 200 | 404)) {
        let ended = server.try_wait().map_err(TaskError::io(log))?;
        if ended.is_some() || begin.elapsed() > START_MAX {
            let words = std::fs::read_to_string(log).unwrap_or_default();
            let _ = server.kill();
            return Err(TaskError::Broken(format!("the server did not start; its log says:\n{words}")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    eprintln!("ready after {:.1} s", begin.elapsed().as_secs_f32());
    Ok(())
}

fn ask(address: &str) -> Result<(), TaskError> {
    println!("\n> {QUESTION}\n");
    let model = first_model(address).map_err(TaskError::io("/v1/models"))?;
    let body = json!({
        "model": model, "stream": true, "temperature": 0.0, "max_tokens": 96,
        "messages": [{"role": "user", "content": QUESTION}],
    });
    let mut refusal = String::new();
    let path = "/v1/chat/completions";
    let status =
        http::send(address, "POST", path, &body.to_string(), |line| match line.strip_prefix("data: ") {
            Some("[DONE]") => println!(),
            Some(event) => {
                let event: Value = serde_json::from_str(event).unwrap_or_default();
                print!("{}", event["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
                let _ = std::io::stdout().flush();
            }
            None => refusal.push_str(line),
        });
    match status.map_err(TaskError::io(path))? {
        200 => Ok(()),
        code => Err(TaskError::Broken(format!("{path} answered {code}: {refusal}"))),
    }
}

fn first_model(address: &str) -> std::io::Result<String> {
    let mut text = String::new();
    http::send(address, "GET", "/v1/models", "", |line| text.push_str(line))?;
    let list: Value = serde_json::from_str(&text).map_err(std::io::Error::other)?;
    let id =
        list["data"][0]["id"].as_str().ok_or_else(|| std::io::Error::other("the list of models is empty"))?;
    Ok(id.to_owned())
}

//! Link cost: step round trips against a no-op runtime, in-process and through the worker, several runs in turn.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::serve::write_json;
use crate::stats::median;
use crate::sysinfo;

/// Runs of the example; each measures every row, so rows are interleaved.
const RUNS: usize = 5;

/// What the engine crate's `link_cost` example prints.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    transport: String,
    lanes: u32,
    median_ns: f64,
    p99_ns: f64,
}

/// Medians over the runs.
#[derive(Clone, Debug, Serialize)]
struct Cost {
    transport: String,
    lanes: u32,
    median_us: f64,
    p99_us: f64,
    limit_us: f64,
}

pub(crate) fn run(json: Option<&Path>) -> Result<(), BenchError> {
    let programs = Programs::build()?;
    let load = sysinfo::load_average();
    let runs = (0..RUNS).map(|_| programs.measure()).collect::<Result<Vec<_>, _>>()?;
    let costs: Vec<Cost> = (0..runs[0].len())
        .map(|at| {
            let figure =
                |pick: fn(&Row) -> f64| median(&runs.iter().map(|rows| pick(&rows[at])).collect::<Vec<_>>());
            let Row { transport, lanes, .. } = runs[0][at].clone();
            let limit_us = if transport == "worker" { 20.0 } else { 2.0 };
            Cost {
                transport,
                lanes,
                median_us: figure(|row| row.median_ns) / 1e3,
                p99_us: figure(|row| row.p99_ns) / 1e3,
                limit_us,
            }
        })
        .collect();
    println!(
        "step round trip against a no-op runtime, medians of {RUNS} runs, {}, load {load:.2}",
        sysinfo::cpu_name()
    );
    println!("{:<14}{:>6}{:>14}{:>12}{:>14}", "transport", "lanes", "median, us", "p99, us", "limit, us");
    for cost in &costs {
        let Cost { transport, lanes, median_us, p99_us, limit_us } = cost;
        println!("{transport:<14}{lanes:>6}{median_us:>14.2}{p99_us:>12.2}{limit_us:>14.0}");
    }
    write_json(&costs, json)
}

struct Programs {
    example: PathBuf,
    worker: PathBuf,
    library: PathBuf,
}

impl Programs {
    fn build() -> Result<Self, BenchError> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .expect("tools/bench lies in the repository");
        let profile = std::env::current_exe().map_err(BenchError::io("find our own folder"))?;
        let profile = profile.parent().expect("a program lies in a folder");
        let mut cargo = Command::new("cargo");
        cargo.current_dir(root).args(["build", "--quiet", "--release"]);
        cargo.args([
            "-p",
            "superfluid-workerd",
            "-p",
            "sf-engine",
            "--bin",
            "superfluid-workerd",
            "--example",
            "link_cost",
        ]);
        run_to_end(&mut cargo)?;
        let library = profile.join("libnoop_runtime.so");
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-I"])
            .arg(root.join("abi/include"));
        cc.arg("-o").arg(&library).arg(root.join("tests/runtimes/noop/noop_runtime.c"));
        run_to_end(&mut cc)?;
        let example = profile.join("examples/link_cost");
        Ok(Programs { example, worker: profile.join("superfluid-workerd"), library })
    }

    fn measure(&self) -> Result<Vec<Row>, BenchError> {
        let mut command = Command::new(&self.example);
        command.args([&self.worker, &self.library]);
        let text = run_to_end(&mut command)?;
        serde_json::from_str(&text).map_err(|error| BenchError::Command {
            command: "link_cost".to_owned(),
            how: format!("printed {text:?}: {error}"),
        })
    }
}

/// Runs a command and returns what it printed.
pub(crate) fn run_to_end(command: &mut Command) -> Result<String, BenchError> {
    let output = command.output().map_err(BenchError::io(format!("run {command:?}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let how = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(BenchError::Command { command: format!("{command:?}"), how })
}

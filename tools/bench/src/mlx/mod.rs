//! The MLX runtime beside `mlx_lm.server` and beside our llamacpp runtime, in one run on the same weights.

mod churn;
mod options;
mod reload;
mod sides;
mod speed;

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::error::BenchError;
use crate::serve::{Found, Played, print_scenario, write_json};
use crate::sysinfo;

pub(crate) use options::{MlxOptions, parse};
use sides::{Models, Programs};

type Run = fn(&Bench<'_>, &mut Found) -> Result<(), BenchError>;

/// Name, what it plays, and how.
const SCENARIOS: &[(&str, &str, Run)] = &[
    ("decode", speed::DECODE, speed::decode),
    ("clients", speed::CLIENTS, speed::clients),
    ("prefill", speed::PREFILL, speed::prefill),
    ("churn", churn::ABOUT, churn::run),
    ("reload", reload::ABOUT, reload::run),
];

/// What the scenarios share.
struct Bench<'a> {
    options: &'a MlxOptions,
    programs: &'a Programs<'a>,
    models: Models,
    bar: ProgressBar,
}

impl Bench<'_> {
    /// A full-size figure, or the small one of a smoke run.
    fn size(&self, full: usize, quick: usize) -> usize {
        if self.options.quick { quick } else { full }
    }
}

#[derive(Serialize)]
struct Figures {
    cpu: String,
    cpus: usize,
    threads: usize,
    rounds: usize,
    quick: bool,
    openblas: bool,
    load_average_before: f64,
    scenarios: Vec<Played>,
}

/// Plays the scenarios. An error when one of them failed; a target that was missed is none.
pub(crate) fn run(options: &MlxOptions) -> Result<(), BenchError> {
    let load_average_before = sysinfo::load_average();
    let programs = Programs::find(options)?;
    let style = ProgressStyle::with_template("{spinner} {prefix}: {msg}").expect("a valid template");
    let bench =
        Bench { options, programs: &programs, models: programs.models()?, bar: ProgressBar::new_spinner() };
    bench.bar.set_style(style);
    let mut scenarios = Vec::new();
    for (name, about, run) in SCENARIOS.iter().filter(|(name, ..)| options.only.contains(name)) {
        bench.bar.set_prefix(*name);
        let (begun, mut found) = (Instant::now(), Found::default());
        let failure = run(&bench, &mut found).err().map(|error| error.to_string());
        let played = Played { name, about, seconds: begun.elapsed().as_secs_f64(), failure, found };
        bench.bar.suspend(|| print_scenario(&played));
        scenarios.push(played);
    }
    bench.bar.finish_and_clear();
    let failed: Vec<&str> =
        scenarios.iter().filter(|played| played.failure.is_some()).map(|played| played.name).collect();
    let failed = failed.join(", ");
    let figures = Figures {
        cpu: sysinfo::cpu_name(),
        cpus: sysinfo::cpus(),
        threads: options.threads,
        rounds: options.rounds,
        quick: options.quick,
        openblas: programs.has_openblas(),
        load_average_before,
        scenarios,
    };
    println!("\n{}, {} threads, load average before {load_average_before:.2}", figures.cpu, figures.threads);
    write_json(&figures, options.json.as_deref())?;
    if failed.is_empty() { Ok(()) } else { Err(BenchError::Scenarios(failed)) }
}

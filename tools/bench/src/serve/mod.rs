//! Every serving figure that superfluid promises, side by side with llama.cpp's own server: runs scenarios one after the
//! other, prints what they found and writes it as JSON. A scenario that fails says why, and the others go on.

mod options;
mod stage;
mod table;
mod verdict;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use indicatif::ProgressStyle;
use serde::Serialize;

use crate::error::BenchError;
use crate::{scenarios, sysinfo};

pub(crate) use options::{ServeOptions, number, parse};
pub(crate) use stage::{Pace, Setup, Stage, order};
pub(crate) use table::{print_scenario, wrapped, write_json};
pub(crate) use verdict::{Row, Target, Verdict, short};

/// One thing to show.
pub(crate) struct Scenario {
    /// For `--only`.
    pub(crate) name: &'static str,
    /// What it plays and how, in a sentence or two.
    pub(crate) about: &'static str,
    /// Minutes that its rounds may take on a small machine.
    pub(crate) minutes: f64,
    /// Plays it.
    pub(crate) run: fn(&Stage, &mut Found) -> Result<(), BenchError>,
}

/// What a scenario found.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Found {
    pub(crate) rows: Vec<Row>,
    /// What the rows cannot say.
    pub(crate) notes: Vec<String>,
    /// Raw figures, as the scenario likes.
    pub(crate) raw: serde_json::Map<String, serde_json::Value>,
}

impl Found {
    /// Adds a row.
    pub(crate) fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Adds a remark.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Keeps raw figures under a name.
    pub(crate) fn raw(&mut self, name: impl Into<String>, value: impl Serialize) {
        let value = serde_json::to_value(value).expect("figures are plain numbers and text");
        self.raw.insert(name.into(), value);
    }
}

/// A scenario that was played.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Played {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) seconds: f64,
    /// Why it ended early.
    pub(crate) failure: Option<String>,
    #[serde(flatten)]
    pub(crate) found: Found,
}

/// The whole run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Serving {
    pub(crate) model: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) threads: usize,
    pub(crate) rounds: usize,
    pub(crate) quick: bool,
    pub(crate) load_average_before: f64,
    pub(crate) seconds: f64,
    pub(crate) scenarios: Vec<Played>,
}

impl Serving {
    /// Rows with this verdict.
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.scenarios
            .iter()
            .flat_map(|played| &played.found.rows)
            .filter(|row| row.verdict == verdict)
            .count()
    }
}

/// Plays the scenarios. An error when one of them failed; a target that was missed is none.
pub(crate) fn run(options: ServeOptions) -> Result<(), BenchError> {
    let load_average_before = sysinfo::load_average();
    let stage = Stage::set(options)?;
    stage.bar.set_style(ProgressStyle::with_template("{spinner} {prefix}: {msg}").expect("a valid template"));
    stage.bar.enable_steady_tick(Duration::from_millis(200));
    let begun = Instant::now();
    let only = &stage.options.only;
    let mut played = Vec::new();
    for (index, name) in only.iter().enumerate() {
        let scenario = scenarios::ALL.iter().find(|scenario| scenario.name == *name);
        let scenario = scenario.expect("names were checked when they were read");
        stage.bar.set_prefix(format!("{}/{} {name}", index + 1, only.len()));
        let result = play(scenario, &stage);
        stage.bar.suspend(|| print_scenario(&result));
        played.push(result);
    }
    stage.bar.finish_and_clear();
    let options = &stage.options;
    let serving = Serving {
        model: options.model.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        cpu: sysinfo::cpu_name(),
        cpus: sysinfo::cpus(),
        memory_mib: sysinfo::memory_mib(),
        kernel: sysinfo::kernel(),
        threads: options.threads,
        rounds: options.rounds,
        quick: options.quick,
        load_average_before,
        seconds: begun.elapsed().as_secs_f64(),
        scenarios: played,
    };
    table::print_summary(&serving);
    write_json(&serving, options.json.as_deref())?;
    let failed: Vec<_> = serving
        .scenarios
        .iter()
        .filter(|played| played.failure.is_some())
        .map(|played| played.name)
        .collect();
    if failed.is_empty() { Ok(()) } else { Err(BenchError::Scenarios(failed.join(", "))) }
}

fn play(scenario: &'static Scenario, stage: &Stage) -> Played {
    let begun = Instant::now();
    let mut found = Found::default();
    let result = catch_unwind(AssertUnwindSafe(|| (scenario.run)(stage, &mut found)));
    let failure = match result {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            Some(text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
        }
    };
    found.notes.extend(stage.take_troubles());
    Played {
        name: scenario.name,
        about: scenario.about,
        seconds: begun.elapsed().as_secs_f64(),
        failure,
        found,
    }
}

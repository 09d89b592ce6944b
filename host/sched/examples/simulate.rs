//! Replays a recorded trace against a model engine in simulated time and prints what each class of requests got.
//!
//! `cargo run -p sf-sched --example simulate -- host/sched/traces/agents_chat.jsonl [--json] [--set name=value]…`

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use sf_sched::SchedulerSettings;

#[path = "../tests/support/mod.rs"]
mod support;

use support::trace::Trace;

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "{why}");
            ExitCode::from(2)
        }
    }
}

fn run(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let usage = "usage: simulate TRACE.jsonl [--json] [--set name=value]…";
    let (mut path, mut json, mut sets) = (None, false, Vec::new());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => json = true,
            "--set" => sets.push(args.next().ok_or(usage)?),
            _ if path.is_none() && !arg.starts_with('-') => path = Some(arg),
            _ => return Err(format!("{arg}: {usage}")),
        }
    }
    let path = path.ok_or(usage)?;
    let text = std::fs::read_to_string(&path).map_err(|why| format!("{path}: {why}"))?;
    let trace = Trace::parse(&text).map_err(|why| format!("{path}: {why}"))?;
    let mut settings = trace.settings();
    sets.iter().try_for_each(|one| set(&mut settings, one))?;
    let report = trace.run(settings);
    let mut out = io::stdout().lock();
    let printed = if json {
        serde_json::to_writer_pretty(&mut out, &report).map_err(io::Error::from).and_then(|()| writeln!(out))
    } else {
        write!(out, "{report}")
    };
    printed.map_err(|why| why.to_string())
}

/// Changes one setting, to see what a policy would do.
fn set(settings: &mut SchedulerSettings, text: &str) -> Result<(), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text}: name=value is wanted"))?;
    let number: u32 = value.parse().map_err(|why| format!("{text}: {why}"))?;
    match name {
        "step_tokens_max" => settings.step_tokens_max = number,
        "prefill_budget" => settings.prefill_budget = number,
        "prefill_step_ms" => settings.prefill_step_target = Duration::from_millis(number.into()),
        "tick_decode_budget" => settings.tick_decode_budget = number,
        "tick_target_ms" => settings.tick_target = Duration::from_millis(number.into()),
        "starvation_ticks" => settings.starvation_ticks = number,
        "background_every" => settings.background_every = number,
        "pressure_high_pct" => settings.pressure_high_pct = number,
        "pressure_low_pct" => settings.pressure_low_pct = number,
        "stash_mb" => settings.stash_bytes_max = u64::from(number) << 20,
        _ => return Err(format!("{name} is no setting")),
    }
    Ok(())
}

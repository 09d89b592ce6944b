//! Tokens a second of each model's engine, with a ratio to the first one's: prefill, decode of one and of eight lanes, long contexts.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::session::{Run, Session, argmax};
use super::{Options, place};
use crate::error::BenchError;
use crate::serve::write_json;
use crate::stats::median;
use crate::sysinfo;

/// What is measured.
struct Case {
    name: &'static str,
    lanes: usize,
    prompt: usize,
    /// Tokens decoded behind the prompt; 0 = the prompt is what is measured.
    tokens: usize,
}

const CASES: [Case; 6] = [
    Case { name: "decode-1", lanes: 1, prompt: 64, tokens: 96 },
    Case { name: "decode-8", lanes: 8, prompt: 64, tokens: 48 },
    Case { name: "prefill-512", lanes: 1, prompt: 512, tokens: 0 },
    Case { name: "decode-at-4000", lanes: 1, prompt: 4000, tokens: 32 },
    Case { name: "prefill-4000", lanes: 1, prompt: 4000, tokens: 0 },
    Case { name: "first-token", lanes: 1, prompt: 8, tokens: 0 },
];

#[derive(Serialize)]
struct Figure {
    case: &'static str,
    threads: i64,
    model: String,
    /// Of each round; milliseconds for `first-token`.
    rounds: Vec<f64>,
    median: f64,
    /// To the first model: how many times as fast, by the rounds' medians.
    ratio: f64,
}

#[derive(Serialize)]
struct Report {
    cpu: String,
    load: f64,
    /// Nanoseconds of a cache line between the two CPUs, before and after.
    line_ns: [Option<f64>; 2],
    figures: Vec<Figure>,
}

pub(crate) fn run(options: &Options) -> Result<(), BenchError> {
    let (load, before) = (sysinfo::load_average(), place::line_ns());
    let shown = |ns: Option<f64>| ns.map_or("unknown".to_owned(), |ns| format!("{ns:.0} ns"));
    println!(
        "{}, load {load:.2}, a cache line between two CPUs takes {}",
        sysinfo::cpu_name(),
        shown(before)
    );
    println!("{:<16}{:>8}  {:<28}{:>12}{:>9}", "case", "threads", "model", "tokens/s", "ratio");
    let mut figures = Vec::new();
    for case in &CASES {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == case.name) {
            continue;
        }
        for &threads in &options.threads {
            let rounds = rounds(options, case, threads)?;
            let first = median(&rounds[0]);
            for (model, rounds) in options.models.iter().zip(rounds) {
                let (middle, name) = (median(&rounds), name(model));
                let ratio = if case.name == "first-token" { first / middle } else { middle / first };
                let unit = if case.name == "first-token" { " ms" } else { "" };
                println!(
                    "{:<16}{threads:>8}  {name:<28}{:>12}{ratio:>8.2}x",
                    case.name,
                    format!("{middle:.1}{unit}")
                );
                figures.push(Figure { case: case.name, threads, model: name, rounds, median: middle, ratio });
            }
        }
    }
    let after = place::line_ns();
    println!("a cache line between two CPUs takes {} now", shown(after));
    let report = Report { cpu: sysinfo::cpu_name(), load, line_ns: [before, after], figures };
    write_json(&report, options.json.as_deref())
}

fn name(model: &Path) -> String {
    model.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// For each model its rounds; models take turns.
fn rounds(options: &Options, case: &Case, threads: i64) -> Result<Vec<Vec<f64>>, BenchError> {
    let mut all = vec![Vec::new(); options.models.len()];
    // Long contexts take their time.
    let rounds = if case.prompt > 1000 { options.rounds.min(3) } else { options.rounds };
    if case.name == "first-token" {
        for _ in 0..rounds {
            for (model, figures) in options.models.iter().zip(&mut all) {
                let start = Instant::now();
                let mut session = open(model, case, threads)?;
                measure(&mut session, case)?;
                figures.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        return Ok(all);
    }
    let mut sessions =
        options.models.iter().map(|model| open(model, case, threads)).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..rounds {
        for (session, figures) in sessions.iter_mut().zip(&mut all) {
            figures.push(measure(session, case)?);
        }
    }
    Ok(all)
}

fn open(model: &Path, case: &Case, threads: i64) -> Result<Session, BenchError> {
    let window = (case.prompt + case.tokens + 32).next_multiple_of(256);
    Session::open(model, threads, case.lanes as i64 + 1, window as i64)
}

/// Tokens a second.
fn measure(session: &mut Session, case: &Case) -> Result<f64, BenchError> {
    // Any tokens do; control tokens stand at the start of a vocabulary.
    let prompt: Vec<u32> = (0..case.prompt as u32).map(|at| 1000 + at * 7919 % 40_000).collect();
    let lanes = (0..case.lanes).map(|_| session.lane()).collect::<Result<Vec<_>, _>>()?;
    let mut last = vec![0; case.lanes];
    let start = Instant::now();
    for (number, &lane) in lanes.iter().enumerate() {
        for (chunk, tokens) in prompt.chunks(512).enumerate() {
            let position = chunk as u32 * 512;
            let run = Run { lane, position, tokens, all: false };
            session.step(&[run], |_, row| last[number] = argmax(row))?;
        }
    }
    let filled = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for step in 0..case.tokens {
        let position = (case.prompt + step) as u32;
        let fed = last.clone();
        let runs: Vec<Run<'_>> = lanes
            .iter()
            .zip(&fed)
            .map(|(&lane, token)| Run { lane, position, tokens: std::slice::from_ref(token), all: false })
            .collect();
        session.step(&runs, |number, row| last[number] = argmax(row))?;
    }
    let decoded = start.elapsed().as_secs_f64();
    lanes.into_iter().try_for_each(|lane| session.free(lane))?;
    Ok(match case.tokens {
        0 => (case.lanes * case.prompt) as f64 / filled,
        tokens => (case.lanes * tokens) as f64 / decoded,
    })
}

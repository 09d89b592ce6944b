//! How fast the engine steps: prefill, decode of one lane and of several, at short and long contexts.
//!
//! `cargo bench -p sf-runtime-basert -- BUNDLE [key=value ...]`; keys: `threads`, `prompt`, `tokens`, `lanes`, `rounds`, `kernels`, `weights`.
//! Medians of the rounds; nothing looks at the rows but a greedy choice.
#![allow(clippy::unwrap_used, reason = "a program for developers")]
#![allow(dead_code, reason = "uses a part of what the tests share")]

#[path = "../../mlx/tests/runtime/support.rs"]
mod support;

use std::io::Write as _;
use std::time::Instant;

use sf_core::{EngineOption, OptionValue};
use superfluid_basert::superfluid_export::superfluid_runtime_v1;
use support::{argmax, int, open};

/// CPU time of this process, seconds.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let path =
        args.next().ok_or_else(|| std::io::Error::other("usage: throughput BUNDLE [key=value ...]"))?;
    let args: Vec<(String, String)> = args
        .filter_map(|arg| arg.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())))
        .collect();
    let text = |key: &str| args.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
    let number =
        |key: &str, otherwise: usize| text(key).and_then(|value| value.parse().ok()).unwrap_or(otherwise);
    let (prompt, tokens, lanes) = (number("prompt", 512), number("tokens", 64), number("lanes", 1));
    let mut options = vec![
        int("threads", number("threads", 1) as i64),
        int("lanes.max", 64),
        int("ctx.max", (prompt + tokens + 8).max(64) as i64),
        int("kv.cells", ((prompt + tokens + 64) * lanes) as i64),
        int("step.tokens.max", (prompt * lanes).max(2048) as i64),
    ];
    for key in ["kernels", "weights"] {
        if let Some(value) = text(key) {
            let value = OptionValue::Str(value);
            options.push(EngineOption { key: format!("x.basert.{key}"), value, must: true });
        }
    }
    let start = Instant::now();
    let mut model = open(path.as_ref(), &options).unwrap();
    let opened = start.elapsed();
    let mut out = std::io::stdout().lock();
    writeln!(out, "open    {:8.1} ms", opened.as_secs_f64() * 1e3)?;
    let (mut fills, mut steps, mut fills_cpu, mut steps_cpu) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut said = Vec::new();
    for _ in 0..number("rounds", 3) {
        let ids: Vec<_> = (0..lanes).map(|_| model.lane()).collect();
        let run: Vec<u32> = (0..prompt as u32).map(|at| 1000 + at * 7919 % 40_000).collect();
        let len = prompt as u32;
        let (start, used) = (Instant::now(), cpu());
        let feeds: Vec<_> = ids.iter().map(|&lane| (lane, 0, &run[..], len - 1..len)).collect();
        let rows = model.step(&feeds).unwrap();
        fills.push((lanes * prompt) as f64 / start.elapsed().as_secs_f64());
        fills_cpu.push((lanes * prompt) as f64 / (cpu() - used));
        let mut last: Vec<u32> = rows.iter().map(|rows| argmax(&rows[0])).collect();
        said = vec![last[0]];
        let (start, used) = (Instant::now(), cpu());
        for step in 0..tokens as u32 {
            let feeds: Vec<_> = ids
                .iter()
                .zip(&last)
                .map(|(&lane, token)| (lane, len + step, core::slice::from_ref(token), 0..1))
                .collect();
            let rows = model.step(&feeds).unwrap();
            last = rows.iter().map(|rows| argmax(&rows[0])).collect();
            said.push(last[0]);
        }
        steps.push((lanes * tokens) as f64 / start.elapsed().as_secs_f64());
        steps_cpu.push((lanes * tokens) as f64 / (cpu() - used));
        for lane in ids {
            model.0.lane_free(lane).unwrap();
        }
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    writeln!(out, "prefill {:8.1} tok/s {:8.1} tok/CPU-s", median(&mut fills), median(&mut fills_cpu))?;
    writeln!(out, "decode  {:8.1} tok/s {:8.1} tok/CPU-s", median(&mut steps), median(&mut steps_cpu))?;
    writeln!(out, "tokens  {:?}", &said[..said.len().min(12)])
}

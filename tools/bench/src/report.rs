//! Prints figures with their ratios and writes them as JSON.

use std::path::Path;

use serde::Serialize;

use crate::error::BenchError;
use crate::versus::{Figures, Versus};

pub(crate) fn print_versus(versus: &Versus) {
    println!(
        "{} on {}, {} threads, window {}, {} tokens an answer, {}, load average before {:.2}",
        versus.model,
        versus.cpu,
        versus.threads,
        versus.window,
        versus.tokens,
        if versus.in_process { "in-process" } else { "through the worker" },
        versus.load_average_before,
    );
    println!("\n{:<28}{:>14}{:>14}{:>9}", "", "superfluid", "llama-server", "ratio");
    for width in &versus.widths {
        println!(
            "{} client{}, {} rounds (medians), texts equal in {}",
            width.clients,
            if width.clients == 1 { "" } else { "s" },
            width.rounds,
            width.rounds_with_equal_text,
        );
        let row = |name: &str, figure: fn(&Figures) -> f64| {
            print_row(name, figure(&width.ours), figure(&width.peer));
        };
        row("  tokens/s, total", |f| f.tokens_per_second);
        row("  TTFT p50, ms", |f| f.ttft_ms_p50);
        row("  TTFT p99, ms", |f| f.ttft_ms_p99);
        row("  inter-token p50, ms", |f| f.itl_ms_p50);
        row("  inter-token p95, ms", |f| f.itl_ms_p95);
        row("  inter-token p99, ms", |f| f.itl_ms_p99);
        row("  CPU per token, ms", |f| f.cpu_ms_per_token);
    }
    println!("process");
    print_row("  start to ready, ms", versus.start_ms[0], versus.start_ms[1]);
    print_row("  RSS idle, MiB", versus.rss_idle_mib[0], versus.rss_idle_mib[1]);
    print_row("  RSS after the run, MiB", versus.rss_after_mib[0], versus.rss_after_mib[1]);
}

fn print_row(name: &str, ours: f64, peer: f64) {
    println!("{name:<28}{ours:>14.2}{peer:>14.2}{:>8.2}x", ours / peer);
}

pub(crate) fn write_json<T: Serialize>(value: &T, path: Option<&Path>) -> Result<(), BenchError> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(value).expect("figures are plain numbers and text");
    std::fs::write(path, text + "\n").map_err(BenchError::io(format!("write {}", path.display())))
}

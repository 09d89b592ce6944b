//! What a bench prints: one document for programs (schema below), one table for people.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use crate::record::Run;
use crate::summary::{Percentiles, Summary, Window, by_class, summarize};

/// Name of the schema. Fields may be added under it; a change of meaning changes the number.
pub const SCHEMA: &str = "superfluid.bench/1";

/// The whole result of a bench.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the load generator.
    pub version: &'static str,
    /// The server.
    pub url: String,
    /// The model that was asked for.
    pub model: Option<String>,
    /// What was asked of the run.
    pub load: LoadReport,
    /// Ended early.
    pub interrupted: bool,
    /// All requests that count.
    pub total: Summary,
    /// By class; empty unless there were several.
    pub classes: BTreeMap<String, Summary>,
    /// CPU time.
    pub cpu: CpuReport,
}

/// What was asked of the run, as the user would write it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LoadReport {
    /// Clients of the closed loop.
    pub clients: Option<u32>,
    /// Requests per second of the open loop.
    pub rate: Option<f64>,
    /// `poisson` or `constant`, in the open loop.
    pub arrivals: Option<&'static str>,
    /// Number of requests.
    pub requests: Option<u64>,
    /// Length of the run, seconds.
    pub duration_s: Option<f64>,
    /// Dropped at the beginning, e.g. `8` requests or `5s`.
    pub warm_up: String,
    /// `chat` or `completions`.
    pub route: &'static str,
    /// Answers came as event streams.
    pub stream: bool,
    /// Prompt lengths, tokens.
    pub prompt_tokens: String,
    /// Answer lengths, tokens.
    pub answer_tokens: String,
    /// Tokens of the shared prefix.
    pub shared_prefix: u32,
    /// Groups with one prefix each.
    pub prefix_groups: u32,
    /// QoS classes by weight; empty = none.
    pub classes: String,
    /// 0 = greedy.
    pub temperature: f32,
    /// Makes the same requests again.
    pub seed: u64,
    /// Tokens per word that prompts were written with.
    pub tokens_per_word: f64,
}

/// CPU time of both ends, over the whole run with a warm-up by time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CpuReport {
    /// Server and its children, seconds; `null` = not on this machine, or not known.
    pub server_s: Option<f64>,
    /// The same per answer token, microseconds.
    pub server_us_per_token: Option<f64>,
    /// Load generator, seconds.
    pub client_s: f64,
    /// The same per answer token, microseconds.
    pub client_us_per_token: Option<f64>,
}

/// Who was asked for what.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The server.
    pub url: String,
    /// The model.
    pub model: Option<String>,
    /// The recipe.
    pub load: LoadReport,
}

impl Report {
    /// Puts the figures of a run together. `server_cpu` is what the server spent during it.
    pub fn new(asked: Asked, run: &Run, window: Window, server_cpu: Option<Duration>) -> Self {
        let tokens: f64 = run.records.iter().map(crate::Record::tokens).sum();
        let per_token = |cpu: Duration| {
            (tokens > 0.0).then(|| (cpu.as_secs_f64() * 1e6 / tokens * 100.0).round() / 100.0)
        };
        Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            url: asked.url,
            model: asked.model,
            load: asked.load,
            interrupted: run.interrupted,
            total: summarize(&run.records, window),
            classes: by_class(&run.records, window),
            cpu: CpuReport {
                server_s: server_cpu.map(|cpu| cpu.as_secs_f64()),
                server_us_per_token: server_cpu.and_then(per_token),
                client_s: run.client_cpu.as_secs_f64(),
                client_us_per_token: per_token(run.client_cpu),
            },
        }
    }

    /// The document, with a line end.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self)
            .expect("a report holds only strings, numbers and maps with string keys");
        text + "\n"
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.clients, self.rate) {
            (Some(1), _) => f.write_str("1 client")?,
            (Some(clients), _) => write!(f, "{clients} clients")?,
            (None, rate) => {
                write!(f, "{} requests/s ({})", rate.unwrap_or(0.0), self.arrivals.unwrap_or("poisson"))?;
            }
        }
        let (route, how) = (self.route, if self.stream { "streamed" } else { "in one piece" });
        write!(f, ", {route}, {how}, prompts of {}", self.prompt_tokens)?;
        if self.shared_prefix > 0 {
            write!(f, " after {} shared", self.shared_prefix)?;
        }
        if self.prefix_groups > 1 {
            write!(f, " in {} groups", self.prefix_groups)?;
        }
        write!(f, ", answers of {} tokens", self.answer_tokens)?;
        if self.temperature > 0.0 {
            write!(f, ", temperature {}", self.temperature)?;
        } else {
            f.write_str(", greedy")?;
        }
        write!(f, ", seed {}", self.seed)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { url, model, load, total, .. } = self;
        writeln!(f, "{url}  {}", model.as_deref().unwrap_or_default())?;
        writeln!(f, "{load}\n")?;
        let cut =
            if total.requests.cut > 0 { format!(", {} cut", total.requests.cut) } else { String::new() };
        let early = if self.interrupted { " (interrupted)" } else { "" };
        let (ok, failed) = (total.requests.ok, total.requests.failed);
        writeln!(f, "requests   {ok} ok, {failed} failed{cut} in {:.1} s{early}", total.window_s)?;
        for (label, count) in &total.requests.failures {
            writeln!(f, "           {count} x {label}")?;
        }
        let tokens = &total.tokens;
        let cached =
            tokens.cached_share.map(|share| format!(" ({:.0} % cached)", share * 100.0)).unwrap_or_default();
        writeln!(
            f,
            "tokens/s   {:.1} answer, {:.1} prompt{cached}",
            tokens.completion_per_s, tokens.prompt_per_s
        )?;
        writeln!(f, "requests/s {:.2}", tokens.requests_per_s)?;
        self.cpu.fmt(f)?;
        write!(f, "\n{:<8}", "ms")?;
        for head in ["p50", "p90", "p95", "p99", "max", "mean"] {
            write!(f, "{head:>10}")?;
        }
        f.write_char('\n')?;
        for (name, row) in [
            ("TTFT", &total.ttft_ms),
            ("ITL", &total.itl_ms),
            ("TPOT", &total.tpot_ms),
            ("E2E", &total.e2e_ms),
        ] {
            write!(f, "{name:<8}")?;
            percentiles(f, row.as_ref())?;
        }
        if total.lag_ms.is_some_and(|lag| lag.p99 > LAG_MS_MAX) {
            writeln!(
                f,
                "\nwarning: requests started late (see lag_ms in --json): the load generator is too slow here"
            )?;
        }
        classes(f, &self.classes)
    }
}

/// Lag from which a person should hear of it, milliseconds.
const LAG_MS_MAX: f64 = 20.0;

impl fmt::Display for CpuReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_token = |us: Option<f64>| us.map(|us| format!(" ({us:.1} µs/token)")).unwrap_or_default();
        f.write_str("cpu        ")?;
        if let Some(server) = self.server_s {
            write!(f, "server {server:.2} s{}, ", per_token(self.server_us_per_token))?;
        }
        writeln!(f, "load generator {:.2} s{}", self.client_s, per_token(self.client_us_per_token))
    }
}

fn percentiles(f: &mut fmt::Formatter<'_>, row: Option<&Percentiles>) -> fmt::Result {
    match row {
        None => f.write_str("         -\n"),
        Some(Percentiles { mean, p50, p90, p95, p99, max, .. }) => {
            for value in [p50, p90, p95, p99, max, mean] {
                f.write_str(&figure(*value))?;
            }
            f.write_char('\n')
        }
    }
}

/// Three significant places are enough for a person.
fn figure(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:>10.0}"),
        value if value >= 10.0 => format!("{value:>10.1}"),
        value => format!("{value:>10.2}"),
    }
}

fn classes(f: &mut fmt::Formatter<'_>, classes: &BTreeMap<String, Summary>) -> fmt::Result {
    if classes.is_empty() {
        return Ok(());
    }
    write!(f, "\n{:<14}", "class")?;
    for head in ["ok", "failed", "tokens/s", "TTFT p50", "p95", "p99", "ITL p50", "p95", "E2E p50", "p95"] {
        write!(f, "{head:>10}")?;
    }
    f.write_char('\n')?;
    for (name, summary) in classes {
        let Summary { requests, tokens, ttft_ms, itl_ms, e2e_ms, .. } = summary;
        let name = if name.is_empty() { "(none)" } else { name };
        write!(f, "{name:<14}{:>10}{:>10}{:>10.1}", requests.ok, requests.failed, tokens.completion_per_s)?;
        let of = |row: &Option<Percentiles>, pick: fn(&Percentiles) -> f64| {
            row.as_ref().map_or_else(|| format!("{:>10}", "-"), |row| figure(pick(row)))
        };
        for cell in [
            of(ttft_ms, |row| row.p50),
            of(ttft_ms, |row| row.p95),
            of(ttft_ms, |row| row.p99),
            of(itl_ms, |row| row.p50),
            of(itl_ms, |row| row.p95),
            of(e2e_ms, |row| row.p50),
            of(e2e_ms, |row| row.p95),
        ] {
            f.write_str(&cell)?;
        }
        f.write_char('\n')?;
    }
    Ok(())
}

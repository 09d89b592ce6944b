//! Records to figures: rates in a window of time, percentiles of what clients waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use crate::record::{Outcome, Record, Run};

/// The part of a run that counts, since its start. Requests that were due in it are measured; tokens that came in it
/// make the rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Beginning.
    pub from: Duration,
    /// End.
    pub to: Duration,
}

impl Window {
    /// From the first start to the last end.
    pub fn of(run: &Run) -> Self {
        let from = run.records.iter().map(|record| record.due).min().unwrap_or_default();
        let to = run.records.iter().map(Record::end).max().unwrap_or(run.wall);
        Window { from, to }
    }

    fn seconds(self) -> f64 {
        self.to.saturating_sub(self.from).as_secs_f64()
    }

    fn has(self, at: Duration) -> bool {
        (self.from..=self.to).contains(&at)
    }
}

/// The figures of some requests. Times in milliseconds; `null` in JSON = nothing to measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Length of the window, seconds.
    pub window_s: f64,
    /// How they ended.
    pub requests: Requests,
    /// What was moved.
    pub tokens: Tokens,
    /// From a request's start to its first text.
    pub ttft_ms: Option<Percentiles>,
    /// Between events with text of one answer; events that came in one read are 0 apart.
    pub itl_ms: Option<Percentiles>,
    /// Per answer: time after the first text, per token.
    pub tpot_ms: Option<Percentiles>,
    /// From a request's start to the end of its answer.
    pub e2e_ms: Option<Percentiles>,
    /// How much later than due requests started: large values mean that the load generator is the bottleneck.
    pub lag_ms: Option<Percentiles>,
}

/// How requests ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// With a complete answer.
    pub ok: u64,
    /// Not well.
    pub failed: u64,
    /// Cut by the end of the run, or because their client went away.
    pub cut: u64,
    /// Failures by kind: an HTTP status with the server's code, `timeout`, `connect`, `closed`, `protocol`, `stream ...`.
    pub failures: BTreeMap<String, u64>,
    /// Complete answers by the server's reason.
    pub finish_reasons: BTreeMap<String, u64>,
}

/// What was moved, as the server counted; events with text where it did not count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tokens {
    /// Of answers, in the window.
    pub completion: f64,
    /// Of prompts whose first text came in the window.
    pub prompt: u64,
    /// Of those, the ones that were not computed again.
    pub cached: u64,
    /// `cached / prompt`; `null` = the server does not say.
    pub cached_share: Option<f64>,
    /// Answer tokens per second.
    pub completion_per_s: f64,
    /// Prompt tokens per second, cached ones included.
    pub prompt_per_s: f64,
    /// Complete answers per second.
    pub requests_per_s: f64,
}

/// A distribution: nearest-rank percentiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Measurements.
    pub count: u64,
    /// Average.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 95 %.
    pub p95: f64,
    /// 99 %.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

impl Percentiles {
    /// Of microseconds, in milliseconds; `None` of nothing.
    pub fn of_us(mut values: Vec<u32>) -> Option<Self> {
        values.sort_unstable();
        let last = *values.last()?;
        let ms = |us: u32| f64::from(us) / 1e3;
        let at = |percent: usize| ms(values[(values.len() * percent).div_ceil(100).max(1) - 1]);
        let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
        Some(Percentiles {
            count: values.len() as u64,
            mean: (sum / values.len() as f64).round() / 1e3,
            p50: at(50),
            p90: at(90),
            p95: at(95),
            p99: at(99),
            max: ms(last),
        })
    }

    fn of(durations: impl Iterator<Item = Duration>) -> Option<Self> {
        Percentiles::of_us(
            durations.map(|time| u32::try_from(time.as_micros()).unwrap_or(u32::MAX)).collect(),
        )
    }
}

/// The figures of `records` in `window`.
pub fn summarize<'a>(records: impl IntoIterator<Item = &'a Record>, window: Window) -> Summary {
    let records: Vec<&Record> = records.into_iter().collect();
    let due = || records.iter().filter(|record| window.has(record.due));
    let seen = || due().filter(|record| !matches!(record.outcome, Outcome::Failed(_)));
    let ok = || due().filter(|record| record.is_ok());
    let gaps = seen().flat_map(|record| record.gaps_us.iter().copied()).collect();
    Summary {
        window_s: round(window.seconds()),
        requests: requests(due()),
        tokens: tokens(&records, window),
        ttft_ms: Percentiles::of(seen().filter_map(|record| record.ttft)),
        itl_ms: Percentiles::of_us(gaps),
        tpot_ms: Percentiles::of(ok().filter_map(|record| record.tpot())),
        e2e_ms: Percentiles::of(ok().map(|record| record.total)),
        lag_ms: Percentiles::of(due().map(|record| record.lag)),
    }
}

/// The figures of each class, if there is more than one.
pub fn by_class(records: &[Record], window: Window) -> BTreeMap<String, Summary> {
    let names: BTreeSet<&str> = records.iter().map(|record| &*record.class).collect();
    if names.len() < 2 {
        return BTreeMap::new();
    }
    let of = |name: &str| summarize(records.iter().filter(|record| &*record.class == name), window);
    names.into_iter().map(|name| (name.to_owned(), of(name))).collect()
}

fn requests<'a>(records: impl Iterator<Item = &'a &'a Record>) -> Requests {
    let mut counts = Requests::default();
    for record in records {
        match &record.outcome {
            Outcome::Cut => counts.cut += 1,
            Outcome::Failed(failure) => {
                counts.failed += 1;
                *counts.failures.entry(failure.label()).or_default() += 1;
            }
            Outcome::Ok => {
                counts.ok += 1;
                if let Some(reason) = &record.finish_reason {
                    *counts.finish_reasons.entry(reason.clone()).or_default() += 1;
                }
            }
        }
    }
    counts
}

fn tokens(records: &[&Record], window: Window) -> Tokens {
    let (mut completion, mut prompt, mut cached, mut counted, mut ended) = (0.0, 0, 0, 0, 0_u64);
    for record in records.iter().filter(|record| !matches!(record.outcome, Outcome::Failed(_))) {
        completion += record.tokens() * share_in(record, window);
        ended += u64::from(record.is_ok() && window.has(record.end()));
        if window.has(record.due + record.ttft.unwrap_or(record.total)) {
            let tokens = u64::from(record.usage.prompt.unwrap_or(0));
            prompt += tokens;
            cached += u64::from(record.usage.cached.unwrap_or(0));
            counted += if record.usage.cached.is_some() { tokens } else { 0 };
        }
    }
    let seconds = window.seconds().max(1e-9);
    Tokens {
        completion: completion.round(),
        prompt,
        cached,
        cached_share: (counted > 0).then(|| round(cached as f64 / counted as f64)),
        completion_per_s: round(completion / seconds),
        prompt_per_s: round(prompt as f64 / seconds),
        requests_per_s: round(ended as f64 / seconds),
    }
}

/// Which part of an answer came in the window: by its events, or by time for an answer in one piece.
fn share_in(record: &Record, window: Window) -> f64 {
    if window.has(record.due) && window.has(record.end()) {
        return 1.0;
    }
    let Some(ttft) = record.ttft else {
        let (from, to) = (record.due.max(window.from), record.end().min(window.to));
        return to.saturating_sub(from).as_secs_f64() / record.total.as_secs_f64().max(1e-9);
    };
    let mut at = record.due + ttft;
    let mut inside = u64::from(window.has(at));
    for gap in &record.gaps_us {
        at += Duration::from_micros((*gap).into());
        inside += u64::from(window.has(at));
    }
    inside as f64 / record.events() as f64
}

/// Three digits after the point.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

//! What a replayed trace brought: latencies per class, throughput, and what the scheduler did for it.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use sf_core::{Moment, QosClass};

use super::checks::{End, Tracked};
use super::drive::Drive;

/// Percentiles of a time, milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Times {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Times {
    fn new(mut all: Vec<Duration>) -> Times {
        all.sort_unstable();
        // Nearest rank.
        let at = |percent: usize| match all.len() {
            0 => 0.0,
            len => ms(all[(len * percent).div_ceil(100).max(1) - 1]),
        };
        Times { p50: at(50), p95: at(95), p99: at(99), max: at(100) }
    }
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

/// One class.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClassReport {
    pub(crate) class: &'static str,
    pub(crate) requests: usize,
    pub(crate) completed: usize,
    /// Failed, refused, or ended by a deadline.
    pub(crate) cut: usize,
    pub(crate) cancelled: usize,
    pub(crate) queued_ms: Times,
    pub(crate) ttft_ms: Times,
    pub(crate) itl_ms: Times,
    pub(crate) e2e_ms: Times,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) title: String,
    pub(crate) seconds: f64,
    pub(crate) tokens: u64,
    pub(crate) tokens_per_second: f64,
    pub(crate) ticks: u64,
    pub(crate) steps: u64,
    /// Prompt tokens of all requests.
    pub(crate) prompt_tokens_asked: u64,
    /// Prompt tokens that the engine computed, those computed again included.
    pub(crate) prompt_tokens_computed: u64,
    pub(crate) prefix_hits: u64,
    pub(crate) evictions: u64,
    pub(crate) preemptions: u64,
    pub(crate) starvation_grants: u64,
    pub(crate) stashes: u64,
    pub(crate) restores: u64,
    pub(crate) deadlines: u64,
    pub(crate) classes: Vec<ClassReport>,
}

impl Report {
    pub(crate) fn new(title: &str, drive: &Drive) -> Report {
        let all = &drive.rules.requests;
        let end = all.values().filter_map(|one| one.times.last()).max().copied().unwrap_or_default();
        let seconds = end.since(Moment(0)).as_secs_f64();
        let tokens = all.values().map(|one| one.tokens.len() as u64).sum();
        let totals = drive.scheduler.totals();
        let classes = QosClass::ALL.into_iter().map(|class| {
            let members: Vec<&Tracked> = all.values().filter(|one| one.class == class).collect();
            ClassReport::new(class, &members)
        });
        Report {
            title: title.to_owned(),
            seconds: (seconds * 1e3).round() / 1e3,
            tokens,
            tokens_per_second: (tokens as f64 / seconds.max(1e-9) * 10.0).round() / 10.0,
            ticks: totals.ticks,
            steps: drive.engine.done.steps,
            prompt_tokens_asked: all.values().map(|one| u64::from(one.prompt)).sum(),
            prompt_tokens_computed: drive.engine.done.prompt_tokens,
            prefix_hits: totals.prefix_hits,
            evictions: totals.evictions,
            preemptions: totals.preemptions,
            starvation_grants: totals.starvation_grants,
            stashes: totals.stashes,
            restores: totals.restores,
            deadlines: totals.deadlines,
            classes: classes.filter(|class| class.requests > 0).collect(),
        }
    }
}

impl ClassReport {
    fn new(class: QosClass, members: &[&Tracked]) -> ClassReport {
        let count = |test: &dyn Fn(&Tracked) -> bool| members.iter().filter(|one| test(one)).count();
        let completed = count(&Tracked::is_complete);
        let cancelled = count(&|one| one.end == Some(End::Cancelled));
        let started = members.iter().filter_map(|one| Some(one.started?.0.since(one.submitted)));
        let firsts = members.iter().filter_map(|one| Some(one.times.first()?.since(one.submitted)));
        let gaps = members.iter().flat_map(|one| one.times.windows(2).map(|pair| pair[1].since(pair[0])));
        let whole = members.iter().filter(|one| one.is_complete());
        let whole = whole.filter_map(|one| Some(one.ended?.0.since(one.submitted)));
        ClassReport {
            class: class.name(),
            requests: members.len(),
            completed,
            cut: members.len() - completed - cancelled,
            cancelled,
            queued_ms: Times::new(started.collect()),
            ttft_ms: Times::new(firsts.collect()),
            itl_ms: Times::new(gaps.collect()),
            e2e_ms: Times::new(whole.collect()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        writeln!(
            f,
            "{:.3} s, {} tokens, {:.1} tokens/s, {} ticks, {} steps",
            self.seconds, self.tokens, self.tokens_per_second, self.ticks, self.steps
        )?;
        writeln!(
            f,
            "prompt tokens: {} asked, {} computed; {} prefix hits, {} evictions, {} stashes, {} restores",
            self.prompt_tokens_asked,
            self.prompt_tokens_computed,
            self.prefix_hits,
            self.evictions,
            self.stashes,
            self.restores
        )?;
        writeln!(
            f,
            "{} preemptions, {} starvation grants, {} deadlines",
            self.preemptions, self.starvation_grants, self.deadlines
        )?;
        self.classes.iter().try_for_each(|class| class.fmt(f))
    }
}

impl fmt::Display for ClassReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} requests, {} completed, {} cut, {} cancelled",
            self.class, self.requests, self.completed, self.cut, self.cancelled
        )?;
        writeln!(f, "  {:<6} {:>9} {:>9} {:>9} {:>9}", "ms", "p50", "p95", "p99", "max")?;
        let rows =
            [("queued", self.queued_ms), ("ttft", self.ttft_ms), ("itl", self.itl_ms), ("e2e", self.e2e_ms)];
        for (name, times) in rows {
            let Times { p50, p95, p99, max } = times;
            writeln!(f, "  {name:<6} {p50:>9.1} {p95:>9.1} {p99:>9.1} {max:>9.1}")?;
        }
        Ok(())
    }
}

//! Shows a run on the terminal while it goes on; says nothing where there is no terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::options::{Live, Watch};
use crate::record::Outcome;

/// Between two redraws.
const REDRAW: Duration = Duration::from_millis(250);

/// A line on stderr, and an ear for whoever wants the run to end.
pub struct Progress {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    drawn: Duration,
    /// Times to the first text of the requests that have ended, µs, and how many records were looked at for them.
    ttfts: Vec<u32>,
    looked: usize,
}

impl Progress {
    /// For a run of so many requests, or of so many seconds; `stop` ends it.
    pub fn new(requests: Option<u64>, stop: Arc<AtomicBool>) -> Self {
        let (bar, template) = match requests {
            Some(requests) => (ProgressBar::new(requests), "{bar:24} {pos}/{len} {elapsed} {msg}"),
            None => (ProgressBar::no_length(), "{spinner} {pos} {elapsed} {msg}"),
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
        Progress { bar, stop, drawn: Duration::ZERO, ttfts: Vec::new(), looked: 0 }
    }

    /// Takes the line away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn draw(&mut self, live: &Live<'_>) {
        let ttfts = live.records[self.looked..].iter().filter_map(|record| record.ttft);
        self.ttfts.extend(ttfts.map(|ttft| u32::try_from(ttft.as_micros()).unwrap_or(u32::MAX)));
        self.looked = live.records.len();
        let failed =
            live.records.iter().filter(|record| matches!(record.outcome, Outcome::Failed(_))).count();
        let rate = live.events as f64 / live.elapsed.as_secs_f64().max(1e-3);
        let mut message = format!("{} running, {rate:.0} tokens/s", live.running);
        if !self.ttfts.is_empty() {
            let middle = self.ttfts.len() / 2;
            let (_, median, _) = self.ttfts.select_nth_unstable(middle);
            message.push_str(&format!(", TTFT p50 {:.0} ms", f64::from(*median) / 1e3));
        }
        if failed > 0 {
            message.push_str(&format!(", {failed} failed"));
        }
        self.bar.set_position(live.records.len() as u64);
        self.bar.set_message(message);
        self.bar.tick();
    }
}

impl Watch for Progress {
    fn look(&mut self, live: &Live<'_>) -> bool {
        if !self.bar.is_hidden() && live.elapsed >= self.drawn + REDRAW {
            self.drawn = live.elapsed;
            self.draw(live);
        }
        !self.stop.load(Ordering::Relaxed)
    }
}

//! One bench from beginning to end: learn about the server, warm up, run, report.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::ask::{calibrate, first_model};
use crate::engine::run;
use crate::error::LoadError;
use crate::options::RunOptions;
use crate::procs::{listener_pid, tree_cpu};
use crate::progress::Progress;
use crate::prompt::Writer;
use crate::record::Run;
use crate::report::{Asked, LoadReport, Report};
use crate::summary::Window;
use crate::target::Target;
use crate::traffic::{Arrivals, Calibration, Generator, Pacing, Route, Traffic};

/// What is dropped at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// So many requests of their own, before the run.
    Requests(u32),
    /// The first part of the run.
    Time(Duration),
}

impl WarmUp {
    /// Reads `8` (requests) or `5s`.
    ///
    /// # Errors
    /// Anything else.
    pub fn read(text: &str) -> Result<Self, LoadError> {
        let (number, seconds) = text.strip_suffix('s').map_or((text, false), |number| (number, true));
        let refused = |_| LoadError::Setting {
            setting: "--warm-up",
            value: text.to_owned(),
            accepts: "a number of requests, e.g. 8, or of seconds, e.g. 5s",
        };
        let number: u16 = number.parse().map_err(refused)?;
        Ok(if seconds {
            WarmUp::Time(Duration::from_secs(number.into()))
        } else {
            WarmUp::Requests(number.into())
        })
    }
}

/// A bench.
pub struct Bench {
    /// The server.
    pub target: Target,
    /// The requests; without a model, the first that the server names is asked for.
    pub traffic: Traffic,
    /// Length of the part that counts; `None` = until all requests have ended.
    pub duration: Option<Duration>,
    /// What is dropped.
    pub warm_up: WarmUp,
    /// How requests are sent.
    pub options: RunOptions,
    /// The server's process on this machine; `None` = look for who listens there.
    pub server_pid: Option<u32>,
    /// Somebody sets it to end the bench early.
    pub stop: Arc<AtomicBool>,
}

impl Bench {
    /// Runs it; the progress goes to stderr, if that is a terminal.
    ///
    /// # Errors
    /// The server cannot be asked at all. Requests that fail are in the report.
    pub fn run(mut self) -> Result<(Run, Report), LoadError> {
        let first = first_model(&self.target)?;
        self.traffic.model = self.traffic.model.or(first);
        let writer = Writer::new(self.traffic.seed);
        let calibration = calibrate(&self.target, self.traffic.model.as_deref(), &writer);
        if let WarmUp::Requests(requests @ 1..) = self.warm_up {
            let mut source = Generator::warm_up(&self.traffic, calibration, requests.into());
            self.drive(&mut source, Some(requests.into()), None)?;
        }
        let dropped = match self.warm_up {
            WarmUp::Time(dropped) => dropped,
            WarmUp::Requests(_) => Duration::ZERO,
        };
        let until = self.duration.map(|duration| duration + dropped);
        let pid = self.server_pid.or_else(|| self.listener());
        let cpu_before = pid.and_then(tree_cpu);
        let mut source = Generator::new(self.traffic.clone(), calibration);
        let run = self.drive(&mut source, self.traffic.requests, until)?;
        let cpu = pid.and_then(tree_cpu).zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
        let whole = Window::of(&run);
        let window = match until.filter(|until| run.wall >= *until) {
            Some(until) => Window { from: dropped, to: until },
            None => Window { from: whole.from.max(dropped), to: whole.to },
        };
        let asked = Asked {
            url: self.target.url(),
            model: self.traffic.model.clone(),
            load: self.describe(calibration),
        };
        let report = Report::new(asked, &run, window, cpu);
        Ok((run, report))
    }

    fn drive(
        &self,
        source: &mut Generator,
        requests: Option<u64>,
        until: Option<Duration>,
    ) -> Result<Run, LoadError> {
        let mut progress = Progress::new(requests.filter(|_| until.is_none()), Arc::clone(&self.stop));
        let run = run(&self.target, source, &RunOptions { until, ..self.options }, &mut progress);
        progress.finish();
        run
    }

    /// Who listens where the requests go, if that is this machine.
    fn listener(&self) -> Option<u32> {
        let address = self.target.address;
        address.ip().is_loopback().then(|| listener_pid(address.port())).flatten()
    }

    fn describe(&self, calibration: Calibration) -> LoadReport {
        let Traffic { pacing, requests, route, streamed, prompts, answers, .. } = &self.traffic;
        let (clients, rate, arrivals) = match *pacing {
            Pacing::Clients(clients) => (Some(clients), None, None),
            Pacing::Rate { per_second, arrivals: Arrivals::Poisson } => {
                (None, Some(per_second), Some("poisson"))
            }
            Pacing::Rate { per_second, arrivals: Arrivals::Constant } => {
                (None, Some(per_second), Some("constant"))
            }
        };
        let tokens_per_word = match calibration.tokens_per_word {
            Some(tokens) => Writer::new(0).calibrated(tokens).tokens_per_word(),
            None => Writer::new(0).tokens_per_word(),
        };
        LoadReport {
            clients,
            rate,
            arrivals,
            requests: *requests,
            duration_s: self.duration.map(|duration| duration.as_secs_f64()),
            warm_up: match self.warm_up {
                WarmUp::Requests(requests) => requests.to_string(),
                WarmUp::Time(time) => format!("{}s", time.as_secs()),
            },
            route: match route {
                Route::Chat => "chat",
                Route::Completions => "completions",
            },
            stream: *streamed,
            prompt_tokens: prompts.to_string(),
            answer_tokens: answers.to_string(),
            shared_prefix: self.traffic.shared_prefix,
            prefix_groups: self.traffic.prefix_groups,
            classes: self.traffic.classes.to_string(),
            temperature: self.traffic.temperature,
            seed: self.traffic.seed,
            tokens_per_word,
        }
    }
}

/// A seed that no earlier run had, so that no prefix cache of a server knows its prompts.
pub fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    // Seven digits: short enough to be typed again.
    (now.as_nanos() as u64 / 1000) % 10_000_000
}

/// Lets this process open as many connections as the system allows it to.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // A refusal leaves the limit as it is, and connections beyond it fail with their own message.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Waits until `ready` says so; `false` = the time is over or `stop` was set.
pub(crate) fn wait_until(limit: Duration, stop: &AtomicBool, mut ready: impl FnMut() -> bool) -> bool {
    const PAUSE: Duration = Duration::from_millis(20);
    let begun = Instant::now();
    while !stop.load(std::sync::atomic::Ordering::Relaxed) && begun.elapsed() < limit {
        if ready() {
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_ups_are_read_or_refused() {
        let check =
            |text: &str, expect: Option<WarmUp>| assert_eq!(WarmUp::read(text).ok(), expect, "{text}");
        check("8", Some(WarmUp::Requests(8)));
        check("0", Some(WarmUp::Requests(0)));
        check("5s", Some(WarmUp::Time(Duration::from_secs(5))));
        check("s", None);
        check("5m", None);
        check("-1", None);
        check("", None);
    }
}

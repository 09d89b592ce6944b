//! Recorded traces and their replay against the model engine; the format is described in `traces/README.md`.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use sf_core::{Moment, QosClass, RequestId, SamplerSpec};
use sf_sched::{Admission, SchedulerSettings, Stop};

use super::ask::prompt;
use super::drive::{Drive, Event};
use super::engine::{Cost, Setup};
use super::report::Report;

/// The first line: what the requests run on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    /// What it shows.
    pub(crate) title: String,
    /// Requests computed at the same time.
    batch: u32,
    /// Further lanes that only keep prefixes.
    #[serde(default)]
    residents: u32,
    /// Positions of one lane.
    window: u32,
    /// Positions of all lanes together; 0 = no end of them, and the scheduler is told so.
    #[serde(default)]
    cells: u64,
    /// Time of a step, microseconds.
    step_us: u64,
    /// Time of one lane in a decode step, microseconds.
    decode_us: u64,
    /// Time of one prompt token, microseconds.
    prompt_us: u64,
    /// Prefixes cannot be copied to host memory.
    #[serde(default)]
    no_stash: bool,
}

/// A further line: one request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// When it arrives.
    at_ms: u64,
    class: String,
    #[serde(default)]
    party: u64,
    /// Prompt tokens, the shared ones included.
    prompt: u32,
    /// Everybody with the same number starts with the same tokens.
    #[serde(default)]
    prefix: u64,
    /// How many of the prompt's tokens those are.
    #[serde(default)]
    shared: u32,
    /// Tokens that the model answers with.
    reply: u32,
    /// When its client goes away.
    cancel_ms: Option<u64>,
    /// Deadline, counted from its arrival.
    deadline_ms: Option<u64>,
}

/// A trace, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) header: Header,
    lines: Vec<Line>,
}

/// Why a trace cannot be read.
pub(crate) type Unreadable = String;

impl Trace {
    pub(crate) fn parse(text: &str) -> Result<Trace, Unreadable> {
        let words = |number: usize, why: &dyn std::fmt::Display| format!("line {}: {why}", number + 1);
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let (number, first) = lines.next().ok_or("the trace is empty")?;
        let header = serde_json::from_str(first).map_err(|why| words(number, &why))?;
        let mut trace = Trace { header, lines: Vec::new() };
        for (number, line) in lines {
            let line: Line = serde_json::from_str(line).map_err(|why| words(number, &why))?;
            trace.check(&line).map_err(|why| words(number, &why))?;
            trace.lines.push(line);
        }
        Ok(trace)
    }

    fn check(&self, line: &Line) -> Result<(), Unreadable> {
        QosClass::parse(&line.class).ok_or_else(|| format!("{} is no class", line.class))?;
        let window = self.header.window;
        if line.prompt == 0 || line.prompt >= window || line.shared > line.prompt || line.reply == 0 {
            return Err(format!("{line:?} does not fit a window of {window}"));
        }
        Ok(())
    }

    /// The settings that the header asks for.
    pub(crate) fn settings(&self) -> SchedulerSettings {
        SchedulerSettings::new(self.header.batch, self.header.window)
    }

    fn setup(&self) -> Setup {
        let header = &self.header;
        let mut setup = Setup::new(header.batch + header.residents, header.cells);
        setup.facts.stash = !header.no_stash;
        let (step, decode, prompt) =
            (header.step_us * 1000, header.decode_us * 1000, header.prompt_us * 1000);
        setup.cost = Cost { step, decode, prompt, ..Cost::CPU };
        setup
    }

    /// Replays it in simulated time under `settings`.
    ///
    /// # Panics
    /// When the scheduler breaks a rule.
    pub(crate) fn run(&self, settings: SchedulerSettings) -> Report {
        let mut drive = Drive::new(settings, self.setup());
        for (request, line) in self.lines.iter().enumerate() {
            drive.submit_at(line.at_ms, line.admission(request as u64));
            if let Some(cancel) = line.cancel_ms {
                drive.at(cancel, Event::Cancel(request as u64));
            }
        }
        drive.run(1_000_000);
        Report::new(&self.header.title, &drive)
    }
}

impl Line {
    fn admission(&self, request: u64) -> Admission {
        let at = Moment(self.at_ms * 1_000_000);
        Admission {
            request: RequestId(request),
            prompt: prompt(self.prefix, self.shared, request, self.prompt - self.shared),
            sampler: SamplerSpec { seed: request, ..SamplerSpec::default() },
            stop: Stop { end_tokens: Arc::from([]), tokens_max: self.reply, positions_max: u32::MAX },
            class: QosClass::parse(&self.class).unwrap_or_default(),
            party: self.party,
            deadline: self.deadline_ms.map(|ms| at + Duration::from_millis(ms)),
            reuse: true,
            pin: None,
        }
    }
}

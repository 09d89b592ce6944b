//! Makes requests by a recipe: how many at once or how often, how long, with what in common.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::error::Failure;
use crate::mix::{Classes, Lengths};
use crate::prompt::Writer;
use crate::record::{Outcome, Record};
use crate::rng::Rng;
use crate::shot::{Shot, Source, Timed};

/// Before a client whose connection failed tries again: a server that is gone must not be asked in a tight loop.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Numbers of warm-up requests begin here, far from those that count.
const WARM_UP: u64 = 1 << 40;
/// Numbers of shared prefixes begin here.
const PREFIXES: u64 = 1 << 50;

/// The recipe.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// When requests start.
    pub pacing: Pacing,
    /// How many there are; `None` = until the run is ended.
    pub requests: Option<u64>,
    /// Which endpoint is asked.
    pub route: Route,
    /// Answers come as event streams.
    pub streamed: bool,
    /// Prompt lengths without the shared prefix, tokens.
    pub prompts: Lengths,
    /// Answer lengths, tokens.
    pub answers: Lengths,
    /// Tokens that the prompts of a group begin with; 0 = none.
    pub shared_prefix: u32,
    /// Groups of requests with one prefix each, at least 1; requests go round.
    pub prefix_groups: u32,
    /// QoS classes; empty = none is asked for.
    pub classes: Classes,
    /// 0 = greedy. Above it, each request has a seed of its own.
    pub temperature: f32,
    /// `top_p`, when asked for.
    pub top_p: Option<f32>,
    /// Answers do not end before their length.
    pub ignore_eos: bool,
    /// The model to ask for; `None` = the server's only one.
    pub model: Option<String>,
    /// Further fields of each body; they win over the others.
    pub extra: Map<String, Value>,
    /// The same seed makes the same requests.
    pub seed: u64,
}

/// When requests start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// Closed loop: so many clients, each sends its next request when its last one has ended.
    Clients(u32),
    /// Open loop: so many requests a second, whether or not earlier ones have ended.
    Rate {
        /// On average.
        per_second: f64,
        /// How they are spread.
        arrivals: Arrivals,
    },
}

/// How the requests of an open loop are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At random, as independent users come.
    Poisson,
    /// Evenly.
    Constant,
}

/// Which endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

impl Route {
    /// Its path.
    pub fn path(self) -> &'static str {
        match self {
            Route::Chat => "/v1/chat/completions",
            Route::Completions => "/v1/completions",
        }
    }
}

/// What was learned about how a server counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Tokens of one word of our text; `None` = not known.
    pub tokens_per_word: Option<f64>,
    /// Tokens that a chat of one message has beyond its text.
    pub chat_overhead: u32,
}

/// The requests of a recipe, one after the other.
#[derive(Clone, Debug)]
pub struct Generator {
    traffic: Traffic,
    writer: Writer,
    chat_overhead: u32,
    /// Number of the first request.
    first: u64,
    /// Requests made.
    made: u64,
    /// Of the last arrival.
    clock: f64,
    arrivals: Rng,
    /// Shared prefixes by group, made when first needed.
    prefixes: Vec<Option<Arc<str>>>,
}

impl Generator {
    /// The requests that count.
    pub fn new(traffic: Traffic, calibration: Calibration) -> Self {
        let mut writer = Writer::new(traffic.seed);
        if let Some(tokens_per_word) = calibration.tokens_per_word {
            writer = writer.calibrated(tokens_per_word);
        }
        let chat_overhead = if traffic.route == Route::Chat { calibration.chat_overhead } else { 0 };
        let prefixes =
            vec![None; if traffic.shared_prefix > 0 { traffic.prefix_groups.max(1) as usize } else { 0 }];
        let arrivals = Rng::new(traffic.seed, u64::MAX);
        Generator { traffic, writer, chat_overhead, first: 0, made: 0, clock: 0.0, arrivals, prefixes }
    }

    /// `requests` others of the same kind, with no text in common with those that count.
    pub fn warm_up(traffic: &Traffic, calibration: Calibration, requests: u64) -> Self {
        let traffic = Traffic { requests: Some(requests), ..traffic.clone() };
        Generator { first: WARM_UP, ..Generator::new(traffic, calibration) }
    }

    fn is_over(&self) -> bool {
        self.traffic.requests.is_some_and(|requests| self.made >= requests)
    }

    /// The next request. What it is depends on the seed and its number alone.
    fn make(&mut self) -> Shot {
        let number = self.first + self.made;
        self.made += 1;
        let mut rng = Rng::new(self.traffic.seed, !number);
        let prompt_tokens = self.traffic.prompts.draw(&mut rng);
        let answer_tokens = self.traffic.answers.draw(&mut rng);
        let class = self.traffic.classes.draw(&mut rng);
        let prefix = self.prefix(number);
        let text = self.writer.text(number, prompt_tokens.saturating_sub(self.chat_overhead).max(1));
        let body = self.body(prefix.as_deref(), &text, answer_tokens, rng.next());
        let id = (number - self.first) as usize;
        let path = self.traffic.route.path();
        let shot =
            if self.traffic.streamed { Shot::streamed(id, path, body) } else { Shot::plain(id, path, body) };
        let shot = Shot { tokens_hint: answer_tokens, ..shot };
        match class {
            Some(class) => shot.with_class(&class),
            None => shot,
        }
    }

    fn prefix(&mut self, number: u64) -> Option<Arc<str>> {
        let groups = self.prefixes.len() as u64;
        let group = number.checked_rem(groups)?;
        let (writer, tokens, first) = (&self.writer, self.traffic.shared_prefix, self.first);
        let known = &mut self.prefixes[group as usize];
        Some(known.get_or_insert_with(|| writer.text(PREFIXES + first + group, tokens).into()).clone())
    }

    fn body(&self, prefix: Option<&str>, text: &str, answer_tokens: u32, seed: u64) -> Vec<u8> {
        let Traffic { route, streamed, temperature, top_p, ignore_eos, model, extra, .. } = &self.traffic;
        let mut body = Map::new();
        if let Some(model) = model {
            body.insert("model".into(), model.as_str().into());
        }
        match route {
            Route::Completions => {
                let text = prefix.map_or_else(|| text.to_owned(), |prefix| format!("{prefix} {text}"));
                body.insert("prompt".into(), text.into());
            }
            Route::Chat => {
                let system = prefix.map(|prefix| json!({"role": "system", "content": prefix}));
                let user = json!({"role": "user", "content": text});
                body.insert("messages".into(), system.into_iter().chain([user]).collect());
            }
        }
        body.insert("max_tokens".into(), answer_tokens.into());
        body.insert("temperature".into(), rounded(*temperature).into());
        if *temperature > 0.0 {
            // 31 bits: every server takes them.
            body.insert("seed".into(), (seed >> 33).into());
        }
        if let Some(top_p) = top_p {
            body.insert("top_p".into(), rounded(*top_p).into());
        }
        if *ignore_eos {
            body.insert("ignore_eos".into(), true.into());
        }
        if *streamed {
            body.insert("stream".into(), true.into());
            body.insert("stream_options".into(), json!({"include_usage": true}));
        }
        body.extend(extra.clone());
        Value::Object(body).to_string().into_bytes()
    }
}

/// Without the digits that a cast from `f32` invents.
fn rounded(value: f32) -> f64 {
    (f64::from(value) * 1e6).round() / 1e6
}

impl Source for Generator {
    fn timed(&mut self) -> Option<Timed> {
        if self.is_over() {
            return None;
        }
        let at = match self.traffic.pacing {
            Pacing::Clients(clients) if self.made >= u64::from(clients) => return None,
            Pacing::Clients(_) => Duration::ZERO,
            Pacing::Rate { per_second, arrivals } => {
                let gap = match arrivals {
                    Arrivals::Poisson => self.arrivals.exponential(),
                    Arrivals::Constant if self.made == 0 => 0.0,
                    Arrivals::Constant => 1.0,
                };
                self.clock += gap / per_second;
                Duration::try_from_secs_f64(self.clock).unwrap_or(Duration::MAX)
            }
        };
        Some(Timed { at, shot: self.make() })
    }

    fn ended(&mut self, record: &Record, now: Duration, next: &mut Vec<Timed>) {
        if matches!(self.traffic.pacing, Pacing::Clients(_)) && !self.is_over() {
            let pause = match record.outcome {
                Outcome::Failed(Failure::Connect(_)) => CONNECT_PAUSE,
                _ => Duration::ZERO,
            };
            next.push(Timed { at: now + pause, shot: self.make() });
        }
    }
}

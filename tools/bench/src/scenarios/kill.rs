//! `kill -9` of the worker at random moments under streaming clients: nobody may lose, repeat or miss a token.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sf_load::Rng;

use super::toys::Toy;
use crate::client::{self, Answer, Ask, Drawing};
use crate::error::BenchError;
use crate::prompts;
use crate::serve::{Found, Row, Scenario, Setup, Stage, Target};
use crate::server::Server;
use crate::stats::{median, ms, percentile};

pub(crate) const SAMPLE: Scenario = Scenario {
    name: "kill",
    about: "kill -9 of the worker at random moments (the same ones in every run) under 8 streams on the C sample runtime, \
            half of them sampled: every stream must end with the text of the undisturbed run.",
    minutes: 2.0,
    run: run_sample,
};

pub(crate) const REAL: Scenario = Scenario {
    name: "kill-real",
    about: "The same at 20 moments with the model on llamacpp, greedy, 96-token replies. It is not batch-invariant, so \
            equality with the undisturbed run is reported and not asked for.",
    minutes: 1.75,
    run: run_real,
};

const CLIENTS: usize = 8;
/// Kills fall into this part of an undisturbed run.
const MOMENTS: f64 = 0.9;
/// A new worker lives after this time, or never.
const WORKER_MAX: Duration = Duration::from_secs(20);
/// Failures told in full.
const TOLD_MAX: usize = 5;

fn run_sample(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let toy = Toy::sample(stage, 1024);
    let mut setup = Setup::new(CLIENTS, 1024);
    setup.more = toy.args();
    // So that a run lasts some hundred milliseconds and a kill hits it.
    setup.more.push("--sample-delay-us=2000".to_owned());
    let server = stage.ours_on(&toy.model, &setup)?;
    let asks: Vec<Ask> = (0..CLIENTS)
        .map(|client| {
            let mut ask = Ask::completion(&prompts::story(client), 128, Drawing::Greedy);
            if client % 2 == 1 {
                ask.body["temperature"] = json!(0.8);
                ask.body["seed"] = json!(client);
            }
            ask
        })
        .collect();
    let kills = if stage.options.quick { 3 } else { stage.options.kills };
    let hunt = Hunt::run(stage, &server, &asks, Limit { kills, seconds: 118.0 })?;
    found.row(
        Row::alone(
            format!("of {kills} kills: all 8 texts undisturbed"),
            "",
            vec![hunt.kills_with_equal_texts()],
        )
        .target(Target::at_least(kills as f64))
        .why("every stream complete and equal to the undisturbed run, byte for byte"),
    );
    hunt.report(found);
    Ok(())
}

fn run_real(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let server = stage.ours(&Setup::new(CLIENTS, 2048))?;
    let tokens = stage.size(96, 32);
    let ask = |client| Ask::completion(&prompts::story(700_000 + client), tokens, Drawing::Greedy);
    let asks: Vec<Ask> = (0..CLIENTS).map(ask).collect();
    let kills = stage.size(20, 2);
    let hunt = Hunt::run(stage, &server, &asks, Limit { kills, seconds: 103.0 })?;
    found.row(
        Row::alone(format!("of {kills} kills: all 8 complete"), "", vec![hunt.kills_with_whole_streams()])
            .target(Target::at_least(kills as f64))
            .why("all tokens asked for, and what was delivered before the kill begins the final text"),
    );
    hunt.report(found);
    Ok(())
}

/// How long kills go on.
#[derive(Clone, Copy)]
struct Limit {
    kills: usize,
    seconds: f64,
}

/// What one kill did to one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Fate {
    /// It was still running.
    hit: bool,
    /// It has every token, and what was delivered before the kill begins its text.
    whole: bool,
    /// Its text is that of the undisturbed run.
    equal: bool,
    /// What was delivered before the kill begins the undisturbed text.
    equal_before: bool,
    /// Silence around the kill, ms.
    pause_ms: f64,
}

struct Hunt {
    /// By kill, then by stream.
    fates: Vec<Vec<Fate>>,
    told: Vec<String>,
    undisturbed_gap_ms: f64,
    restarts: f64,
    kills: usize,
}

impl Hunt {
    fn run(stage: &Stage, server: &Server, asks: &[Ask], limit: Limit) -> Result<Hunt, BenchError> {
        const RESTARTS: &[&str] = &["superfluid_worker_restarts_total"];
        client::all_complete(server, asks)?;
        let calm = client::all_complete(server, asks)?;
        let lasts = calm.iter().map(|answer| (answer.ended - answer.begun).as_secs_f64());
        let span = lasts.fold(0.0, f64::max) * MOMENTS;
        let gaps: Vec<f64> = calm.iter().flat_map(Answer::gaps_ms).collect();
        let mut hunt = Hunt {
            fates: Vec::new(),
            told: Vec::new(),
            undisturbed_gap_ms: percentile(&gaps, 100.0),
            restarts: server.metric(RESTARTS).unwrap_or(0.0),
            kills: limit.kills,
        };
        let mut random = Rng::new(2024, 0);
        let begun = Instant::now();
        for kill in 0..limit.kills {
            if begun.elapsed().as_secs_f64() > limit.seconds {
                hunt.told.push(format!("the time was up after {kill} kills"));
                break;
            }
            stage.bar.set_message(format!("kill {} of {}", kill + 1, limit.kills));
            let moment = Duration::from_secs_f64(random.unit() * span);
            let (killed, answers) = disturb(server, asks, moment)?;
            hunt.judge(kill, killed, &calm, &answers);
        }
        hunt.restarts = server.metric(RESTARTS).unwrap_or(0.0) - hunt.restarts;
        Ok(hunt)
    }

    fn judge(
        &mut self,
        kill: usize,
        killed: Instant,
        calm: &[Answer],
        answers: &[Result<Answer, BenchError>],
    ) {
        let (mut fates, mut misfortunes) = (Vec::new(), Vec::new());
        for (calm, answer) in calm.iter().zip(answers) {
            let fate = answer.as_ref().map(|answer| fate(killed, calm, answer)).unwrap_or_default();
            if !fate.whole {
                misfortunes.push(misfortune(answer));
            }
            fates.push(fate);
        }
        misfortunes.dedup();
        if self.told.len() < TOLD_MAX {
            self.told.extend(misfortunes.iter().map(|told| format!("kill {}: {told}", kill + 1)));
        }
        self.fates.push(fates);
    }

    fn kills_where(&self, holds: impl Fn(&Fate) -> bool) -> f64 {
        self.fates.iter().filter(|fates| fates.iter().all(&holds)).count() as f64
    }

    fn kills_with_equal_texts(&self) -> f64 {
        self.kills_where(|fate| fate.whole && fate.equal)
    }

    fn kills_with_whole_streams(&self) -> f64 {
        self.kills_where(|fate| fate.whole)
    }

    fn report(&self, found: &mut Found) {
        let streams: Vec<&Fate> = self.fates.iter().flatten().collect();
        let count = |holds: &dyn Fn(&Fate) -> bool| streams.iter().filter(|fate| holds(fate)).count();
        let hits: Vec<&Vec<Fate>> =
            self.fates.iter().filter(|fates| fates.iter().any(|fate| fate.hit)).collect();
        let pauses: Vec<f64> = hits
            .iter()
            .filter_map(|fates| {
                let survived = fates.iter().filter(|fate| fate.hit && fate.whole);
                survived.map(|fate| fate.pause_ms).reduce(f64::max)
            })
            .collect();
        found.row(
            Row::alone("longest pause of a kill, p50", "ms", vec![median(&pauses)]).why(format!(
                "silence around the kill; undisturbed at most {:.0} ms",
                self.undisturbed_gap_ms
            )),
        );
        found.row(Row::alone("longest pause of a kill, p99", "ms", vec![percentile(&pauses, 99.0)]));
        found.note(format!(
            "{} of {} kills, {} of them while a stream ran; worker restarts counted: {}",
            self.fates.len(),
            self.kills,
            hits.len(),
            self.restarts,
        ));
        found.note(format!(
            "{} streams: {} whole, {} equal to the undisturbed run, {} equal to it up to the kill",
            streams.len(),
            count(&|fate| fate.whole),
            count(&|fate| fate.equal),
            count(&|fate| fate.equal_before),
        ));
        self.told.iter().for_each(|told| found.note(told));
        found.raw("pauses, ms", pauses);
    }
}

/// Streams all asks and kills the worker a moment after they began.
fn disturb(
    server: &Server,
    asks: &[Ask],
    moment: Duration,
) -> Result<(Instant, Vec<Result<Answer, BenchError>>), BenchError> {
    std::thread::scope(|scope| {
        let streams = scope.spawn(|| client::each(server, asks));
        std::thread::sleep(moment);
        let killed = kill_worker(server);
        let answers = streams.join().expect("a client does not panic");
        Ok((killed?, answers))
    })
}

/// When the worker was killed.
pub(crate) fn kill_worker(server: &Server) -> Result<Instant, BenchError> {
    let begun = Instant::now();
    loop {
        let worker = server.workers().first().and_then(|pid| Pid::from_raw(i32::try_from(*pid).ok()?));
        // Gone in between is as good as not there: the next look finds its successor.
        if worker.is_some_and(|worker| kill_process(worker, Signal::KILL).is_ok()) {
            return Ok(Instant::now());
        }
        if begun.elapsed() > WORKER_MAX {
            return Err(server.failed(format!("has had no worker for {} s", WORKER_MAX.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn fate(killed: Instant, calm: &Answer, answer: &Answer) -> Fate {
    let delivered = &answer.text[..answer.bytes_at(killed)];
    let after = answer.times.partition_point(|time| *time <= killed);
    let last = after.checked_sub(1).map_or(answer.begun, |before| answer.times[before]);
    Fate {
        hit: answer.ended > killed,
        whole: answer.complete()
            && answer.completion_tokens == calm.completion_tokens
            && answer.text.starts_with(delivered),
        equal: answer.text == calm.text,
        equal_before: calm.text.starts_with(delivered),
        pause_ms: answer.times.get(after).map_or(0.0, |next| ms(*next - last)),
    }
}

fn misfortune(answer: &Result<Answer, BenchError>) -> String {
    match answer {
        Err(error) => error.to_string(),
        Ok(answer) => format!(
            "status {}, {} tokens, finish {:?}, error {:?}",
            answer.status, answer.completion_tokens, answer.finish, answer.error
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streamed(text: &str, begun: Instant, gaps_ms: &[u64]) -> Answer {
        let mut when = begun;
        let mut times = Vec::new();
        for gap in gaps_ms {
            when += Duration::from_millis(*gap);
            times.push(when);
        }
        Answer {
            status: 200,
            begun,
            ends: (1..=times.len()).collect(),
            times,
            ended: when,
            text: text.to_owned(),
            finish: Some("length".to_owned()),
            error: None,
            error_code: None,
            prompt_tokens: 1,
            completion_tokens: text.len(),
            cached_tokens: 0,
            cut: false,
        }
    }

    #[test]
    fn a_fate_tells_loss_repetition_and_pause() {
        let begun = Instant::now();
        let calm = streamed("abcd", begun, &[10, 10, 10, 10]);
        let killed = begun + Duration::from_millis(25);
        let check = |answer: &Answer, expect: Fate| assert_eq!(fate(killed, &calm, answer), expect);
        let good = Fate { hit: true, whole: true, equal: true, equal_before: true, pause_ms: 90.0 };
        check(&streamed("abcd", begun, &[10, 10, 90, 10]), good);
        check(&streamed("abxy", begun, &[10, 10, 90, 10]), Fate { equal: false, ..good });
        check(
            &streamed("axcd", begun, &[10, 10, 90, 10]),
            Fate { equal: false, equal_before: false, ..good },
        );
        let lost = Fate { whole: false, equal: false, ..good };
        check(&streamed("abc", begun, &[10, 10, 90]), lost);
        check(&streamed("abbcd", begun, &[10, 10, 90, 10, 10]), lost);
        let ended = Fate { hit: false, pause_ms: 0.0, ..good };
        check(&streamed("abcd", begun, &[5, 5, 5, 5]), ended);
    }
}

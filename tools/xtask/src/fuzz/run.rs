//! One run of one target: its progress, its numbers, what it found.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Place, Target};
use crate::error::TaskError;

/// Seconds of one input after which it counts as found.
const INPUT_SECONDS_MAX: u32 = 10;
/// Memory of the process after which its input counts as found, MiB.
const MEMORY_MAX: u32 = 3000;
/// Time between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(15);

/// The latest numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    runs: u64,
    edges: u64,
    features: u64,
    inputs: u64,
}

impl Numbers {
    /// Of a line such as `#524288 pulse  cov: 310 ft: 990 corp: 201/9120b lim: 48 exec/s: 87381 rss: 402Mb`.
    fn read(line: &str) -> Option<Numbers> {
        let mut words = line.strip_prefix('#')?.split_whitespace();
        let mut numbers = Numbers { runs: words.next()?.parse().ok()?, ..Numbers::default() };
        let words: Vec<&str> = words.collect();
        for pair in words.windows(2) {
            let number = pair[1].split('/').next().and_then(|text| text.parse().ok());
            match (pair[0], number) {
                ("cov:", Some(number)) => numbers.edges = number,
                ("ft:", Some(number)) => numbers.features = number,
                ("corp:", Some(number)) => numbers.inputs = number,
                _ => {}
            }
        }
        (numbers.features > 0).then_some(numbers)
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Numbers { runs, edges, features, inputs } = self;
        write!(f, "{runs} executions, {edges} edges, {features} features, {inputs} inputs")
    }
}

/// How a run ended.
pub(super) struct Report {
    name: &'static str,
    took: Duration,
    numbers: Numbers,
    /// Inputs that crashed it, took too long or too much memory.
    pub(super) findings: Vec<PathBuf>,
    /// Everything that it said.
    log: PathBuf,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { name, took, numbers, findings, log } = self;
        write!(f, "{name}: {} s, {numbers}, {} findings", took.as_secs(), findings.len())?;
        for finding in findings {
            write!(f, "\n  {}", finding.display())?;
        }
        if !findings.is_empty() {
            write!(f, "\n  what it said: {}", log.display())?;
        }
        Ok(())
    }
}

/// Fuzzes for so many seconds, or up to the first finding.
pub(super) fn run(target: &Target, place: &Place, seconds: u32) -> Result<Report, TaskError> {
    let before = findings(place)?;
    let mut command = Command::new(&place.program);
    command.arg(format!("-max_total_time={seconds}"));
    command
        .args([format!("-timeout={INPUT_SECONDS_MAX}"), format!("-report_slow_units={INPUT_SECONDS_MAX}")]);
    command.args([format!("-rss_limit_mb={MEMORY_MAX}"), format!("-max_len={}", target.bytes_max)]);
    command.arg(format!("-artifact_prefix={}/", place.findings.display()));
    if let Some(dictionary) = &place.dictionary {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    command.args([&place.learned, &place.committed, &place.seeds]);
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(TaskError::io(&place.program))?;
    let log = place.findings.with_file_name(format!("{}.log", target.name));
    let mut kept = std::fs::File::create(&log).map_err(TaskError::io(&log))?;
    let said = child.stderr.take().expect("it was piped");
    let (mut numbers, mut told) = (Numbers::default(), started);
    for line in BufReader::new(said).split(b'\n') {
        let line = line.map_err(TaskError::io(&place.program))?;
        kept.write_all(&line).and_then(|()| kept.write_all(b"\n")).map_err(TaskError::io(&log))?;
        numbers = Numbers::read(&String::from_utf8_lossy(&line)).unwrap_or(numbers);
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            eprintln!("{}: {} of {seconds} s, {numbers}", target.name, started.elapsed().as_secs());
        }
    }
    child.wait().map_err(TaskError::io(&place.program))?;
    let new = findings(place)?.into_iter().filter(|path| !before.contains(path));
    Ok(Report { name: target.name, took: started.elapsed(), numbers, findings: new.collect(), log })
}

fn findings(place: &Place) -> Result<Vec<PathBuf>, TaskError> {
    let entries = std::fs::read_dir(&place.findings).map_err(TaskError::io(&place.findings))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_what_the_fuzzer_says() {
        let check = |line: &str, expect: Option<[u64; 4]>| {
            let expect =
                expect.map(|[runs, edges, features, inputs]| Numbers { runs, edges, features, inputs });
            assert_eq!(Numbers::read(line), expect, "{line}");
        };
        check(
            "#524288\tpulse  cov: 310 ft: 990 corp: 201/9120b lim: 48 exec/s: 87381 rss: 402Mb",
            Some([524_288, 310, 990, 201]),
        );
        check("#7\tINITED cov: 12 ft: 13 corp: 2/2b exec/s: 0 rss: 30Mb", Some([7, 12, 13, 2]));
        check("#2\tREAD   units: 3", None);
        check("INFO: Seed: 1", None);
        check("# not a number", None);
    }
}

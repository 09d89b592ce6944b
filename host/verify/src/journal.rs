//! How a check tells what it found, and the lines by which a group's process tells its parent.

use std::io::Write;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::report::{CheckReport, Verdict};

/// Longest words of a check, bytes.
const WORDS_MAX: usize = 600;

/// Why a check did not pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    /// A rule of the ABI is broken.
    #[error("{0}")]
    Rule(String),
    /// It cannot be checked on this runtime.
    #[error("{0}")]
    NotHere(String),
}

/// What a check found: words on what was measured, or what is broken.
pub(crate) type Found = Result<String, Broken>;

/// A rule that is broken, in words.
macro_rules! broken {
    ($($words:tt)*) => { $crate::journal::Broken::Rule(format!($($words)*)) };
}

/// Returns from the check with [`Broken::Rule`] unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($words:tt)*) => {
        let holds: bool = $condition;
        if !holds {
            return Err($crate::journal::broken!($($words)*));
        }
    };
}

/// Returns from the check because this runtime gives nothing to check.
macro_rules! not_here {
    ($($words:tt)*) => { return Err($crate::journal::Broken::NotHere(format!($($words)*))) };
}

pub(crate) use {broken, ensure, not_here};

/// One line from a group's process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// This check begins.
    Started(String),
    /// This check ended.
    Check(CheckReport),
    /// The group ran to its end.
    End {
        /// Checks it ran.
        checks: u32,
    },
}

/// Writes a group's lines.
pub(crate) struct Journal<'a> {
    sink: &'a mut dyn Write,
    checks: u32,
    failed: u32,
    lost: bool,
}

impl<'a> Journal<'a> {
    pub(crate) fn new(sink: &'a mut dyn Write) -> Journal<'a> {
        Journal { sink, checks: 0, failed: 0, lost: false }
    }

    /// Runs one check and writes what it found. True when it passed.
    pub(crate) fn check(&mut self, name: &str, body: impl FnOnce() -> Found) -> bool {
        self.write(&Line::Started(name.to_owned()));
        let began = Instant::now();
        let found = body();
        let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (verdict, words) = match found {
            Ok(words) => (Verdict::Pass, words),
            Err(Broken::NotHere(words)) => (Verdict::Skipped, words),
            Err(Broken::Rule(words)) => (Verdict::Fail, words),
        };
        self.checks += 1;
        self.failed += u32::from(verdict == Verdict::Fail);
        let words = one_line(&words);
        self.write(&Line::Check(CheckReport { name: name.to_owned(), verdict, words, milliseconds }));
        verdict == Verdict::Pass
    }

    /// Writes the last line. `None` when a line could not be written, else how many checks failed.
    pub(crate) fn end(mut self) -> Option<u32> {
        let checks = self.checks;
        self.write(&Line::End { checks });
        (!self.lost).then_some(self.failed)
    }

    fn write(&mut self, line: &Line) {
        let written = serde_json::to_writer(&mut *self.sink, line)
            .map_err(std::io::Error::from)
            .and_then(|()| self.sink.write_all(b"\n"))
            .and_then(|()| self.sink.flush());
        self.lost |= written.is_err();
    }
}

/// The words without line ends and control characters, cut to a bound.
pub(crate) fn one_line(words: &str) -> String {
    let mut line: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() > WORDS_MAX {
        let cut = (0..=WORDS_MAX).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        line.truncate(cut);
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_announced_before_it_runs() {
        let mut sink = Vec::new();
        let mut journal = Journal::new(&mut sink);
        assert!(journal.check("good", || Ok("fine".into())));
        assert!(!journal.check("bad", || Err(broken!("off by {}", 1))));
        assert!(!journal.check("absent", || not_here!("no such thing")));
        assert_eq!(journal.end(), Some(1));
        let text = String::from_utf8(sink).unwrap();
        let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(matches!(&lines[0], Line::Started(name) if name == "good"));
        assert!(matches!(&lines[1], Line::Check(check) if check.verdict == Verdict::Pass));
        assert!(matches!(&lines[3], Line::Check(check) if check.words == "off by 1"));
        assert!(matches!(&lines[5], Line::Check(check) if check.verdict == Verdict::Skipped));
        assert!(matches!(&lines[6], Line::End { checks: 3 }));
    }

    #[test]
    fn words_are_one_bounded_line() {
        assert_eq!(one_line("a\nb\tc"), "a b c");
        let long = "é".repeat(WORDS_MAX);
        assert!(one_line(&long).len() <= WORDS_MAX + 3);
    }
}

//! What a worker writes to its standard error: into the log line by line, and the last of it kept for its obituary.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sf_core::limits;

/// Longest line; the rest of a longer one becomes a line of its own.
const LINE_BYTES_MAX: usize = 4096;
/// Lines in an obituary.
const LAST_LINES_MAX: usize = 20;
/// How long an obituary waits for the pipe to run dry once the process is gone. A child of the worker that escaped its
/// process group may hold the pipe open for longer; then what there is must do.
const DRAIN_MAX: Duration = Duration::from_millis(500);

/// The last lines, and whether there can be more.
#[derive(Default)]
pub(crate) struct Words {
    kept: Mutex<Kept>,
    closed: Condvar,
}

#[derive(Default)]
struct Kept {
    lines: VecDeque<String>,
    bytes: usize,
    closed: bool,
}

impl Words {
    /// Reads to the end; `each` sees every line. Runs on its own thread.
    pub(crate) fn read(&self, mut from: impl Read, each: impl Fn(&str)) {
        let mut pending = Vec::new();
        let mut block = [0; 4096];
        loop {
            match from.read(&mut block) {
                Ok(0) => break,
                Ok(read) => {
                    pending.extend_from_slice(&block[..read]);
                    self.take_lines(&mut pending, &each);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if !pending.is_empty() {
            self.line(&pending, &each);
        }
        self.lock().closed = true;
        self.closed.notify_all();
    }

    fn take_lines(&self, pending: &mut Vec<u8>, each: &impl Fn(&str)) {
        let mut from = 0;
        loop {
            let rest = &pending[from..];
            let window = &rest[..rest.len().min(LINE_BYTES_MAX)];
            if let Some(end) = window.iter().position(|byte| *byte == b'\n') {
                self.line(&rest[..end], each);
                from += end + 1;
            } else if window.len() == LINE_BYTES_MAX {
                self.line(window, each);
                from += LINE_BYTES_MAX;
            } else {
                break;
            }
        }
        pending.drain(..from);
    }

    fn line(&self, bytes: &[u8], each: &impl Fn(&str)) {
        let line = String::from_utf8_lossy(bytes);
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        each(line);
        let mut kept = self.lock();
        kept.bytes += line.len();
        kept.lines.push_back(line.to_owned());
        while kept.bytes > limits::WORKER_STDERR_BYTES_MAX {
            let dropped = kept.lines.pop_front().map_or(0, |line| line.len());
            kept.bytes -= dropped;
        }
    }

    /// The last lines of a process that is gone, without their level marks.
    pub(crate) fn last(&self) -> String {
        let (kept, _) = self
            .closed
            .wait_timeout_while(self.lock(), DRAIN_MAX, |kept| !kept.closed)
            .unwrap_or_else(PoisonError::into_inner);
        let skip = kept.lines.len().saturating_sub(LAST_LINES_MAX);
        let lines: Vec<&str> = kept.lines.iter().skip(skip).map(|line| Level::split(line).1).collect();
        lines.join("\n")
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Severity of a line: the worker marks what its runtime logs with syslog's `<3>` to `<8>`; other lines carry no mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Level {
    const MARKS: [(&'static str, Level); 5] = [
        ("<3>", Level::Error),
        ("<4>", Level::Warn),
        ("<6>", Level::Info),
        ("<7>", Level::Debug),
        ("<8>", Level::Trace),
    ];

    /// The mark that stands before a line.
    pub(crate) fn mark(self) -> &'static str {
        Level::MARKS.iter().find(|(_, level)| *level == self).map_or("", |(mark, _)| mark)
    }

    /// A line's level, if it has a mark, and its text.
    pub(crate) fn split(line: &str) -> (Option<Level>, &str) {
        for (mark, level) in Level::MARKS {
            if let Some(text) = line.strip_prefix(mark) {
                return (Some(level), text);
            }
        }
        (None, line)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn lines(text: &[u8]) -> (Vec<String>, String) {
        let (words, seen) = (Words::default(), RefCell::new(Vec::new()));
        words.read(text, |line| seen.borrow_mut().push(line.to_owned()));
        let last = words.last();
        (seen.into_inner(), last)
    }

    #[test]
    fn lines_are_told_apart_and_the_last_ones_kept() {
        let check = |text: &[u8], expect: &[&str], last: &str| {
            assert_eq!(
                lines(text),
                (expect.iter().map(|line| (*line).to_owned()).collect(), last.to_owned())
            );
        };
        check(b"", &[], "");
        check(b"one\ntwo\r\n\nthree", &["one", "two", "three"], "one\ntwo\nthree");
        check(b"<3>core: lost\n", &["<3>core: lost"], "core: lost");
        check(b"a\xFFb\n", &["a\u{FFFD}b"], "a\u{FFFD}b");
    }

    #[test]
    fn a_flood_is_bounded_in_line_length_lines_and_bytes() {
        let (seen, last) = lines(&b"x".repeat(LINE_BYTES_MAX * 2 + 1));
        assert_eq!(seen.iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES_MAX, LINE_BYTES_MAX, 1]);
        assert_eq!(last.len(), LINE_BYTES_MAX * 2 + 3);

        let words = Words::default();
        let flood = "y".repeat(999) + "\n";
        words.read(flood.repeat(1000).as_bytes(), |_| {});
        assert!(words.lock().bytes <= limits::WORKER_STDERR_BYTES_MAX);
        assert_eq!(words.last().lines().count(), LAST_LINES_MAX);
    }

    #[test]
    fn marks_and_levels_match() {
        for (mark, level) in Level::MARKS {
            assert_eq!(level.mark(), mark);
            assert_eq!(Level::split(&format!("{mark}text")), (Some(level), "text"));
        }
        assert_eq!(Level::split("<b>text"), (None, "<b>text"));
    }
}

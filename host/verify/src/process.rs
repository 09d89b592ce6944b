//! One group in one process: started with a bare environment, given a time limit, and read whatever becomes of it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::journal::{Line, one_line};
use crate::report::CheckReport;

/// Longest line from a group, bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Most lines from a group.
const LINES_MAX: usize = 20_000;
/// Lines of a group's stderr that are kept.
const STDERR_LINES: usize = 4;
/// Time to end after the last line.
const GRACE: Duration = Duration::from_secs(5);
/// How often a process without output is looked at.
const GLANCE: Duration = Duration::from_millis(10);

/// What came of a group's process.
pub(crate) struct Ran {
    pub(crate) checks: Vec<CheckReport>,
    /// The check that was running when the lines ended.
    pub(crate) running: Option<String>,
    /// How it ended, when that was not as it should.
    pub(crate) trouble: Option<String>,
    pub(crate) took: Duration,
}

/// Starts `exe` and collects what it says until it ends or `limit` is over; nothing of it survives the call.
pub(crate) fn run(exe: &Path, args: &[OsString], env: &[(String, String)], limit: Duration) -> Ran {
    let began = Instant::now();
    let mut ran = Ran { checks: Vec::new(), running: None, trouble: None, took: Duration::ZERO };
    let mut command = Command::new(exe);
    command.args(args).env_clear().envs(kept_environment()).envs(env.iter().map(|(key, value)| (key, value)));
    command
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            ran.trouble = Some(format!("cannot start {}: {error}", exe.display()));
            return ran;
        }
    };
    let lines = read_lines(&mut child);
    let tail = read_tail(&mut child);
    let deadline = began + limit;
    let complete = collect(&lines, deadline, &mut ran);
    let patience = if complete { Instant::now() + GRACE } else { deadline };
    let ended = ends_by(&child, patience);
    // Before the child is reaped, so that the group's id is still its own: what it started itself goes with it.
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let status = child.wait().ok().filter(|_| ended);
    ran.trouble = trouble(status, complete, limit).map(|words| {
        let last = tail.recv_timeout(GRACE).unwrap_or_default();
        if last.is_empty() { words } else { format!("{words}; its last words: {}", one_line(&last)) }
    });
    ran.took = began.elapsed();
    ran
}

/// The few variables a group sees; HOME is not among them.
fn kept_environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(key, _)| {
        let kept = ["PATH", "TMPDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LLVM_PROFILE_FILE"];
        kept.iter().any(|name| key == name)
    })
}

fn read_lines(child: &mut Child) -> Receiver<Line> {
    let (send, receive) = sync_channel(64);
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || forward(stdout, &send));
    }
    receive
}

fn forward(stdout: impl Read, send: &SyncSender<Line>) {
    let mut reader = BufReader::new(stdout);
    for _ in 0..LINES_MAX {
        let mut text = String::new();
        match reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut text) {
            Ok(1..) => {}
            _ => return,
        }
        let Ok(line) = serde_json::from_str(&text) else { return };
        if send.send(line).is_err() {
            return;
        }
    }
}

fn read_tail(child: &mut Child) -> Receiver<String> {
    let (send, receive) = sync_channel(1);
    if let Some(stderr) = child.stderr.take() {
        std::thread::spawn(move || {
            let mut last: VecDeque<String> = VecDeque::new();
            let mut reader = BufReader::new(stderr);
            let mut line = Vec::new();
            while let Ok(1..) = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                if !text.is_empty() {
                    last.push_back(text);
                }
                if last.len() > STDERR_LINES {
                    last.pop_front();
                }
            }
            // Nobody listens when the group ended well.
            let _ = send.send(Vec::from(last).join(" | "));
        });
    }
    receive
}

/// True when the group said that it came to its end.
fn collect(lines: &Receiver<Line>, deadline: Instant, ran: &mut Ran) -> bool {
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Line::Started(name)) => ran.running = Some(name),
            Ok(Line::Check(check)) => {
                ran.running = None;
                ran.checks.push(check);
            }
            Ok(Line::End { checks }) => return checks as usize == ran.checks.len(),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Waits without reaping.
fn ends_by(child: &Child, deadline: Instant) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    loop {
        match waitid(WaitId::Pid(Pid::from_child(child)), options) {
            Ok(Some(_)) => return true,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(GLANCE),
            Ok(None) | Err(_) => return false,
        }
    }
}

fn trouble(status: Option<ExitStatus>, complete: bool, limit: Duration) -> Option<String> {
    let Some(status) = status else {
        let seconds = limit.as_secs_f32();
        return Some(if complete {
            "did not end after its last check".to_owned()
        } else {
            format!("no end within {seconds:.0} s")
        });
    };
    if let Some(signal) = status.signal() {
        return Some(format!("killed by {}", signal_name(signal)));
    }
    match status.code() {
        Some(0 | 1) if complete => None,
        Some(code) => Some(format!("its process ended itself with exit code {code}")),
        None => Some("its process ended in an unknown way".to_owned()),
    }
}

fn signal_name(signal: i32) -> String {
    let named = [
        (Signal::SEGV, "SIGSEGV"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::ILL, "SIGILL"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::TERM, "SIGTERM"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::SYS, "SIGSYS"),
    ];
    let name = named.iter().find(|(known, _)| known.as_raw() == signal);
    name.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Ran {
        run(Path::new("/bin/sh"), &["-c".into(), script.into()], &[("SEEN".into(), "yes".into())], limit)
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_group_that_ends_well_is_no_trouble() {
        let ran = shell(r#"echo '{"end":{"checks":0}}'"#, LONG);
        assert_eq!((ran.trouble, ran.running, ran.checks.len()), (None, None, 0));
    }

    #[test]
    fn a_death_names_its_cause_and_the_check_that_ran() {
        let check = |script: &str, running: Option<&str>, words: &str| {
            let ran = shell(script, LONG);
            let trouble = ran.trouble.expect("trouble");
            assert!(trouble.contains(words), "{trouble}");
            assert_eq!(ran.running.as_deref(), running);
        };
        check(r#"echo '{"started":"a"}'; kill -SEGV $$"#, Some("a"), "SIGSEGV");
        check(
            r#"echo '{"started":"b"}'; echo lost >&2; exit 3"#,
            Some("b"),
            "exit code 3; its last words: lost",
        );
        check("exit 0", None, "exit code 0");
        check(r#"echo garbage; exit 0"#, None, "exit code 0");
        check(r#"echo '{"end":{"checks":4}}'"#, None, "exit code 0");
    }

    #[test]
    fn a_group_that_hangs_is_ended_with_its_children() {
        let ran = shell(r#"echo '{"started":"c"}'; sleep 1000 & wait"#, Duration::from_millis(300));
        assert_eq!(ran.running.as_deref(), Some("c"));
        assert!(ran.trouble.expect("trouble").contains("no end within"));
    }

    #[test]
    fn a_group_sees_neither_home_nor_the_working_directory() {
        let ran = shell(
            r#"test -z "$HOME" && test "$PWD" = / && test "$SEEN" = yes && echo '{"end":{"checks":0}}'"#,
            LONG,
        );
        assert_eq!(ran.trouble, None);
    }
}

//! One worker process from spawn to grave: its environment, its death and what it died of.
//!
//! The process leads a group of its own: a Ctrl-C at the terminal stays ours to handle, and children that a runtime starts
//! die with it. A reaper thread waits for it, so that it is never a zombie for longer than that takes.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::error::EngineError;

/// Variables of ours that a worker may see; nothing else, so that no credential reaches a runtime.
const ENV_KEPT: [&str; 2] = ["LANG", "TZ"];
/// The reaper and the log reader need little.
const STACK_BYTES: usize = 256 << 10;

/// A child process that is killed and reaped when dropped.
pub(crate) struct Child {
    pid: u32,
    grave: Arc<Grave>,
    reaper: Option<JoinHandle<()>>,
}

struct Grave {
    process: Mutex<Process>,
    changed: Condvar,
    gone: AtomicBool,
}

struct Process {
    child: std::process::Child,
    exit: Option<Exit>,
    killed_by_us: bool,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// `killed by SIGSEGV`, `exit code 3`, ...
    pub(crate) how: String,
    /// Its exit code, unless a signal ended it.
    pub(crate) code: Option<i32>,
}

/// The command of a worker: scrubbed environment plus `env`, working directory `/`, its own process group.
pub(crate) fn command(exe: &Path, args: &[&OsStr], env: &[(String, String)]) -> Command {
    let mut command = Command::new(exe);
    command.args(args).env_clear().current_dir("/").process_group(0).stdin(Stdio::null());
    for name in ENV_KEPT {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.envs(env.iter().map(|(name, value)| (name, value)));
    command
}

impl Child {
    /// Starts the process. `on_exit` runs once it is gone and reaped.
    pub(crate) fn spawn(
        command: &mut Command,
        on_exit: impl FnOnce() + Send + 'static,
    ) -> Result<Child, EngineError> {
        let oom_kills = oom_kills();
        let child = command.spawn().map_err(|error| {
            let exe = command.get_program().to_string_lossy();
            EngineError::System { what: "start the worker", reason: format!("{exe}: {error}") }
        })?;
        let pid = child.id();
        let process = Mutex::new(Process { child, exit: None, killed_by_us: false });
        let grave = Arc::new(Grave { process, changed: Condvar::new(), gone: AtomicBool::new(false) });
        let mut child = Child { pid, grave: grave.clone(), reaper: None };
        let reap = move || {
            grave.reap(pid, oom_kills);
            on_exit();
        };
        // A child without a reaper is killed by its drop, which then reaps it itself.
        child.reaper = Some(spawn_thread("sf-reaper", reap)?);
        Ok(child)
    }

    pub(crate) fn id(&self) -> u32 {
        self.pid
    }

    /// Standard streams that were piped.
    pub(crate) fn take_pipes(&self) -> (Option<OwnedFd>, Option<OwnedFd>) {
        let mut process = self.grave.lock();
        (process.child.stdout.take().map(OwnedFd::from), process.child.stderr.take().map(OwnedFd::from))
    }

    /// Whether it is known to be gone; cheap enough to ask before every step.
    pub(crate) fn is_gone(&self) -> bool {
        self.grave.gone.load(Ordering::Acquire)
    }

    /// How it ended, waiting for that at most `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> Option<Exit> {
        let (process, _) = self
            .grave
            .changed
            .wait_timeout_while(self.grave.lock(), limit, |process| process.exit.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        process.exit.clone()
    }

    /// Kills the process and its group. Has no effect on one that is gone.
    pub(crate) fn kill(&self) {
        let mut process = self.grave.lock();
        if process.exit.is_none() {
            process.killed_by_us = true;
            // Still unreaped, because that happens under this lock: the number cannot belong to another.
            kill_group(self.pid);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        match self.reaper.take() {
            // SIGKILL cannot be refused: the wait is short.
            Some(reaper) => drop(reaper.join()),
            None => self.grave.reap(self.pid, None),
        }
    }
}

impl Grave {
    fn lock(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reap(&self, pid: u32, oom_kills_before: Option<u64>) {
        // Waits without reaping, so that the number stays ours until the lock is held.
        let wait = || {
            rustix::process::waitid(WaitId::Pid(to_pid(pid)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        };
        while matches!(wait(), Err(rustix::io::Errno::INTR)) {}
        let mut process = self.lock();
        kill_group(pid);
        let status = process.child.wait().ok();
        let oom = oom_kills_before.zip(oom_kills()).is_some_and(|(before, after)| after > before);
        process.exit = Some(Exit::new(status, process.killed_by_us, oom));
        self.gone.store(true, Ordering::Release);
        self.changed.notify_all();
    }
}

impl Exit {
    fn new(status: Option<ExitStatus>, killed_by_us: bool, oom: bool) -> Self {
        let Some(status) = status else {
            return Exit { how: "its exit status was taken by someone else".to_owned(), code: None };
        };
        let code = status.code();
        let how = match (status.signal(), code) {
            (Some(signal), _) => {
                let core = if status.core_dumped() { " (core dumped)" } else { "" };
                let oom = if signal == Signal::KILL.as_raw() && !killed_by_us && oom {
                    "; the system's out-of-memory killer was at work meanwhile"
                } else {
                    ""
                };
                format!("killed by {}{core}{oom}", signal_name(signal))
            }
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => format!("wait status {:#x}", status.into_raw()),
        };
        Exit { how, code }
    }
}

/// A named thread with a small stack.
pub(crate) fn spawn_thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, EngineError> {
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(run)
        .map_err(|error| EngineError::system("start a thread", error))
}

fn to_pid(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a child's id is positive")
}

/// A process that has not led its group yet, or no longer has one, makes these fail; the other one then suffices.
fn kill_group(pid: u32) {
    let _ = rustix::process::kill_process_group(to_pid(pid), Signal::KILL);
    let _ = rustix::process::kill_process(to_pid(pid), Signal::KILL);
}

/// The system's count of out-of-memory kills; `None` where it is not told.
fn oom_kills() -> Option<u64> {
    let counters = std::fs::read_to_string("/proc/vmstat").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

fn signal_name(signal: i32) -> String {
    const NAMES: [(Signal, &str); 14] = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::SYS, "SIGSYS"),
    ];
    match NAMES.iter().find(|(known, _)| known.as_raw() == signal) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = command(Path::new("/bin/sh"), &[OsStr::new("-c"), OsStr::new(script)], &[]);
        Child::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()), || {}).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_exit_is_told_in_words() {
        let check = |script: &str, how: &str| {
            let exit = shell(script).wait(LONG).unwrap();
            assert_eq!(exit.how.trim_end_matches(" (core dumped)"), how);
        };
        check("exit 0", "exit code 0");
        check("exit 3", "exit code 3");
        check("kill -SEGV $$", "killed by SIGSEGV");
        check("kill -ABRT $$", "killed by SIGABRT");
        check("kill -USR1 $$", "killed by signal 10");
    }

    #[test]
    fn only_a_kill_that_is_not_ours_can_be_the_systems() {
        let check = |by_us, oom, expect: bool| {
            let exit = Exit::new(Some(ExitStatus::from_raw(9)), by_us, oom);
            assert_eq!(exit.how.contains("out-of-memory"), expect, "{exit:?}");
        };
        check(false, true, true);
        check(true, true, false);
        check(false, false, false);
    }

    #[test]
    fn a_child_sees_nothing_of_our_environment_and_works_in_the_root() {
        let child = shell("echo \"[$HOME$CARGO_MANIFEST_DIR]\"; pwd");
        let mut text = String::new();
        std::fs::File::from(child.take_pipes().0.unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "[]\n/\n");
    }

    #[test]
    fn a_dropped_child_and_its_children_are_gone() {
        let child = shell("sleep 1000 & echo $!; wait");
        let mut pipe = std::fs::File::from(child.take_pipes().0.unwrap());
        let mut byte = [0; 32];
        let read = pipe.read(&mut byte).unwrap();
        assert!(read > 1);
        drop(child);
        // The grandchild held the pipe; its end is seen only once it is gone too.
        assert_eq!(pipe.read(&mut byte).unwrap(), 0);
    }
}

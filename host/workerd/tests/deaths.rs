//! However a worker ends, the server learns how, in words, and goes on.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Bench, exe, first_plan, option, step};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use sf_core::{OptionValue, StepOut};
use sf_engine::{EngineError, WorkerExe, WorkerLimits, open_worker};

/// Long enough to count as "it hangs" for a limit that a test waits out.
const SHORT: Duration = Duration::from_millis(300);

fn died(error: &EngineError) -> &str {
    match error {
        EngineError::Died { how, .. } => how.trim_end_matches(" (core dumped)"),
        other => panic!("{other}"),
    }
}

#[test]
fn a_death_before_the_model_is_open_is_told() {
    let bench = Bench::new();
    let check = |mode: &str, how: &str| {
        let error = bench.open_bad(mode, WorkerLimits::default()).err().unwrap();
        assert_eq!(died(&error), how, "{mode}");
        assert!(error.is_fatal());
    };
    check("exit_before_hello", "exit code 3");
    check("crash_init", "killed by SIGSEGV");
    check("crash_open", "killed by SIGSEGV");
    check("exit_open", "exit code 3");
}

#[test]
fn a_death_in_a_step_is_told_and_ends_the_link() {
    let bench = Bench::new();
    let check = |mode: &str, how: &str| {
        let mut link = bench.open_bad(mode, WorkerLimits::default()).unwrap();
        let error = step(link.as_mut(), &first_plan()).unwrap_err();
        assert_eq!(died(&error), how, "{mode}");
        assert_eq!(link.begin(&first_plan()).unwrap_err(), error);
        assert_eq!(link.next(&mut StepOut::default()).unwrap_err(), error);
        assert_eq!(link.stats().unwrap_err(), error);
    };
    check("crash_step", "killed by SIGSEGV");
    check("abort_step", "killed by SIGABRT");
    check("exit_step", "exit code 3");
}

#[test]
fn a_hang_is_cut_at_its_limit_and_named() {
    let bench = Bench::new();
    let long = WorkerLimits::default();
    let check = |mode: &str, limits: WorkerLimits, expect: &str| {
        let error = match bench.open_bad(mode, limits) {
            Err(error) => error,
            Ok(mut link) => step(link.as_mut(), &first_plan()).unwrap_err(),
        };
        let EngineError::Hung { call, limit_ms: 300 } = error else { panic!("{error}") };
        assert_eq!(call, expect, "{mode}");
    };
    check("hang_init", WorkerLimits { hello: SHORT, ..long }, "load");
    check("hang_open", WorkerLimits { open: SHORT, ..long }, "open");
    check("hang_step", WorkerLimits { step: SHORT, ..long }, "step");
}

#[test]
fn an_error_of_a_step_ends_the_link_only_when_it_costs_the_model() {
    let bench = Bench::new();
    let check = |mode: &str, expect: Option<&str>| {
        let mut link = bench.open_bad(mode, WorkerLimits::default()).unwrap();
        let answer = step(link.as_mut(), &first_plan());
        match expect {
            None => assert!(answer.unwrap().lanes[0].result.is_err(), "{mode}"),
            Some(words) => {
                let error = answer.unwrap_err();
                assert!(error.is_fatal() && error.to_string().contains(words), "{mode}: {error}");
                assert_eq!(step(link.as_mut(), &first_plan()).unwrap_err(), error);
            }
        }
    };
    check("error_step", None);
    check("fatal_step", Some("wants a new process"));
    check("wrong_seq", Some("broke its contract in step_end"));
}

#[test]
fn a_worker_killed_while_idle_is_noticed_by_the_next_step() {
    let bench = Bench::new();
    let mut link = open_worker(&exe(), &bench.spec(bench.sample())).unwrap();
    step(link.as_mut(), &first_plan()).unwrap();
    let pid = Pid::from_raw(link.pid().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    let mut plan = first_plan();
    plan.clear();
    plan.seq = 2;
    let error = step(link.as_mut(), &plan).unwrap_err();
    assert!(died(&error).starts_with("killed by SIGKILL"), "{error}");
}

#[test]
fn the_last_words_are_in_the_obituary() {
    let bench = Bench::new();
    let script = bench.path().join("talker");
    let text = "#!/bin/sh\necho '<3>core: the sky is falling' >&2\necho farewell >&2\nexit 9\n";
    std::fs::write(&script, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    let error = open_worker(&WorkerExe(script), &bench.spec("/x.so".into())).err().unwrap();
    let EngineError::Died { how, last_words } = error else { panic!("{error}") };
    assert_eq!((how.as_str(), last_words.as_str()), ("exit code 9", "core: the sky is falling\nfarewell"));
}

#[test]
fn a_worker_that_cannot_be_started_is_an_error_of_ours() {
    let bench = Bench::new();
    let exe = WorkerExe(bench.path().join("nobody"));
    let error = open_worker(&exe, &bench.spec("/x.so".into())).err().unwrap().to_string();
    assert!(error.contains("nobody") && error.contains("engine.system"), "{error}");
}

const ORPHANAGE: &str = "SF_TEST_ORPHAN_MODEL";

/// Not a test by itself: the server that `a_worker_follows_its_server` kills.
#[test]
#[ignore = "runs as a child of another test"]
fn a_server_with_a_busy_worker() {
    let bench = Bench::new();
    let mut spec = bench.spec(std::env::var_os(ORPHANAGE).unwrap().into());
    spec.options.push(option("x.sample.delay-us", OptionValue::Int(1_000_000)));
    let mut link = open_worker(&exe(), &spec).unwrap();
    link.begin(&first_plan()).unwrap();
    println!("worker {}.", link.pid().unwrap());
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_worker_follows_its_server() {
    let bench = Bench::new();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "a_server_with_a_busy_worker"])
        .env(ORPHANAGE, bench.sample())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut text, mut byte) = (String::new(), [0]);
    let pid = loop {
        assert_eq!(server.stdout.as_mut().unwrap().read(&mut byte).unwrap(), 1, "{text}");
        text.push(byte[0].into());
        if let Some((_, pid)) = text.strip_suffix('.').and_then(|text| text.rsplit_once("worker ")) {
            break pid.parse().unwrap();
        }
    };
    let worker = rustix::process::pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ended = rustix::event::poll(&mut [PollFd::new(&worker, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ended, 1, "the worker outlives its server");
}

//! A probe answers, or fails in words; it never takes the asker with it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Bench, exe};
use sf_core::ports::Prober;
use sf_engine::WorkerProber;

#[test]
fn a_good_runtimes_answer_arrives_unchanged() {
    let bench = Bench::new();
    let answer = WorkerProber::new(exe()).probe(&bench.noop(), &[], 0).unwrap();
    assert_eq!(answer, r#"{"available":true,"devices":[{"id":"cpu:0","backend":"cpu"}]}"#);
    let answer = WorkerProber::new(exe()).probe(&bench.bad("probe_unavailable"), &[], 1).unwrap();
    assert!(answer.contains("it is a bad day"), "{answer}");
}

#[test]
fn a_failure_is_told_in_words() {
    let bench = Bench::new();
    let check = |library: &Path, budget, expect: &str| {
        let prober = WorkerProber::new(exe()).with_budget(budget);
        let failure = prober.probe(library, &[], 0).unwrap_err();
        assert!(failure.reason.contains(expect), "{}", failure.reason);
    };
    let long = Duration::from_secs(60);
    check(&bench.bad("crash_probe"), long, "killed by SIGSEGV");
    check(&bench.bad("exit_before_hello"), long, "exit code 3");
    check(&bench.bad("hang_probe"), Duration::from_millis(300), "no answer within 300 ms");
    check(&bench.bad("probe_not_json"), long, "not a probe answer");
    check(&bench.bad("no_engine"), long, "sf.engine/1");
    check(&bench.path().join("absent.so"), long, "No such file");
    check(&bench.model(), long, "invalid ELF header");
}

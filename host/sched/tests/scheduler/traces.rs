//! What the scheduler makes of the recorded traces, so that a change of policy shows in review.

use expect_test::expect_file;

use crate::support::trace::Trace;

/// Replays a trace, twice, and gives its summary.
fn summary(text: &str) -> String {
    let trace = Trace::parse(text).unwrap();
    let summary = trace.run(trace.settings()).to_string();
    assert_eq!(summary, trace.run(trace.settings()).to_string(), "the same trace, the same result");
    summary
}

#[test]
fn traces_are_served_as_recorded() {
    expect_file!["../../traces/agents_chat.txt"]
        .assert_eq(&summary(include_str!("../../traces/agents_chat.jsonl")));
    expect_file!["../../traces/shared_prefix.txt"]
        .assert_eq(&summary(include_str!("../../traces/shared_prefix.jsonl")));
    expect_file!["../../traces/background_load.txt"]
        .assert_eq(&summary(include_str!("../../traces/background_load.jsonl")));
    expect_file!["../../traces/open_loop.txt"]
        .assert_eq(&summary(include_str!("../../traces/open_loop.jsonl")));
}

#[test]
fn a_broken_trace_is_refused_by_line() {
    let header = r#"{"title":"t","batch":1,"window":512,"step_us":1,"decode_us":1,"prompt_us":1}"#;
    let check = |rest: &str, expect: &str| {
        let why = Trace::parse(&format!("{header}\n{rest}")).map(|_| ()).unwrap_err();
        assert!(why.starts_with("line 2: ") && why.contains(expect), "{why}");
    };
    check(r#"{"at_ms":0,"class":"agent","prompt":600,"reply":1}"#, "window of 512");
    check(r#"{"at_ms":0,"class":"vip","prompt":6,"reply":1}"#, "vip is no class");
    check(r#"{"at_ms":0,"class":"agent","prompt":6,"reply":1,"x":1}"#, "unknown field");
    assert_eq!(Trace::parse("").map(|_| ()).unwrap_err(), "the trace is empty");
}

//! How the result of a bench reads, for people and for programs.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use expect_test::{expect, expect_file};
use sf_load::{Asked, Failure, LoadReport, Outcome, Record, Report, Run, Usage, Window};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn report() -> Report {
    let of = |class: &str, due, ttft| Record {
        class: class.into(),
        usage: Usage { prompt: Some(70), completion: Some(11), cached: Some(35) },
        finish_reason: Some("length".into()),
        due: ms(due),
        status: 200,
        ttft: Some(ms(ttft)),
        gaps_us: vec![10_000; 10],
        total: ms(ttft + 100),
        ..Record::default()
    };
    let late = Record {
        due: ms(300),
        outcome: Outcome::Failed(Failure::Timeout),
        total: ms(1),
        ..Record::default()
    };
    let records = vec![of("agent", 0, 100), of("interactive", 200, 1250), late];
    let run = Run { wall: ms(2000), client_cpu: Duration::from_micros(44), records, interrupted: false };
    let load = LoadReport {
        clients: Some(2),
        requests: Some(3),
        warm_up: "2".into(),
        route: "completions",
        stream: true,
        prompt_tokens: "64".into(),
        answer_tokens: "11".into(),
        prefix_groups: 1,
        classes: "agent:1,interactive:1".into(),
        seed: 7,
        tokens_per_word: 1.1,
        ..LoadReport::default()
    };
    let asked = Asked { url: "http://127.0.0.1:1".into(), model: Some("smol".into()), load };
    let window = Window::of(&run);
    Report::new(asked, &run, window, Some(ms(10)))
}

#[test]
fn a_report_reads_as_a_table() {
    expect![[r#"
        http://127.0.0.1:1  smol
        2 clients, completions, streamed, prompts of 64, answers of 11 tokens, greedy, seed 7

        requests   2 ok, 1 failed in 1.6 s
                   1 x timeout
        tokens/s   14.2 answer, 90.3 prompt (50 % cached)
        requests/s 1.29
        cpu        server 0.01 s (454.6 µs/token), load generator 0.00 s (2.0 µs/token)

        ms             p50       p90       p95       p99       max      mean
        TTFT           100      1250      1250      1250      1250       675
        ITL           10.0      10.0      10.0      10.0      10.0      10.0
        TPOT          10.0      10.0      10.0      10.0      10.0      10.0
        E2E            200      1350      1350      1350      1350       775

        class                 ok    failed  tokens/s  TTFT p50       p95       p99   ITL p50       p95   E2E p50       p95
        (none)                 0         1       0.0         -         -         -         -         -         -         -
        agent                  1         0       7.1       100       100       100      10.0      10.0       200       200
        interactive            1         0       7.1      1250      1250      1250      10.0      10.0      1350      1350
    "#]].assert_eq(&report().to_string());
}

#[test]
fn a_report_is_a_stable_document() {
    expect_file!["./report.json"].assert_eq(&report().json());
}

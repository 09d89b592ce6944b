//! Figures of records: rates in a window, percentiles, counts, classes.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::slice::from_ref;
use std::time::Duration;

use sf_load::{Failure, Outcome, Percentiles, Record, Usage, Window, by_class, summarize};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// First text after `ttft`, then `gaps` of 10 ms each; ends with the last one.
fn streamed(due: u64, ttft: u64, gaps: usize) -> Record {
    Record {
        due: ms(due),
        status: 200,
        ttft: Some(ms(ttft)),
        gaps_us: vec![10_000; gaps],
        total: ms(ttft + 10 * gaps as u64),
        ..Record::default()
    }
}

fn failed(due: u64, failure: Failure) -> Record {
    Record { due: ms(due), outcome: Outcome::Failed(failure), total: ms(1), ..Record::default() }
}

#[test]
fn percentiles_are_nearest_ranks() {
    let check = |values: &[u32], expect: Option<[f64; 5]>| {
        let found = Percentiles::of_us(values.to_vec());
        assert_eq!(found.map(|p| [p.p50, p.p90, p.p99, p.max, p.mean]), expect, "{values:?}");
    };
    check(&[], None);
    check(&[2000], Some([2.0; 5]));
    check(&[1000, 3000], Some([1.0, 3.0, 3.0, 3.0, 2.0]));
    let hundred: Vec<u32> = (1..=100).rev().map(|value| value * 1000).collect();
    check(&hundred, Some([50.0, 90.0, 99.0, 100.0, 50.5]));
}

#[test]
fn rates_count_what_came_in_the_window() {
    let window = |from, to| Window { from: ms(from), to: ms(to) };
    let check = |records: &[Record], window: Window, tokens: f64, per_s: f64, ended: f64| {
        let found = summarize(records, window).tokens;
        let found = (found.completion, found.completion_per_s, found.requests_per_s);
        assert_eq!(found, (tokens, per_s, ended), "{records:?}");
    };
    // Tokens at 100, 110, ... 200 ms.
    let one = streamed(0, 100, 10);
    check(from_ref(&one), window(0, 200), 11.0, 55.0, 5.0);
    check(&[one.clone(), one.clone()], window(0, 1000), 22.0, 22.0, 2.0);
    check(from_ref(&one), window(150, 250), 6.0, 60.0, 10.0);
    check(from_ref(&one), window(0, 150), 6.0, 40.0, 0.0);
    check(from_ref(&one), window(500, 600), 0.0, 0.0, 0.0);
    // The server counted twice as many tokens as events.
    let bundled = Record { usage: Usage { completion: Some(22), ..Usage::default() }, ..one.clone() };
    check(from_ref(&bundled), window(0, 1000), 22.0, 22.0, 1.0);
    check(&[bundled], window(150, 1150), 12.0, 12.0, 1.0);
    let whole = Record {
        ttft: None,
        gaps_us: vec![],
        usage: Usage { completion: Some(100), ..Usage::default() },
        ..one.clone()
    };
    check(from_ref(&whole), window(0, 1000), 100.0, 100.0, 1.0);
    check(&[whole], window(100, 1100), 50.0, 50.0, 1.0);
    check(&[failed(0, Failure::Timeout)], window(0, 1000), 0.0, 0.0, 0.0);
    let cut = Record { outcome: Outcome::Cut, ..one };
    check(&[cut], window(0, 1000), 11.0, 11.0, 0.0);
    check(&[], window(0, 0), 0.0, 0.0, 0.0);
}

#[test]
fn outcomes_are_counted_by_kind_and_latencies_of_those_that_went_well() {
    let status = |code: &str| Failure::Status { status: 429, code: code.into(), message: String::new() };
    let records = [
        Record { finish_reason: Some("length".into()), ..streamed(0, 100, 4) },
        Record { outcome: Outcome::Cut, ..streamed(0, 300, 1) },
        failed(0, status("queue_full")),
        failed(0, status("queue_full")),
        failed(0, status("")),
        failed(0, Failure::Closed),
        streamed(5000, 900, 1),
    ];
    let summary = summarize(&records, Window { from: ms(0), to: ms(1000) });
    let failures = [("429".to_owned(), 1), ("429 queue_full".to_owned(), 2), ("closed".to_owned(), 1)];
    assert_eq!(summary.requests.failures, BTreeMap::from(failures));
    assert_eq!(summary.requests.finish_reasons, BTreeMap::from([("length".to_owned(), 1)]));
    assert_eq!((summary.requests.ok, summary.requests.failed, summary.requests.cut), (1, 4, 1));
    let (ttft, itl) = (summary.ttft_ms.unwrap(), summary.itl_ms.unwrap());
    assert_eq!((ttft.count, ttft.max, itl.count, itl.p50), (2, 300.0, 5, 10.0));
    let (e2e, tpot) = (summary.e2e_ms.unwrap(), summary.tpot_ms.unwrap());
    assert_eq!((e2e.count, e2e.p50, tpot.count, tpot.p50), (1, 140.0, 1, 10.0));
}

#[test]
fn cached_tokens_are_a_share_of_prompts_that_say_so() {
    let with = |prompt, cached| Record {
        usage: Usage { prompt: Some(prompt), completion: Some(11), cached },
        ..streamed(0, 100, 10)
    };
    let check = |records: &[Record], prompt: u64, share: Option<f64>| {
        let tokens = summarize(records, Window { from: ms(0), to: ms(1000) }).tokens;
        assert_eq!((tokens.prompt, tokens.cached_share), (prompt, share));
    };
    check(&[with(100, None)], 100, None);
    check(&[with(100, Some(0)), with(100, Some(50))], 200, Some(0.25));
    check(&[with(100, None), with(100, Some(50))], 200, Some(0.5));
}

#[test]
fn classes_have_rows_when_there_are_several() {
    let of = |class: &str| Record { class: class.into(), ..streamed(0, 100, 10) };
    let window = Window { from: ms(0), to: ms(1000) };
    assert!(by_class(&[of("agent"), of("agent")], window).is_empty());
    let classes = by_class(&[of("agent"), of("agent"), of("")], window);
    let counts: Vec<_> = classes.iter().map(|(name, summary)| (name.as_str(), summary.requests.ok)).collect();
    assert_eq!(counts, [("", 1), ("agent", 2)]);
}

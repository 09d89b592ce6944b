//! Probes are asked once, remembered, and their failures shown.

mod common;

use common::{Fake, Fixture, descriptor, states};
use expect_test::expect;
use sf_catalog::{Catalog, Search, Source};

const YES: &str = r#"{"available":true,"devices":[{"id":"cpu:0","name":"a CPU"}]}"#;

fn fixture() -> (Fixture, Search) {
    let fixture = Fixture::new();
    fixture.runtime("acme", &descriptor("acme", "1", r#""env":{"ACME":"1"}"#));
    let mut search = fixture.search(&[(Source::User, "acme")]);
    search.cache_dir = Some(fixture.path("cache"));
    (fixture, search)
}

/// Discovers, probes, and says what came out.
fn probe(fixture: &Fixture, search: &Search, fake: &Fake, again: bool) -> String {
    let mut catalog = Catalog::discover(search);
    let cache_dir = search.cache_dir.as_deref();
    if again {
        catalog.probe_again(fake, cache_dir);
    } else {
        catalog.probe_all(fake, cache_dir);
    }
    states(fixture, &catalog)
}

#[test]
fn an_answer_is_asked_for_once() {
    let (fixture, search) = fixture();
    let fake = Fake::answers(YES);
    for _ in 0..2 {
        assert_eq!(probe(&fixture, &search, &fake, false), "acme 1 [user] usable");
    }
    let env = vec![("ACME".to_owned(), "1".to_owned())];
    assert_eq!(*fake.asked.borrow(), [("libfake.so".to_owned(), env, 0)]);
}

#[test]
fn another_kernel_cpu_or_device_mask_is_asked_again() {
    let (fixture, search) = fixture();
    let fake = Fake::answers(YES);
    probe(&fixture, &search, &fake, false);
    let changes: [fn(&mut Search); 3] = [
        |search| search.machine.kernel = "2.0".into(),
        |search| _ = search.machine.cpu.insert("fma".into()),
        |search| search.machine.visibility = vec![("CUDA_VISIBLE_DEVICES".into(), "1".into())],
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut search = search.clone();
        change(&mut search);
        probe(&fixture, &search, &fake, false);
        assert_eq!(fake.count(), index + 2);
    }
}

#[test]
fn a_crash_is_remembered_and_shown_until_asked_again() {
    let (fixture, search) = fixture();
    let crash = Fake::fails("killed by SIGSEGV");
    let shown = probe(&fixture, &search, &crash, false);
    expect!["acme 1 [user] its probe failed: killed by SIGSEGV (runtime.probe_failed)"].assert_eq(&shown);
    let good = Fake::answers(YES);
    assert_eq!(probe(&fixture, &search, &good, false), shown);
    assert_eq!(good.count(), 0);
    assert_eq!(probe(&fixture, &search, &good, true), "acme 1 [user] usable");
    assert_eq!(good.asked.borrow()[0].2, 1, "asked at the depth that lists devices");
    assert_eq!(probe(&fixture, &search, &crash, false), "acme 1 [user] usable");
    assert_eq!(crash.count(), 1, "the deeper answer is remembered");
}

#[test]
fn answers_that_say_no_or_nothing_are_reasons() {
    let check = |answer: &str| {
        let (fixture, search) = fixture();
        probe(&fixture, &search, &Fake::answers(answer), false)
    };
    let text = [
        check(r#"{"available":false,"reason":"no driver"}"#),
        check(r#"{"available":false}"#),
        check("not json"),
        check("{}"),
    ]
    .join("\n");
    expect![[r#"
        acme 1 [user] it says that it cannot run here: no driver (runtime.unavailable)
        acme 1 [user] it says that it cannot run here: it gives no reason (runtime.unavailable)
        acme 1 [user] its probe answered no valid JSON: expected ident at line 1 column 2 (runtime.bad_probe)
        acme 1 [user] its probe answered no valid JSON: missing field `available` at line 1 column 2 (runtime.bad_probe)"#]].assert_eq(&text);
}

#[test]
fn an_unsound_runtime_is_never_probed() {
    let (fixture, search) = fixture();
    common::mode(&fixture.path("acme"), 0o777);
    let fake = Fake::answers(YES);
    probe(&fixture, &search, &fake, true);
    assert_eq!(fake.count(), 0);
}

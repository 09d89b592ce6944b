//! What is counted and timed, and under which labels.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use futures_util::FutureExt;
use http::Request;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use serde_json::json;

use crate::fake::{Fake, hi, post_of, respond, routes, send};

/// Writes down every count and every time, without the value.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

struct Note(Notes, String);

impl CounterFn for Note {
    fn increment(&self, _: u64) {
        self.0.0.lock().unwrap().push(self.1.clone());
    }

    fn absolute(&self, _: u64) {}
}

impl HistogramFn for Note {
    fn record(&self, _: f64) {
        self.0.0.lock().unwrap().push(self.1.clone());
    }
}

impl Notes {
    fn note(&self, key: &Key) -> Arc<Note> {
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Note(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }
}

impl Recorder for Notes {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.note(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.note(key))
    }
}

fn noted(work: impl Future<Output = ()>) -> Vec<String> {
    let notes = Notes::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&notes, || runtime.block_on(work));
    notes.0.lock().unwrap().clone()
}

fn chat() -> Request<Body> {
    let body = json!({"messages": [{"role": "user", "content": "x"}]});
    post_of("/v1/chat/completions", body.to_string())
}

#[test]
fn an_answer_is_counted_and_timed() {
    let notes = noted(async {
        send(&routes(&Fake::playing(hi())), chat()).await;
    });
    let labels = "route=/v1/chat/completions,model=org/toy";
    assert_eq!(
        notes,
        [
            format!("superfluid_ttft_seconds{{{labels}}}"),
            format!("superfluid_itl_seconds{{{labels}}}"),
            format!("superfluid_e2e_seconds{{{labels},outcome=done}}"),
            "superfluid_requests_total{route=/v1/chat/completions,code=200}".to_owned(),
        ]
    );
}

#[test]
fn a_client_that_leaves_is_counted() {
    let notes = noted(async {
        let (fake, _events) = Fake::live();
        assert!(respond(&routes(&fake), chat()).now_or_never().is_none());
    });
    assert!(notes.contains(&"superfluid_requests_total{route=/v1/chat/completions,code=499}".to_owned()));
    assert!(notes.iter().any(|note| note.ends_with("outcome=cancelled}")), "{notes:?}");
}

#[test]
fn a_path_from_outside_never_becomes_a_label() {
    let notes = noted(async {
        for path in ["/secret/path", "/v1/models/some/model"] {
            send(&routes(&Fake::playing(hi())), Request::get(path).body(Body::empty()).unwrap()).await;
        }
    });
    assert_eq!(
        notes,
        [
            "superfluid_requests_total{route=unknown,code=404}",
            "superfluid_requests_total{route=/v1/models/{*id},code=404}"
        ]
    );
}

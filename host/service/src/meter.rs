//! The numbers of one model for `/metrics`, with their handles looked up once.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

/// Metric handles of one model.
pub(crate) struct Meter {
    pub(crate) running: Gauge,
    pub(crate) waiting: Gauge,
    pub(crate) steps: Counter,
    pub(crate) prompt_tokens: Counter,
    pub(crate) generation_tokens: Counter,
    pub(crate) worker_restarts: Counter,
    pub(crate) requests_failed: Counter,
    pub(crate) requests_cancelled: Counter,
    pub(crate) requests_finished: Counter,
    ttft: Histogram,
    inter_token: Histogram,
    step: Histogram,
}

impl Meter {
    pub(crate) fn new(model: &str, runtime: &str) -> Self {
        describe();
        let labels = [("model", model.to_owned()), ("runtime", runtime.to_owned())];
        let outcome = |outcome: &'static str| {
            let [model, runtime] = labels.clone();
            metrics::counter!(
                "superfluid_generations_total",
                &[model, runtime, ("outcome", outcome.to_owned())]
            )
        };
        Meter {
            running: metrics::gauge!("superfluid_requests_running", &labels),
            waiting: metrics::gauge!("superfluid_requests_waiting", &labels),
            steps: metrics::counter!("superfluid_steps_total", &labels),
            prompt_tokens: metrics::counter!("superfluid_prompt_tokens_total", &labels),
            generation_tokens: metrics::counter!("superfluid_generation_tokens_total", &labels),
            worker_restarts: metrics::counter!("superfluid_worker_restarts_total", &labels),
            requests_failed: outcome("failed"),
            requests_cancelled: outcome("cancelled"),
            requests_finished: outcome("finished"),
            ttft: metrics::histogram!("superfluid_engine_first_token_seconds", &labels),
            inter_token: metrics::histogram!("superfluid_engine_inter_token_seconds", &labels),
            step: metrics::histogram!("superfluid_step_seconds", &labels),
        }
    }

    pub(crate) fn first_token(&self, after: Duration) {
        self.ttft.record(after.as_secs_f64());
    }

    pub(crate) fn next_token(&self, after: Duration) {
        self.inter_token.record(after.as_secs_f64());
    }

    pub(crate) fn step(&self, took: Duration) {
        self.steps.increment(1);
        self.step.record(took.as_secs_f64());
    }
}

fn describe() {
    metrics::describe_gauge!("superfluid_requests_running", "Requests that hold a lane.");
    metrics::describe_gauge!("superfluid_requests_waiting", "Requests that wait for a lane.");
    metrics::describe_counter!("superfluid_steps_total", "Engine steps.");
    metrics::describe_counter!("superfluid_prompt_tokens_total", "Prompt tokens taken.");
    metrics::describe_counter!("superfluid_generation_tokens_total", "Tokens generated.");
    metrics::describe_counter!("superfluid_worker_restarts_total", "Engines opened again after one died.");
    metrics::describe_counter!("superfluid_generations_total", "Answers by outcome.");
    metrics::describe_histogram!(
        "superfluid_engine_first_token_seconds",
        "From the queue to the first token, HTTP and text left out."
    );
    metrics::describe_histogram!(
        "superfluid_engine_inter_token_seconds",
        "Between two tokens of one answer, HTTP and text left out."
    );
    metrics::describe_histogram!("superfluid_step_seconds", "One engine step, transport included.");
}

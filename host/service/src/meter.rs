//! The numbers of one model for `/metrics`, with their handles looked up once.
//!
//! What the scheduler counts is copied from it, at most once per tick; nothing here is done per token.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};
use sf_core::limits::METER_SPACING;
use sf_core::{Direction, Moment, QosClass, StepOut};
use sf_engine::EngineError;
use sf_sched::{Levels, Scheduler, Totals};

/// What an engine can die of, as the label `kind` says it.
const DEATHS: [&str; 6] = ["died", "hung", "contract", "refused", "load", "system"];

/// Metric handles of one model.
pub(crate) struct Meter {
    pub(crate) prompt_tokens: Counter,
    pub(crate) worker_restarts: Counter,
    pub(crate) retirements: Counter,
    pub(crate) requests_failed: Counter,
    pub(crate) requests_cancelled: Counter,
    pub(crate) requests_finished: Counter,
    pub(crate) holds: Counter,
    pub(crate) os_pressure: Counter,
    generation_tokens: Counter,
    deaths: [Counter; DEATHS.len()],
    steps: Counter,
    step: Histogram,
    ttft: Histogram,
    inter_token: Histogram,
    queue: [Histogram; 4],
    mask_time: Histogram,
    mask_wait: Histogram,
    moved_bytes: [Counter; 2],
    moved_time: [Histogram; 2],
    totals: TotalHandles,
    levels: LevelHandles,
    /// When and with what the handles above were last updated.
    updated: std::cell::Cell<(Moment, Totals, Levels)>,
}

/// One per field of [`Totals`].
struct TotalHandles {
    ticks: Counter,
    prefill_tokens: Counter,
    prefix_tokens: Counter,
    prefix_hits: Counter,
    prefix_misses: Counter,
    evictions: Counter,
    preemptions: Counter,
    resumes: Counter,
    starvation_grants: Counter,
    stashes: Counter,
    restores: Counter,
    deadlines: Counter,
}

/// One per field of [`Levels`].
struct LevelHandles {
    lanes_active: Gauge,
    running: Gauge,
    waiting: [Gauge; 4],
    residents: Gauge,
    kv_cells: Gauge,
    kv_used: Gauge,
    kv_idle: Gauge,
    kv_pinned: Gauge,
    stash_bytes: Gauge,
    prefill_chunk: Gauge,
}

/// Looks handles up under the labels of one model.
struct Labels<'a> {
    model: &'a str,
    runtime: &'a str,
}

impl Labels<'_> {
    fn own(&self) -> Vec<metrics::Label> {
        vec![
            metrics::Label::new("model", self.model.to_owned()),
            metrics::Label::new("runtime", self.runtime.to_owned()),
        ]
    }

    fn with(&self, key: &'static str, value: &'static str) -> Vec<metrics::Label> {
        let mut labels = self.own();
        labels.push(metrics::Label::new(key, value));
        labels
    }

    fn counter(&self, name: &'static str) -> Counter {
        metrics::counter!(name, self.own())
    }

    fn gauge(&self, name: &'static str) -> Gauge {
        metrics::gauge!(name, self.own())
    }

    fn histogram(&self, name: &'static str) -> Histogram {
        metrics::histogram!(name, self.own())
    }
}

impl Meter {
    pub(crate) fn new(model: &str, runtime: &str) -> Self {
        describe();
        let labels = Labels { model, runtime };
        let outcome = |is| metrics::counter!("superfluid_generations_total", labels.with("outcome", is));
        let directions = ["stashed", "restored"];
        Meter {
            prompt_tokens: labels.counter("superfluid_prompt_tokens_total"),
            worker_restarts: labels.counter("superfluid_worker_restarts_total"),
            retirements: labels.counter("superfluid_model_retirements_total"),
            requests_failed: outcome("failed"),
            requests_cancelled: outcome("cancelled"),
            requests_finished: outcome("finished"),
            holds: labels.counter("superfluid_client_holds_total"),
            os_pressure: labels.counter("superfluid_os_pressure_total"),
            generation_tokens: labels.counter("superfluid_generation_tokens_total"),
            deaths: DEATHS
                .map(|kind| metrics::counter!("superfluid_worker_deaths_total", labels.with("kind", kind))),
            steps: labels.counter("superfluid_steps_total"),
            step: labels.histogram("superfluid_step_seconds"),
            ttft: labels.histogram("superfluid_engine_first_token_seconds"),
            inter_token: labels.histogram("superfluid_engine_inter_token_seconds"),
            queue: QosClass::ALL.map(|class| {
                metrics::histogram!("superfluid_queue_seconds", labels.with("class", class.name()))
            }),
            mask_time: labels.histogram("superfluid_mask_seconds"),
            mask_wait: labels.histogram("superfluid_mask_wait_seconds"),
            moved_bytes: directions.map(|way| {
                metrics::counter!("superfluid_stash_moved_bytes_total", labels.with("direction", way))
            }),
            moved_time: directions.map(|way| {
                metrics::histogram!("superfluid_stash_move_seconds", labels.with("direction", way))
            }),
            totals: TotalHandles::new(&labels),
            levels: LevelHandles::new(&labels),
            updated: std::cell::Cell::default(),
        }
    }

    /// A stream got its first tokens.
    pub(crate) fn first_token(&self, after: Duration) {
        self.ttft.record(after.as_secs_f64());
    }

    /// A stream got more tokens.
    pub(crate) fn next_tokens(&self, after: Duration) {
        self.inter_token.record(after.as_secs_f64());
    }

    /// Tokens drawn for streams since the start.
    pub(crate) fn generated(&self, tokens: u64) {
        self.generation_tokens.absolute(tokens);
    }

    /// A request of a class got a lane.
    pub(crate) fn queued(&self, class: QosClass, waited: Duration) {
        self.queue[class.index()].record(waited.as_secs_f64());
    }

    /// An engine is lost.
    pub(crate) fn engine_died(&self, error: &EngineError) {
        let kind = match error {
            EngineError::Died { .. } => 0,
            EngineError::Hung { .. } => 1,
            EngineError::Contract { .. } => 2,
            EngineError::Refused { .. } => 3,
            EngineError::Load { .. } => 4,
            EngineError::System { .. } => 5,
        };
        self.deaths[kind].increment(1);
    }

    /// A step is over.
    pub(crate) fn step(&self, out: &StepOut, took: Duration) {
        self.steps.increment(1);
        self.step.record(took.as_secs_f64());
        if out.mask_ns > 0 {
            self.mask_time.record(Duration::from_nanos(out.mask_ns).as_secs_f64());
            self.mask_wait.record(Duration::from_nanos(out.mask_wait_ns).as_secs_f64());
        }
        for one in &out.moves {
            let way = match one.direction {
                Direction::Stashed => 0,
                Direction::Restored => 1,
            };
            self.moved_bytes[way].increment(one.bytes);
            self.moved_time[way].record(Duration::from_nanos(one.took_ns).as_secs_f64());
        }
    }

    /// Copies the scheduler's numbers: always for an idle engine, now and then for a busy one.
    pub(crate) fn update(&self, now: Moment, scheduler: &Scheduler, busy: bool) {
        let (at, totals_before, levels_before) = self.updated.get();
        if busy && now - at < METER_SPACING {
            return;
        }
        let (totals, levels) = (scheduler.totals(), scheduler.levels());
        if totals != totals_before {
            self.totals.set(&totals);
        }
        if levels != levels_before {
            self.levels.set(&levels);
        }
        self.updated.set((now, totals, levels));
    }
}

impl TotalHandles {
    fn new(labels: &Labels<'_>) -> Self {
        TotalHandles {
            ticks: labels.counter("superfluid_ticks_total"),
            prefill_tokens: labels.counter("superfluid_prefill_tokens_total"),
            prefix_tokens: labels.counter("superfluid_prefix_tokens_total"),
            prefix_hits: labels.counter("superfluid_prefix_hits_total"),
            prefix_misses: labels.counter("superfluid_prefix_misses_total"),
            evictions: labels.counter("superfluid_prefix_evictions_total"),
            preemptions: labels.counter("superfluid_preemptions_total"),
            resumes: labels.counter("superfluid_resumes_total"),
            starvation_grants: labels.counter("superfluid_starvation_grants_total"),
            stashes: labels.counter("superfluid_stashes_total"),
            restores: labels.counter("superfluid_restores_total"),
            deadlines: labels.counter("superfluid_deadlines_total"),
        }
    }

    fn set(&self, totals: &Totals) {
        self.ticks.absolute(totals.ticks);
        self.prefill_tokens.absolute(totals.prefill_tokens);
        self.prefix_tokens.absolute(totals.prefix_tokens);
        self.prefix_hits.absolute(totals.prefix_hits);
        self.prefix_misses.absolute(totals.prefix_misses);
        self.evictions.absolute(totals.evictions);
        self.preemptions.absolute(totals.preemptions);
        self.resumes.absolute(totals.resumes);
        self.starvation_grants.absolute(totals.starvation_grants);
        self.stashes.absolute(totals.stashes);
        self.restores.absolute(totals.restores);
        self.deadlines.absolute(totals.deadlines);
    }
}

impl LevelHandles {
    fn new(labels: &Labels<'_>) -> Self {
        LevelHandles {
            lanes_active: labels.gauge("superfluid_lanes_active"),
            running: labels.gauge("superfluid_requests_running"),
            waiting: QosClass::ALL.map(|class| {
                metrics::gauge!("superfluid_requests_waiting", labels.with("class", class.name()))
            }),
            residents: labels.gauge("superfluid_prefixes_resident"),
            kv_cells: labels.gauge("superfluid_kv_cells"),
            kv_used: labels.gauge("superfluid_kv_cells_used"),
            kv_idle: labels.gauge("superfluid_kv_cells_idle"),
            kv_pinned: labels.gauge("superfluid_kv_cells_pinned"),
            stash_bytes: labels.gauge("superfluid_stash_bytes"),
            prefill_chunk: labels.gauge("superfluid_prefill_chunk_tokens"),
        }
    }

    fn set(&self, levels: &Levels) {
        self.lanes_active.set(levels.running);
        self.running.set(levels.running);
        for (gauge, waiting) in self.waiting.iter().zip(levels.waiting) {
            gauge.set(waiting);
        }
        self.residents.set(levels.residents);
        self.kv_cells.set(levels.kv_cells as f64);
        self.kv_used.set(levels.kv_cells_used as f64);
        self.kv_idle.set(levels.kv_cells_idle as f64);
        self.kv_pinned.set(levels.kv_cells_pinned as f64);
        self.stash_bytes.set(levels.stash_bytes as f64);
        self.prefill_chunk.set(levels.prefill_chunk);
    }
}

fn describe() {
    describe_requests();
    describe_engine();
    describe_kv();
}

fn describe_requests() {
    use metrics::{describe_counter as counter, describe_gauge as gauge, describe_histogram as histogram};
    gauge!("superfluid_requests_running", "Requests that hold a lane.");
    gauge!("superfluid_requests_waiting", "Requests that wait for a lane, by class.");
    counter!("superfluid_generations_total", "Answers by outcome.");
    histogram!("superfluid_queue_seconds", "From the submission to a lane, by class.");
    counter!(
        "superfluid_starvation_grants_total",
        "Requests that went first because they had waited too long."
    );
    counter!("superfluid_deadlines_total", "Requests that ended by their own deadline, started or not.");
    counter!(
        "superfluid_client_holds_total",
        "Times that a lane was held because its client read too slowly."
    );
    counter!("superfluid_tool_call_failures_total", "What looked like a tool call in an answer and is none.");
    counter!("superfluid_prompt_tokens_total", "Prompt tokens taken.");
    counter!("superfluid_generation_tokens_total", "Tokens generated.");
    histogram!(
        "superfluid_engine_first_token_seconds",
        "From the submission to the first token, HTTP and text left out."
    );
    histogram!(
        "superfluid_engine_inter_token_seconds",
        "Between two deliveries to one stream, HTTP and text left out; each brings one token or, when the engine is \
         much faster than HTTP, a few."
    );
}

fn describe_engine() {
    use metrics::{describe_counter as counter, describe_gauge as gauge, describe_histogram as histogram};
    gauge!("superfluid_lanes_active", "Lanes that work for a request.");
    counter!("superfluid_ticks_total", "Plans handed to the engine.");
    counter!("superfluid_steps_total", "Engine steps.");
    histogram!("superfluid_step_seconds", "One engine step, transport included.");
    histogram!("superfluid_mask_seconds", "Computing which tokens grammars allow in one step, beside it.");
    histogram!("superfluid_mask_wait_seconds", "The part of it that was not over when the step was.");
    counter!("superfluid_prefill_tokens_total", "Prompt tokens computed, those computed again included.");
    gauge!("superfluid_prefill_chunk_tokens", "Prompt tokens that the next step may feed.");
    counter!("superfluid_preemptions_total", "Lanes taken away from a request, which was queued again.");
    counter!("superfluid_worker_restarts_total", "Attempts to open an engine again after one died.");
    counter!("superfluid_worker_deaths_total", "Engines lost, by what they died of.");
    counter!("superfluid_resumes_total", "Requests that went on in a new engine after theirs had died.");
    counter!("superfluid_model_retirements_total", "Times that a model was given up.");
    counter!("superfluid_os_pressure_total", "Times that KV was shed because the system ran out of memory.");
}

fn describe_kv() {
    use metrics::{describe_counter as counter, describe_gauge as gauge, describe_histogram as histogram};
    counter!("superfluid_prefix_hits_total", "Requests that took over the KV of an earlier one.");
    counter!("superfluid_prefix_misses_total", "Requests that took over nothing.");
    counter!("superfluid_prefix_tokens_total", "Prompt tokens that were not computed again.");
    counter!("superfluid_prefix_evictions_total", "Idle prefixes dropped for room.");
    gauge!("superfluid_prefixes_resident", "Idle lanes that keep a prefix.");
    gauge!("superfluid_kv_cells", "KV positions that all lanes together may hold; 0 = unknown.");
    gauge!("superfluid_kv_cells_used", "KV positions in use, shared ones counted once.");
    gauge!("superfluid_kv_cells_idle", "KV positions that only idle prefixes hold.");
    gauge!("superfluid_kv_cells_pinned", "KV positions that pins hold.");
    gauge!("superfluid_stash_bytes", "Host memory that copies of prefixes hold.");
    counter!("superfluid_stashes_total", "Copies of prefixes made in host memory.");
    counter!("superfluid_restores_total", "Copies taken back into a lane.");
    counter!("superfluid_stash_moved_bytes_total", "Bytes copied to host memory and back, by direction.");
    histogram!("superfluid_stash_move_seconds", "Time of one copy, by direction.");
}

//! Every bound of the host in one place: queues, buffers, retries, waits, sizes.
//!
//! A limit that a flag can change is here as its default.

use std::time::Duration;

/// Largest HTTP request body, bytes.
pub const BODY_BYTES_MAX: usize = 32 << 20;
/// Requests waiting for a lane of one engine before 429.
pub const QUEUE_REQUESTS_MAX: usize = 512;
/// Tokens waiting for one slow client before its lane is held; its neighbours go on.
pub const TURN_EVENTS_MAX: usize = 4096;
/// Choices of one request.
pub const CHOICES_MAX: u32 = 128;
/// Stop strings of one request.
pub const STOPS_MAX: usize = 16;
/// `stop_token_ids` of one request.
pub const STOP_TOKENS_MAX: usize = 256;
/// Bytes of one stop string.
pub const STOP_BYTES_MAX: usize = 1024;
/// `logit_bias` entries of one request.
pub const BIASES_MAX: usize = 1024;
/// `top_logprobs` of one request.
pub const TOP_LOGPROBS_MAX: u32 = 20;
/// Bytes of a schema, regular expression or grammar.
pub const GRAMMAR_BYTES_MAX: usize = 256 << 10;
/// Bytes of all tokens of a vocabulary together; the largest known ones have 2 MiB.
pub const VOCABULARY_BYTES_MAX: usize = 16 << 20;
/// Inputs of one request for embeddings.
pub const EMBED_INPUTS_MAX: usize = 2048;
/// Tokens of one embedding call of an engine, unless one text alone has more: what a client that leaves waits for.
pub const EMBED_TOKENS_MAX: usize = 1024;
/// Messages of one chat request.
pub const MESSAGES_MAX: usize = 4096;
/// Tools of one chat request.
pub const TOOLS_MAX: usize = 1024;
/// Variables that one chat request gives to its template.
pub const TEMPLATE_ARGUMENTS_MAX: usize = 64;
/// Default lanes of one engine (`--max-batch`).
pub const MAX_BATCH_DEFAULT: u32 = 8;
/// Largest `--max-batch`.
pub const MAX_BATCH_MAX: u32 = 256;
/// Smallest window, positions.
pub const CONTEXT_MIN: u32 = 512;
/// Window when nothing can size it, positions.
pub const CONTEXT_FALLBACK: u32 = 8192;
/// Tokens fed in one step, all lanes together.
pub const STEP_TOKENS_MAX: u32 = 512;
/// Time for a worker to load its library and say hello.
pub const WORKER_HELLO_MAX: Duration = Duration::from_secs(20);
/// Time for a worker to open a model.
pub const WORKER_OPEN_MAX: Duration = Duration::from_secs(600);
/// Time for one step before the worker counts as hung.
pub const STEP_MAX: Duration = Duration::from_secs(120);
/// First pause before a dead worker is started again; doubles up to [`RESTART_PAUSE_MAX`].
pub const RESTART_PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause before a dead worker is started again.
pub const RESTART_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Restarts without a finished request or [`RESTART_TOKENS_MIN`] tokens in between before the model is retired.
pub const RESTARTS_MAX: u32 = 5;
/// Budget of a depth-0 probe.
pub const PROBE_BUDGET: Duration = Duration::from_secs(5);
/// Default `--drain-timeout`.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(60);
/// Bytes of a worker's stderr kept for the report of its death.
pub const WORKER_STDERR_BYTES_MAX: usize = 64 << 10;
/// Longest JSON answer of a runtime (descriptor, describe, probe), bytes.
pub const RUNTIME_JSON_BYTES_MAX: usize = 1 << 20;
/// JSON values (numbers, strings, arrays, objects) in one request body; each costs far more memory than its text.
pub const JSON_VALUES_MAX: usize = 1 << 18;
/// Time for a client to send its whole body.
pub const BODY_READ_MAX: Duration = Duration::from_secs(120);
/// Time for a client to send a request's headers, and for an idle connection to send the next ones.
pub const HEADERS_READ_MAX: Duration = Duration::from_secs(75);
/// Bytes that one connection buffers of what it reads; also bounds the headers of a request.
pub const CONNECTION_BUFFER_BYTES_MAX: usize = 64 << 10;
/// Open connections of one listener; the next ones wait in the kernel's backlog.
pub const CONNECTIONS_MAX: usize = 1024;
/// Pause after a failed accept (out of descriptors), so that the loop does not spin.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Silence on an event stream after which a comment is sent.
pub const STREAM_SILENCE_MAX: Duration = Duration::from_secs(15);
/// Bytes of waiting events put into one write of an event stream.
pub const STREAM_WRITE_BYTES_MAX: usize = 32 << 10;
/// Longest `x-request-id` taken from a client, bytes.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// `Retry-After` of a refusal that may pass later.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest log line taken from a runtime, bytes.
pub const RUNTIME_LOG_BYTES_MAX: usize = 4096;
/// Largest answer of a runtime's tokenizer, bytes.
pub const TOKENIZER_BYTES_MAX: usize = 256 << 20;
/// Largest result arena that a runtime may ask for in one step, bytes.
pub const STEP_ARENA_BYTES_MAX: usize = 64 << 20;
/// Time spent on reading the rest of a refused body, so that a client which is still writing gets its answer.
pub const DISCARD_MAX: Duration = Duration::from_secs(5);
/// Default of the background divisor: background requests run in every n-th tick while others have work.
pub const BACKGROUND_EVERY: u32 = 4;
/// Largest background divisor.
pub const BACKGROUND_EVERY_MAX: u32 = 1024;
/// Default `--starvation-ticks`.
pub const STARVATION_TICKS: u32 = 8;
/// Default `--tick-target-ms`.
pub const TICK_TARGET: Duration = Duration::from_millis(250);
/// Time that one step with prompt tokens should take: somebody may arrive in it and wait for its end.
pub const PREFILL_STEP_TARGET: Duration = Duration::from_millis(200);
/// Default decode steps of one tick per lane (`--tick-decode-budget` is this times the lanes).
pub const TICK_DECODE_STEPS: u32 = 32;
/// Prompt tokens of one tick at most; what `--prefill-budget 0` means.
pub const PREFILL_BUDGET: u32 = 4096;
/// Default `--pressure-high`, percent of KV positions.
pub const PRESSURE_HIGH_PCT: u32 = 85;
/// Default `--pressure-low`, percent of KV positions.
pub const PRESSURE_LOW_PCT: u32 = 70;
/// Default `--pin-budget-pct`, percent of KV positions.
pub const PIN_BUDGET_PCT: u32 = 50;
/// Longest pin.
pub const PIN_MAX: Duration = Duration::from_secs(24 * 3600);
/// Prompt tokens scored in one step, all lanes together: each needs a whole row of logits.
pub const SCORES_MAX: u32 = 64;
/// Fewest positions worth taking over from an earlier request.
pub const PREFIX_TOKENS_MIN: u32 = 16;
/// Default `--prefix-blob-budget-mb`: host memory for evicted prefixes of one engine.
pub const PREFIX_BLOB_BUDGET_MB: u64 = 1024;
/// Times that one request is carried over to a new engine before it is failed: it may be what kills them.
pub const RESUMES_MAX: u32 = 3;
/// Time that a client may be so far behind that its lane is held before its answer is given up.
pub const CLIENT_STALL_MAX: Duration = Duration::from_secs(60);
/// Tokens drawn by an engine after which its death no longer counts towards [`RESTARTS_MAX`].
pub const RESTART_TOKENS_MIN: u64 = 64;
/// Time between two rounds of waking streams, per running stream: a wake costs its HTTP thread about as much.
pub const WAKE_SPACING: Duration = Duration::from_micros(40);
/// Steps of one kind that must have been measured before their limit is tightened below [`STEP_MAX`].
pub const STEP_SAMPLES_MIN: u32 = 64;
/// A step counts as hung after so many times the slowest one of its kind.
pub const STEP_LIMIT_FACTOR: u32 = 50;
/// Smallest limit of one step.
pub const STEP_LIMIT_MIN: Duration = Duration::from_secs(10);
/// Time between two updates of the gauges of a busy engine.
pub const METER_SPACING: Duration = Duration::from_millis(50);
/// Time between two looks at the system's memory pressure, and between two events that it raises.
pub const OS_PRESSURE_SPACING: Duration = Duration::from_secs(1);
/// Share of the last ten seconds, percent, that some task waited for memory from which the system counts as under
/// pressure.
pub const OS_PRESSURE_PCT: f32 = 10.0;
/// Lanes of one engine, running requests and idle prefixes together.
pub const LANES_MAX: u32 = 2 * MAX_BATCH_MAX;
/// Copies of evicted prefixes that one engine process holds; the scheduler's budget in bytes ends them earlier.
pub const STASHES_MAX: usize = 4096;
/// Bytes of all of them together, whatever the budget: no runtime's claim makes the process reserve more.
pub const STASH_BYTES_MAX: u64 = 64 << 30;
/// Silence of a client's machine after which the kernel asks whether it is still there.
pub const PEER_SILENCE_MAX: Duration = Duration::from_secs(30);
/// Pause between two such questions.
pub const PEER_PROBE_PAUSE: Duration = Duration::from_secs(10);
/// Unanswered questions after which the client counts as gone.
pub const PEER_PROBES_MAX: u32 = 3;
/// Longest deadline that a client may name.
pub const DEADLINE_MAX: Duration = Duration::from_secs(24 * 3600);

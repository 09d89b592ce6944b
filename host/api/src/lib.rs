//! HTTP and its dialects: the only place that knows JSON field names and HTTP codes.
//!
//! The way in: `serve` (connections) → `gate` (request id, browser guard, key) → `routes` → `terms` (headers) → `body`
//! (bytes to JSON) → `request` (JSON to [`sf_core::Turn`]). The way out: `answer` (events to JSON or an event stream), `refusal`
//! (every [`sf_core::Fault`] to its status and body).
//!
//! # What happens to a field of a request
//!
//! * Known and in range: honoured. Known and out of range or of the wrong type: 400 that names the field.
//! * Known to change the answer, and not honoured by this build (`functions`, `grammar`, `best_of`, …): 400
//!   `unsupported_parameter`, unless its value asks for nothing (`null`, `[]`, `"none"`, …).
//! * Known to be harmless (`metadata`, `store`, …): accepted.
//! * For the model's chat template (`tools`, `chat_template_kwargs`, `enable_thinking`, `reasoning_effort`): given to it, and
//!   named in `x-superfluid-warnings` where it does not read them; `tools` are refused then.
//! * Unknown: accepted, and named in the response header `x-superfluid-warnings`, so that nothing is ignored in silence.
//!
//! # How a request is served
//!
//! Headers of the generating endpoints; each may stand once, and what is out of range is a 400 that names it:
//!
//! * `X-Superfluid-QoS`: `interactive`, `completion`, `agent` or `background` (or `0` to `3`). Not read when the operator
//!   does not let clients choose; then `x-superfluid-warnings` names it.
//! * `X-Superfluid-Deadline-Ms`: milliseconds from the request's arrival, 1 to 86400000. An answer that is not complete
//!   by then ends with what it has: `"finish_reason":"length"` and beside it `"ended_by":"deadline"`. A request that
//!   still waits by then never starts: `deadline_exceeded`, 504.
//! * `X-Superfluid-Pin`: seconds, 0 to 86400, for which the KV of the prompt is kept after the answer, within the server's
//!   pin budget.
//!
//! Fields of the body: `cache_prompt` (default `true`; `false` = neither use nor leave KV of equal beginnings) and `user`,
//! which with the key tells parties apart that share a class fairly. `usage.prompt_tokens_details.cached_tokens` counts
//! tokens of the prompt whose KV was there already, once per prompt: with `n` > 1 those that no choice had to compute.
//!
//! # What the model is given
//!
//! `POST /v1/chat/completions/render` takes the body of a chat, refuses what a chat refuses, runs nothing, and answers with the
//! prompt: `text`, its `tokens` and their `count`, for each message where it stands, as half-open pairs of UTF-8 bytes of the
//! text and of tokens, and the same of the `generation_prompt`. A message is `null`, and a pair of tokens too, where the template
//! or the tokenizer does not keep it apart from its neighbours. `add_generation_prompt` (default `true`) and
//! `continue_final_message` say how the prompt ends. What would not fit into the window is rendered, with a warning.
//!
//! # Vectors
//!
//! `POST /v1/embeddings`: `input` is a string, strings, tokens or arrays of tokens, at most 2048 of them; text gets the tokens
//! that open and close it, tokens are taken as they are. `encoding_format` is `float` or `base64` (floats of 32 bits,
//! little-endian). `dimensions` is refused unless it is what the model's vectors have. An input that is longer than the model
//! takes is a 400 that names it. A vector does not depend on what is embedded beside it.
//!
//! `GET` and `PUT /v1/scheduling`: `{"background_every": n}`, 1 to 1024: background requests run in every n-th tick while
//! others have work.

mod answer;
mod body;
mod embeddings;
mod fields;
mod gate;
mod ids;
mod refusal;
mod render;
mod request;
mod routes;
mod serve;
mod settings;
mod socket;
mod terms;
mod warnings;

pub use routes::{Exposure, router};
pub use serve::serve;
pub use settings::{ApiKey, ApiSettings, MetricsText};

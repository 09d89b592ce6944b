//! HTTP and its dialects: the only place that knows JSON field names and HTTP codes.
//!
//! The way in: `serve` (connections) → `gate` (request id, browser guard, key) → `routes` → `body` (bytes to JSON) →
//! `request` (JSON to [`sf_core::Turn`]). The way out: `answer` (events to JSON or an event stream), `refusal`
//! (every [`sf_core::Fault`] to its status and body).
//!
//! # What happens to a field of a request
//!
//! * Known and in range: honoured. Known and out of range or of the wrong type: 400 that names the field.
//! * Known to change the answer, and not honoured by this build (`tools`, `grammar`, `best_of`, …): 400
//!   `unsupported_parameter`, unless its value asks for nothing (`null`, `[]`, `"none"`, …).
//! * Known to be harmless (`user`, `metadata`, `store`, …): accepted.
//! * Unknown: accepted, and named in the response header `x-superfluid-ignored`, so that nothing is ignored in silence.

mod answer;
mod body;
mod fields;
mod gate;
mod ids;
mod refusal;
mod request;
mod routes;
mod serve;
mod settings;

pub use routes::{Exposure, router};
pub use serve::serve;
pub use settings::{ApiKey, ApiSettings, MetricsText};

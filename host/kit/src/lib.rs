//! What runs beside a runtime, in the server or in the worker: safe calls over the ABI tables, steps, sampling.
//!
//! Nothing a runtime returns is believed: sizes, offsets, strides, counts, row numbers and words are checked, and a
//! violation is [`KitError::Contract`], never a panic. This crate loads no library and knows no scheduler, text or HTTP.
//!
//! * [`Runtime`] — a bound library; [`Model`] — an open model; [`StepBuffer`] — one ragged batch and its answer.
//! * [`Executor`] — runs a [`sf_core::StepPlan`], a tick of one or more steps, and samples the lanes that asked.
//! * [`sampler`] — from a logits row to a token; safe code but for the choice of the vectors' width.
//! * [`Grammars`] — which tokens may come next in an answer of a given form.
//! * [`noop`] — a runtime that computes nothing, for tests and for measuring the link.

mod calls;
mod control;
mod embed;
mod error;
mod executor;
mod grammar;
mod history;
pub mod host;
mod model;
pub mod noop;
mod open;
mod records;
mod rooms;
mod runtime;
pub mod sampler;
mod step;
mod tokenizer;

pub use control::ControlPage;
pub use error::KitError;
pub use executor::Executor;
pub use grammar::{GrammarError, Grammars, Walk, ignored_keywords};
pub use history::History;
pub use model::{Model, RuntimeLane};
pub use open::{Honoured, OpenRequest};
pub use rooms::Rooms;
pub use runtime::Runtime;
pub use step::{StepBuffer, StepView};
pub use tokenizer::{EncodeFlags, RuntimeTokenizer, TokenBytes};

//! What a client ordered, read out of JSON: the turns to run and the form in which the answer goes back.

mod chat;
mod embeddings;
mod format;
mod refused;
mod render;
mod sampling;
mod scheduling;
mod structural;
mod text;
mod tokens;
mod tools;
mod variables;

pub(crate) use chat::chat;
pub(crate) use embeddings::{VectorFormat, embeddings};
pub(crate) use render::render;
pub(crate) use scheduling::tuning;
pub(crate) use text::text;
pub(crate) use tokens::{detokenize, tokenize};

use serde_json::Value;
use sf_core::{Form, Input, SamplingParams, Token};

use crate::fields::{Fields, unknown_word};

/// Which of OpenAI's shapes the answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Text,
}

/// One request for text as it was ordered.
#[derive(Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) dialect: Dialect,
    pub(crate) model: Option<String>,
    /// Each is a turn of its own; at least one.
    pub(crate) inputs: Vec<Input>,
    pub(crate) sampling: SamplingParams,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) stop: Vec<String>,
    /// Answers per input, at least 1.
    pub(crate) choices: u32,
    pub(crate) logprobs: Option<u32>,
    pub(crate) stop_tokens: Vec<Token>,
    pub(crate) min_tokens: u32,
    pub(crate) form: Option<Form>,
    pub(crate) ignore_eos: bool,
    /// Take over what earlier requests computed, and leave something for later ones.
    pub(crate) reuse: bool,
    /// The end user, as far as the client tells.
    pub(crate) user: Option<String>,
    /// The tier that the client named, when it did.
    pub(crate) service_tier: Option<&'static str>,
    /// The prompt's text comes before the answer's.
    pub(crate) echo: bool,
    pub(crate) delivery: Delivery,
    /// Fields that nobody knows.
    pub(crate) ignored: Vec<String>,
}

/// How the answer travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// One JSON document at the end.
    Whole,
    /// An event stream.
    Stream {
        /// With a last event that counts tokens.
        usage: bool,
    },
}

fn delivery(fields: &mut Fields) -> Result<Delivery, sf_core::Fault> {
    let stream = fields.flag("stream")?;
    let options = fields.take("stream_options").unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let mut options = Fields::nested(options, "stream_options".to_owned())?;
    let usage = options.flag("include_usage")?;
    // Chunks are never padded: whoever sees their sizes on the way sees the text too, as long as there is no TLS.
    options.flag("include_obfuscation")?;
    refused::check(&options, refused::STREAM_OPTIONS)?;
    Ok(if stream { Delivery::Stream { usage } } else { Delivery::Whole })
}

/// Tiers that OpenAI's clients know. All are served alike; the answer repeats the name.
const SERVICE_TIERS: [&str; 5] = ["auto", "default", "flex", "scale", "priority"];

fn service_tier(fields: &mut Fields) -> Result<Option<&'static str>, sf_core::Fault> {
    let path = fields.path("service_tier");
    let Some(word) = fields.string("service_tier")? else { return Ok(None) };
    let known = SERVICE_TIERS.into_iter().find(|tier| *tier == word);
    known.map(Some).ok_or_else(|| unknown_word(&path, &word, "auto, default, flex, scale or priority"))
}

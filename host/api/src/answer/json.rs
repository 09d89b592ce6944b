//! Writes the JSON parts that streamed and whole answers share, by hand: one buffer, no tree per token.

use std::io::Write;

use bytes::{BufMut, BytesMut};
use sf_core::{FinishReason, RequestId, TokenInfo};

use super::progress::Usage;
use crate::request::Dialect;

/// What is the same in every document of one answer.
pub(super) struct Head {
    pub(super) dialect: Dialect,
    pub(super) id: RequestId,
    /// Seconds since the epoch.
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) choices: u32,
    pub(super) choices_per_input: u32,
    /// Whether log-probabilities were asked for.
    pub(super) logprobs: bool,
    /// As the client asked for it: every request is served alike.
    pub(super) service_tier: Option<&'static str>,
    /// The prompt of each input, when it goes before the answer.
    pub(super) echo: Vec<String>,
}

impl Head {
    /// `{"id":…,"object":…,"created":…,"model":…,"system_fingerprint":…,"choices":[`
    pub(super) fn write(&self, out: &mut BytesMut, streamed: bool) {
        let (prefix, object) = match (self.dialect, streamed) {
            (Dialect::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
            (Dialect::Chat, false) => ("chatcmpl", "chat.completion"),
            (Dialect::Text, _) => ("cmpl", "text_completion"),
        };
        let (id, created) = (self.id, self.created);
        print(
            out,
            format_args!(r#"{{"id":"{prefix}-{id}","object":"{object}","created":{created},"model":"#),
        );
        string(out, &self.model);
        put(
            out,
            concat!(r#","system_fingerprint":"superfluid-"#, env!("CARGO_PKG_VERSION"), r#"","choices":["#),
        );
    }

    /// What stands behind the choices in every document: `,"service_tier":…`, when the client named one.
    pub(super) fn close(&self, out: &mut BytesMut) {
        // OpenAI's completions have no such field.
        if let Some(tier) = self.service_tier.filter(|_| self.dialect == Dialect::Chat) {
            print(out, format_args!(r#","service_tier":"{tier}""#));
        }
    }

    /// The prompt that goes before this choice's text.
    pub(super) fn echo_of(&self, choice: u32) -> &str {
        self.echo.get((choice / self.choices_per_input) as usize).map_or("", String::as_str)
    }
}

pub(crate) fn put(out: &mut BytesMut, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn print(out: &mut BytesMut, text: std::fmt::Arguments<'_>) {
    out.writer().write_fmt(text).expect("a buffer in memory takes every write");
}

/// A quoted and escaped string.
pub(crate) fn string(out: &mut BytesMut, text: &str) {
    // Most tokens need no escape; they are copied as they are.
    if !text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        put(out, "\"");
        put(out, text);
        return put(out, "\"");
    }
    serde_json::to_writer(out.writer(), text).expect("a string is always valid JSON");
}

/// A whole number.
pub(super) fn number(out: &mut BytesMut, value: u32) {
    match u8::try_from(value) {
        Ok(digit) if digit < 10 => out.extend_from_slice(&[b'0' + digit]),
        _ => print(out, format_args!("{value}")),
    }
}

/// `,"finish_reason":…`, and what OpenAI has no word for beside it.
pub(super) fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => r#","finish_reason":"stop""#,
        FinishReason::Length => r#","finish_reason":"length""#,
        FinishReason::ToolCalls => r#","finish_reason":"tool_calls""#,
        FinishReason::Deadline => r#","finish_reason":"length","ended_by":"deadline""#,
    }
}

/// `{"prompt_tokens":…}`
pub(super) fn usage(out: &mut BytesMut, usage: Usage) {
    let Usage { prompt, completion, reasoning, cached } = usage;
    let total = prompt + completion;
    print(
        out,
        format_args!(
            r#"{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":{cached},"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":{reasoning},"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}}"#
        ),
    );
}

/// `"id":…,"type":"function","function":{"name":…,"arguments":…}`
pub(super) fn call(out: &mut BytesMut, id: &str, name: &str, arguments: &str) {
    put(out, r#""id":"#);
    string(out, id);
    put(out, r#","type":"function","function":{"name":"#);
    string(out, name);
    put(out, r#","arguments":"#);
    string(out, arguments);
    put(out, "}");
}

/// JSON has no infinities; OpenAI writes -9999 for a token that cannot be.
fn logprob(out: &mut BytesMut, value: Option<f32>) {
    let Some(value) = value else { return put(out, "null") };
    let value = if value.is_finite() { value } else { -9999.0 };
    serde_json::to_writer(out.writer(), &value).expect("a finite number is valid JSON");
}

/// The chat shape: `{"content":[{"token","logprob","bytes","top_logprobs"}],"refusal":null}`.
pub(super) fn chat_logprobs(out: &mut BytesMut, tokens: &[TokenInfo]) {
    put(out, r#"{"content":["#);
    for (at, token) in tokens.iter().enumerate() {
        comma(out, at);
        chat_token(out, &token.bytes, token.logprob);
        put(out, r#","top_logprobs":["#);
        for (at, (_, bytes, value)) in token.top.iter().enumerate() {
            comma(out, at);
            chat_token(out, bytes, Some(*value));
            put(out, "}");
        }
        put(out, "]}");
    }
    put(out, r#"],"refusal":null}"#);
}

/// Everything of a token but its end: `{"token":…,"logprob":…,"bytes":[…]`.
fn chat_token(out: &mut BytesMut, bytes: &[u8], value: Option<f32>) {
    put(out, r#"{"token":"#);
    string(out, &String::from_utf8_lossy(bytes));
    put(out, r#","logprob":"#);
    logprob(out, value);
    put(out, r#","bytes":"#);
    serde_json::to_writer(out.writer(), bytes).expect("bytes are valid JSON");
}

/// The completion shape: four arrays. `offset` counts the characters before; it is moved on.
pub(super) fn text_logprobs(out: &mut BytesMut, tokens: &[TokenInfo], offset: &mut usize) {
    put(out, r#"{"tokens":["#);
    for (at, token) in tokens.iter().enumerate() {
        comma(out, at);
        string(out, &text_token(&token.bytes));
    }
    put(out, r#"],"token_logprobs":["#);
    for (at, token) in tokens.iter().enumerate() {
        comma(out, at);
        logprob(out, token.logprob);
    }
    put(out, r#"],"top_logprobs":["#);
    for (at, token) in tokens.iter().enumerate() {
        comma(out, at);
        text_top(out, token);
    }
    put(out, r#"],"text_offset":["#);
    for (at, token) in tokens.iter().enumerate() {
        comma(out, at);
        print(out, format_args!("{offset}"));
        *offset += token.bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count();
    }
    put(out, "]}");
}

/// A map from token to log-probability; the chosen token is always in it. `null` where nothing was predicted.
fn text_top(out: &mut BytesMut, token: &TokenInfo) {
    let Some(own) = token.logprob else { return put(out, "null") };
    let mut written: Vec<String> = Vec::with_capacity(token.top.len() + 1);
    put(out, "{");
    let chosen = (&token.bytes, own);
    for (bytes, value) in token.top.iter().map(|(_, bytes, value)| (bytes, *value)).chain([chosen]) {
        let name = text_token(bytes);
        // Two tokens may have one text; a name stands once in an object, and the likelier came first.
        if written.contains(&name) {
            continue;
        }
        comma(out, written.len());
        string(out, &name);
        put(out, ":");
        logprob(out, Some(value));
        written.push(name);
    }
    put(out, "}");
}

/// The completion shape has no field for bytes: part of a character is written as OpenAI does, `bytes:\xe2\x82`.
fn text_token(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |text, byte| text + &format!("\\x{byte:02x}")),
    }
}

pub(crate) fn comma(out: &mut BytesMut, at: usize) {
    if at > 0 {
        put(out, ",");
    }
}

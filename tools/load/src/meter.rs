//! Turns the answer of one request into its record: stamps events, counts them, reads the few that matter.
//!
//! Events that carry text and nothing else are never parsed: at a hundred thousand a second that would cost more than
//! everything else together.

use std::time::{Duration, Instant};

use memchr::memmem::Finder;
use serde_json::Value;

use crate::error::Failure;
use crate::record::{Outcome, Record};
use crate::shot::{Leave, Shot};
use crate::wire::Head;

/// Longest answer in one piece, bytes.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Characters of a failure's message that are kept.
const MESSAGE_CHARS_MAX: usize = 300;

/// Finds what matters in an event without parsing it; made once, used for all.
pub(crate) struct Marks {
    content: Finder<'static>,
    text: Finder<'static>,
    usage: Finder<'static>,
    finish: Finder<'static>,
}

impl Marks {
    pub(crate) fn new() -> Self {
        Marks {
            content: Finder::new("content\""),
            text: Finder::new("text\""),
            usage: Finder::new("\"usage\""),
            finish: Finder::new("finish_reason\""),
        }
    }

    /// Whether some text is not empty. Quotes in generated text are escaped, so that it cannot look like a key.
    fn has_text(&self, event: &[u8], chat: bool) -> bool {
        let keys = if chat { [&self.content, &self.text] } else { [&self.text, &self.content] };
        keys.iter()
            .any(|key| has_value(key, event, |value| matches!(value, [b'"', other, ..] if *other != b'"')))
    }

    /// Whether there is a usage or an end to be read.
    fn has_more(&self, event: &[u8]) -> bool {
        let set = |value: &[u8]| matches!(value, [b'"' | b'{', ..]);
        has_value(&self.usage, event, set) || has_value(&self.finish, event, set)
    }
}

/// Whether `key` stands before a value that `wanted` accepts.
fn has_value(key: &Finder<'_>, event: &[u8], wanted: impl Fn(&[u8]) -> bool) -> bool {
    key.find_iter(event).any(|at| {
        let value = event[at + key.needle().len()..].trim_ascii_start();
        value.strip_prefix(b":").is_some_and(|value| wanted(value.trim_ascii_start()))
    })
}

/// What is known of one request so far.
pub(crate) struct Meter {
    record: Record,
    /// What all its times count from.
    begun: Instant,
    /// When the last event with text came.
    last: Instant,
    /// `[DONE]` has come.
    done: bool,
    /// The body of an answer that is not a stream.
    body: Vec<u8>,
    failure: Option<Failure>,
    chat: bool,
    streamed: bool,
    leave_after: Option<u32>,
}

impl Meter {
    /// A request that was due at `due` since the start of the run and starts `lag` later; its times count from `begun`.
    pub(crate) fn new(shot: &Shot, due: Duration, lag: Duration, begun: Instant) -> Self {
        let record = Record {
            shot: shot.id,
            class: shot.class.clone(),
            due,
            lag,
            gaps_us: Vec::with_capacity(if shot.streamed { shot.tokens_hint as usize } else { 0 }),
            text: shot.keep_text.then(String::new),
            ..Record::default()
        };
        let leave_after = match shot.leave {
            Some(Leave::AfterEvents(events)) => Some(events),
            _ => None,
        };
        Meter {
            record,
            begun,
            last: begun,
            done: false,
            body: Vec::new(),
            failure: None,
            chat: shot.path.contains("chat"),
            streamed: shot.streamed,
            leave_after,
        }
    }

    /// Takes one event. Returns whether it carries text.
    pub(crate) fn event(&mut self, data: &[u8], now: Instant, marks: &Marks) -> bool {
        if data == b"[DONE]" {
            self.done = true;
            self.record.total = now - self.begun;
            return false;
        }
        let text = marks.has_text(data, self.chat);
        if text {
            self.stamp(now);
        }
        if !text || self.record.text.is_some() || marks.has_more(data) {
            self.read_event(data);
        }
        text
    }

    fn stamp(&mut self, now: Instant) {
        if self.record.ttft.is_some() {
            let gap = now.duration_since(self.last).as_micros();
            self.record.gaps_us.push(u32::try_from(gap).unwrap_or(u32::MAX));
        } else {
            self.record.ttft = Some(now - self.begun);
        }
        self.last = now;
    }

    fn read_event(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        match serde_json::from_slice::<Value>(data) {
            Err(_) => self.fail(Failure::Protocol("an event is not JSON")),
            Ok(value) => {
                if let Some((code, message)) = error_of(&value) {
                    self.fail(Failure::Stream { code, message });
                }
                self.read_answer(&value, "delta");
            }
        }
    }

    /// Text, end and usage of a chunk or of a whole answer.
    fn read_answer(&mut self, value: &Value, message: &str) {
        for choice in value["choices"].as_array().into_iter().flatten() {
            if let Some(reason) = choice["finish_reason"].as_str() {
                self.record.finish_reason = Some(reason.to_owned());
            }
            if let Some(kept) = &mut self.record.text {
                let parts =
                    [&choice[message]["reasoning_content"], &choice[message]["content"], &choice["text"]];
                parts.iter().filter_map(|part| part.as_str()).for_each(|part| kept.push_str(part));
            }
        }
        let count = |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok());
        let (usage, known) = (&value["usage"], &mut self.record.usage);
        known.prompt = count(&usage["prompt_tokens"]).or(known.prompt);
        known.completion = count(&usage["completion_tokens"]).or(known.completion);
        let cached = count(&usage["prompt_tokens_details"]["cached_tokens"]);
        known.cached = cached.or_else(|| count(&value["timings"]["cache_n"])).or(known.cached);
    }

    /// Takes a part of an answer that is not a stream.
    pub(crate) fn body(&mut self, part: &[u8]) {
        if self.body.len() + part.len() > BODY_BYTES_MAX {
            self.fail(Failure::Protocol("the answer is too long"));
        } else {
            self.body.extend_from_slice(part);
        }
    }

    /// The first failure counts.
    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Whether the client has seen enough and goes away.
    pub(crate) fn leaves(&self) -> bool {
        self.leave_after.is_some_and(|events| self.record.events() >= events as usize)
    }

    /// Whether everything that was asked for is there, whatever still follows on the connection.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// What its times count from.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// The response is complete.
    pub(crate) fn complete(mut self, head: Head, now: Instant) -> Record {
        if !self.done {
            self.record.total = now - self.begun;
        }
        self.record.status = head.status;
        if !(200..300).contains(&head.status) {
            let failure = self.refusal(head.status);
            self.fail(failure);
        } else if !self.streamed {
            self.read_whole();
        } else if !head.event_stream {
            self.fail(Failure::Protocol("a stream was asked for, and the answer is none"));
        } else if !self.done && self.record.finish_reason.is_none() {
            self.fail(Failure::Protocol("the stream ends without [DONE]"));
        }
        self.record.outcome = self.failure.map_or(Outcome::Ok, Outcome::Failed);
        self.record
    }

    /// The response will not be complete.
    pub(crate) fn abort(mut self, outcome: Outcome, head: Option<Head>, now: Instant) -> Record {
        self.record.total = now.saturating_duration_since(self.begun);
        self.record.status = head.map_or(0, |head| head.status);
        self.record.outcome = match (self.failure, outcome) {
            (Some(failure), Outcome::Failed(_)) => Outcome::Failed(failure),
            (_, outcome) => outcome,
        };
        self.record
    }

    fn read_whole(&mut self) {
        match serde_json::from_slice::<Value>(&self.body) {
            Err(_) => self.fail(Failure::Protocol("the answer is not JSON")),
            Ok(value) => self.read_answer(&value, "message"),
        }
    }

    fn refusal(&self, status: u16) -> Failure {
        let told = serde_json::from_slice::<Value>(&self.body).ok().as_ref().and_then(error_of);
        let (code, message) =
            told.unwrap_or_else(|| (String::new(), shorten(&String::from_utf8_lossy(&self.body))));
        Failure::Status { status, code, message }
    }
}

/// Code and message of `{"error": …}`.
fn error_of(value: &Value) -> Option<(String, String)> {
    let error = value.get("error").filter(|error| !error.is_null())?;
    let text = |value: &Value| match value {
        Value::String(text) => Some(shorten(text)),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let code = text(&error["code"]).or_else(|| text(&error["type"])).unwrap_or_default();
    let message = text(&error["message"]).or_else(|| text(error)).unwrap_or_default();
    Some((code, message))
}

fn shorten(text: &str) -> String {
    text.trim().chars().take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_found_without_parsing() {
        let marks = Marks::new();
        let check = |event: &str, text: bool, more: bool| {
            for chat in [false, true] {
                assert_eq!(marks.has_text(event.as_bytes(), chat), text, "{event}");
            }
            assert_eq!(marks.has_more(event.as_bytes()), more, "{event}");
        };
        check(
            r#"{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
            false,
            false,
        );
        check(r#"{"choices":[{"delta":{"content":" sea"},"finish_reason":null}],"usage":null}"#, true, false);
        check(r#"{"choices":[{"delta":{"content": "\""}}]}"#, true, false);
        check(r#"{"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}]}"#, true, false);
        check(r#"{"choices":[{"delta":{"reasoning_content":"","content":"a"}}]}"#, true, false);
        check(r#"{"choices":[{"text":"a","finish_reason":null}]}"#, true, false);
        check(r#"{"choices":[{"text" : "a"}]}"#, true, false);
        check(r#"{"choices":[{"text":"","finish_reason":"stop"}]}"#, false, true);
        check(r#"{"choices":[{"text":"a","finish_reason" : "length"}]}"#, true, true);
        check(r#"{"choices":[],"usage":{"prompt_tokens":3}}"#, false, true);
        check(r#"{"content":"a","stop":false}"#, true, false);
        check(r#"{"choices":[{"text":"\"content\":\"x","logprobs":null}]}"#, true, false);
        check(r#"{"choices":[{"text":"","logprobs":{"text_offset":[1]}}]}"#, false, false);
        check(r#"{"text":"#, false, false);
        check(r#"{"text":""#, false, false);
        check("", false, false);
    }
}

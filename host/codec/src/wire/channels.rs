//! Reads wires whose every message has a header: its channel says what the content is, its recipient that it is a call.

use super::calls::{Reader, Zone};
use super::delta::{CallFault, Delta, SpanKind};
use super::named::NamedCall;
use super::parser::{Parser, State};
use super::sink::{NAME_BYTES_MAX, Progress};
use super::window::{Found, Here, Mark, plain};
use super::{Body, Channels, Shape};

/// Longest header, in bytes.
const HEADER_BYTES_MAX: usize = 1024;

/// Goes on with the header that the prompt began with the assistant's role.
const RECIPIENT: &[Mark] = &[plain(" to=")];

impl Parser {
    fn channels(&self) -> Option<&'static Channels> {
        match &self.wire.shape {
            Shape::Channels(channels) => Some(channels),
            _ => None,
        }
    }

    pub(super) fn between(&mut self, out: &mut Vec<Delta>) -> bool {
        let Some(channels) = self.channels() else { return false };
        self.state = State::Between;
        if self.spans().is_empty() {
            match self.window.starts(&[RECIPIENT]) {
                Here::Maybe => return false,
                Here::Mark { .. } => {
                    self.state = State::Header;
                    return true;
                }
                Here::Nothing => {}
            }
        }
        let space = self.window.space();
        if space > 0 {
            self.say(SpanKind::Markup, space, out);
            return true;
        }
        match self.window.starts(&[channels.starts, channels.calls.closes]) {
            Here::Maybe => return false,
            Here::Mark { set: 0, .. } => self.state = State::Header,
            Here::Mark { length, .. } => self.say(SpanKind::Markup, length, out),
            Here::Nothing => self.state = State::Message(SpanKind::Text),
        }
        true
    }

    pub(super) fn header(&mut self, out: &mut Vec<Delta>) -> bool {
        let Some(channels) = self.channels() else { return false };
        let (until, over) = match self.window.find(&[channels.message, channels.calls.closes]) {
            Found::Maybe(0) => {
                self.state = State::Header;
                return false;
            }
            Found::Maybe(at) => (at, None),
            Found::Mark { at, set, length } => (at + length, Some(set)),
            Found::Nothing => (self.window.rest().len(), None),
        };
        self.hold(until);
        match over {
            Some(0) => self.open_message(channels, out),
            Some(_) => {
                self.cut_header(out);
                self.state = State::Between;
            }
            None if self.raw.len() > HEADER_BYTES_MAX => {
                let raw = self.raw.clone();
                self.settle(SpanKind::Text, out);
                out.push(Delta::Failure { call: None, raw, why: CallFault::Limit });
                self.state = State::Message(SpanKind::Text);
            }
            None => self.state = State::Header,
        }
        true
    }

    /// A header without content. One that names a recipient was to be a call, so it is not dropped in silence.
    pub(super) fn cut_header(&mut self, out: &mut Vec<Delta>) {
        if recipient(&self.raw).is_none() {
            self.settle(SpanKind::Markup, out);
            return;
        }
        let raw = self.raw.clone();
        self.settle(SpanKind::Text, out);
        out.push(Delta::Failure { call: None, raw, why: CallFault::Truncated });
    }

    fn open_message(&mut self, channels: &'static Channels, out: &mut Vec<Delta>) {
        let tool =
            recipient(&self.raw).map(|name| name.strip_prefix("functions.").unwrap_or(name).to_owned());
        match (tool, channels.calls.bodies) {
            (Some(name), [Body::Named(form)]) if !name.is_empty() && name.len() <= NAME_BYTES_MAX => {
                // The header waits in `raw`: it is part of the call.
                let zone = Zone::new(&channels.calls, false);
                let reader = Reader::Named(NamedCall::with_name(form, &name));
                self.state = State::Call(zone, Box::new(reader), Progress::default());
            }
            _ => {
                let thinks = word_behind(&self.raw, "<|channel|>") == Some("analysis");
                self.settle(SpanKind::Markup, out);
                self.state = State::Message(if thinks { SpanKind::Reasoning } else { SpanKind::Text });
            }
        }
    }

    pub(super) fn message(&mut self, kind: SpanKind, out: &mut Vec<Delta>) -> bool {
        let Some(channels) = self.channels() else { return false };
        self.state = State::Message(kind);
        match self.window.find(&[channels.starts, channels.calls.closes]) {
            Found::Maybe(0) => return false,
            Found::Maybe(at) => self.say(kind, at, out),
            Found::Mark { at, .. } if at > 0 => self.say(kind, at, out),
            Found::Mark { set: 0, .. } => self.state = State::Header,
            Found::Mark { length, .. } => {
                self.say(SpanKind::Markup, length, out);
                self.state = State::Between;
            }
            Found::Nothing => {
                let rest = self.window.rest().len();
                self.say(kind, rest, out);
            }
        }
        true
    }
}

/// Who a message goes to, if not to the reader.
fn recipient(header: &str) -> Option<&str> {
    let at = [" to=", ">to=", "\nto="].iter().filter_map(|lead| header.find(lead)).min()?;
    word_behind(&header[at..], "to=").filter(|name| !matches!(*name, "user" | "assistant" | "all" | ""))
}

/// The word right behind the first `lead`.
fn word_behind<'a>(header: &'a str, lead: &str) -> Option<&'a str> {
    let rest = &header[header.find(lead)? + lead.len()..];
    rest.split(|c: char| c.is_whitespace() || c == '<').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipient_is_found_before_and_behind_the_channel() {
        let check = |header: &str, expect: Option<&str>| assert_eq!(recipient(header), expect, "{header:?}");
        check("<|channel|>commentary to=functions.f <|constrain|>json<|message|>", Some("functions.f"));
        check("<|start|>assistant to=functions.f<|channel|>commentary json<|message|>", Some("functions.f"));
        check("<|channel|>analysis to=python code<|message|>", Some("python"));
        check("<|channel|>commentary to=assistant<|message|>", None);
        check("<|channel|>final<|message|>", None);
        check("<|channel|>into=x<|message|>", None);
        check("<|channel|>commentary to=<|message|>", None);
    }
}

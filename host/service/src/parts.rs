//! Takes one answer apart into text, reasoning and tool calls, in the wire of its model.

use std::collections::VecDeque;

use sf_codec::wire::{Delta, Input, Parser};
use sf_core::{AnswerPart, RequestId, TurnEvent};

/// The parser of one answer, and what it said so far.
pub(crate) struct Parts {
    parser: Parser,
    /// Names calls to which the model gave no id.
    request: RequestId,
    /// Calls that failed, of this model.
    failures: metrics::Counter,
    called: bool,
    deltas: Vec<Delta>,
    /// Tokens that were reasoning.
    reasoned: u32,
    /// Tokens since the last delta: what they are shows with the next.
    undecided: u32,
}

impl Parts {
    pub(crate) fn new(parser: Parser, request: RequestId, model: &str) -> Parts {
        let failures = metrics::counter!("superfluid_tool_call_failures_total", "model" => model.to_owned());
        Parts { parser, request, failures, called: false, deltas: Vec::new(), reasoned: 0, undecided: 0 }
    }

    /// Whether a call came to its end: then the answer ends for it.
    pub(crate) fn called(&self) -> bool {
        self.called
    }

    /// Tokens that were reasoning, its marks not among them.
    pub(crate) fn reasoned(&self) -> u32 {
        self.reasoned
    }

    /// A token and the text that is certain with it.
    pub(crate) fn token(&mut self, text: &str) {
        self.undecided += 1;
        self.text(text);
    }

    /// More text, of tokens that were told before.
    pub(crate) fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.feed(|parser, deltas| parser.feed(Input::Text(text), deltas));
        }
    }

    /// A token that stands for itself.
    pub(crate) fn mark(&mut self, text: &str) {
        self.feed(|parser, deltas| parser.feed(Input::Marker(text), deltas));
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self) {
        self.feed(Parser::finish);
    }

    /// Lets the parser say more, and counts what the tokens since the last time were.
    fn feed(&mut self, step: impl FnOnce(&mut Parser, &mut Vec<Delta>)) {
        let before = said(&self.deltas);
        step(&mut self.parser, &mut self.deltas);
        if said(&self.deltas) != before {
            let tokens = std::mem::take(&mut self.undecided);
            if matches!(self.deltas.last(), Some(Delta::Reasoning(_))) {
                self.reasoned += tokens;
            }
        }
    }

    /// What is certain since the last time, as events of `choice`.
    pub(crate) fn drain(&mut self, choice: u32, events: &mut VecDeque<TurnEvent>) {
        for delta in self.deltas.drain(..) {
            let part = match delta {
                Delta::Text(text) => {
                    events.push_back(TurnEvent::Delta { choice, text, tokens: Vec::new() });
                    continue;
                }
                Delta::Reasoning(text) => AnswerPart::Reasoning(text),
                Delta::CallBegin { index, id, name } => {
                    let id = id.unwrap_or_else(|| format!("call_{:016x}{index:02}", self.request.0));
                    AnswerPart::CallBegin { index, id, name }
                }
                Delta::CallArguments { index, fragment } => AnswerPart::CallArguments { index, fragment },
                Delta::CallEnd { .. } => {
                    self.called = true;
                    continue;
                }
                Delta::Failure { raw, why, .. } => {
                    self.failures.increment(1);
                    tracing::debug!(request = %self.request, %why, raw, "what looked like a tool call is none");
                    continue;
                }
            };
            events.push_back(TurnEvent::Part { choice, part });
        }
    }
}

/// How much was said: a delta may grow.
fn said(deltas: &[Delta]) -> (usize, usize) {
    let last = match deltas.last() {
        Some(Delta::Text(text) | Delta::Reasoning(text)) => text.len(),
        Some(Delta::CallArguments { fragment, .. }) => fragment.len(),
        _ => 0,
    };
    (deltas.len(), last)
}

#[cfg(test)]
mod tests {
    use sf_codec::wire::{ToolSchema, Wire};

    use super::*;

    fn events(wire: &str, pieces: &[&str]) -> (Vec<TurnEvent>, bool) {
        let tools = [ToolSchema::from_json("find", r#"{"properties":{"what":{"type":"string"}}}"#).unwrap()];
        let mut parts = Parts::new(Parser::new(Wire::by_name(wire).unwrap(), &tools), RequestId(10), "m");
        let mut events = VecDeque::new();
        for piece in pieces {
            match piece.strip_prefix('!') {
                Some(mark) => parts.mark(mark),
                None => parts.text(piece),
            }
            parts.drain(3, &mut events);
        }
        parts.finish();
        parts.drain(3, &mut events);
        (events.into(), parts.called())
    }

    fn part(part: AnswerPart) -> TurnEvent {
        TurnEvent::Part { choice: 3, part }
    }

    #[test]
    fn reasoning_text_and_calls_come_apart() {
        let pieces = [
            "<think>hm",
            "</think>",
            "so: ",
            "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"what\": \"x\"}}\n</tool_call>",
        ];
        let (events, called) = events("hermes", &pieces);
        let arguments =
            |fragment: &str| part(AnswerPart::CallArguments { index: 0, fragment: fragment.to_owned() });
        let begin = AnswerPart::CallBegin {
            index: 0,
            id: "call_000000000000000a00".to_owned(),
            name: "find".to_owned(),
        };
        let (head, tail) = events.split_at(3);
        assert_eq!(head[0], part(AnswerPart::Reasoning("hm".to_owned())));
        assert_eq!(head[1], TurnEvent::Delta { choice: 3, text: "so: ".to_owned(), tokens: Vec::new() });
        assert_eq!(head[2], part(begin));
        let told: String = tail
            .iter()
            .map(|event| match event {
                TurnEvent::Part { part: AnswerPart::CallArguments { fragment, .. }, .. } => fragment.as_str(),
                other => panic!("{other:?} instead of {:?}", arguments("")),
            })
            .collect();
        assert_eq!((told.as_str(), called), (r#"{"what":"x"}"#, true));
    }

    #[test]
    fn tokens_of_the_reasoning_are_counted_and_its_marks_are_not() {
        let check = |open: bool, pieces: &[&str], expect: u32| {
            let wire = Wire::by_name("hermes").unwrap();
            let parser = if open { Parser::in_reasoning(wire, &[]) } else { Parser::new(wire, &[]) };
            let (mut parts, mut events) = (Parts::new(parser, RequestId(10), "m"), VecDeque::new());
            for piece in pieces {
                match piece.strip_prefix('!') {
                    Some(mark) => parts.mark(mark),
                    None => parts.token(piece),
                }
                // However the tokens come together.
                if piece.len() % 2 == 0 {
                    parts.drain(0, &mut events);
                }
            }
            parts.finish();
            assert_eq!(parts.reasoned(), expect, "{pieces:?}");
        };
        check(false, &["!<think>", "a", "b", "", "c", "!</think>", "d", "e"], 4);
        check(false, &["!<think>", "a", "b"], 2);
        check(false, &["a", "b"], 0);
        check(true, &["a", " b", "!</think>", "c"], 2);
    }

    #[test]
    fn what_is_no_call_is_text() {
        let (events, called) = events("hermes", &["<tool_call>\n{\"name\": 5}\n</tool_call>"]);
        let text: String = events
            .iter()
            .map(|event| match event {
                TurnEvent::Delta { text, .. } => text.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((text.trim(), called), ("<tool_call>\n{\"name\": 5}\n</tool_call>", false));
    }
}

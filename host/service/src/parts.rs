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
}

impl Parts {
    pub(crate) fn new(parser: Parser, request: RequestId, model: &str) -> Parts {
        let failures = metrics::counter!("superfluid_tool_call_failures_total", "model" => model.to_owned());
        Parts { parser, request, failures, called: false, deltas: Vec::new() }
    }

    /// Whether a call came to its end: then the answer ends for it.
    pub(crate) fn called(&self) -> bool {
        self.called
    }

    /// More text.
    pub(crate) fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.parser.feed(Input::Text(text), &mut self.deltas);
        }
    }

    /// A token that stands for itself.
    pub(crate) fn mark(&mut self, text: &str) {
        self.parser.feed(Input::Marker(text), &mut self.deltas);
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self) {
        self.parser.finish(&mut self.deltas);
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

//! Feeds a wire's parser and holds it to its promises: same result in any pieces, deltas that only append, no byte lost.
#![allow(dead_code, reason = "the fuzz target uses a part")]

use sf_codec::wire::{Answer, Delta, Input, Parser, Span, SpanKind, ToolSchema, Wire};

/// A piece of a raw output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// One token that stands for itself.
    Marker(String),
}

impl Piece {
    pub(crate) fn text(&self) -> &str {
        let (Piece::Text(text) | Piece::Marker(text)) = self;
        text
    }
}

/// One answer to be read.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) wire: &'static Wire,
    pub(crate) tools: &'a [ToolSchema],
    pub(crate) in_reasoning: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) events: Vec<Delta>,
    pub(crate) answer: Answer,
    pub(crate) spans: Vec<Span>,
}

impl Reading<'_> {
    pub(crate) fn parser(self) -> Parser {
        if self.in_reasoning {
            Parser::in_reasoning(self.wire, self.tools)
        } else {
            Parser::new(self.wire, self.tools)
        }
    }

    /// Reads all pieces. Every delta is folded as it comes, so that nothing depends on how they are merged.
    pub(crate) fn read(self, pieces: &[Piece]) -> Outcome {
        let mut parser = self.parser();
        let mut all = Vec::new();
        for piece in pieces {
            feed(&mut parser, piece, &mut all);
        }
        let mut last = Vec::new();
        parser.finish(&mut last);
        all.extend(last);
        outcome(&all, &parser)
    }

    /// What is promised of any input: the same result whole and by characters, and every byte accounted for.
    pub(crate) fn holds(self, pieces: &[Piece]) -> Outcome {
        let whole = self.read(pieces);
        account(pieces, &whole, self.wire);
        let mut parser = self.parser();
        let mut all = Vec::new();
        let mut so_far = Answer::default();
        for piece in by_character(pieces) {
            let mut out = Vec::new();
            feed(&mut parser, &piece, &mut out);
            out.iter().for_each(|delta| so_far.take(delta));
            begins(&so_far, &whole.answer);
            all.extend(out);
        }
        parser.finish(&mut all);
        assert_eq!(outcome(&all, &parser), whole, "by characters, {}: {pieces:?}", self.wire.name());
        whole
    }
}

pub(crate) fn feed(parser: &mut Parser, piece: &Piece, out: &mut Vec<Delta>) {
    match piece {
        Piece::Text(text) => parser.feed(Input::Text(text), out),
        Piece::Marker(text) => parser.feed(Input::Marker(text), out),
    }
}

pub(crate) fn by_character(pieces: &[Piece]) -> Vec<Piece> {
    let split = |piece: &Piece| match piece {
        Piece::Text(text) => text.chars().map(|c| Piece::Text(c.into())).collect(),
        marker @ Piece::Marker(_) => vec![marker.clone()],
    };
    pieces.iter().flat_map(split).collect()
}

/// The deltas with neighbours of one kind joined, so that they do not depend on the pieces.
pub(crate) fn outcome(deltas: &[Delta], parser: &Parser) -> Outcome {
    let mut events: Vec<Delta> = Vec::new();
    let mut answer = Answer::default();
    for delta in deltas {
        answer.take(delta);
        match (events.last_mut(), delta) {
            (Some(Delta::Text(last)), Delta::Text(more))
            | (Some(Delta::Reasoning(last)), Delta::Reasoning(more)) => last.push_str(more),
            (
                Some(Delta::CallArguments { index: last, fragment }),
                Delta::CallArguments { index, fragment: more },
            ) if last == index => fragment.push_str(more),
            _ => events.push(delta.clone()),
        }
    }
    Outcome { events, answer, spans: parser.spans().to_vec() }
}

/// An answer that is still coming is the start of the whole one.
fn begins(part: &Answer, whole: &Answer) {
    assert!(whole.text.starts_with(&part.text), "text is taken back: {part:?} {whole:?}");
    assert!(whole.reasoning.starts_with(&part.reasoning), "reasoning is taken back: {part:?} {whole:?}");
    assert!(whole.failures.starts_with(&part.failures), "a failure is taken back: {part:?} {whole:?}");
    for (part, whole) in part.calls.iter().zip(&whole.calls) {
        assert!(part.name == whole.name && part.id == whole.id, "{part:?} {whole:?}");
        assert!(whole.arguments.starts_with(&part.arguments), "{part:?} {whole:?}");
        assert!(whole.whole || !part.whole, "{part:?} {whole:?}");
    }
    assert!(part.calls.len() <= whole.calls.len());
}

/// Every byte of the input is text, reasoning, part of a call, or a mark; and what went out is what came in.
pub(crate) fn account(pieces: &[Piece], outcome: &Outcome, wire: &Wire) {
    let input: String = pieces.iter().map(Piece::text).collect();
    let (mut text, mut reasoning) = (String::new(), String::new());
    let mut calls = vec![String::new(); outcome.answer.calls.len()];
    let mut at = 0;
    for span in &outcome.spans {
        let part = &input[at..at + span.bytes];
        at += span.bytes;
        match span.kind {
            SpanKind::Text => text.push_str(part),
            SpanKind::Reasoning => reasoning.push_str(part),
            SpanKind::Call(index) => calls[index as usize].push_str(part),
            SpanKind::Markup => only_marks(part, wire),
        }
    }
    assert_eq!(at, input.len(), "every byte is in a span: {input:?}");
    assert_eq!(text, outcome.answer.text, "{input:?}");
    assert_eq!(reasoning, outcome.answer.reasoning, "{input:?}");
    for failure in &outcome.answer.failures {
        match failure.call {
            Some(index) => assert_eq!(failure.raw, calls[index as usize], "{input:?}"),
            None => assert!(text.contains(&failure.raw), "{failure:?} in {text:?}"),
        }
    }
    for (index, call) in outcome.answer.calls.iter().enumerate() {
        assert!(!calls[index].is_empty(), "a call comes from somewhere: {call:?}");
        let failed = outcome.answer.failures.iter().any(|failure| failure.call == Some(index as u32));
        assert!(call.whole != failed, "a call is whole or failed: {call:?}");
    }
}

/// Markup holds nothing but marks, white space and a list's punctuation (and the words of a header, where there are).
fn only_marks(part: &str, wire: &Wire) {
    if matches!(wire.name(), "harmony" | "functionary") {
        return;
    }
    let mut rest = part.to_owned();
    let mut marks = wire.marks();
    marks.sort_by_key(|mark| std::cmp::Reverse(mark.len()));
    for mark in marks {
        rest = rest.replace(mark.trim(), " ");
    }
    let harmless = rest.chars().all(|c| c.is_whitespace() || matches!(c, '[' | ']' | ',' | ';' | '}'));
    assert!(harmless, "{}: {part:?} is more than marks", wire.name());
}

/// Any bytes as an output: the first picks the wire and the start, 0x01 begins and ends a marker token.
pub(crate) fn any_input(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let wires: Vec<&'static Wire> = Wire::all().collect();
    let text = String::from_utf8_lossy(rest);
    let pieces: Vec<Piece> = text
        .split('\u{1}')
        .enumerate()
        .map(|(at, part)| if at % 2 == 0 { Piece::Text(part.into()) } else { Piece::Marker(part.into()) })
        .collect();
    let tools = tools();
    let wire = wires[usize::from(first >> 2) % wires.len()];
    let reading =
        Reading { wire, tools: if first & 2 == 0 { &tools } else { &[] }, in_reasoning: first & 1 == 1 };
    reading.holds(&pieces);
}

/// The tools of every test.
pub(crate) fn tools() -> Vec<ToolSchema> {
    let schemas = [
        (
            "weather",
            r#"{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"metric":{"type":"boolean"}}}"#,
        ),
        ("add", r#"{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}}}"#),
        (
            "note",
            r#"{"type":"object","properties":{"text":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}},
                "meta":{"type":"object"},"when":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}"#,
        ),
        ("ping", ""),
    ];
    schemas.map(|(name, schema)| ToolSchema::from_json(name, schema).expect("a schema")).to_vec()
}

//! The machine that reads any wire: it decides for each stretch of an answer whether it is text, reasoning or a call.
//!
//! Of the text it holds back only what may still be a mark, white space at the start of an answer, and the head of a call
//! up to its name; all three are bounded. Inside a call that went out, a value waits only where the schema decides its type.

use super::calls::{Reader, Zone};
use super::delta::{CallFault, Delta, Span, SpanKind};
use super::fence::Fence;
use super::schema::ToolSchema;
use super::sink::{Progress, starts_name};
use super::window::{End, Found, Here, Mark, Window};
use super::{Bare, Calls, Shape, Wire};

/// White space that is held back at the start of an answer, in bytes.
const SPACE_BYTES_MAX: usize = 64;
/// Steps without progress after which a character is passed as text; no wire needs more than a few.
const IDLE_STEPS_MAX: u32 = 16;

/// A piece of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// Text, cut anywhere between characters.
    Text(&'a str),
    /// The whole text of one token that stands for itself: a control token or a user-defined one.
    Marker(&'a str),
}

/// Where an answer is between its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seam {
    Start,
    BehindReasoning,
    BehindCall,
}

#[derive(Debug)]
pub(super) enum State {
    Seam(Seam),
    Text,
    /// `lead`: nothing of it came yet. A line break at the end of a window waits in `raw`: it may belong to the mark.
    Reasoning {
        lead: bool,
    },
    Zone(Zone),
    Call(Zone, Box<Reader>, Progress),
    /// A call that broke: what follows belongs to it up to a mark that ends calls.
    Broken(Zone, Option<u32>, CallFault),
    /// Between messages that have headers.
    Between,
    Header,
    /// The content of a message.
    Message(SpanKind),
}

/// Reads one answer.
#[derive(Debug)]
pub struct Parser {
    pub(super) wire: &'static Wire,
    pub(super) tools: Vec<ToolSchema>,
    pub(super) window: Window,
    pub(super) state: State,
    fence: Fence,
    /// The answer keeps to a grammar: what opens a call is one, even in a block of code.
    pub(super) held: bool,
    pub(super) calls: u32,
    /// Taken and not accounted for yet.
    pub(super) raw: String,
    spans: Vec<Span>,
}

impl Parser {
    /// A parser of one answer. Without tools nothing is a call, except on wires with channels, whose headers say so.
    pub fn new(wire: &'static Wire, tools: &[ToolSchema]) -> Parser {
        let state = match wire.shape {
            Shape::Channels(_) => State::Between,
            _ => State::Seam(Seam::Start),
        };
        Parser {
            wire,
            tools: tools.to_vec(),
            window: Window::new(),
            state,
            fence: Fence::new(),
            held: false,
            calls: 0,
            raw: String::new(),
            spans: Vec::new(),
        }
    }

    /// The same for an answer that starts inside reasoning, see [`Wire::leaves_reasoning_open`].
    pub fn in_reasoning(wire: &'static Wire, tools: &[ToolSchema]) -> Parser {
        let mut parser = Parser::new(wire, tools);
        if !wire.reasoning.opens.is_empty() {
            parser.state = State::Reasoning { lead: true };
        }
        parser
    }

    /// The same for an answer that keeps to [`Wire::call_grammar`]: what opens a call is one, even in a block of code.
    #[must_use]
    pub fn held(mut self) -> Parser {
        self.held = true;
        self
    }

    /// Takes the next piece and appends what is certain now.
    pub fn feed(&mut self, input: Input<'_>, out: &mut Vec<Delta>) {
        match input {
            Input::Text(text) => self.window.push(text),
            Input::Marker(text) => {
                self.window.close(End::Marker);
                self.run(out);
                self.window.put_marker(text);
            }
        }
        self.run(out);
        if self.window.end() == End::Marker {
            self.window.push("");
        }
    }

    /// The answer is over: what was held back goes out, and an open call is reported as cut.
    pub fn finish(&mut self, out: &mut Vec<Delta>) {
        self.window.close(End::Output);
        self.run(out);
        match std::mem::replace(&mut self.state, State::Text) {
            State::Zone(zone) => self.leave(zone, CallFault::Truncated, out),
            State::Call(zone, _, progress) => self.fail(zone, progress, CallFault::Truncated, out),
            State::Reasoning { .. } => self.settle(SpanKind::Reasoning, out),
            State::Header => self.cut_header(out),
            other => self.state = other,
        }
        if let State::Broken(_, call, why) = self.state {
            self.report(call, why, out);
        }
        self.state = State::Text;
    }

    /// What became of the input so far, in order; what is held back is not in it yet.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    fn run(&mut self, out: &mut Vec<Delta>) {
        let mut idle = 0;
        while !self.window.is_empty() {
            let before = self.window.rest().len();
            let goes_on = self.step(out);
            let moved = self.window.rest().len() < before;
            idle = if moved { 0 } else { idle + 1 };
            if !goes_on && !moved && self.window.end() == End::Open {
                break;
            }
            if idle > IDLE_STEPS_MAX {
                debug_assert!(false, "{} stands still in {:?}", self.wire.name, self.state);
                let one = self.window.peek().map_or(0, char::len_utf8);
                self.settle(SpanKind::Text, out);
                self.say(SpanKind::Text, one, out);
                self.state = State::Text;
            }
        }
    }

    /// One step; false if it needs more input.
    fn step(&mut self, out: &mut Vec<Delta>) -> bool {
        match std::mem::replace(&mut self.state, State::Text) {
            State::Seam(seam) => self.seam(seam, out),
            State::Text => self.text(out),
            State::Reasoning { lead } => self.reasoning(lead, out),
            State::Zone(zone) => self.zone(zone, out),
            State::Call(zone, reader, progress) => self.call(zone, reader, progress, out),
            State::Broken(zone, call, why) => self.broken(zone, call, why, out),
            State::Between => self.between(out),
            State::Header => self.header(out),
            State::Message(kind) => self.message(kind, out),
        }
    }

    /// Takes `bytes` as `kind`; text and reasoning go out as they are.
    pub(super) fn say(&mut self, kind: SpanKind, bytes: usize, out: &mut Vec<Delta>) {
        let mut text = String::new();
        self.window.take(bytes, &mut text);
        self.account(kind, &text, out);
    }

    /// Takes `bytes` that are not decided yet.
    pub(super) fn hold(&mut self, bytes: usize) {
        self.window.take(bytes, &mut self.raw);
    }

    /// What was held is `kind`.
    pub(super) fn settle(&mut self, kind: SpanKind, out: &mut Vec<Delta>) {
        let raw = std::mem::take(&mut self.raw);
        self.account(kind, &raw, out);
    }

    pub(super) fn account(&mut self, kind: SpanKind, text: &str, out: &mut Vec<Delta>) {
        if text.is_empty() {
            return;
        }
        match self.spans.last_mut() {
            Some(span) if span.kind == kind => span.bytes += text.len(),
            _ => self.spans.push(Span { kind, bytes: text.len() }),
        }
        match (kind, out.last_mut()) {
            (SpanKind::Text, Some(Delta::Text(last))) => last.push_str(text),
            (SpanKind::Text, _) => out.push(Delta::Text(text.to_owned())),
            (SpanKind::Reasoning, Some(Delta::Reasoning(last))) => last.push_str(text),
            (SpanKind::Reasoning, _) => out.push(Delta::Reasoning(text.to_owned())),
            (SpanKind::Call(_) | SpanKind::Markup, _) => {}
        }
        if kind == SpanKind::Text {
            self.fence.push_str(text);
        }
    }

    /// The calls that may come.
    fn expected(&self) -> Option<&'static Calls> {
        match &self.wire.shape {
            // Where text has a header too, it is read in any case.
            Shape::Calls(calls) if !self.tools.is_empty() || calls.bare == Bare::Name => Some(calls),
            _ => None,
        }
    }

    /// Marks that open reasoning or calls.
    fn openers(&self) -> [&'static [Mark]; 3] {
        let (opens, alone) = match self.expected() {
            Some(calls) => (calls.opens, if calls.alone { calls.call_opens } else { &[] }),
            None => (&[] as &[Mark], &[] as &[Mark]),
        };
        [self.wire.reasoning.opens, opens, alone]
    }

    fn seam(&mut self, seam: Seam, out: &mut Vec<Delta>) -> bool {
        self.state = State::Seam(seam);
        let space = self.window.space();
        if seam != Seam::Start && space > 0 {
            self.say(SpanKind::Markup, space, out);
            return true;
        }
        if space > SPACE_BYTES_MAX {
            self.say(SpanKind::Text, space, out);
            self.state = State::Text;
            return true;
        }
        if space == self.window.rest().len() {
            match self.window.end() {
                End::Open => return false,
                End::Marker => self.say(SpanKind::Markup, space, out),
                End::Output => self.say(SpanKind::Text, space, out),
            }
            return true;
        }
        let bare = self.expected().filter(|_| seam != Seam::BehindCall);
        let first = self.window.rest()[space..].chars().next();
        match (self.window.mark_at(space, &self.openers()), bare, first) {
            (Here::Maybe, ..) => return false,
            (Here::Mark { set: 0, length }, ..) => {
                self.say(SpanKind::Markup, space + length, out);
                self.state = State::Reasoning { lead: true };
            }
            (Here::Mark { .. }, ..) => {
                self.say(SpanKind::Markup, space, out);
                self.state = State::Text;
            }
            (Here::Nothing, Some(calls), Some(c)) if calls.bare.fits(c) => {
                self.hold(space);
                self.state = State::Zone(Zone::new(calls, true));
            }
            (Here::Nothing, ..) => {
                self.say(SpanKind::Text, space, out);
                self.state = State::Text;
            }
        }
        true
    }

    fn text(&mut self, out: &mut Vec<Delta>) -> bool {
        let mut sets = self.openers();
        let marker = self.window.is_marker();
        // Reasoning in the middle of text opens only by a token that cannot be written about.
        let tokens = |marks: &[Mark]| marks.iter().all(|mark| mark.token);
        if !tokens(sets[0]) {
            sets[0] = &[];
        }
        match self.window.find(&sets) {
            Found::Nothing => {
                let rest = self.window.rest().len();
                self.say(SpanKind::Text, rest, out);
            }
            Found::Maybe(0) => return false,
            Found::Maybe(at) => self.say(SpanKind::Text, at, out),
            // What stands before it decides whether this is code.
            Found::Mark { at, .. } if at > 0 => self.say(SpanKind::Text, at, out),
            Found::Mark { set, length, .. } => {
                let token = marker && tokens(sets[set]);
                if self.fence.inside() && !token && !self.held {
                    self.say(SpanKind::Text, length, out);
                } else if set == 0 {
                    self.say(SpanKind::Markup, length, out);
                    self.state = State::Reasoning { lead: true };
                } else if let Some(calls) = self.expected() {
                    self.state = State::Zone(Zone::new(calls, !calls.certain));
                }
            }
        }
        true
    }

    fn reasoning(&mut self, lead: bool, out: &mut Vec<Delta>) -> bool {
        self.state = State::Reasoning { lead };
        let marks = &self.wire.reasoning;
        let [_, opens, alone] = if marks.call_closes { self.openers() } else { [&[] as &[Mark]; 3] };
        let space = self.window.space();
        if lead && space > 0 {
            self.say(SpanKind::Markup, space, out);
            return true;
        }
        if lead {
            match self.window.starts(&[marks.opens, marks.title, marks.closes]) {
                Here::Maybe => return false,
                // A model that opens what its prompt has opened already.
                Here::Mark { set: 0, length } => self.say(SpanKind::Markup, length, out),
                Here::Mark { set: 1, length } => {
                    self.say(SpanKind::Markup, length, out);
                    self.state = State::Reasoning { lead: false };
                }
                _ => self.state = State::Reasoning { lead: false },
            }
            return true;
        }
        let sets = [marks.closes, opens, alone];
        let found = self.window.find(&sets);
        if !self.raw.is_empty() {
            // Whether the line break that waits is the mark's shows when this is one.
            if found == Found::Maybe(0) {
                return false;
            }
            let at_close = matches!(found, Found::Mark { at: 0, .. });
            self.settle(if at_close { SpanKind::Markup } else { SpanKind::Reasoning }, out);
        }
        match found {
            Found::Mark { at: 0, set: 0, length } => {
                self.say(SpanKind::Markup, length, out);
                self.state = State::Seam(Seam::BehindReasoning);
            }
            Found::Mark { at: 0, .. } => self.state = State::Text,
            Found::Mark { at, .. } => self.say(SpanKind::Reasoning, at, out),
            Found::Maybe(0) => return false,
            Found::Maybe(at) => self.say(SpanKind::Reasoning, at, out),
            Found::Nothing => {
                let rest = self.window.rest();
                let before_marker = self.window.end() == End::Marker && !self.window.is_marker();
                let waits = usize::from(before_marker && rest.ends_with('\n'));
                let certain = rest.len() - waits;
                self.say(SpanKind::Reasoning, certain, out);
                self.hold(waits);
            }
        }
        true
    }

    pub(super) fn has_channels(&self) -> bool {
        matches!(self.wire.shape, Shape::Channels(_))
    }
}

impl Bare {
    fn fits(self, c: char) -> bool {
        match self {
            Bare::Never => false,
            Bare::Of(starts) => starts.contains(c),
            Bare::Name => starts_name(c),
        }
    }
}

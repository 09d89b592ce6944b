//! Reads the calls of an answer and what surrounds them, up to where text goes on; decides what becomes of one that breaks.

use super::delta::{CallFault, Delta, SpanKind};
use super::named::NamedCall;
use super::object::ObjectCall;
use super::parser::{Parser, Seam, State};
use super::python::PythonCall;
use super::sink::{Progress, Sink, Turn, starts_name};
use super::tagged::TaggedCall;
use super::window::{Found, Here};
use super::{Body, Calls};

/// The head of a call that is held back until its name is certain, in bytes.
const HEAD_BYTES_MAX: usize = 128 << 10;

/// The surroundings of calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zone {
    pub(super) calls: &'static Calls,
    /// Opened, and neither call nor failure since.
    pub(super) due: bool,
    /// A separator since the last call.
    separated: bool,
    /// A call stood here.
    called: bool,
    /// No mark that is certain opened it.
    pub(super) doubtful: bool,
}

#[derive(Debug)]
pub(super) enum Reader {
    Object(ObjectCall),
    Named(NamedCall),
    Tagged(TaggedCall),
    Python(PythonCall),
}

impl Parser {
    pub(super) fn zone(&mut self, mut zone: Zone, out: &mut Vec<Delta>) -> bool {
        let calls = zone.calls;
        let Some(c) = self.window.peek() else { return true };
        if self.raw.len() > HEAD_BYTES_MAX {
            self.leave(zone, CallFault::Limit, out);
            return true;
        }
        if c.is_whitespace() {
            let space = self.window.space();
            self.hold(space);
            self.state = State::Zone(zone);
            return true;
        }
        match self.window.starts(&[calls.opens, calls.closes, calls.call_opens, calls.call_closes]) {
            Here::Maybe => {
                self.state = State::Zone(zone);
                return false;
            }
            Here::Mark { set, length } => {
                let opens = set == 0 || set == 2;
                if opens && !zone.due && !zone.separated {
                    // What closed the call before is no part of the next one.
                    self.settle(SpanKind::Markup, out);
                }
                self.hold(length);
                zone.due |= opens;
                zone.doubtful &= !(set == 0 && calls.certain);
                match set {
                    1 => self.close(zone, out),
                    2 => self.state = State::open(zone, &calls.bodies[0]),
                    _ => self.state = State::Zone(zone),
                }
                return true;
            }
            Here::Nothing => {}
        }
        let separates = match c {
            '[' => calls.list && !zone.called,
            // Models often close one brace too many.
            ',' | ';' | '}' => zone.called,
            ']' => calls.list && zone.called,
            _ => false,
        };
        if separates {
            zone.separated |= c != ']';
            self.hold(c.len_utf8());
            self.state = State::Zone(zone);
            return true;
        }
        // Behind a call a word is text: only a mark, a separator or a brace announces another.
        let may_open = calls.call_opens.is_empty() && (zone.due || zone.separated || c == '{');
        let body = calls.bodies.iter().find(|body| may_open && body.starts_with(c));
        match body {
            Some(body) => self.state = State::open(zone, body),
            None => self.leave(zone, CallFault::Missing, out),
        }
        true
    }

    /// A mark that closes the calls was taken.
    fn close(&mut self, zone: Zone, out: &mut Vec<Delta>) {
        if zone.due {
            self.leave(zone, CallFault::Missing, out);
        } else {
            self.settle(SpanKind::Markup, out);
            self.state = State::Seam(Seam::BehindCall);
        }
    }

    /// Something else than a call follows.
    pub(super) fn leave(&mut self, zone: Zone, why: CallFault, out: &mut Vec<Delta>) {
        if zone.due {
            let raw = self.raw.clone();
            self.settle(SpanKind::Text, out);
            if !zone.doubtful {
                out.push(Delta::Failure { call: None, raw, why });
            }
        } else if zone.separated {
            self.settle(SpanKind::Text, out);
        } else {
            self.settle(SpanKind::Markup, out);
            self.state = State::Seam(Seam::BehindCall);
            return;
        }
        self.state = State::Text;
    }

    pub(super) fn call(
        &mut self,
        mut zone: Zone,
        mut reader: Box<Reader>,
        mut progress: Progress,
        out: &mut Vec<Delta>,
    ) -> bool {
        let calls = zone.calls;
        let mut sink = Sink {
            out: &mut *out,
            raw: &mut self.raw,
            tools: &self.tools,
            calls: &mut self.calls,
            progress: &mut progress,
            known_only: zone.doubtful,
            held: self.held,
            ends: [calls.closes, calls.call_closes, calls.opens, calls.call_opens],
        };
        let mut turn = match &mut *reader {
            Reader::Object(call) => call.step(&mut self.window, &mut sink),
            Reader::Named(call) => call.step(&mut self.window, &mut sink),
            Reader::Tagged(call) => call.step(&mut self.window, &mut sink),
            Reader::Python(call) => call.step(&mut self.window, &mut sink),
        };
        if turn == Turn::On && progress.begun.is_none() && self.raw.len() > HEAD_BYTES_MAX {
            turn = Turn::Fault(CallFault::Limit);
        }
        match (turn, progress.begun) {
            (Turn::On, _) => {
                self.state = State::Call(zone, reader, progress);
                return false;
            }
            (Turn::Done, Some(index)) => {
                out.push(Delta::CallEnd { index });
                self.settle(SpanKind::Call(index), out);
                (zone.due, zone.separated, zone.called) = (false, false, true);
                self.state = if self.has_channels() { State::Between } else { State::Zone(zone) };
            }
            (Turn::Done | Turn::Prose, _) => {
                self.settle(SpanKind::Markup, out);
                self.state = State::Text;
            }
            (Turn::Fault(why), _) => self.fail(zone, progress, why, out),
        }
        true
    }

    /// A call broke: one that went out is ended, one that did not is text.
    pub(super) fn fail(&mut self, mut zone: Zone, progress: Progress, why: CallFault, out: &mut Vec<Delta>) {
        zone.due = false;
        if progress.begun.is_some() {
            self.state = State::Broken(zone, progress.begun, why);
            return;
        }
        if zone.doubtful && !progress.named {
            self.settle(SpanKind::Text, out);
            self.state = State::Text;
            return;
        }
        let raw = self.raw.clone();
        self.settle(SpanKind::Text, out);
        let ends = zone.calls.closes.len() + zone.calls.call_closes.len();
        if ends == 0 || why == CallFault::Missing {
            out.push(Delta::Failure { call: None, raw, why });
            self.state = State::Text;
        } else {
            // The rest goes out as text at once, and is kept for the report.
            self.raw = raw;
            self.state = State::Broken(zone, None, why);
        }
    }

    pub(super) fn broken(
        &mut self,
        mut zone: Zone,
        call: Option<u32>,
        why: CallFault,
        out: &mut Vec<Delta>,
    ) -> bool {
        self.state = State::Broken(zone, call, why);
        let calls = zone.calls;
        let opens = [calls.opens, calls.call_opens];
        let found = self.window.find(&[calls.closes, calls.call_closes, opens[0], opens[1]]);
        let until = match found {
            Found::Maybe(0) => return false,
            Found::Maybe(at) => at,
            Found::Mark { at, set, length } => at + if set < 2 { length } else { 0 },
            Found::Nothing => self.window.rest().len(),
        };
        self.take_broken(call, until, out);
        let Found::Mark { set, .. } = found else { return true };
        self.report(call, why, out);
        (zone.separated, zone.called) = (false, true);
        self.state = match set {
            _ if self.has_channels() => State::Between,
            0 => State::Seam(Seam::BehindCall),
            _ => State::Zone(zone),
        };
        true
    }

    fn take_broken(&mut self, call: Option<u32>, bytes: usize, out: &mut Vec<Delta>) {
        let mut part = String::new();
        self.window.take(bytes, &mut part);
        if call.is_none() {
            self.account(SpanKind::Text, &part, out);
        }
        self.raw.push_str(&part);
    }

    /// The end of what broke.
    pub(super) fn report(&mut self, call: Option<u32>, why: CallFault, out: &mut Vec<Delta>) {
        let raw = std::mem::take(&mut self.raw);
        if let Some(index) = call {
            self.account(SpanKind::Call(index), &raw, out);
        }
        out.push(Delta::Failure { call, raw, why });
    }
}

impl Zone {
    pub(super) fn new(calls: &'static Calls, doubtful: bool) -> Zone {
        Zone { calls, due: true, separated: false, called: false, doubtful }
    }
}

impl State {
    fn open(zone: Zone, body: &'static Body) -> State {
        let reader = match body {
            Body::Object => Reader::Object(ObjectCall::new()),
            Body::Named(form) => Reader::Named(NamedCall::new(form)),
            Body::Tagged(form) => Reader::Tagged(TaggedCall::new(form)),
            Body::Python => Reader::Python(PythonCall::new()),
        };
        State::Call(zone, Box::new(reader), Progress::default())
    }
}

impl Body {
    fn starts_with(&self, c: char) -> bool {
        match self {
            Body::Object => c == '{',
            Body::Named(_) | Body::Tagged(_) | Body::Python => starts_name(c),
        }
    }
}

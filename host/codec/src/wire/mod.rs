//! Takes an answer apart as it comes: text, reasoning and tool calls, in the wire that the model was trained to write.
//!
//! A [`Wire`] describes one family: which marks open and close reasoning and calls, and how name and arguments stand
//! between them. All wires are rows of one table, and one machine, [`Parser`], reads them all. It is total: any input
//! becomes deltas, every byte of it is accounted for ([`Parser::spans`]), and deltas only append. What looks like a call
//! and is none is text plus a [`Delta::Failure`]; what breaks behind its name ends that call with one. It renders
//! nothing, knows no token ids and no API: tokens come as their text, with a word on whether they stand for themselves.

mod calls;
mod channels;
mod delta;
mod fence;
mod forced;
mod json;
mod named;
mod object;
mod parser;
mod plain;
mod python;
mod schema;
mod sink;
mod table;
mod tagged;
mod value;
mod window;

pub use delta::{Answer, Call, CallFault, Delta, Failure, Span, SpanKind};
pub use forced::{CallForm, Callable, NotHeld, Thought};
pub use parser::{Input, Parser};
pub use plain::parameters_text;
pub use schema::{BadToolSchema, ToolSchema};

use forced::Written;
pub(crate) use json::push_char;
use named::Named;
use tagged::Tagged;
use window::Mark;

/// How one family of models writes reasoning and tool calls.
pub struct Wire {
    name: &'static str,
    aliases: &'static [&'static str],
    /// Any of them in a chat template tells the family.
    clues: &'static [Clue],
    reasoning: Reasoning,
    shape: Shape,
    /// How calls are written, the first that the vocabulary allows; none where there are none.
    written: &'static [Written],
}

/// What a template holds: all of `with` and none of `without`.
#[derive(Debug)]
struct Clue {
    with: &'static [&'static str],
    without: &'static [&'static str],
}

/// Marks around reasoning.
#[derive(Debug)]
struct Reasoning {
    opens: &'static [Mark],
    closes: &'static [Mark],
    /// What may stand right behind `opens` and says nothing.
    title: &'static [Mark],
    /// Whether a call ends it as well: only where the mark of a call is never written about.
    call_closes: bool,
}

#[derive(Debug)]
enum Shape {
    /// No calls.
    Plain,
    /// Calls between marks.
    Calls(Calls),
    /// Every message has a header that names its channel.
    Channels(Channels),
}

/// How calls stand in the text.
#[derive(Debug)]
struct Calls {
    /// Around all calls.
    opens: &'static [Mark],
    closes: &'static [Mark],
    /// Around each call; none where its body tells its bounds.
    call_opens: &'static [Mark],
    call_closes: &'static [Mark],
    /// Whether a call may stand without the marks around all.
    alone: bool,
    /// What starts a call with no mark at all, right at the start of the answer.
    bare: Bare,
    /// Whether `opens` makes a call certain, whatever its name.
    certain: bool,
    /// Whether calls may stand in a list's brackets.
    list: bool,
    /// Told apart by the first character.
    bodies: &'static [Body],
}

/// What may start a call that no mark opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bare {
    Never,
    /// One of these characters.
    Of(&'static str),
    /// The name.
    Name,
}

/// How a call is written.
#[derive(Debug)]
enum Body {
    Object,
    Named(Named),
    Tagged(Tagged),
    Python,
}

/// Headers of messages.
#[derive(Debug)]
struct Channels {
    /// What starts a header.
    starts: &'static [Mark],
    /// What ends it.
    message: &'static [Mark],
    /// How a message that is a call goes on behind its header, and what ends any message.
    calls: Calls,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Wire").field(&self.name).finish()
    }
}

impl Wire {
    /// The family's name, as [`Wire::by_name`] takes it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// All wires, the more particular first.
    pub fn all() -> impl Iterator<Item = &'static Wire> {
        table::WIRES.iter().copied()
    }

    /// The wire of a name or an alias; case, `-` and `_` do not matter.
    pub fn by_name(name: &str) -> Option<&'static Wire> {
        let same = |known: &str| {
            let fold = |text: &str| text.to_ascii_lowercase().replace(['-', '.'], "_");
            fold(known) == fold(name)
        };
        Wire::all().find(|wire| same(wire.name) || wire.aliases.iter().any(|alias| same(alias)))
    }

    /// The wire whose marks a chat template holds.
    pub fn detect(template: &str) -> Option<&'static Wire> {
        let holds = |clue: &Clue| {
            let has = |part: &&str| template.contains(*part);
            clue.with.iter().all(has) && !clue.without.iter().any(has)
        };
        Wire::all().find(|wire| wire.clues.iter().any(holds))
    }

    /// Whether a rendered prompt leaves reasoning open, so that the answer starts inside it.
    pub fn leaves_reasoning_open(&self, prompt: &str) -> bool {
        let prompt = prompt.trim_end();
        self.reasoning.opens.iter().any(|mark| prompt.ends_with(mark.text.trim_end()))
    }

    /// Whether a rendered prompt opens and closes reasoning itself, so that there is none in the answer.
    pub fn leaves_reasoning_closed(&self, prompt: &str) -> bool {
        let prompt = prompt.trim_end();
        self.reasoning.closes.iter().any(|mark| prompt.ends_with(mark.text.trim()))
    }

    /// Whether a template knows the marks of reasoning: its model may think. Where reasoning has a channel it always may.
    pub fn thinks_in(&self, template: &str) -> bool {
        let marks = self.reasoning.opens.iter().chain(self.reasoning.closes);
        matches!(self.shape, Shape::Channels(_))
            || marks.into_iter().any(|mark| template.contains(mark.text.trim()))
    }

    /// Marks that count only as control tokens, in groups: without a token of each group, calls are never seen.
    pub(crate) fn needed_tokens(&self) -> Vec<Vec<&'static str>> {
        let groups = match &self.shape {
            Shape::Plain => vec![],
            // What may start with no mark at all does not need one.
            Shape::Calls(calls) if calls.bare != Bare::Never => vec![],
            Shape::Calls(calls) => vec![calls.opens, calls.call_opens],
            Shape::Channels(channels) => vec![channels.starts, channels.message],
        };
        let needed =
            groups.into_iter().filter(|marks| !marks.is_empty() && marks.iter().all(|mark| mark.token));
        needed.map(|marks| marks.iter().map(|mark| mark.text).collect()).collect()
    }

    /// The texts of every mark that the wire knows, for a grammar or a list of tokens to keep visible.
    pub fn marks(&self) -> Vec<&'static str> {
        let mut texts: Vec<&str> = self.all_marks().iter().map(|mark| mark.text).collect();
        texts.sort_unstable();
        texts.dedup();
        texts
    }

    /// The texts of marks that count only as one control token.
    pub fn token_marks(&self) -> Vec<&'static str> {
        self.all_marks().iter().filter(|mark| mark.token).map(|mark| mark.text).collect()
    }

    /// Marks around reasoning and calls, and those inside of calls that look like control tokens.
    fn all_marks(&self) -> Vec<Mark> {
        let mut marks = vec![self.reasoning.opens, self.reasoning.closes, self.reasoning.title];
        let calls = match &self.shape {
            Shape::Plain => None,
            Shape::Calls(calls) => Some(calls),
            Shape::Channels(channels) => {
                marks.extend([channels.starts, channels.message]);
                Some(&channels.calls)
            }
        };
        let mut inner: Vec<&[Mark]> = Vec::new();
        if let Some(calls) = calls {
            marks.extend([calls.opens, calls.closes, calls.call_opens, calls.call_closes]);
            calls.bodies.iter().for_each(|body| inner.extend(body.marks()));
        }
        let inner = inner.into_iter().flatten().filter(|mark| forced::is_like_a_token(mark.text));
        marks.into_iter().flatten().chain(inner).copied().collect()
    }
}

impl Body {
    fn marks(&self) -> Vec<&'static [Mark]> {
        match self {
            Body::Object | Body::Python => Vec::new(),
            Body::Named(form) => vec![form.kind_ends, form.ends, form.id_follows, form.before, form.quotes],
            Body::Tagged(form) => {
                let mut marks = vec![form.name_ends, form.name_stops, form.key_opens, form.value_opens];
                marks.extend(form.key_ends);
                marks.extend([form.value_ends, form.value_stops, form.ends, form.stops]);
                marks
            }
        }
    }
}

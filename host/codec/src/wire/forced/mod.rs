//! Writes the grammar of an answer that must be tool calls, or of one whose calls keep to the schemas of their tools.
//!
//! The text of a grammar is llguidance's Lark; what it lets through is what this wire's parser reads as exactly these
//! calls. It knows no template and draws no tokens.

mod arguments;
mod channels;
mod lark;
mod schema;
mod strings;
mod tags;
mod values;
mod written;

pub(in crate::wire) use written::{Several, Style, Tags, Written};

use sf_core::{Token, Tool, lark_text, regex_text};

use self::arguments::Callee;
use self::lark::{ANY, Writer};
use super::sink::{NAME_BYTES_MAX, in_name, starts_name};
use super::window::Mark;
use super::{Bare, Body, Calls, Shape, Wire};

/// Digits behind a call's name, as in `name:0`.
const NUMBER: &str = "/:[0-9]{1,3}/";

/// What an answer may call, or must.
#[derive(Clone, Debug)]
pub struct CallForm<'a> {
    /// What may be called.
    pub tools: Vec<Callable<'a>>,
    /// Whether it is nothing but calls; else text may stand before, between and behind them.
    pub must: bool,
    /// Whether there may be more than one call.
    pub several: bool,
    /// Whether reasoning comes first.
    pub reasoning: Thought,
}

/// A tool that an answer may call.
#[derive(Clone, Copy, Debug)]
pub struct Callable<'a> {
    /// The tool.
    pub tool: &'a Tool,
    /// Its place among the tools of the request.
    pub index: usize,
    /// Whether its arguments keep to its schema; else they are any object.
    pub strict: bool,
}

/// Whether an answer begins with reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thought {
    /// It does: the prompt leaves reasoning open.
    Open,
    /// It may.
    Possible,
    /// It does not.
    No,
}

/// Why calls cannot be held to a grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHeld {
    /// The wire has no calls.
    #[error("answers in {wire} hold no calls (codec.no_calls)")]
    NoCalls {
        /// The wire.
        wire: &'static str,
    },
    /// Text and calls cannot be told apart by the first token.
    #[error(
        "in {wire}, no mark tells a call from text, so only calls that must be made are held (codec.no_mark)"
    )]
    NoMark {
        /// The wire.
        wire: &'static str,
    },
    /// The vocabulary lacks what opens calls.
    #[error("calls in {wire} need the token {mark}, which this model's vocabulary lacks (codec.no_token)")]
    NoToken {
        /// The wire.
        wire: &'static str,
        /// The token's text.
        mark: String,
    },
    /// A tool whose name the wire cannot spell.
    #[error("this model's calls, which are {wire}'s, cannot spell the name {name:?} (codec.tool_name)")]
    Name {
        /// The wire.
        wire: &'static str,
        /// The tool's place among those of the request.
        tool: usize,
        /// Its name.
        name: String,
    },
    /// A part of a tool's schema that the wire cannot be held to.
    #[error("{}: {reason} (codec.tool_schema)", if .at.is_empty() { "the schema" } else { .at })]
    Schema {
        /// The tool's place among those of the request.
        tool: usize,
        /// JSON pointer into its schema; empty = all of it.
        at: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Wire {
    /// A grammar, in llguidance's Lark, of answers that have this form. `token` finds the control token of a text.
    ///
    /// # Errors
    /// Why there is none.
    pub fn call_grammar(
        &'static self,
        form: &CallForm<'_>,
        token: &dyn Fn(&str) -> Option<Token>,
    ) -> Result<String, NotHeld> {
        let found: Vec<(&'static str, Token)> =
            self.tokens().into_iter().filter_map(|text| Some((text, token(text)?))).collect();
        let knows = |text: &&str| found.iter().any(|(known, _)| known == text);
        let usable = |written: &&Written| written.needs.iter().all(&knows);
        let Some(written) = self.written.iter().find(usable) else {
            let needs = self.written.iter().flat_map(|written| written.needs).find(|text| !knows(text));
            return Err(match needs {
                Some(mark) => NotHeld::NoToken { wire: self.name, mark: (*mark).to_owned() },
                None => NotHeld::NoCalls { wire: self.name },
            });
        };
        let only = self.all_marks().into_iter().filter(|mark| mark.token).map(|mark| mark.text).collect();
        let mut draft = Draft { wire: self, written, form, writer: Writer::new(self.name, found, only) };
        let start = match &self.shape {
            Shape::Plain => return Err(NotHeld::NoCalls { wire: self.name }),
            Shape::Channels(shape) => draft.channels(shape)?,
            Shape::Calls(calls) if form.must => draft.must(calls)?,
            Shape::Calls(calls) => draft.may(calls)?,
        };
        Ok(draft.writer.finish(&start))
    }

    /// Texts that are one token in vocabularies of this family.
    pub fn tokens(&self) -> Vec<&'static str> {
        let needs = self.written.iter().flat_map(|written| written.needs).copied();
        let mut texts: Vec<&str> =
            self.marks().into_iter().filter(|text| is_like_a_token(text)).chain(needs).collect();
        texts.sort_unstable();
        texts.dedup();
        texts
    }
}

/// Whether a mark looks like a control token rather than like a part of some text.
pub(in crate::wire) fn is_like_a_token(text: &str) -> bool {
    text.len() > 2 && text.starts_with(['<', '[']) && text.ends_with(['>', ']'])
}

/// A grammar on its way.
struct Draft<'a> {
    wire: &'static Wire,
    written: &'static Written,
    form: &'a CallForm<'a>,
    writer: Writer,
}

impl Draft<'_> {
    /// An answer of calls, behind reasoning where there is some.
    fn must(&mut self, calls: &'static Calls) -> Result<String, NotHeld> {
        let thought = match self.thought(calls)? {
            Some(thought) => {
                let thought = format!("{thought} /\\n{{1,2}}/?");
                if self.form.reasoning == Thought::Open { thought } else { format!("({thought})?") }
            }
            None => String::new(),
        };
        let (before, call) = (self.writer.text(self.written.call[0])?, self.call(calls)?);
        let call = self.writer.rule(&format!("{before} {call}"));
        let around = self.around(&call)?;
        Ok(format!("{thought} {around}"))
    }

    /// One or more calls between their marks.
    fn around(&mut self, call: &str) -> Result<String, NotHeld> {
        let opens = self.writer.text(self.written.opens)?;
        Ok(match self.written.several {
            Several::Apart(between) if self.form.several => {
                let one = format!("{opens} {call} {}", self.writer.text(self.written.closes)?);
                let one = self.writer.rule(&one);
                format!("{one} ({} {one})*", self.writer.text(between)?)
            }
            _ => format!("{opens} {call} {}", self.behind(call)?),
        })
    }

    /// What follows the first call between two marks.
    fn behind(&self, call: &str) -> Result<String, NotHeld> {
        let closes = self.writer.text(self.written.closes)?;
        Ok(match self.written.several {
            Several::Within(between) if self.form.several => {
                format!("({} {call})* {closes}", self.writer.text(between)?)
            }
            _ => closes,
        })
    }

    /// A call of any tool, without what stands before its name.
    fn call(&mut self, calls: &'static Calls) -> Result<String, NotHeld> {
        let form = calls.bodies.iter().find_map(|body| match body {
            Body::Tagged(form) => Some(form),
            _ => None,
        });
        let mut ways = Vec::new();
        for callable in &self.form.tools {
            let name = self.name(callable, calls)?;
            let callee = Callee {
                index: callable.index,
                schema: super::plain::parameters(callable.tool),
                held: callable.strict,
            };
            let arguments = arguments::of(&mut self.writer, &callee, self.written.style, form)?;
            let [_, between, behind] = self.written.call;
            let number = if self.written.numbered { NUMBER } else { "" };
            let (between, behind) = (self.writer.text(between)?, self.writer.text(behind)?);
            let name = lark_text(&name);
            ways.push(self.writer.rule(&format!("{name} {number} {between} {arguments} {behind}")));
        }
        Ok(format!("({})", ways.join(" | ")))
    }

    /// A tool's name as calls spell it.
    fn name(&self, callable: &Callable<'_>, calls: &Calls) -> Result<String, NotHeld> {
        let name = &callable.tool.name;
        let unfit = || NotHeld::Name { wire: self.wire.name, tool: callable.index, name: name.clone() };
        if self.written.call[0].starts_with('{') {
            let quoted = serde_json::Value::from(name.as_str()).to_string();
            return if name.len() <= NAME_BYTES_MAX {
                Ok(quoted[1..quoted.len() - 1].to_owned())
            } else {
                Err(unfit())
            };
        }
        let recipient = calls.bare == Bare::Name && name == "all";
        let longest = NAME_BYTES_MAX - "functions.:999".len();
        let fits = name.len() <= longest && name.starts_with(starts_name) && name.chars().all(in_name);
        if fits && !recipient { Ok(name.clone()) } else { Err(unfit()) }
    }

    /// The reasoning that an answer begins with.
    fn thought(&mut self, calls: &Calls) -> Result<Option<String>, NotHeld> {
        let marks = &self.wire.reasoning;
        if marks.opens.is_empty() || self.form.reasoning == Thought::No {
            return Ok(None);
        }
        let ended_by: Vec<&str> = if marks.call_closes {
            calls
                .opens
                .iter()
                .chain(calls.call_opens)
                .filter(|mark| !mark.token)
                .map(|mark| mark.text)
                .collect()
        } else {
            Vec::new()
        };
        let inner = self.writer.until(ANY, marks.closes, &ended_by);
        if self.form.reasoning == Thought::Open {
            return Ok(Some(inner));
        }
        let mut ways: Vec<String> = Vec::new();
        for mark in marks.opens {
            match self.writer.token(mark.text) {
                Some(token) => ways.push(format!("<[{token}]>")),
                None if mark.token => {}
                None => ways.push(self.writer.terminal(&format!("/\\s*{}/", regex_text(mark.text)))),
            }
        }
        Ok((!ways.is_empty()).then(|| format!("({}) {inner}", ways.join(" | "))))
    }

    /// Text with calls in it. What opens a call is never text.
    fn may(&mut self, calls: &'static Calls) -> Result<String, NotHeld> {
        if !calls.certain || calls.bare != Bare::Never {
            return Err(NotHeld::NoMark { wire: self.wire.name });
        }
        let thought = self.thought(calls)?;
        let text = self.prose();
        let chunks = self.chunks(calls, &text)?;
        if chunks.is_empty() {
            let mark = calls.opens.first().map_or("", |mark| mark.text).to_owned();
            return Err(NotHeld::NoToken { wire: self.wire.name, mark });
        }
        let chunk = self.writer.rule(&chunks.join(" | "));
        let body = if self.form.several && !self.written.last {
            format!("{chunk}* {text}?")
        } else {
            format!("({chunk} | {text}?)")
        };
        Ok(match (thought, self.form.reasoning) {
            (Some(thought), Thought::Open) => format!("{thought} {body}"),
            (Some(thought), _) => format!("({thought})? {body}"),
            (None, _) => body,
        })
    }

    /// Text that the parser does not take for reasoning.
    fn prose(&mut self) -> String {
        let opens = self.wire.reasoning.opens.iter().filter(|mark| !mark.token);
        let opens: Vec<String> = opens.map(|mark| regex_text(mark.text)).collect();
        let text = match opens.is_empty() {
            true => ANY.to_owned(),
            false => format!("{ANY} & ~/\\s*({})(?s:.*)/", opens.join("|")),
        };
        self.writer.terminal(&text)
    }

    /// Text up to a mark that opens calls, and these calls; one for each kind of such marks.
    fn chunks(&mut self, calls: &'static Calls, text: &str) -> Result<Vec<String>, NotHeld> {
        let mut chunks = Vec::new();
        let call = self.call(calls)?;
        let call = self.writer.rule(&call);
        let [own, ..] = self.written.call;
        let before = self.writer.text(own)?;
        let next = self.writer.rule(&format!("{before} {call}"));
        let head = format!("{}{own}", self.written.opens);
        if let Some(rest) = calls.opens.iter().find_map(|mark| head.strip_prefix(mark.text)) {
            let mut behind = format!("{} {call} {}", self.writer.text(rest)?, self.behind(&next)?);
            // Where nothing but another call may follow, it belongs to this chunk.
            let again = self.written.last && self.form.several;
            if let (Several::Apart(between), true) = (self.written.several, again) {
                let again = self.around(&next)?;
                behind = format!("{behind} ({} {again})?", self.writer.text(between)?);
            }
            chunks.extend(self.opened(text, calls.opens, &behind));
        }
        if (calls.alone || calls.opens.is_empty())
            && let Some(rest) = calls.call_opens.iter().find_map(|mark| own.strip_prefix(mark.text))
        {
            let behind = format!("{} {call}", self.writer.text(rest)?);
            chunks.extend(self.opened(text, calls.call_opens, &behind));
        }
        Ok(chunks)
    }

    /// Text up to a mark that opens a call, and the call.
    fn opened(&mut self, text: &str, marks: &[Mark], behind: &str) -> Vec<String> {
        let spelled: Vec<String> =
            marks.iter().filter(|mark| !mark.token).map(|mark| lark_text(mark.text)).collect();
        let mut ways = Vec::new();
        if !spelled.is_empty() {
            ways.push(format!("{} {behind}", self.writer.lazy(&format!("{text} ({})", spelled.join(" | ")))));
        }
        let tokens = marks.iter().filter_map(|mark| self.writer.token(mark.text));
        ways.extend(tokens.map(|token| format!("{text}? <[{token}]> {behind}")));
        ways
    }
}

//! Reads a call whose name stands before its arguments, which are one JSON object (or Gemma's form of it).

use super::delta::CallFault;
use super::sink::{Sink, Turn, in_name, push_name, starts_name};
use super::value::{Syntax, Took, Value};
use super::window::{Here, Mark, Window};

/// How name and arguments stand.
#[derive(Debug)]
pub(super) struct Named {
    /// What may stand before the name.
    pub(super) lead: &'static [Mark],
    /// What stands between the kind of a tool and its name.
    pub(super) kind_ends: &'static [Mark],
    /// What ends the name; the arguments follow.
    pub(super) ends: &'static [Mark],
    /// What ends the name where an id follows.
    pub(super) id_follows: &'static [Mark],
    /// Whether the opening brace may end the name itself.
    pub(super) brace_ends: bool,
    /// What may stand before the arguments.
    pub(super) before: &'static [Mark],
    /// How the name is written.
    pub(super) naming: Naming,
    /// The arguments' syntax.
    pub(super) syntax: Syntax,
    /// Opens and closes strings, in Gemma's syntax.
    pub(super) quotes: &'static [Mark],
}

/// How a wire writes names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// As they are.
    Bare,
    /// `functions.name:0`, which is also the call's id.
    Numbered,
    /// As they are; `all` is not a tool but plain text.
    Recipient,
}

#[derive(Debug)]
enum At {
    Lead,
    Name,
    Id,
    Before,
    Arguments(Value),
}

/// A call that is being read.
#[derive(Debug)]
pub(super) struct NamedCall {
    form: &'static Named,
    at: At,
    name: String,
    id: String,
}

impl NamedCall {
    pub(super) fn new(form: &'static Named) -> NamedCall {
        NamedCall { form, at: At::Lead, name: String::new(), id: String::new() }
    }

    /// A call whose name came in a header.
    pub(super) fn with_name(form: &'static Named, name: &str) -> NamedCall {
        NamedCall { form, at: At::Before, name: name.to_owned(), id: String::new() }
    }

    pub(super) fn step(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Turn {
        if matches!(self.at, At::Lead) {
            match window.starts(&[self.form.lead]) {
                Here::Maybe => return Turn::On,
                Here::Mark { length, .. } => sink.take(window, length),
                Here::Nothing => {}
            }
            self.at = At::Name;
        }
        match self.at {
            At::Lead | At::Name => self.name(window, sink),
            At::Id => self.id(window, sink),
            At::Before => self.before(window, sink),
            At::Arguments(_) => self.arguments(window, sink),
        }
    }

    fn name(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Turn {
        while let Some(c) = window.peek() {
            match window.starts(&[self.form.ends, self.form.id_follows, self.form.kind_ends]) {
                Here::Maybe => return Turn::On,
                Here::Mark { set: 2, length } => {
                    sink.take(window, length);
                    self.name.clear();
                    continue;
                }
                Here::Mark { set, length } => {
                    sink.take(window, length);
                    return self.named(if set == 0 { At::Before } else { At::Id }, sink);
                }
                Here::Nothing => {}
            }
            if c == '{' && self.form.brace_ends {
                return match self.named(At::Before, sink) {
                    Turn::On => self.before(window, sink),
                    other => other,
                };
            }
            let fits = match self.name.chars().next() {
                None => starts_name(c) || c.is_whitespace(),
                Some(_) => in_name(c) || c == ' ',
            };
            if !fits {
                return Turn::Fault(if self.name.is_empty() {
                    CallFault::Missing
                } else {
                    CallFault::Syntax
                });
            }
            sink.pop(window);
            if (!c.is_whitespace() || !self.name.is_empty())
                && let Err(why) = push_name(&mut self.name, c)
            {
                return Turn::Fault(why);
            }
        }
        Turn::On
    }

    /// The name is whole, as the wire writes it.
    fn named(&mut self, next: At, sink: &Sink<'_>) -> Turn {
        self.at = next;
        let written = self.name.trim_end();
        if written.is_empty() || written.contains(' ') {
            return Turn::Fault(CallFault::Missing);
        }
        match self.form.naming {
            Naming::Bare => self.name.truncate(written.len()),
            Naming::Numbered => {
                self.id = written.to_owned();
                let name = written.strip_prefix("functions.").unwrap_or(written);
                let name = match name.rsplit_once(':') {
                    Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
                    _ => name,
                };
                self.name = name.to_owned();
            }
            Naming::Recipient if written == "all" => return Turn::Prose,
            // Any line of text looks like this header, so a name that is none of ours is no failure.
            Naming::Recipient if !sink.tools.iter().any(|tool| tool.name() == written) => {
                return Turn::Fault(CallFault::Missing);
            }
            Naming::Recipient => self.name.truncate(written.len()),
        }
        Turn::On
    }

    fn id(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Turn {
        while let Some(c) = window.peek() {
            match window.starts(&[self.form.ends]) {
                Here::Maybe => return Turn::On,
                Here::Mark { length, .. } => {
                    sink.take(window, length);
                    self.at = At::Before;
                    return Turn::On;
                }
                Here::Nothing => {}
            }
            if !in_name(c) {
                return Turn::Fault(CallFault::Syntax);
            }
            sink.pop(window);
            if let Err(why) = push_name(&mut self.id, c) {
                return Turn::Fault(why);
            }
        }
        Turn::On
    }

    fn before(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Turn {
        let id = Some(&self.id).filter(|id| !id.is_empty()).cloned();
        while let Some(c) = window.peek() {
            if c.is_whitespace() {
                sink.pop(window);
            } else if c == '{' {
                if let Err(why) = sink.begin(id, &self.name) {
                    return Turn::Fault(why);
                }
                self.at = At::Arguments(Value::new(self.form.syntax));
                return self.arguments(window, sink);
            } else if let Here::Mark { length, .. } = window.starts(&[self.form.before]) {
                sink.take(window, length);
            } else if window.starts(&[self.form.before]) == Here::Maybe {
                return Turn::On;
            } else if matches!(sink.ends_here(window), Here::Mark { .. }) && !sink.known_only {
                // A call of a tool that takes nothing.
                if let Err(why) = sink.begin(id, &self.name) {
                    return Turn::Fault(why);
                }
                sink.arguments("{}");
                return Turn::Done;
            } else if sink.ends_here(window) == Here::Maybe {
                return Turn::On;
            } else {
                return Turn::Fault(CallFault::Syntax);
            }
        }
        Turn::On
    }

    fn arguments(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Turn {
        let At::Arguments(value) = &mut self.at else { return Turn::On };
        if sink.cut(window) {
            return Turn::Fault(CallFault::Truncated);
        }
        let mut more = String::new();
        while let Some(c) = window.peek() {
            let took = match window.starts(&[self.form.quotes]) {
                Here::Maybe => break,
                Here::Mark { length, .. } if !value.is_quoted() => {
                    value.mark(&mut more).map(|()| (Took::More, length))
                }
                Here::Mark { .. } | Here::Nothing => {
                    value.push(c, &mut more).map(|took| (took, c.len_utf8()))
                }
            };
            match took {
                Ok((Took::More, length)) => sink.take(window, length),
                Ok((_, length)) => {
                    sink.take(window, length);
                    sink.arguments(&more);
                    return Turn::Done;
                }
                // What breaks a call may be the start of the mark that ends it, so it is not taken.
                Err(why) => {
                    sink.arguments(&more);
                    return Turn::Fault(why);
                }
            }
        }
        sink.arguments(&more);
        Turn::On
    }
}

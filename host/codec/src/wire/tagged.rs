//! Reads a call whose parameters stand between tags, as raw text that the tool's schema gives a type.

use super::delta::CallFault;
use super::json::{push_char, push_text};
use super::schema::Types;
use super::sink::{Sink, Turn, in_name, push_name, starts_name};
use super::window::{End, Found, Here, Mark, Window};

/// How names and parameters stand.
#[derive(Debug)]
pub(super) struct Tagged {
    /// What ends the tool's name, and is taken.
    pub(super) name_ends: &'static [Mark],
    /// What ends it and belongs to what follows.
    pub(super) name_stops: &'static [Mark],
    /// Before the name of a parameter.
    pub(super) key_opens: &'static [Mark],
    /// Behind it: the schema says the type, the value is a string, the value is JSON.
    pub(super) key_ends: [&'static [Mark]; 3],
    /// Before the value, where it does not follow at once.
    pub(super) value_opens: &'static [Mark],
    /// Behind the value.
    pub(super) value_ends: &'static [Mark],
    /// What ends a value whose own end was forgotten; it is not taken.
    pub(super) value_stops: &'static [Mark],
    /// What ends the call, and is taken.
    pub(super) ends: &'static [Mark],
    /// What ends it and belongs to what surrounds it.
    pub(super) stops: &'static [Mark],
    /// Whether a line break right before the value is not part of it.
    pub(super) breaks_line: bool,
}

#[derive(Debug)]
enum At {
    Name,
    Between,
    Key(String),
    ValueOpen(String, usize),
    /// A value; `raw` waits for its end where the type may not be a string.
    Value {
        types: Option<Types>,
        raw: String,
        fresh: bool,
        /// A line break before a control token, which may belong to the mark that ends the value.
        line: bool,
        /// Where it is known to be JSON: a mark in a string of it ends nothing.
        quotes: Option<Quotes>,
    },
}

/// Whether a place in JSON is inside of a string.
#[derive(Clone, Copy, Debug, Default)]
struct Quotes {
    open: bool,
    escaped: bool,
}

impl Quotes {
    fn behind(self, text: &str) -> Quotes {
        text.chars().fold(self, |Quotes { open, escaped }, c| match c {
            _ if escaped => Quotes { open, escaped: false },
            '\\' if open => Quotes { open, escaped: true },
            '"' => Quotes { open: !open, escaped },
            _ => Quotes { open, escaped },
        })
    }
}

/// A call that is being read.
#[derive(Debug)]
pub(super) struct TaggedCall {
    form: &'static Tagged,
    at: At,
    name: String,
    parameters: usize,
}

impl TaggedCall {
    pub(super) fn new(form: &'static Tagged) -> TaggedCall {
        TaggedCall { form, at: At::Name, name: String::new(), parameters: 0 }
    }

    pub(super) fn step(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Turn {
        let turn = match &self.at {
            At::Name => self.name(window, sink),
            At::Between => Ok(self.between(window, sink)),
            At::Key(_) => self.key(window, sink),
            At::ValueOpen(..) => Ok(self.value_open(window, sink)),
            At::Value { .. } => Ok(self.value(window, sink)),
        };
        turn.unwrap_or_else(Turn::Fault)
    }

    fn name(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Result<Turn, CallFault> {
        while let Some(c) = window.peek() {
            match window.starts(&[self.form.name_ends, self.form.name_stops]) {
                Here::Mark { .. } if self.name.trim().is_empty() && !c.is_whitespace() => {
                    return Err(CallFault::Missing);
                }
                Here::Mark { .. } if self.name.trim().is_empty() => {}
                Here::Mark { set, length } => {
                    if set == 0 {
                        sink.take(window, length);
                    }
                    self.name.truncate(self.name.trim_end().len());
                    sink.begin(None, &self.name)?;
                    sink.arguments("{");
                    self.at = At::Between;
                    return Ok(self.between(window, sink));
                }
                Here::Maybe => return Ok(Turn::On),
                Here::Nothing => {}
            }
            let fits = if self.name.is_empty() { starts_name(c) } else { in_name(c) };
            let is_space = c == ' ' || (self.name.is_empty() && c.is_whitespace());
            if !fits && !is_space {
                return Err(if self.name.is_empty() { CallFault::Missing } else { CallFault::Syntax });
            }
            if fits && self.name.ends_with(' ') {
                return Err(CallFault::Missing);
            }
            sink.pop(window);
            if fits || !self.name.is_empty() {
                push_name(&mut self.name, c)?;
            }
        }
        Ok(Turn::On)
    }

    fn between(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Turn {
        let space = window.space();
        sink.take(window, space);
        if window.is_empty() {
            return Turn::On;
        }
        match window.starts(&[self.form.key_opens, self.form.ends, self.form.stops]) {
            Here::Maybe => Turn::On,
            Here::Mark { set: 0, length } => {
                sink.take(window, length);
                self.at = At::Key(String::new());
                Turn::On
            }
            Here::Mark { set, length } => {
                if set == 1 {
                    sink.take(window, length);
                }
                sink.arguments("}");
                Turn::Done
            }
            Here::Nothing => Turn::Fault(CallFault::Syntax),
        }
    }

    fn key(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Result<Turn, CallFault> {
        let At::Key(key) = &mut self.at else { return Ok(Turn::On) };
        while let Some(c) = window.peek() {
            match window.starts(&self.form.key_ends) {
                Here::Maybe => return Ok(Turn::On),
                Here::Mark { set, length } => {
                    sink.take(window, length);
                    let key = key.trim().to_owned();
                    if key.is_empty() {
                        return Err(CallFault::Syntax);
                    }
                    self.at = At::ValueOpen(key, set);
                    if self.form.value_opens.is_empty() {
                        self.open(sink);
                    }
                    return Ok(Turn::On);
                }
                Here::Nothing => {}
            }
            sink.pop(window);
            push_name(key, c)?;
        }
        Ok(Turn::On)
    }

    fn value_open(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Turn {
        let space = window.space();
        sink.take(window, space);
        if window.is_empty() {
            return Turn::On;
        }
        match window.starts(&[self.form.value_opens]) {
            Here::Maybe => Turn::On,
            Here::Mark { length, .. } => {
                sink.take(window, length);
                self.open(sink);
                Turn::On
            }
            Here::Nothing => Turn::Fault(CallFault::Syntax),
        }
    }

    /// The parameter's key goes out, and its value begins.
    fn open(&mut self, sink: &mut Sink<'_>) {
        let At::ValueOpen(key, kind) = &self.at else { return };
        let types = match kind {
            0 => sink.types(&self.name, key),
            1 => Types::string(),
            _ => Types::default(),
        };
        let mut json = String::from(if self.parameters > 0 { "," } else { "" });
        self.parameters += 1;
        push_text(key, &mut json);
        json.push(':');
        let waits = !types.only_string();
        let is_json = sink.held && waits && (*kind == 2 || !types.is_text());
        if !waits {
            json.push('"');
        }
        sink.arguments(&json);
        let fresh = self.form.breaks_line;
        let (types, quotes) = (waits.then_some(types), is_json.then(Quotes::default));
        self.at = At::Value { types, raw: String::new(), fresh, line: false, quotes };
    }

    fn value(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Turn {
        let At::Value { types, raw, fresh, line, quotes } = &mut self.at else { return Turn::On };
        if std::mem::take(fresh) && window.peek() == Some('\n') {
            sink.pop(window);
        }
        // What may stand there besides, text included, begins with a letter or a digit and is over at the first mark.
        let first = raw.chars().chain(window.rest().chars()).find(|c| !c.is_whitespace());
        quotes.take_if(|_| first.is_some_and(|c| !matches!(c, '[' | '{' | '"')));
        let mut found = window.find(&[self.form.value_ends, self.form.value_stops]);
        while let (Found::Mark { at, length, .. }, Some(inside)) = (&found, quotes.as_mut()) {
            let before = inside.behind(&window.rest()[..*at]);
            if !before.open {
                break;
            }
            let behind = at + length;
            *inside = before.behind(&window.rest()[*at..behind]);
            raw.push_str(&window.rest()[..behind]);
            sink.take(window, behind);
            found = window.find(&[self.form.value_ends, self.form.value_stops]);
        }
        let until = match found {
            Found::Mark { at, .. } | Found::Maybe(at) => at,
            Found::Nothing => window.rest().len(),
        };
        let before_mark = window.end() == End::Marker && !window.is_marker();
        let part = window.rest()[..until].to_owned();
        let mut part = part.as_str();
        let mut json = String::new();
        if std::mem::take(line) && !matches!(found, Found::Mark { at: 0, .. }) {
            match types {
                Some(_) => raw.push('\n'),
                None => push_char('\n', &mut json),
            }
        }
        if let Some(rest) = part.strip_suffix('\n').filter(|_| self.form.breaks_line && before_mark) {
            (part, *line) = (rest, true);
        }
        *quotes = quotes.map(|quotes| quotes.behind(part));
        match types {
            Some(_) => raw.push_str(part),
            None => part.chars().for_each(|c| push_char(c, &mut json)),
        }
        sink.take(window, until);
        if let Found::Mark { set, length, .. } = found {
            if set == 0 {
                sink.take(window, length);
            }
            match types {
                Some(types) => json.push_str(&types.fit(raw)),
                None => json.push('"'),
            }
            sink.arguments(&json);
            self.at = At::Between;
            return self.between(window, sink);
        }
        sink.arguments(&json);
        Turn::On
    }
}

//! Reads a call that is one JSON object with its name and its arguments as members, in any order.

use super::delta::CallFault;
use super::json::unquote;
use super::sink::{NAME_BYTES_MAX, Sink, Turn};
use super::value::{self, Syntax, Took, Value};
use super::window::Window;

/// Arguments that come before the name wait for it, up to this many bytes of JSON.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// What a member is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Name,
    Id,
    Arguments,
    /// An object around name and arguments.
    Wrap,
    Type,
    Other,
}

fn slot(key: &str) -> Slot {
    match key {
        "name" | "tool_name" => Slot::Name,
        "arguments" | "parameters" => Slot::Arguments,
        "id" | "tool_call_id" => Slot::Id,
        "function" => Slot::Wrap,
        "type" => Slot::Type,
        _ => Slot::Other,
    }
}

#[derive(Debug)]
enum At {
    Open,
    Key {
        fresh: bool,
    },
    InKey(Value, String),
    Colon(Slot),
    Value(Slot),
    /// A member's value and its JSON so far.
    In(Slot, Value, String),
    /// The arguments, which go out as they come if the call has begun.
    Arguments(Value),
    After,
}

/// A call that is being read.
#[derive(Debug)]
pub(super) struct ObjectCall {
    at: At,
    wrapped: bool,
    name: Option<String>,
    id: Option<String>,
    /// Arguments that wait for the name.
    waiting: Option<String>,
}

impl ObjectCall {
    pub(super) fn new() -> ObjectCall {
        ObjectCall { at: At::Open, wrapped: false, name: None, id: None, waiting: None }
    }

    pub(super) fn step(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Turn {
        sink.walk(window, |c, sink| self.push(c, sink))
    }

    /// Takes a character; true if it ends the call.
    fn push(&mut self, c: char, sink: &mut Sink<'_>) -> Result<bool, CallFault> {
        let space = matches!(c, ' ' | '\t' | '\r' | '\n');
        match &mut self.at {
            At::InKey(value, key) => {
                let took = value.push(c, key)?;
                if key.len() > NAME_BYTES_MAX {
                    return Err(CallFault::Limit);
                }
                if took == Took::Done {
                    let slot = slot(&unquote(key).unwrap_or_default());
                    if slot == Slot::Other && sink.known_only && sink.progress.begun.is_none() {
                        return Err(CallFault::Missing);
                    }
                    self.at = At::Colon(slot);
                }
            }
            At::In(slot, value, json) => {
                let took = value.push(c, json)?;
                if json.len() > WAITING_BYTES_MAX {
                    return Err(CallFault::Limit);
                }
                if took != Took::More {
                    let (slot, json) = (*slot, std::mem::take(json));
                    self.at = At::After;
                    self.member(slot, &json, sink)?;
                }
                if took == Took::Before {
                    return self.push(c, sink);
                }
            }
            At::Arguments(value) => {
                let mut more = String::new();
                let took = value.push(c, &mut more)?;
                sink.arguments(&more);
                if took == Took::Done {
                    self.at = At::After;
                }
            }
            _ if space => {}
            At::Open | At::Key { .. } | At::Colon(_) | At::After => return self.punctuation(c, sink),
            At::Value(slot) => {
                let slot = *slot;
                self.open_value(slot, c, sink)?;
            }
        }
        Ok(false)
    }

    fn punctuation(&mut self, c: char, sink: &mut Sink<'_>) -> Result<bool, CallFault> {
        self.at = match (&self.at, c) {
            (At::Open, '{') => At::Key { fresh: true },
            (At::Key { .. }, '"') => {
                let (mut value, mut key) = (Value::new(Syntax::Json), String::new());
                value.push(c, &mut key)?;
                At::InKey(value, key)
            }
            (At::Colon(slot), ':') => At::Value(*slot),
            (At::After, ',') => At::Key { fresh: false },
            (At::After | At::Key { fresh: true }, '}') if self.wrapped => {
                self.wrapped = false;
                At::After
            }
            (At::After | At::Key { fresh: true }, '}') => return self.close(sink).map(|()| true),
            _ => return Err(CallFault::Syntax),
        };
        Ok(false)
    }

    fn open_value(&mut self, slot: Slot, c: char, sink: &mut Sink<'_>) -> Result<(), CallFault> {
        if slot == Slot::Wrap && c == '{' {
            if std::mem::replace(&mut self.wrapped, true) {
                return Err(CallFault::Syntax);
            }
            self.at = At::Key { fresh: true };
            return Ok(());
        }
        let mut value = Value::new(Syntax::Json);
        let mut json = String::new();
        value.push(c, &mut json)?;
        self.at = if slot != Slot::Arguments {
            At::In(slot, value, json)
        } else if sink.progress.begun.is_some() || self.waiting.is_some() {
            // Arguments twice: none of them is the call's.
            return Err(CallFault::Syntax);
        } else if let (Some(name), '{') = (&self.name, c) {
            sink.begin(self.id.take(), name)?;
            sink.arguments(&json);
            At::Arguments(value)
        } else if matches!(c, '{' | '"' | 'n') {
            At::In(slot, value, json)
        } else {
            return Err(CallFault::Syntax);
        };
        Ok(())
    }

    /// A member other than streamed arguments is whole.
    fn member(&mut self, slot: Slot, json: &str, sink: &mut Sink<'_>) -> Result<(), CallFault> {
        match slot {
            Slot::Name | Slot::Wrap => {
                let name = unquote(json).ok_or(CallFault::Syntax)?;
                let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
                if !fits || self.name.replace(name).is_some() {
                    return Err(CallFault::Syntax);
                }
            }
            Slot::Id => self.id = unquote(json).or_else(|| Some(json.to_owned())),
            Slot::Arguments => self.waiting = Some(object(json)?),
            Slot::Type | Slot::Other => {}
        }
        if let (Some(name), Some(_), None) = (&self.name, &self.waiting, sink.progress.begun) {
            sink.begin(self.id.take(), name)?;
            sink.arguments(self.waiting.as_deref().unwrap_or_default());
        }
        Ok(())
    }

    fn close(&mut self, sink: &mut Sink<'_>) -> Result<(), CallFault> {
        if sink.progress.begun.is_some() {
            return Ok(());
        }
        match &self.name {
            // An object that only shares the name's key is an answer in JSON.
            None => Err(CallFault::Missing),
            Some(_) if sink.known_only => Err(CallFault::Missing),
            Some(name) => {
                sink.begin(self.id.take(), name)?;
                sink.arguments("{}");
                Ok(())
            }
        }
    }
}

/// The object that a member's JSON stands for: itself, nothing, or one that was quoted as a string.
fn object(json: &str) -> Result<String, CallFault> {
    if json == "null" {
        return Ok("{}".to_owned());
    }
    if json.starts_with('{') {
        return Ok(json.to_owned());
    }
    let inner = unquote(json).ok_or(CallFault::Syntax)?;
    if inner.trim().is_empty() {
        return Ok("{}".to_owned());
    }
    value::read(&inner, Syntax::Json).filter(|json| json.starts_with('{')).ok_or(CallFault::Syntax)
}

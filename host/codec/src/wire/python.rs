//! Reads a call in Python's syntax: a name, and keyword arguments (or positional ones, by the schema's order).

use super::delta::CallFault;
use super::json::push_text;
use super::schema::Types;
use super::sink::{Sink, Turn, in_name, push_name, starts_name};
use super::value::{Syntax, Took, Value};
use super::window::Window;

#[derive(Debug)]
enum At {
    Name,
    /// Before a parameter, or the end.
    Next,
    Key(String),
    Equals(String),
    Open(String),
    /// A value; its JSON waits in `json` where the schema may turn it into another type.
    Value {
        value: Value,
        types: Types,
        json: String,
        waits: bool,
    },
    After,
}

/// A call that is being read.
#[derive(Debug)]
pub(super) struct PythonCall {
    at: At,
    name: String,
    parameters: usize,
}

impl PythonCall {
    pub(super) fn new() -> PythonCall {
        PythonCall { at: At::Name, name: String::new(), parameters: 0 }
    }

    pub(super) fn step(&mut self, window: &mut Window, sink: &mut Sink<'_>) -> Turn {
        sink.walk(window, |c, sink| self.push(c, sink))
    }

    /// Takes a character; true if it ends the call.
    fn push(&mut self, c: char, sink: &mut Sink<'_>) -> Result<bool, CallFault> {
        match &mut self.at {
            At::Name if c == '(' && !self.name.is_empty() => {
                sink.begin(None, &self.name)?;
                sink.arguments("{");
                self.at = At::Next;
            }
            At::Name => {
                let fits = if self.name.is_empty() { starts_name(c) } else { in_name(c) };
                if !fits {
                    return Err(CallFault::Missing);
                }
                push_name(&mut self.name, c)?;
            }
            At::Value { .. } => return self.push_value(c, sink),
            At::Key(key) if in_name(c) => push_name(key, c)?,
            _ if c.is_whitespace() => {
                if let At::Key(key) = &mut self.at {
                    self.at = At::Equals(std::mem::take(key));
                }
            }
            At::Key(key) | At::Equals(key) if c == '=' => self.at = At::Open(std::mem::take(key)),
            At::Key(_) | At::Equals(_) => return Err(CallFault::Syntax),
            At::Open(key) => {
                let key = std::mem::take(key);
                self.open(&key, c, sink)?;
            }
            At::Next | At::After if c == ')' => {
                sink.arguments("}");
                return Ok(true);
            }
            At::Next if starts_name(c) => self.at = At::Key(c.into()),
            At::Next => {
                let tool = sink.tools.iter().find(|tool| tool.name() == self.name);
                let key =
                    tool.and_then(|tool| tool.nth(self.parameters)).ok_or(CallFault::Syntax)?.to_owned();
                self.open(&key, c, sink)?;
            }
            At::After if c == ',' => self.at = At::Next,
            At::After => return Err(CallFault::Syntax),
        }
        Ok(false)
    }

    fn open(&mut self, key: &str, c: char, sink: &mut Sink<'_>) -> Result<(), CallFault> {
        let types = sink.types(&self.name, key);
        let mut value = Value::new(Syntax::Python);
        let mut json = String::new();
        value.push(c, &mut json)?;
        let mut head = String::from(if self.parameters > 0 { "," } else { "" });
        self.parameters += 1;
        push_text(key, &mut head);
        head.push(':');
        sink.arguments(&head);
        let waits = match c {
            '"' | '\'' => !types.allow_string(),
            '[' | '{' | '(' => false,
            _ => true,
        };
        if !waits {
            sink.arguments(&std::mem::take(&mut json));
        }
        self.at = At::Value { value, types, json, waits };
        Ok(())
    }

    fn push_value(&mut self, c: char, sink: &mut Sink<'_>) -> Result<bool, CallFault> {
        let At::Value { value, types, json, waits } = &mut self.at else { return Ok(false) };
        let took = value.push(c, json);
        let whole = !matches!(took, Ok(Took::More) | Err(_));
        if !*waits {
            sink.arguments(&std::mem::take(json));
        } else if whole {
            sink.arguments(&types.coerce(std::mem::take(json)));
        }
        let before = took? == Took::Before;
        if whole {
            self.at = At::After;
        }
        if before { self.push(c, sink) } else { Ok(false) }
    }
}

//! A chat as the values that its template is given, made once and rendered as often as needed.

use std::borrow::Cow;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, Value};
use sf_core::{Chat, Content, Ending, Message, Part, ToolCall};

use crate::error::CodecError;
use crate::guard::{Guard, Prompt, unseal};
use crate::python::{NOW, SENTINEL, is_space, value_of};
use crate::template::{NAME, OUTPUT_BYTES_MAX, Template, failure};

/// What the assistant thought, as transformers gives it.
pub(crate) const REASONING: &str = "reasoning_content";
/// The field under which transformers gives it besides.
pub(crate) const THINKING: &str = "thinking";

/// Values of one chat.
pub(crate) struct Given<'a> {
    template: &'a Template,
    chat: &'a Chat,
    messages: Vec<Value>,
    /// Variables besides the messages.
    others: Vec<(&'a str, Value)>,
    sentinel: char,
    /// What stands behind the text that the model goes on with, and that text.
    open: Option<(char, Cow<'a, str>)>,
}

/// One rendering, and what it took.
pub(crate) struct Written {
    pub prompt: Prompt,
    /// Instructions.
    pub fuel: u64,
}

impl<'a> Given<'a> {
    pub(crate) fn new(template: &'a Template, chat: &'a Chat) -> Result<Given<'a>, CodecError> {
        Given::at(template, chat, template.now)
    }

    /// At a time in seconds since 1970; `None` = now.
    pub(crate) fn at(
        template: &'a Template,
        chat: &'a Chat,
        now: Option<u64>,
    ) -> Result<Given<'a>, CodecError> {
        if !chat.tools.is_empty() && !template.reads("tools") {
            return Err(CodecError::NoTools);
        }
        let seen = |message: &Message| message.content.as_ref().is_some_and(Content::has_images);
        if !template.reads_images() && chat.messages.iter().any(seen) {
            return Err(CodecError::NoImages);
        }
        let mut free = template.guard.free(chat);
        let sentinel = free.next().ok_or(CodecError::NoSentinel)?;
        let open = match chat.ending {
            Ending::Continued => {
                let said = last_text(template, chat).ok_or(CodecError::NotContinued)?;
                Some((free.next().ok_or(CodecError::NoSentinel)?, said))
            }
            Ending::Prompt | Ending::Closed => None,
        };
        let mut given = Given { template, chat, messages: Vec::new(), others: Vec::new(), sentinel, open };
        given.others = given.variables(now);
        let last = chat.messages.len().saturating_sub(1);
        let mark = |at| given.open.as_ref().filter(|_| at == last).map(|(mark, _)| *mark);
        let messages = chat.messages.iter().enumerate();
        given.messages = messages.map(|(at, message)| given.message(message, mark(at))).collect();
        Ok(given)
    }

    fn variables(&self, now: Option<u64>) -> Vec<(&'a str, Value)> {
        let Template { bos, eos, .. } = self.template;
        let now = now.unwrap_or_else(|| {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
        });
        let tools: Vec<Value> = self.chat.tools.iter().map(|tool| self.value(&tool.json)).collect();
        let given = self.chat.arguments.iter().map(|(name, value)| (name.as_str(), self.value(value)));
        // The server's own come last: no argument takes their place.
        let own = [
            ("bos_token", Value::from(bos.as_str())),
            ("eos_token", Value::from(eos.as_str())),
            ("tools", if tools.is_empty() { Value::from(()) } else { Value::from(tools) }),
            ("documents", Value::from(())),
            (SENTINEL, Value::from(String::from(self.sentinel))),
            (NOW, Value::from(now)),
        ];
        given.chain(own).collect()
    }

    fn value(&self, json: &sf_core::Json) -> Value {
        value_of(json, &self.template.guard, self.sentinel)
    }

    fn text(&self, text: &str) -> Value {
        Value::from(self.template.guard.content(text, self.sentinel))
    }

    /// `mark` goes behind the last text, and a space behind it: whether that is still there shows whether the template trims.
    fn message(&self, message: &Message, mark: Option<char>) -> Value {
        // transformers leaves out what is null: many templates would write `None`.
        let content = message.content.as_ref().map(|content| self.content(content, mark));
        let mut fields = Vec::with_capacity(6);
        let reasoning = message.reasoning.as_deref().map(|thought| self.text(thought));
        fields.extend(reasoning.clone().map(|thought| (THINKING, thought)));
        fields.push(("role", Value::from(message.role.as_str())));
        fields.extend(content.map(|content| ("content", content)));
        if let Some(name) = &message.name {
            fields.push(("name", Value::from(Guard::field(name, self.sentinel))));
        }
        if let Some(thought) = reasoning {
            fields.push((REASONING, thought.clone()));
            fields.extend(self.template.other_reasoning().map(|name| (name, thought)));
        }
        if !message.tool_calls.is_empty() {
            let calls = message.tool_calls.iter().map(|call| self.call(call));
            fields.push(("tool_calls", Value::from(calls.collect::<Vec<_>>())));
        }
        if let Some(id) = &message.tool_call_id {
            fields.push(("tool_call_id", self.text(id)));
        }
        Value::from_pairs(fields)
    }

    fn content(&self, content: &Content, mark: Option<char>) -> Value {
        let marked = |text: &str, mark: Option<char>| {
            let mut text = self.template.guard.content(text, self.sentinel);
            text.extend(mark.into_iter().flat_map(|mark| [mark, ' ']));
            Value::from(text)
        };
        let part = |text: Value| Value::from_pairs([("type", Value::from("text")), ("text", text)]);
        match content {
            Content::Text(text) if self.template.reads_only_parts() => {
                Value::from(vec![part(marked(text, mark))])
            }
            Content::Parts(parts) if self.template.reads_parts() => {
                let last = parts.iter().rposition(|part| matches!(part, Part::Text(_)));
                let parts = parts.iter().enumerate().map(|(at, one)| match one {
                    Part::Text(text) => part(marked(text, mark.filter(|_| Some(at) == last))),
                    Part::Image => Value::from_pairs([("type", "image")]),
                });
                Value::from(parts.collect::<Vec<_>>())
            }
            Content::Text(_) | Content::Parts(_) => marked(&content.text(), mark),
        }
    }

    fn call(&self, call: &ToolCall) -> Value {
        let arguments = self.value(&call.arguments);
        let function = Value::from_pairs([("name", self.text(&call.name)), ("arguments", arguments)]);
        let id = Some(("id", self.text(&call.id))).filter(|_| !call.id.is_empty());
        let fields = [("type", Value::from("function")), ("function", function)];
        Value::from_pairs(id.into_iter().chain(fields))
    }

    /// The chat as it ends.
    pub(crate) fn whole(&self) -> Result<Written, CodecError> {
        let mut written = self.first(self.messages.len(), self.chat.ending == Ending::Prompt)?;
        if let Some((mark, said)) = &self.open {
            cut_open(&mut written.prompt, *mark, said)?;
        }
        Ok(written)
    }

    /// The first messages alone, with or without the generation prompt.
    pub(crate) fn first(&self, count: usize, with_prompt: bool) -> Result<Written, CodecError> {
        let failed = |error: &Error| {
            let mark = self.open.as_ref().map(|(mark, _)| *mark);
            let marks: Vec<char> = [self.sentinel].into_iter().chain(mark).collect();
            failure(error, false, &marks)
        };
        let own = [
            ("messages", Value::from(self.messages[..count].to_vec())),
            ("add_generation_prompt", Value::from(with_prompt)),
        ];
        let context = Value::from_pairs(self.others.iter().cloned().chain(own));
        let template = self.template.environment.get_template(NAME).map_err(|error| failed(&error))?;
        let mut rendered = Bounded(Vec::new());
        let fuel = {
            let captured = template.render_captured_to(context, &mut rendered);
            let captured = captured.map_err(|error| failed(&error))?;
            captured.state().fuel_levels().map_or(0, |(consumed, _)| consumed)
        };
        let rendered = String::from_utf8(rendered.0).expect("a template writes strings");
        Ok(Written { prompt: unseal(&rendered, self.sentinel), fuel })
    }
}

/// The text at whose end a chat is to be continued: of parts that are joined all, else the last one.
fn last_text<'a>(template: &Template, chat: &'a Chat) -> Option<Cow<'a, str>> {
    let content = chat.messages.last()?.content.as_ref()?;
    let Content::Parts(parts) = content else { return Some(content.text()) };
    if !template.reads_parts() {
        return Some(content.text());
    }
    parts.iter().rev().find_map(|part| match part {
        Part::Text(text) => Some(Cow::Borrowed(text.as_str())),
        Part::Image => None,
    })
}

/// Cuts off what stands behind the text that the model goes on with, as transformers does.
fn cut_open(prompt: &mut Prompt, mark: char, said: &str) -> Result<(), CodecError> {
    let at = prompt.text.rfind(mark).ok_or(CodecError::NotContinued)?;
    let is_whole = prompt.text[at + mark.len_utf8()..].starts_with(' ');
    let text = &prompt.text[..at];
    let text = if is_whole { text } else { text.trim_end_matches(is_space) };
    // Written twice, the text would hold the mark.
    if text.contains(mark) || !prompt.text.contains(said.trim_matches(is_space)) {
        return Err(CodecError::NotContinued);
    }
    let end = text.len();
    prompt.text.truncate(end);
    prompt.cuts.retain(|&cut| cut as usize <= end);
    Ok(())
}

/// Bytes, up to [`OUTPUT_BYTES_MAX`].
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > OUTPUT_BYTES_MAX {
            return Err(io::Error::other(format!("the prompt is larger than {OUTPUT_BYTES_MAX} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

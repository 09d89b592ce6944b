//! Renders a chat through a Jinja chat template, in the environment that transformers gives it.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, Value};
use sf_core::{Chat, Message, ToolCall};

use crate::error::CodecError;
use crate::guard::{Guard, Prompt, unseal};
use crate::python::{NOW, Refusal, SENTINEL, install, value_of};
use crate::source::Source;
use crate::vocab::Vocab;

/// Instructions of one rendering; the longest real templates take a few hundred per message.
const FUEL: u64 = 4_000_000;
/// Most bytes of a rendered prompt.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// Most bytes of a template; the longest known one has 30 KB.
const TEMPLATE_BYTES_MAX: usize = 1 << 20;
const NAME: &str = "chat";

/// ChatML, for `--dialect chatml`.
pub(crate) const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' \
     + (message.content or '') + '<|im_end|>\\n' }}{% endfor %}\
     {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Fields in which templates look for what the assistant thought, the usual one first.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    guard: Guard,
    source: Source,
    bos: String,
    eos: String,
    /// Seconds since 1970, where the time stands still.
    now: Option<u64>,
}

impl Template {
    pub(crate) fn compile(source: &str, vocab: &Vocab) -> Result<Template, CodecError> {
        if source.len() > TEMPLATE_BYTES_MAX {
            return Err(CodecError::TooLong { bytes: source.len(), limit: TEMPLATE_BYTES_MAX });
        }
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|error| failure(&error, true, None))?;
        let mut environment = Environment::new();
        environment.set_syntax(syntax);
        environment.set_fuel(Some(FUEL));
        install(&mut environment);
        let mut source = Source::read(source);
        let guard = Guard::new(vocab, &source);
        environment
            .add_template_owned(NAME, std::mem::take(&mut source.text))
            .map_err(|error| failure(&error, true, None))?;
        let text = |id: Option<u32>| id.map(|id| vocab.text(id).to_owned()).unwrap_or_default();
        Ok(Template { environment, guard, source, bos: text(vocab.bos), eos: text(vocab.eos), now: None })
    }

    /// Lets `strftime_now` tell this time, seconds since 1970.
    pub(crate) fn stop_clock(&mut self, now: u64) {
        self.now = Some(now);
    }

    /// Whether the template reads a variable of this name.
    pub(crate) fn reads(&self, name: &str) -> bool {
        self.source.names.contains(name)
    }

    /// What `chat` holds and the template never looks at.
    pub(crate) fn unread(&self, chat: &Chat) -> Vec<String> {
        let variables = chat.arguments.iter().map(|(name, _)| name.as_str());
        let mut unread: Vec<&str> = variables.filter(|name| !self.reads(name)).collect();
        if chat.messages.iter().any(|message| message.reasoning.is_some()) && self.reasoning().is_none() {
            unread.push("reasoning_content");
        }
        if chat.messages.iter().any(|message| !message.tool_calls.is_empty())
            && !self.source.looks_up("tool_calls")
        {
            unread.push("tool_calls");
        }
        unread.into_iter().map(str::to_owned).collect()
    }

    /// The field in which it looks for the assistant's thoughts.
    fn reasoning(&self) -> Option<&'static str> {
        REASONING.into_iter().find(|name| self.source.looks_up(name))
    }

    /// The prompt for the assistant's next turn.
    pub(crate) fn render(&self, chat: &Chat) -> Result<Prompt, CodecError> {
        if !chat.tools.is_empty() && !self.reads("tools") {
            return Err(CodecError::NoTools);
        }
        let sentinel = self.guard.sentinel(chat)?;
        let failed = |error: &Error| failure(error, false, Some(sentinel));
        let context = self.context(chat, sentinel);
        let template = self.environment.get_template(NAME).map_err(|error| failed(&error))?;
        let mut rendered = Bounded(Vec::new());
        template.render_captured_to(context, &mut rendered).map_err(|error| failed(&error))?;
        let rendered = String::from_utf8(rendered.0).expect("a template writes strings");
        Ok(unseal(&rendered, sentinel))
    }

    fn context(&self, chat: &Chat, sentinel: char) -> Value {
        let now = self.now.unwrap_or_else(|| {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
        });
        let tools: Vec<Value> =
            chat.tools.iter().map(|tool| value_of(&tool.json, &self.guard, sentinel)).collect();
        let messages: Vec<Value> =
            chat.messages.iter().map(|message| self.message(message, sentinel)).collect();
        let given = chat.arguments.iter();
        let given = given.map(|(name, value)| (name.as_str(), value_of(value, &self.guard, sentinel)));
        // The server's own come last: no argument takes their place.
        Value::from_pairs(given.chain([
            ("messages", Value::from(messages)),
            ("add_generation_prompt", Value::from(true)),
            ("bos_token", Value::from(&*self.bos)),
            ("eos_token", Value::from(&*self.eos)),
            ("tools", if tools.is_empty() { Value::from(()) } else { Value::from(tools) }),
            ("documents", Value::from(())),
            (SENTINEL, Value::from(String::from(sentinel))),
            (NOW, Value::from(now)),
        ]))
    }

    fn message(&self, message: &Message, sentinel: char) -> Value {
        let text = |text: &str| Value::from(self.guard.content(text, sentinel));
        let content = message.content.as_deref().map_or(Value::from(()), text);
        let mut fields = vec![("role", Value::from(message.role.as_str())), ("content", content)];
        if let Some(name) = &message.name {
            fields.push(("name", Value::from(Guard::field(name, sentinel))));
        }
        if let Some(reasoning) = &message.reasoning {
            fields.push((self.reasoning().unwrap_or(REASONING[0]), text(reasoning)));
        }
        if !message.tool_calls.is_empty() {
            let calls = message.tool_calls.iter().map(|call| self.call(call, sentinel));
            fields.push(("tool_calls", Value::from(calls.collect::<Vec<_>>())));
        }
        if let Some(id) = &message.tool_call_id {
            fields.push(("tool_call_id", text(id)));
        }
        Value::from_pairs(fields)
    }

    fn call(&self, call: &ToolCall, sentinel: char) -> Value {
        let text = |text: &str| Value::from(self.guard.content(text, sentinel));
        let arguments = value_of(&call.arguments, &self.guard, sentinel);
        let function = Value::from_pairs([("name", text(&call.name)), ("arguments", arguments)]);
        let id = Some(("id", text(&call.id))).filter(|_| !call.id.is_empty());
        let fields = [("type", Value::from("function")), ("function", function)];
        Value::from_pairs(id.into_iter().chain(fields))
    }
}

/// The error in our words, the client's text in it as the client wrote it.
fn failure(error: &Error, compiling: bool, sentinel: Option<char>) -> CodecError {
    let plain = |text: &str| sentinel.map_or_else(|| text.to_owned(), |sentinel| text.replace(sentinel, ""));
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(Refusal(words)) = inner.downcast_ref() {
            return CodecError::Refused(plain(words));
        }
        source = inner.source();
    }
    let line = error.line().unwrap_or(0);
    let message = match error.detail() {
        Some(detail) => format!("{}: {}", error.kind(), plain(detail)),
        None => error.kind().to_string(),
    };
    if compiling { CodecError::Template { line, message } } else { CodecError::Render { line, message } }
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

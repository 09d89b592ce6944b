//! A Jinja chat template in the environment that transformers gives it, and what it reads; `given` renders chats through it.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error};
use sf_core::Chat;

use crate::error::CodecError;
use crate::given::{Given, REASONING, THINKING};
use crate::guard::Guard;
use crate::python::{Refusal, install};
use crate::source::Source;
use crate::vocab::Vocab;

/// Instructions of one rendering; the longest real templates take a few hundred per message. A fuzzer, whose instructions cost
/// ten times as much, would do little else than burn them.
const FUEL: u64 = if cfg!(fuzzing) { 200_000 } else { 4_000_000 };
/// Most bytes of a rendered prompt.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// Most bytes of a template; the longest known one has 30 KB.
const TEMPLATE_BYTES_MAX: usize = 1 << 20;
pub(crate) const NAME: &str = "chat";

/// ChatML, for `--dialect chatml`.
pub(crate) const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' \
     + (message.content or '') + '<|im_end|>\\n' }}{% endfor %}\
     {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// A field in which some templates look for what the assistant thought; the usual ones are always given.
const OTHER_REASONING: &str = "reasoning";

#[derive(Debug)]
pub(crate) struct Template {
    pub environment: Environment<'static>,
    pub guard: Guard,
    source: Source,
    pub bos: String,
    pub eos: String,
    /// Seconds since 1970, where the time stands still.
    pub now: Option<u64>,
}

impl Template {
    pub(crate) fn compile(source: &str, vocab: &Vocab) -> Result<Template, CodecError> {
        if source.len() > TEMPLATE_BYTES_MAX {
            return Err(CodecError::TooLong { bytes: source.len(), limit: TEMPLATE_BYTES_MAX });
        }
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|error| failure(&error, true, &[]))?;
        let mut environment = Environment::new();
        environment.set_syntax(syntax);
        environment.set_fuel(Some(FUEL));
        install(&mut environment);
        let mut source = Source::read(source);
        let guard = Guard::new(vocab, &source);
        environment
            .add_template_owned(NAME, std::mem::take(&mut source.text))
            .map_err(|error| failure(&error, true, &[]))?;
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
        if chat.messages.iter().any(|message| message.reasoning.is_some())
            && !self.reads_reasoning()
            && self.other_reasoning().is_none()
        {
            unread.push("reasoning_content");
        }
        if chat.messages.iter().any(|message| !message.tool_calls.is_empty())
            && !self.source.looks_up("tool_calls")
        {
            unread.push("tool_calls");
        }
        unread.into_iter().map(str::to_owned).collect()
    }

    /// Whether it looks for the assistant's thoughts where they usually stand.
    fn reads_reasoning(&self) -> bool {
        [REASONING, THINKING].into_iter().any(|name| self.source.looks_up(name))
    }

    /// The field in which it looks for the assistant's thoughts, where it is another one.
    pub(crate) fn other_reasoning(&self) -> Option<&'static str> {
        Some(OTHER_REASONING).filter(|name| !self.reads_reasoning() && self.source.looks_up(name))
    }

    /// Whether the template reads the parts of a message one by one; else it gets their text.
    pub(crate) fn reads_parts(&self) -> bool {
        self.source.parts.reads()
    }

    /// Whether it can read nothing else: text in one piece is a part then.
    pub(crate) fn reads_only_parts(&self) -> bool {
        self.source.parts.reads_only()
    }

    /// Whether it has a place for images.
    pub(crate) fn reads_images(&self) -> bool {
        self.reads_parts() && self.source.looks_up("image")
    }

    /// The chat as values, to be rendered.
    pub(crate) fn given<'a>(&'a self, chat: &'a Chat) -> Result<Given<'a>, CodecError> {
        Given::new(self, chat)
    }
}

/// The error in our words, the client's text in it as the client wrote it.
pub(crate) fn failure(error: &Error, compiling: bool, marks: &[char]) -> CodecError {
    let plain = |text: &str| text.replace(marks, "");
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

//! Renders messages through a Jinja chat template, in the environment that transformers gives it.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value};
use sf_core::Message;

use crate::error::CodecError;
use crate::guard::{Guard, Prompt, unseal};
use crate::python::{strftime, tojson};
use crate::vocab::Vocab;

/// Instructions of one rendering; the longest real templates take a few hundred per message.
const FUEL: u64 = 4_000_000;
/// Most bytes of a rendered prompt.
const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// Most bytes of a template; the longest known one has 30 KB.
const TEMPLATE_BYTES_MAX: usize = 1 << 20;
const NAME: &str = "chat";

/// ChatML, for `--dialect chatml`.
pub(crate) const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content \
     + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    guard: Guard,
    bos: String,
    eos: String,
}

/// The template's own words, carried through the engine's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

impl Template {
    pub(crate) fn compile(source: &str, vocab: &Vocab) -> Result<Template, CodecError> {
        if source.len() > TEMPLATE_BYTES_MAX {
            return Err(CodecError::TooLong { bytes: source.len(), limit: TEMPLATE_BYTES_MAX });
        }
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|error| failure(&error, true))?;
        let mut environment = Environment::new();
        environment.set_syntax(syntax);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.add_filter("tojson", |value: Value, kwargs: Kwargs| tojson(&value, &kwargs));
        environment.add_function("raise_exception", |words: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Refusal(words)))
        });
        environment.add_function("strftime_now", |format: String| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            strftime(&format, now.map_or(0, |since| since.as_secs()))
        });
        environment
            .add_template_owned(NAME, without_generation(source))
            .map_err(|error| failure(&error, true))?;
        let text = |id: Option<u32>| id.map(|id| vocab.text(id).to_owned()).unwrap_or_default();
        let guard = Guard::new(vocab, source);
        Ok(Template { environment, guard, bos: text(vocab.bos), eos: text(vocab.eos) })
    }

    /// The prompt for the assistant's next turn.
    pub(crate) fn render(&self, messages: &[Message]) -> Result<Prompt, CodecError> {
        let texts = messages.iter().flat_map(|message| [Some(&*message.content), message.name.as_deref()]);
        let sentinel = self.guard.sentinel(texts.flatten())?;
        let messages = messages.iter().map(|message| {
            let content = self.guard.content(&message.content, sentinel);
            let mut fields =
                vec![("role", Value::from(message.role.as_str())), ("content", Value::from(content))];
            if let Some(name) = &message.name {
                fields.push(("name", Value::from(Guard::field(name, sentinel))));
            }
            Value::from_pairs(fields)
        });
        let context = Value::from_pairs([
            ("messages", messages.collect::<Value>()),
            ("add_generation_prompt", Value::from(true)),
            ("bos_token", Value::from(&*self.bos)),
            ("eos_token", Value::from(&*self.eos)),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
        ]);
        let template = self.environment.get_template(NAME).map_err(|error| failure(&error, false))?;
        let mut rendered = Bounded(Vec::new());
        template.render_captured_to(context, &mut rendered).map_err(|error| failure(&error, false))?;
        let rendered = String::from_utf8(rendered.0).expect("a template writes strings");
        Ok(unseal(&rendered, sentinel))
    }
}

/// `{% generation %}` marks what a trainer learns from; to a reader it is nothing.
fn without_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(end);
        let word = tag.trim_start_matches(['{', '%', '-', '+']).trim_end_matches('-').trim();
        match word {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

fn failure(error: &Error, compiling: bool) -> CodecError {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(Refusal(words)) = inner.downcast_ref() {
            return CodecError::Refused(words.clone());
        }
        source = inner.source();
    }
    let line = error.line().unwrap_or(0);
    let message = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
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

//! One model's text codec: which tokenizer, which dialect, and every way between text and tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use sf_artifact::gguf::Value;
use sf_artifact::{Artifact, ArtifactError, Gguf};
use sf_core::{Chat, Token, Vocabulary};

use crate::error::CodecError;
use crate::given::Given;
use crate::guard::Prompt;
use crate::markers::Trust;
use crate::model::Model;
use crate::template::{CHATML, Template};
use crate::vocab::{Kind, Vocab};
use crate::wire::{CallForm, NotHeld, Parser, Thought, ToolSchema, Wire};

/// Most bytes of one text to encode. Tokenizing takes about 40 bytes of memory per byte of text, through a `tokenizer.json`
/// 80 to 170, and 300 where every character becomes a word.
pub const TEXT_BYTES_MAX: usize = 8 << 20;

/// How messages become a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The model's template when it has one, else no chat.
    #[default]
    Auto,
    /// The model's template, or the one that was passed.
    Template,
    /// `<|im_start|>role … <|im_end|>`, whatever the model says.
    Chatml,
    /// No chat, whatever the model says.
    Raw,
}

impl Dialect {
    /// All of them, in the order of the help text.
    pub const ALL: [Dialect; 4] = [Dialect::Auto, Dialect::Template, Dialect::Chatml, Dialect::Raw];

    /// As `--dialect` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Auto => "auto",
            Dialect::Template => "template",
            Dialect::Chatml => "chatml",
            Dialect::Raw => "raw",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Dialect, UnknownDialect> {
        let found = Dialect::ALL.into_iter().find(|dialect| dialect.name() == name);
        found.ok_or_else(|| UnknownDialect(name.to_owned()))
    }
}

/// A name that no [`Dialect`] has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown dialect {0:?}, known are auto, template, chatml and raw (codec.dialect)")]
pub struct UnknownDialect(pub String);

/// What an operator decides about a model's text.
#[derive(Clone, Debug, Default)]
pub struct CodecOptions {
    /// How messages become a prompt.
    pub dialect: Dialect,
    /// A Jinja template that takes the place of the model's own.
    pub chat_template: Option<String>,
    /// How the model writes reasoning and tool calls.
    pub wire: WireChoice,
}

/// Where it comes from how answers are taken apart.
#[derive(Clone, Copy, Debug, Default)]
pub enum WireChoice {
    /// From the marks in the template.
    #[default]
    Auto,
    /// Answers are text.
    Nothing,
    /// From the operator.
    Passed(&'static Wire),
}

/// Tokens at a prompt's end that may open reasoning.
const PROMPT_TAIL: usize = 16;

/// How the tokens of one model write its wire.
#[derive(Default)]
struct Marking {
    /// Tokens that spell a mark of the wire and are no text of the model's own: control tokens and those added for it.
    marks: BTreeSet<u32>,
    /// Those that never stand for their text.
    silent: BTreeSet<u32>,
    /// Texts that are one such token.
    tokens: BTreeMap<&'static str, Token>,
}

impl Marking {
    fn of(wire: &Wire, vocab: &Vocab) -> Marking {
        let (spelled, silent, tokens) = (wire.marks(), wire.token_marks(), wire.tokens());
        let mut marking = Marking::default();
        let special = |id: &u32| matches!(vocab.kind(*id), Kind::Control | Kind::UserDefined | Kind::Channel);
        for id in (0..vocab.len()).filter(special) {
            let text = vocab.text(id);
            marking.marks.extend(spelled.contains(&text).then_some(id));
            marking.silent.extend(silent.contains(&text).then_some(id));
            if let Some(known) = tokens.iter().find(|known| **known == text) {
                marking.tokens.entry(known).or_insert(Token(id));
            }
        }
        marking
    }
}

/// Text ⇄ tokens for one model. Immutable; share it behind an `Arc`.
pub struct Codec {
    pub(crate) vocab: Vocab,
    pub(crate) model: Model,
    pub(crate) template: Option<Template>,
    /// Says where the template came from.
    dialect: &'static str,
    wire: Option<&'static Wire>,
    marking: Marking,
    /// Whether the template knows marks of the wire's reasoning.
    thinks: bool,
}

impl Codec {
    /// Builds the codec of a model from its header, or from the files beside its weights.
    ///
    /// # Errors
    /// A tokenizer that is not supported or contradicts itself, a template that does not compile, or none where
    /// [`Dialect::Template`] asks for one.
    pub fn open(artifact: &Artifact, options: CodecOptions) -> Result<Codec, CodecError> {
        if let Some(gguf) = artifact.gguf() {
            return Codec::from_gguf(gguf, options);
        }
        let unreadable = |fault: ArtifactError| CodecError::TokenizerPart {
            part: "files".to_owned(),
            reason: fault.to_string(),
        };
        let files = artifact.tokenizer_files().map_err(unreadable)?;
        let files = files.ok_or_else(|| CodecError::NoTokenizer { format: artifact.format.to_string() })?;
        let (vocab, model) = Model::from_files(&files)?;
        Codec::assemble(vocab, model, artifact.chat_template().as_deref(), options)
    }

    /// As [`Codec::open`], from a header alone.
    ///
    /// # Errors
    /// As [`Codec::open`].
    pub fn from_gguf(gguf: &Gguf, options: CodecOptions) -> Result<Codec, CodecError> {
        let (vocab, model) = Model::read(gguf)?;
        let own = gguf.get("tokenizer.chat_template").and_then(Value::as_str);
        Codec::assemble(vocab, model, own, options)
    }

    fn assemble(
        vocab: Vocab,
        model: Model,
        own: Option<&str>,
        options: CodecOptions,
    ) -> Result<Codec, CodecError> {
        let CodecOptions { dialect, chat_template, wire } = options;
        let passed = chat_template.as_deref().map(|source| (source, "passed template"));
        let given = passed.or(own.map(|source| (source, "model's template")));
        let (source, dialect) = match (dialect, given) {
            (Dialect::Auto | Dialect::Template, Some((source, name))) => (Some(source), name),
            (Dialect::Auto, None) => (None, "raw (the model has no template)"),
            (Dialect::Template, None) => return Err(CodecError::NoTemplate),
            (Dialect::Chatml, _) => (Some(CHATML), "chatml"),
            (Dialect::Raw, _) => (None, "raw"),
        };
        let template = source.map(|source| Template::compile(source, &vocab)).transpose()?;
        let wire = match wire {
            WireChoice::Auto => source.and_then(Wire::detect),
            WireChoice::Nothing => None,
            WireChoice::Passed(wire) => Some(wire),
        };
        let marking = wire.map(|wire| Marking::of(wire, &vocab)).unwrap_or_default();
        let thinks = wire.zip(source).is_some_and(|(wire, source)| wire.thinks_in(source));
        Ok(Codec { vocab, model, template, dialect, wire, marking, thinks })
    }

    /// How the model writes reasoning and tool calls, where that is known.
    pub fn wire(&self) -> Option<&'static Wire> {
        self.wire
    }

    /// The spelling of a token that is a mark of the wire: it stands for itself, not for text.
    pub fn mark(&self, token: Token) -> Option<&str> {
        self.marking.marks.contains(&token.0).then(|| self.vocab.text(token.0))
    }

    /// A parser for the answer to a chat whose prompt is `prompt`; `None` where nothing is known of the model's wire.
    pub fn parser(&self, prompt: &[Token], tools: &[ToolSchema]) -> Option<Parser> {
        let wire = self.wire?;
        let open = wire.leaves_reasoning_open(&self.tail(prompt));
        Some(if open { Parser::in_reasoning(wire, tools) } else { Parser::new(wire, tools) })
    }

    /// Whether the answer to a chat whose prompt is `prompt` begins with reasoning.
    pub fn thought(&self, prompt: &[Token]) -> Thought {
        let Some(wire) = self.wire else { return Thought::No };
        let tail = self.tail(prompt);
        match (wire.leaves_reasoning_open(&tail), wire.leaves_reasoning_closed(&tail)) {
            (true, _) => Thought::Open,
            (false, false) if self.thinks => Thought::Possible,
            _ => Thought::No,
        }
    }

    /// The grammar of an answer that has this form; `None` where nothing is known of the model's wire.
    ///
    /// # Errors
    /// Why there is none.
    pub fn call_grammar(&self, form: &CallForm<'_>) -> Option<Result<String, NotHeld>> {
        let token = |text: &str| self.marking.tokens.get(text).copied();
        self.wire.map(|wire| wire.call_grammar(form, &token))
    }

    /// The end of a prompt, control tokens spelled out.
    fn tail(&self, prompt: &[Token]) -> String {
        let tail = prompt.iter().rev().take(PROMPT_TAIL).rev();
        tail.map(|&token| match self.token_bytes(token) {
            [] => self.token_name(token).into(),
            bytes => String::from_utf8_lossy(bytes),
        })
        .collect()
    }

    /// The prompt that asks for the assistant's next message, or ends as the chat says.
    ///
    /// A control token is made only from the template's own text, never from what a client gave, whatever it says.
    ///
    /// # Errors
    /// [`CodecError::NoChat`], [`CodecError::NoTools`], [`CodecError::NoImages`], [`CodecError::NotContinued`], the template's
    /// own refusal or failure, or more text than [`TEXT_BYTES_MAX`].
    pub fn render(&self, chat: &Chat) -> Result<Vec<Token>, CodecError> {
        let mut tokens = self.encode_prompt(&self.given(chat)?.whole()?.prompt)?;
        tokens.splice(0..0, self.missing_bos(&tokens));
        Ok(tokens)
    }

    /// The text that [`Codec::render`] tokenizes.
    ///
    /// # Errors
    /// As [`Codec::render`].
    pub fn render_text(&self, chat: &Chat) -> Result<String, CodecError> {
        Ok(self.given(chat)?.whole()?.prompt.text)
    }

    /// The chat as its template's values.
    pub(crate) fn given<'a>(&'a self, chat: &'a Chat) -> Result<Given<'a>, CodecError> {
        self.template.as_ref().ok_or(CodecError::NoChat)?.given(chat)
    }

    /// Tokens of a rendered text, without the BOS that the template may have left out.
    pub(crate) fn encode_prompt(&self, prompt: &Prompt) -> Result<Vec<Token>, CodecError> {
        self.tokens(&prompt.text, Trust::Except(&prompt.cuts))
    }

    /// The BOS that belongs in front of these tokens of a prompt and is not there.
    pub(crate) fn missing_bos(&self, tokens: &[Token]) -> Option<Token> {
        self.bos_to_add().filter(|bos| tokens.first() != Some(bos))
    }

    /// Whether the chat template reads a variable of this name, e.g. `tools`.
    pub fn reads(&self, variable: &str) -> bool {
        self.template.as_ref().is_some_and(|template| template.reads(variable))
    }

    /// Variables and parts of messages that `chat` holds and the chat template never looks at.
    pub fn unread(&self, chat: &Chat) -> Vec<String> {
        self.template.as_ref().map_or_else(Vec::new, |template| template.unread(chat))
    }

    /// The same codec in a time that stands still, seconds since 1970: some templates tell the model what day it is.
    #[must_use]
    pub fn with_time(mut self, now: u64) -> Codec {
        if let Some(template) = &mut self.template {
            template.stop_clock(now);
        }
        self
    }

    /// Tokens of a text that holds no markers: what looks like a control token is text.
    ///
    /// `add_bos`: it starts a prompt, so BOS goes first where the model wants one. EOS is never added: a prompt goes on.
    ///
    /// # Errors
    /// More text than [`TEXT_BYTES_MAX`].
    pub fn encode(&self, text: &str, add_bos: bool) -> Result<Vec<Token>, CodecError> {
        let mut tokens = self.tokens(text, Trust::Nothing)?;
        if let Some(bos) = self.bos_to_add().filter(|_| add_bos) {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }

    /// Tokens of a text that is complete, as a model that embeds it was trained to read it: as [`Codec::encode`], with BOS
    /// first and EOS or the separator last where the model wants them.
    ///
    /// # Errors
    /// More text than [`TEXT_BYTES_MAX`].
    pub fn encode_whole(&self, text: &str) -> Result<Vec<Token>, CodecError> {
        let mut tokens = self.encode(text, true)?;
        tokens.extend(self.vocab.last.map(Token));
        Ok(tokens)
    }

    /// Tokens of a text that the operator wrote, markers included.
    ///
    /// # Errors
    /// More text than [`TEXT_BYTES_MAX`].
    pub fn encode_trusted(&self, text: &str) -> Result<Vec<Token>, CodecError> {
        self.tokens(text, Trust::Except(&[]))
    }

    fn tokens(&self, text: &str, trust: Trust<'_>) -> Result<Vec<Token>, CodecError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(CodecError::TooLong { bytes: text.len(), limit: TEXT_BYTES_MAX });
        }
        self.model.encode(&self.vocab, text, trust)
    }

    fn bos_to_add(&self) -> Option<Token> {
        self.vocab.bos.filter(|_| self.vocab.add_bos).map(Token)
    }

    /// The text of tokens from the start of a text: the space that the tokenizer put first is taken off again, control
    /// tokens are left out, bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, tokens: &[Token]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&token| self.token_bytes(token)).copied().collect();
        let first = tokens.iter().find(|&&token| !self.token_bytes(token).is_empty());
        let put_first = first.is_some_and(|first| self.model.puts_space_first(self.vocab.kind(first.0)));
        let bytes = bytes.strip_prefix(b" ").filter(|_| put_first).unwrap_or(&bytes);
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// The bytes that a token adds to a text, possibly a part of a character; empty for control tokens and for ids
    /// outside the vocabulary.
    pub fn token_bytes(&self, token: Token) -> &[u8] {
        self.vocab.pieces.get(token.0)
    }

    /// A token as the vocabulary spells it, control tokens included; empty outside the vocabulary.
    pub fn token_name(&self, token: Token) -> &str {
        self.vocab.text(token.0)
    }

    /// Whether an answer ends at this token.
    pub fn is_eog(&self, token: Token) -> bool {
        self.vocab.is_eog(token.0)
    }

    /// All tokens that end an answer, ascending.
    pub fn eog_tokens(&self) -> impl ExactSizeIterator<Item = Token> + '_ {
        self.vocab.eog().iter().copied().map(Token)
    }

    /// Number of tokens.
    pub fn vocab(&self) -> u32 {
        self.vocab.len()
    }

    /// The bytes of all tokens, and which of them end an answer. What only stands for itself, as a mark, has none: no text
    /// that keeps to a grammar is made of it.
    pub fn vocabulary(&self) -> Vocabulary {
        let eog: Vec<Token> = self.eog_tokens().collect();
        let text = |id: u32| match self.marking.silent.contains(&id) {
            true => &[][..],
            false => self.token_bytes(Token(id)),
        };
        Vocabulary::new((0..self.vocab()).map(text), &eog)
    }

    /// The token that starts a text, where the model has one.
    pub fn bos(&self) -> Option<Token> {
        self.vocab.bos.map(Token)
    }

    /// Whether a prompt starts with [`Codec::bos`].
    pub fn adds_bos(&self) -> bool {
        self.vocab.add_bos
    }

    /// Whether the tokenizer was trained with EOS at the end of every text. A prompt goes on, so it is not added.
    pub fn adds_eos(&self) -> bool {
        self.vocab.add_eos
    }

    /// Whether [`Codec::render`] can work.
    pub fn has_chat(&self) -> bool {
        self.template.is_some()
    }

    /// One line for the start-up report.
    pub fn describe(&self) -> String {
        let (kind, pre) = (self.model.kind_name(), &self.model.name);
        let bos =
            self.bos_to_add().map_or("no BOS".to_owned(), |bos| format!("BOS {}", self.token_name(bos)));
        let ends: Vec<&str> = self.eog_tokens().map(|token| self.token_name(token)).collect();
        let (dialect, count) = (self.dialect, self.vocab());
        let wire = self.wire.map_or(String::new(), |wire| format!(", answers in {}", wire.name()));
        format!("{dialect}{wire}; {kind} {pre}, {count} tokens, {bos}, ends at {}", ends.join(" "))
    }
}

impl fmt::Debug for Codec {
    /// As [`Codec::describe`]: a vocabulary has megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Codec({})", self.describe())
    }
}

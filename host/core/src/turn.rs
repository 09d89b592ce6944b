//! A request for text and what is streamed back, free of any dialect.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use crate::fault::Fault;
use crate::grammar::Form;
use crate::ids::{RequestId, Token};
use crate::json::Json;
use crate::qos::QosClass;
use crate::sampling::SamplingParams;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool's answer.
    Tool,
}

impl Role {
    /// As chat templates spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Text in one piece.
    Text(String),
    /// Parts in their order; templates of models that see read them one by one.
    Parts(Vec<Part>),
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text.
    Text(String),
    /// The place of an image. Its pixels are not the template's business.
    Image,
}

impl Content {
    /// The text of all parts, one behind the other with nothing between them.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Content::Text(text) => Cow::Borrowed(text),
            Content::Parts(_) => Cow::Owned(self.texts().collect()),
        }
    }

    /// Whether a part of it is an image.
    pub fn has_images(&self) -> bool {
        matches!(self, Content::Parts(parts) if parts.contains(&Part::Image))
    }

    /// Each text in it.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let (whole, parts) = match self {
            Content::Text(text) => (Some(text.as_str()), [].as_slice()),
            Content::Parts(parts) => (None, parts.as_slice()),
        };
        let parts = parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Image => None,
        });
        whole.into_iter().chain(parts)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        Content::Text(text)
    }
}

/// One message of a chat.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What it says; an assistant that only calls tools says nothing.
    pub content: Option<Content>,
    /// The speaker's name, where the template uses one.
    pub name: Option<String>,
    /// What the assistant thought before it spoke.
    pub reasoning: Option<String>,
    /// Tools that the assistant calls, in its order.
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool answers.
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message that is only text.
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message {
            role,
            content: Some(Content::Text(content.into())),
            name: None,
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
        }
    }
}

/// One call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Ties the tool's answer to it; may be empty.
    pub id: String,
    /// The tool.
    pub name: String,
    /// An object: the arguments by name.
    pub arguments: Json,
}

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name, as calls spell it.
    pub name: String,
    /// The whole object that describes it, as the client gave it.
    pub json: Json,
}

/// A chat and what its template is told besides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chat {
    /// At least one.
    pub messages: Vec<Message>,
    /// Tools that the template shows to the model.
    pub tools: Vec<Tool>,
    /// Variables of the template, by name; none of those that it gets anyway.
    pub arguments: Vec<(String, Json)>,
    /// Whether tools must be called.
    pub choice: ToolChoice,
    /// Whether an answer makes no more than one call.
    pub one_call: bool,
    /// What stands behind the last message.
    pub ending: Ending,
}

/// What a rendered chat ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// The generation prompt, where the template has one: the assistant's next message follows.
    #[default]
    Prompt,
    /// Nothing.
    Closed,
    /// The last message's text itself: whatever the template writes behind it is cut off, and the model goes on with it.
    Continued,
}

/// Which tools an answer calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Those that the model wants to.
    #[default]
    Auto,
    /// At least one.
    Required,
    /// This one, once.
    Named(String),
}

impl From<Vec<Message>> for Chat {
    /// Messages and nothing besides.
    fn from(messages: Vec<Message>) -> Chat {
        Chat { messages, ..Chat::default() }
    }
}

impl Chat {
    /// Calls `see` with every string of the client's in it.
    pub fn for_each_text<'a>(&'a self, see: &mut dyn FnMut(&'a str)) {
        for message in &self.messages {
            message.content.iter().flat_map(Content::texts).for_each(&mut *see);
            let texts = [&message.name, &message.reasoning, &message.tool_call_id];
            texts.into_iter().flatten().for_each(|text| see(text));
            for call in &message.tool_calls {
                see(&call.id);
                see(&call.name);
                call.arguments.for_each_text(see);
            }
        }
        for tool in &self.tools {
            see(&tool.name);
            tool.json.for_each_text(see);
        }
        for (name, value) in &self.arguments {
            see(name);
            value.for_each_text(see);
        }
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> usize {
        let mut bytes = 0;
        self.for_each_text(&mut |text| bytes += text.len());
        bytes
    }
}

/// A chat as the model's template writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendering {
    /// The prompt.
    pub text: String,
    /// Its tokens, BOS first where the model wants one.
    pub tokens: Vec<Token>,
    /// For each message where it stands, `None` where the template does not write messages one behind the other there. The
    /// first one's span holds what the template writes before it.
    pub messages: Vec<Option<Span>>,
    /// Where the generation prompt stands; `None` where there is none, or where it cannot be told from the last message.
    pub generation_prompt: Option<Span>,
}

/// A part of a [`Rendering`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes of the text.
    pub text: Range<usize>,
    /// Tokens; `None` where a token reaches over the border.
    pub tokens: Option<Range<usize>>,
}

/// What the model continues.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A chat, rendered through the model's template.
    Chat(Chat),
    /// Text as it is (BOS added when the model wants one).
    Text(String),
    /// Tokens as they are.
    Tokens(Vec<Token>),
}

/// One request for text.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Given out by the surface that took the request.
    pub id: RequestId,
    /// Model by id; `None` = the only or first one.
    pub model: Option<String>,
    /// What to continue.
    pub input: Input,
    /// Sampling fields as given.
    pub sampling: SamplingParams,
    /// Tokens to generate at most; `None` = up to the window, 0 = none: only the prompt is computed.
    pub max_tokens: Option<u32>,
    /// Text that ends the answer and is not part of it.
    pub stop: Vec<String>,
    /// Independent answers, at least 1.
    pub choices: u32,
    /// `Some(n)`: log-probabilities with the `n` likeliest alternatives.
    pub logprobs: Option<u32>,
    /// The tokens of the prompt come back before each answer with theirs; needs `logprobs`.
    pub scores_prompt: bool,
    /// Tokens that end the answer and are not part of it, besides the model's own.
    pub stop_tokens: Vec<Token>,
    /// Tokens to generate at least: until then no token ends the answer.
    pub min_tokens: u32,
    /// The form of the answer.
    pub form: Option<Form>,
    /// Go on past the end-of-text token.
    pub ignore_eos: bool,
    /// Who goes first.
    pub class: QosClass,
    /// Whose request it is, for fairness inside a class: a digest of the client's key; 0 = nobody in particular.
    pub party: u64,
    /// Time from the submission after which the answer ends with what it has; a turn that still waits for a lane then
    /// never starts.
    pub deadline: Option<Duration>,
    /// Take over the KV of earlier requests that begin with the same tokens, and leave its own for later ones.
    pub reuse: bool,
    /// Refuse it where it would be taken with warnings.
    pub strict: bool,
    /// Keep the KV of its prompt for so long after it ended, within the server's pin budget.
    pub pin: Option<Duration>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// An end-of-text token or a stop string.
    Stop,
    /// `max_tokens` or the window.
    Length,
    /// The turn's deadline.
    Deadline,
    /// As [`FinishReason::Stop`], and the answer calls tools.
    ToolCalls,
}

/// A part of an answer that is not its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// More of the reasoning before the answer.
    Reasoning(String),
    /// A call of a tool begins; calls do not overlap.
    CallBegin {
        /// From 0, in order.
        index: u32,
        /// Unique among the server's calls, unless the model gave it one itself.
        id: String,
        /// The tool.
        name: String,
    },
    /// More of a call's arguments; all fragments of a whole call are one JSON object.
    CallArguments {
        /// The call.
        index: u32,
        /// Never empty.
        fragment: String,
    },
}

/// A token of an answer or its prompt, when log-probabilities were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenInfo {
    /// The token.
    pub token: Token,
    /// Its bytes; may be a part of a character.
    pub bytes: Vec<u8>,
    /// Natural log-probability; the first token of a prompt has none, because nothing stands before it.
    pub logprob: Option<f32>,
    /// The likeliest tokens: id, bytes, log-probability; best first.
    pub top: Vec<(Token, Vec<u8>, f32)>,
}

/// What is streamed back. Per choice: its prompt when that is scored, any number of deltas and parts, then one `Finished`. `Failed` ends the whole turn.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEvent {
    /// More tokens of the prompt of a choice.
    Prompt {
        /// Which answer, from 0.
        choice: u32,
        /// The tokens, in order.
        tokens: Vec<TokenInfo>,
    },
    /// More text.
    Delta {
        /// Which answer, from 0.
        choice: u32,
        /// Whole characters; may be empty when only token information arrived.
        text: String,
        /// The tokens behind it, when log-probabilities were asked for.
        tokens: Vec<TokenInfo>,
    },
    /// Something beside the text.
    Part {
        /// Which answer.
        choice: u32,
        /// What it is.
        part: AnswerPart,
    },
    /// One answer is complete.
    Finished {
        /// Which answer.
        choice: u32,
        /// Why.
        reason: FinishReason,
        /// Tokens generated for it.
        completion_tokens: u32,
        /// Of these, tokens of the reasoning before the answer.
        reasoning_tokens: u32,
        /// Tokens of its prompt that were not computed again, because their KV was there already.
        cached_tokens: u32,
    },
    /// Nothing more comes.
    Failed(Fault),
}

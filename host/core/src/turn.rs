//! A request for text and what is streamed back, free of any dialect.

use std::time::Duration;

use crate::fault::Fault;
use crate::grammar::Grammar;
use crate::ids::{RequestId, Token};
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

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Its text.
    pub content: String,
    /// The speaker's name, where the template uses one.
    pub name: Option<String>,
}

/// What the model continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A chat, rendered through the model's template.
    Chat(Vec<Message>),
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
    /// Tokens to generate at most; `None` = up to the window.
    pub max_tokens: Option<u32>,
    /// Text that ends the answer and is not part of it.
    pub stop: Vec<String>,
    /// Independent answers, at least 1.
    pub choices: u32,
    /// `Some(n)`: log-probabilities with the `n` likeliest alternatives.
    pub logprobs: Option<u32>,
    /// Tokens that end the answer and are not part of it, besides the model's own.
    pub stop_tokens: Vec<Token>,
    /// Tokens to generate at least: until then no token ends the answer.
    pub min_tokens: u32,
    /// The form of the answer.
    pub grammar: Option<Grammar>,
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

/// A token of an answer, when log-probabilities were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenInfo {
    /// The token.
    pub token: Token,
    /// Its bytes; may be a part of a character.
    pub bytes: Vec<u8>,
    /// Natural log-probability.
    pub logprob: f32,
    /// The likeliest tokens: id, bytes, log-probability; best first.
    pub top: Vec<(Token, Vec<u8>, f32)>,
}

/// What is streamed back. Per choice: any number of deltas and parts, then one `Finished`. `Failed` ends the whole turn.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEvent {
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
        /// Tokens of its prompt that were not computed again, because their KV was there already.
        cached_tokens: u32,
    },
    /// Nothing more comes.
    Failed(Fault),
}

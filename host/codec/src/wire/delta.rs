//! What an answer turns into, piece by piece, and the whole that the pieces make.

/// One step of an answer. Steps only append: nothing that was handed out is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// More of the answer's text.
    Text(String),
    /// More of the reasoning.
    Reasoning(String),
    /// A call opens; calls never overlap, and the next index is one higher.
    CallBegin {
        /// From 0, in order.
        index: u32,
        /// The id that the model wrote, where its wire has one before the arguments.
        id: Option<String>,
        /// The tool's name.
        name: String,
    },
    /// More of a call's arguments. All fragments of a whole call are one compact JSON object.
    CallArguments {
        /// The call.
        index: u32,
        /// Never empty.
        fragment: String,
    },
    /// A call is whole.
    CallEnd {
        /// The call.
        index: u32,
    },
    /// Something opened like a call and is none.
    Failure {
        /// The call that ends here unfinished; `None` where no call began, and the raw text went out as text.
        call: Option<u32>,
        /// What the model wrote, from the mark that opened it.
        raw: String,
        /// What is wrong with it.
        why: CallFault,
    },
}

/// Why something is not a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CallFault {
    /// The mark of a call is followed by something else.
    #[error("what follows the mark is no call (codec.call_missing)")]
    Missing,
    /// The call breaks the syntax of its wire.
    #[error("the call breaks the syntax of its wire (codec.call_syntax)")]
    Syntax,
    /// The name is none of the request's tools, on a wire where only the name tells a call from text.
    #[error("the call names no tool of the request (codec.call_unknown_tool)")]
    UnknownTool,
    /// The output ends, or a control token ends the call, before the call does.
    #[error("the output ends inside the call (codec.call_truncated)")]
    Truncated,
    /// A name, a key or a value is longer, or nested deeper, than the limit.
    #[error("a part of the call is over its limit (codec.call_limit)")]
    Limit,
}

/// What became of a stretch of the raw output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// It is the answer's text, as it is.
    Text,
    /// It is reasoning, as it is.
    Reasoning,
    /// It made this call.
    Call(u32),
    /// Marks, and white space around them.
    Markup,
}

/// A stretch of the raw output. All spans in a row are the whole output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// What became of it.
    pub kind: SpanKind,
    /// Its length.
    pub bytes: usize,
}

/// A call as the deltas made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The id that the model wrote.
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// A JSON object if `whole`, else the start of one.
    pub arguments: String,
    /// Whether it ended as a call does.
    pub whole: bool,
}

/// A failure as it was reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The call that it ended.
    pub call: Option<u32>,
    /// What the model wrote.
    pub raw: String,
    /// What is wrong with it.
    pub why: CallFault,
}

/// The whole answer: the fold of its deltas, so that a streamed answer and one that is not are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// All text.
    pub text: String,
    /// All reasoning.
    pub reasoning: String,
    /// All calls, by index.
    pub calls: Vec<Call>,
    /// All failures, in order.
    pub failures: Vec<Failure>,
}

impl Answer {
    /// Takes one step in. Deltas of a call that never began are ignored: no parser makes them.
    pub fn take(&mut self, delta: &Delta) {
        match delta {
            Delta::Text(text) => self.text.push_str(text),
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::CallBegin { id, name, .. } => {
                self.calls.push(Call { id: id.clone(), name: name.clone(), ..Call::default() });
            }
            Delta::CallArguments { index, fragment } => {
                if let Some(call) = self.calls.get_mut(*index as usize) {
                    call.arguments.push_str(fragment);
                }
            }
            Delta::CallEnd { index } => {
                if let Some(call) = self.calls.get_mut(*index as usize) {
                    call.whole = true;
                }
            }
            Delta::Failure { call, raw, why } => {
                self.failures.push(Failure { call: *call, raw: raw.clone(), why: *why });
            }
        }
    }
}

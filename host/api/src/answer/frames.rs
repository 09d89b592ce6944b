//! Writes the pieces of a streamed answer as server-sent events in OpenAI's chunk shapes.

use bytes::BytesMut;
use sf_core::{AnswerPart, FinishReason, TokenInfo};

use super::json::{self, Head, put};
use super::progress::{Piece, Usage};
use crate::refusal::error_json;
use crate::request::Dialect;

/// The chunks of one answer. What is the same in all of them is written once.
pub(super) struct Frames {
    head: Head,
    /// `data: {…"choices":[`
    before: Box<str>,
    usage: bool,
    choices: Vec<Choice>,
}

#[derive(Clone, Copy, Default)]
struct Choice {
    opened: bool,
    /// Characters of all its tokens so far.
    offset: usize,
}

/// What one chunk says about its choice.
#[derive(Default)]
struct Chunk<'a> {
    text: Option<&'a str>,
    part: Option<&'a AnswerPart>,
    role: bool,
    tokens: &'a [TokenInfo],
    reason: Option<FinishReason>,
}

impl Frames {
    pub(super) fn new(head: Head, usage: bool) -> Frames {
        let mut before = BytesMut::new();
        put(&mut before, "data: ");
        head.write(&mut before, true);
        let before = std::str::from_utf8(&before).expect("JSON is UTF-8").into();
        let choices = vec![Choice::default(); head.choices as usize];
        Frames { head, before, usage, choices }
    }

    /// Appends the events of a piece.
    pub(super) fn write(&mut self, piece: &Piece, out: &mut BytesMut) {
        match piece {
            Piece::Prompt { choice, tokens } => {
                self.open(*choice, out);
                self.chunk(*choice, &Chunk { tokens, ..Chunk::default() }, out);
            }
            Piece::Delta { text, tokens, .. } if text.is_empty() && tokens.is_empty() => {}
            Piece::Delta { choice, text, tokens } => {
                self.open(*choice, out);
                self.chunk(*choice, &Chunk { text: Some(text), tokens, ..Chunk::default() }, out);
            }
            Piece::Part { choice, part } => {
                self.open(*choice, out);
                self.chunk(*choice, &Chunk { part: Some(part), ..Chunk::default() }, out);
            }
            Piece::Finished { choice, reason } => {
                self.open(*choice, out);
                self.chunk(*choice, &Chunk { reason: Some(*reason), ..Chunk::default() }, out);
            }
            Piece::Done(usage) => self.done(*usage, out),
            Piece::Failed(fault) => {
                put(out, "data: ");
                put(out, &error_json(fault));
                put(out, "\n\ndata: [DONE]\n\n");
            }
        }
    }

    /// What comes before a choice's first text: the role of a chat, the echo of a completion.
    fn open(&mut self, choice: u32, out: &mut BytesMut) {
        if std::mem::replace(&mut self.choices[choice as usize].opened, true) {
            return;
        }
        let echo = self.head.echo_of(choice).to_owned();
        let chat = self.head.dialect == Dialect::Chat;
        if chat || !echo.is_empty() {
            self.chunk(choice, &Chunk { text: Some(&echo), role: chat, ..Chunk::default() }, out);
        }
    }

    fn chunk(&mut self, choice: u32, chunk: &Chunk<'_>, out: &mut BytesMut) {
        put(out, &self.before);
        match self.head.dialect {
            Dialect::Chat => {
                put(out, r#"{"index":"#);
                json::number(out, choice);
                put(out, r#","delta":{"#);
                if chunk.role {
                    put(out, r#""role":"assistant","#);
                }
                if let Some(text) = chunk.text {
                    put(out, r#""content":"#);
                    json::string(out, text);
                }
                if let Some(part) = chunk.part {
                    delta_of(out, part);
                }
                put(out, if chunk.role { r#","refusal":null}"# } else { "}" });
            }
            Dialect::Text => {
                put(out, r#"{"text":"#);
                json::string(out, chunk.text.unwrap_or_default());
                put(out, r#","index":"#);
                json::number(out, choice);
            }
        }
        self.logprobs(choice, chunk.tokens, out);
        match chunk.reason {
            None => put(out, r#","finish_reason":null}]"#),
            Some(reason) => {
                put(out, json::finish_reason(reason));
                put(out, "}]");
            }
        }
        self.head.close(out);
        // With usage asked for, every chunk has the field, and only the last one a value.
        put(out, if self.usage { ",\"usage\":null}\n\n" } else { "}\n\n" });
    }

    fn logprobs(&mut self, choice: u32, tokens: &[TokenInfo], out: &mut BytesMut) {
        put(out, r#","logprobs":"#);
        match self.head.dialect {
            _ if tokens.is_empty() => put(out, "null"),
            Dialect::Chat => json::chat_logprobs(out, tokens),
            Dialect::Text => json::text_logprobs(out, tokens, &mut self.choices[choice as usize].offset),
        }
    }

    fn done(&self, usage: Usage, out: &mut BytesMut) {
        if self.usage {
            put(out, &self.before);
            put(out, "]");
            self.head.close(out);
            put(out, r#","usage":"#);
            json::usage(out, usage);
            put(out, "}\n\n");
        }
        put(out, "data: [DONE]\n\n");
    }
}

/// The fields of a chat's delta that say a part.
fn delta_of(out: &mut BytesMut, part: &AnswerPart) {
    match part {
        AnswerPart::Reasoning(text) => {
            put(out, r#""reasoning_content":"#);
            json::string(out, text);
        }
        AnswerPart::CallBegin { index, id, name } => {
            put(out, r#""tool_calls":[{"index":"#);
            json::number(out, *index);
            put(out, ",");
            json::call(out, id, name, "");
            put(out, "}]");
        }
        AnswerPart::CallArguments { index, fragment } => {
            put(out, r#""tool_calls":[{"index":"#);
            json::number(out, *index);
            put(out, r#","function":{"arguments":"#);
            json::string(out, fragment);
            put(out, "}}]");
        }
    }
}

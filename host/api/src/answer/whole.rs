//! Collects the pieces of an answer into one JSON document.

use std::future::poll_fn;
use std::task::Context;

use bytes::{Bytes, BytesMut};
use sf_core::{AnswerPart, Fault, FaultKind, FinishReason, TokenInfo};

use sf_core::ports::Warning;

use super::Answer;
use super::json::{self, Head, put};
use super::progress::{Piece, Usage};
use crate::request::Dialect;

struct Choice {
    text: String,
    reasoning: String,
    calls: Vec<Call>,
    tokens: Vec<TokenInfo>,
    reason: FinishReason,
}

struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Choice {
    fn take(&mut self, part: AnswerPart) {
        match part {
            AnswerPart::Reasoning(text) => self.reasoning.push_str(&text),
            AnswerPart::CallBegin { id, name, .. } => {
                self.calls.push(Call { id, name, arguments: String::new() });
            }
            // Calls do not overlap: the last one is meant.
            AnswerPart::CallArguments { fragment, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(&fragment);
                }
            }
        }
    }

    /// A chat's message. OpenAI writes no content as `null` when there are calls.
    fn message(&self, out: &mut BytesMut) {
        put(out, r#""message":{"role":"assistant","content":"#);
        if self.text.is_empty() && !self.calls.is_empty() {
            put(out, "null");
        } else {
            json::string(out, &self.text);
        }
        if !self.reasoning.is_empty() {
            put(out, r#","reasoning_content":"#);
            json::string(out, &self.reasoning);
        }
        if !self.calls.is_empty() {
            put(out, r#","tool_calls":["#);
            for (at, call) in self.calls.iter().enumerate() {
                json::comma(out, at);
                put(out, "{");
                json::call(out, &call.id, &call.name, &call.arguments);
                put(out, "}");
            }
            put(out, "]");
        }
        put(out, r#","refusal":null,"annotations":[]}"#);
    }
}

/// Waits for the whole answer; the first failure is the answer.
pub(super) async fn collect(mut answer: Answer, head: Head, warnings: &[Warning]) -> Result<Bytes, Fault> {
    let empty = |choice| Choice {
        text: head.echo_of(choice).to_owned(),
        reasoning: String::new(),
        calls: Vec::new(),
        tokens: Vec::new(),
        reason: FinishReason::Stop,
    };
    let mut choices: Vec<Choice> = (0..head.choices).map(empty).collect();
    let mut next = move |cx: &mut Context<'_>| {
        answer.begin();
        answer.poll_piece(cx)
    };
    while let Some(piece) = poll_fn(&mut next).await {
        match piece {
            Piece::Prompt { choice, tokens } => choices[choice as usize].tokens.extend(tokens),
            Piece::Delta { choice, text, tokens } => {
                let choice = &mut choices[choice as usize];
                choice.text.push_str(&text);
                choice.tokens.extend(tokens);
            }
            Piece::Part { choice, part } => choices[choice as usize].take(part),
            Piece::Finished { choice, reason } => choices[choice as usize].reason = reason,
            Piece::Done(usage) => return Ok(document(&head, &choices, usage, warnings)),
            Piece::Failed(fault) => return Err(fault),
        }
    }
    Err(Fault::new(FaultKind::Internal, "broken_answer", "the answer ended without an end"))
}

fn document(head: &Head, choices: &[Choice], usage: Usage, warnings: &[Warning]) -> Bytes {
    let mut out =
        BytesMut::with_capacity(512 + choices.iter().map(|choice| choice.text.len()).sum::<usize>());
    head.write(&mut out, false);
    for (index, choice) in choices.iter().enumerate() {
        json::comma(&mut out, index);
        match head.dialect {
            Dialect::Chat => {
                json::print(&mut out, format_args!(r#"{{"index":{index},"#));
                choice.message(&mut out);
            }
            Dialect::Text => {
                put(&mut out, r#"{"text":"#);
                json::string(&mut out, &choice.text);
                json::print(&mut out, format_args!(r#","index":{index}"#));
            }
        }
        put(&mut out, r#","logprobs":"#);
        match head.dialect {
            _ if !head.logprobs => put(&mut out, "null"),
            Dialect::Chat => json::chat_logprobs(&mut out, &choice.tokens),
            Dialect::Text => json::text_logprobs(&mut out, &choice.tokens, &mut 0),
        }
        put(&mut out, json::finish_reason(choice.reason));
        put(&mut out, "}");
    }
    put(&mut out, "]");
    head.close(&mut out);
    put(&mut out, r#","usage":"#);
    json::usage(&mut out, usage);
    crate::warnings::write(&mut out, warnings);
    put(&mut out, "}");
    out.freeze()
}

//! The stream of one turn: tokens of its answers become text, stop strings end them, and dropping it frees the lanes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use sf_codec::{Codec, TextStream};
use sf_core::{Fault, FaultKind, FinishReason, RequestId, Sampled, Token, TokenInfo, TurnEvent};

use crate::desk::{Desk, Leaving};
use crate::mailbox::{Ending, Mailbox, Taken};
use crate::parts::Parts;

/// Tokens in one delta.
const DELTA_TOKENS_MAX: u32 = 64;

/// The client's end of one answer. Dropping it before the answer has ended gives the answer up.
pub(crate) struct Answering {
    /// Names it on the desk.
    pub(crate) request: RequestId,
    /// Where its tokens come.
    pub(crate) mailbox: Arc<Mailbox>,
    /// Its lane thread's.
    pub(crate) desk: Arc<Desk>,
    /// Nothing is left to give up.
    pub(crate) over: bool,
}

impl Answering {
    fn poll_take(&mut self, tokens: &mut Vec<Sampled>, cx: &mut Context<'_>) -> Poll<Taken> {
        let polled = self.mailbox.poll_take(tokens, cx);
        if let Poll::Ready(taken) = &polled {
            self.over = taken.end.is_some();
            if taken.caught_up && !self.over {
                self.desk.caught_up(self.request);
            }
        }
        polled
    }

    /// A stop string completed it.
    fn complete(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.mailbox.leave();
            self.desk.leave(self.request, Leaving::Complete);
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if !self.over {
            self.mailbox.leave();
            self.desk.leave(self.request, Leaving::Cancelled);
        }
    }
}

/// One answer on its way.
struct Choice {
    index: u32,
    /// `None` once it has ended.
    answering: Option<Answering>,
    text: TextStream,
    /// Where the model's wire tells text from reasoning and calls.
    parts: Option<Parts>,
    drawn: u32,
    /// Tokens of its prompt when it is scored, and those of them that are still to come, before all drawn ones.
    prompt: u32,
    unscored: u32,
    /// By a stop string.
    stopped: bool,
}

/// What a turn wants of its answers.
pub(crate) struct Wish {
    /// Stop strings.
    pub(crate) stops: Vec<String>,
    /// Tokens with their log-probabilities.
    pub(crate) logprobs: bool,
    /// No answer: what is drawn behind the prompt, because something must be, is not told.
    pub(crate) silent: bool,
}

/// All answers of one turn.
pub(crate) struct AnswerStream {
    codec: Arc<Codec>,
    choices: Vec<Choice>,
    /// Events decided but not yet delivered: an end follows its last text.
    ready: VecDeque<TurnEvent>,
    /// Tokens taken from a mailbox; empty between two polls.
    tokens: Vec<Sampled>,
    /// A mark may be a stop string.
    wish: Wish,
    /// Which token of a scored prompt begins with a space that the tokenizer put there, which is not part of the text.
    lead: Option<usize>,
    failed: bool,
    /// Where the next round begins, so that no answer starves another.
    turn: usize,
}

impl AnswerStream {
    /// `parts` takes an answer apart that should be.
    pub(crate) fn new(
        codec: &Arc<Codec>,
        wish: Wish,
        parts: impl Fn(RequestId) -> Option<Parts>,
        answers: Vec<Answering>,
    ) -> Self {
        let choice = |(index, answering): (usize, Answering)| Choice {
            index: index as u32,
            parts: parts(answering.request),
            answering: Some(answering),
            text: TextStream::new(Arc::clone(codec), wish.stops.clone()),
            drawn: 0,
            prompt: 0,
            unscored: 0,
            stopped: false,
        };
        AnswerStream {
            codec: Arc::clone(codec),
            choices: answers.into_iter().enumerate().map(choice).collect(),
            ready: VecDeque::new(),
            tokens: Vec::new(),
            wish,
            lead: None,
            failed: false,
            turn: 0,
        }
    }

    /// Works off what was taken from the mailbox of one choice.
    fn on_taken(&mut self, at: usize, end: Option<Ending>) {
        let stopped = self.on_tokens(at);
        match end {
            _ if stopped => {}
            None => {}
            Some(Ending::Finished { reason, drawn, cached }) => self.finish(at, reason, drawn, cached),
            Some(Ending::Failed(fault)) => self.fail(fault),
            Some(Ending::Abandoned) => self.fail(Fault::new(
                FaultKind::Unavailable,
                "lane_thread_ended",
                "the answer was given up: the server is shutting down",
            )),
        }
    }

    /// The turn's prompt is scored: its first token, which has no score, and then what the engine says of the others.
    pub(crate) fn score(&mut self, prompt: &[Token]) {
        let Some((&first, rest)) = prompt.split_first() else { return };
        self.lead = prompt.iter().position(|token| !self.codec.token_bytes(*token).is_empty()).filter(|at| {
            // Told by what the text of this token alone lacks.
            let bytes = self.codec.token_bytes(prompt[*at]);
            bytes.starts_with(b" ") && !self.codec.decode(&[prompt[*at]]).starts_with(' ')
        });
        for choice in &mut self.choices {
            (choice.prompt, choice.unscored) = (prompt.len() as u32, rest.len() as u32);
            let mut token = TokenInfo {
                token: first,
                bytes: self.codec.token_bytes(first).to_vec(),
                logprob: None,
                top: Vec::new(),
            };
            if self.lead == Some(0) {
                token.bytes.remove(0);
            }
            self.ready.push_back(TurnEvent::Prompt { choice: choice.index, tokens: vec![token] });
        }
    }

    /// Takes the tokens of the prompt out of what came.
    fn on_scores(&mut self, at: usize) {
        let choice = &mut self.choices[at];
        let mut scores = self.tokens.drain(..self.tokens.len().min(choice.unscored as usize));
        let (codec, lead) = (&self.codec, self.lead);
        loop {
            let together = scores.by_ref().take(DELTA_TOKENS_MAX as usize);
            let tokens: Vec<TokenInfo> = together
                .map(|sampled| {
                    let mut info = token_info(codec, sampled);
                    if lead == Some((choice.prompt - choice.unscored) as usize) {
                        info.bytes.remove(0);
                    }
                    choice.unscored -= 1;
                    info
                })
                .collect();
            if tokens.is_empty() {
                return;
            }
            self.ready.push_back(TurnEvent::Prompt { choice: choice.index, tokens });
        }
    }

    /// One delta for the tokens that came together, as long as there are not too many of them. True when a stop string
    /// completed the answer.
    fn on_tokens(&mut self, at: usize) -> bool {
        if self.choices[at].unscored > 0 {
            self.on_scores(at);
        }
        if self.wish.silent {
            self.tokens.clear();
        }
        let choice = &mut self.choices[at];
        let (mut text, mut infos, mut together) = (String::new(), Vec::new(), 0);
        for sampled in self.tokens.drain(..) {
            if choice.stopped {
                break;
            }
            choice.drawn += 1;
            match (&mut choice.parts, self.codec.mark(sampled.token)) {
                (Some(parts), Some(mark)) => {
                    // No stop string reaches across a mark.
                    parts.text(&choice.text.part());
                    choice.stopped = self.wish.stops.iter().any(|stop| stop == mark);
                    if !choice.stopped {
                        parts.mark(mark);
                    }
                }
                (parts, _) => {
                    let piece = choice.text.push(sampled.token);
                    choice.stopped = piece.stopped;
                    match parts {
                        Some(parts) => parts.token(&piece.text),
                        None if text.is_empty() => text = piece.text,
                        None => text.push_str(&piece.text),
                    }
                }
            }
            if self.wish.logprobs {
                infos.push(token_info(&self.codec, sampled));
            }
            together += 1;
            if together == DELTA_TOKENS_MAX {
                self.ready.extend(delta(choice.index, &mut text, &mut infos));
                together = 0;
            }
        }
        if let Some(parts) = &mut choice.parts {
            parts.drain(choice.index, &mut self.ready);
        }
        self.ready.extend(delta(choice.index, &mut text, &mut infos));
        if choice.stopped {
            let drawn = choice.drawn;
            let cached = choice.answering.as_mut().map_or(0, |answering| {
                answering.complete();
                answering.mailbox.cached()
            });
            self.finish(at, FinishReason::Stop, drawn, cached);
            return true;
        }
        false
    }

    fn finish(&mut self, at: usize, reason: FinishReason, completion_tokens: u32, cached_tokens: u32) {
        let choice = &mut self.choices[at];
        choice.answering = None;
        let (index, text) = (choice.index, choice.text.finish());
        let (mut reason, mut reasoning_tokens) = (reason, 0);
        let mut completion_tokens = completion_tokens;
        if self.wish.silent {
            (reason, completion_tokens) = (FinishReason::Length, 0);
        }
        if let Some(parts) = &mut choice.parts {
            parts.text(&text);
            parts.finish();
            reasoning_tokens = parts.reasoned();
            parts.drain(index, &mut self.ready);
            if reason == FinishReason::Stop && parts.called() {
                reason = FinishReason::ToolCalls;
            }
        } else if !text.is_empty() {
            self.ready.push_back(TurnEvent::Delta { choice: index, text, tokens: Vec::new() });
        }
        self.ready.push_back(TurnEvent::Finished {
            choice: index,
            reason,
            completion_tokens,
            reasoning_tokens,
            cached_tokens,
        });
    }

    fn fail(&mut self, fault: Fault) {
        self.failed = true;
        for choice in &mut self.choices {
            choice.answering = None;
        }
        self.ready.push_back(TurnEvent::Failed(fault));
    }

    fn poll_choices(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Option<Ending>)> {
        let count = self.choices.len();
        for offset in 0..count {
            let at = (self.turn + offset) % count;
            let Some(answering) = self.choices[at].answering.as_mut() else { continue };
            if let Poll::Ready(taken) = answering.poll_take(&mut self.tokens, cx) {
                return Poll::Ready((at, taken.end));
            }
        }
        Poll::Pending
    }
}

impl Stream for AnswerStream {
    type Item = TurnEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TurnEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(event));
            }
            if self.failed || self.choices.iter().all(|choice| choice.answering.is_none()) {
                return Poll::Ready(None);
            }
            let Poll::Ready((at, end)) = self.poll_choices(cx) else { return Poll::Pending };
            self.turn = at + 1;
            self.on_taken(at, end);
        }
    }
}

/// The event of what came together, if it says anything.
fn delta(choice: u32, text: &mut String, infos: &mut Vec<TokenInfo>) -> Option<TurnEvent> {
    if text.is_empty() && infos.is_empty() {
        return None;
    }
    Some(TurnEvent::Delta { choice, text: std::mem::take(text), tokens: std::mem::take(infos) })
}

fn token_info(codec: &Codec, sampled: Sampled) -> TokenInfo {
    let top =
        sampled.top.into_iter().map(|(token, logprob)| (token, codec.token_bytes(token).to_vec(), logprob));
    TokenInfo {
        token: sampled.token,
        bytes: codec.token_bytes(sampled.token).to_vec(),
        logprob: Some(sampled.logprob.unwrap_or(f32::NEG_INFINITY)),
        top: top.collect(),
    }
}

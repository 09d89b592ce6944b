//! The stream of one turn: tokens of its answers become text, stop strings end them, and dropping it frees the lanes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use sf_codec::{Codec, TextStream};
use sf_core::{Fault, FaultKind, FinishReason, RequestId, Sampled, TokenInfo, TurnEvent};

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
    /// By a stop string.
    stopped: bool,
}

/// All answers of one turn.
pub(crate) struct AnswerStream {
    codec: Arc<Codec>,
    choices: Vec<Choice>,
    /// Events decided but not yet delivered: an end follows its last text.
    ready: VecDeque<TurnEvent>,
    /// Tokens taken from a mailbox; empty between two polls.
    tokens: Vec<Sampled>,
    /// Stop strings; a mark may be one.
    stops: Vec<String>,
    logprobs: bool,
    failed: bool,
    /// Where the next round begins, so that no answer starves another.
    turn: usize,
}

impl AnswerStream {
    /// `parts` takes an answer apart that should be.
    pub(crate) fn new(
        codec: &Arc<Codec>,
        stops: Vec<String>,
        logprobs: bool,
        parts: impl Fn(RequestId) -> Option<Parts>,
        answers: Vec<Answering>,
    ) -> Self {
        let choice = |(index, answering): (usize, Answering)| Choice {
            index: index as u32,
            parts: parts(answering.request),
            answering: Some(answering),
            text: TextStream::new(Arc::clone(codec), stops.clone()),
            drawn: 0,
            stopped: false,
        };
        AnswerStream {
            codec: Arc::clone(codec),
            choices: answers.into_iter().enumerate().map(choice).collect(),
            ready: VecDeque::new(),
            tokens: Vec::new(),
            stops,
            logprobs,
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

    /// One delta for the tokens that came together, as long as there are not too many of them. True when a stop string
    /// completed the answer.
    fn on_tokens(&mut self, at: usize) -> bool {
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
                    choice.stopped = self.stops.iter().any(|stop| stop == mark);
                    if !choice.stopped {
                        parts.mark(mark);
                    }
                }
                (parts, _) => {
                    let piece = choice.text.push(sampled.token);
                    choice.stopped = piece.stopped;
                    match parts {
                        Some(parts) => parts.text(&piece.text),
                        None if text.is_empty() => text = piece.text,
                        None => text.push_str(&piece.text),
                    }
                }
            }
            if self.logprobs {
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
        let mut reason = reason;
        if let Some(parts) = &mut choice.parts {
            parts.text(&text);
            parts.finish();
            parts.drain(index, &mut self.ready);
            if reason == FinishReason::Stop && parts.called() {
                reason = FinishReason::ToolCalls;
            }
        } else if !text.is_empty() {
            self.ready.push_back(TurnEvent::Delta { choice: index, text, tokens: Vec::new() });
        }
        self.ready.push_back(TurnEvent::Finished { choice: index, reason, completion_tokens, cached_tokens });
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
        logprob: sampled.logprob.unwrap_or(f32::NEG_INFINITY),
        top: top.collect(),
    }
}

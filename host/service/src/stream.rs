//! The stream of one turn: tokens of its answers become text, stop strings end them, and dropping it frees the lanes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use sf_codec::{Codec, TextStream};
use sf_core::{Fault, FaultKind, FinishReason, Sampled, TokenInfo, TurnEvent};
use tokio::sync::mpsc::Receiver;

use crate::lane_thread::RawEvent;

/// The client's end of one answer.
pub(crate) struct Answering {
    pub(crate) events: Receiver<RawEvent>,
    pub(crate) stopped: Arc<AtomicBool>,
}

/// One answer on its way.
struct Choice {
    index: u32,
    /// `None` once it has ended.
    events: Option<Receiver<RawEvent>>,
    stopped: Arc<AtomicBool>,
    text: TextStream,
    drawn: u32,
}

/// All answers of one turn.
pub(crate) struct AnswerStream {
    codec: Arc<Codec>,
    choices: Vec<Choice>,
    /// Events decided but not yet delivered: an end follows its last text.
    ready: std::collections::VecDeque<TurnEvent>,
    logprobs: bool,
    failed: bool,
    /// Where the next round begins, so that no answer starves another.
    turn: usize,
}

impl AnswerStream {
    pub(crate) fn new(
        codec: &Arc<Codec>,
        stops: &[String],
        logprobs: bool,
        receivers: Vec<Answering>,
    ) -> Self {
        let choice = |(index, answering): (usize, Answering)| Choice {
            index: index as u32,
            events: Some(answering.events),
            stopped: answering.stopped,
            text: TextStream::new(Arc::clone(codec), stops.to_vec()),
            drawn: 0,
        };
        AnswerStream {
            codec: Arc::clone(codec),
            choices: receivers.into_iter().enumerate().map(choice).collect(),
            ready: std::collections::VecDeque::new(),
            logprobs,
            failed: false,
            turn: 0,
        }
    }

    fn fail(&mut self, fault: Fault) {
        self.failed = true;
        for choice in &mut self.choices {
            choice.events = None;
        }
        self.ready.push_back(TurnEvent::Failed(fault));
    }

    fn on_event(&mut self, at: usize, event: Option<RawEvent>) {
        match event {
            Some(RawEvent::Token(sampled)) => self.on_token(at, sampled),
            Some(RawEvent::Finished { reason, drawn }) => {
                let choice = &mut self.choices[at];
                choice.events = None;
                let (index, text) = (choice.index, choice.text.finish());
                if !text.is_empty() {
                    self.ready.push_back(TurnEvent::Delta { choice: index, text, tokens: Vec::new() });
                }
                self.ready.push_back(TurnEvent::Finished { choice: index, reason, completion_tokens: drawn });
            }
            Some(RawEvent::Failed(fault)) => self.fail(fault),
            None => self.fail(Fault::new(
                FaultKind::Unavailable,
                "stream_overflow",
                "the answer was given up: its client read too slowly or the server is shutting down",
            )),
        }
    }

    fn on_token(&mut self, at: usize, sampled: Sampled) {
        let choice = &mut self.choices[at];
        choice.drawn += 1;
        let token = sampled.token;
        let piece = choice.text.push(token);
        let tokens = if self.logprobs { vec![token_info(&self.codec, sampled)] } else { Vec::new() };
        let (index, drawn) = (choice.index, choice.drawn);
        if piece.stopped {
            // Dropping the receiver frees the lane.
            choice.stopped.store(true, Ordering::Release);
            choice.events = None;
        }
        if !piece.text.is_empty() || !tokens.is_empty() {
            self.ready.push_back(TurnEvent::Delta { choice: index, text: piece.text, tokens });
        }
        if piece.stopped {
            let reason = FinishReason::Stop;
            self.ready.push_back(TurnEvent::Finished { choice: index, reason, completion_tokens: drawn });
        }
    }
}

impl Stream for AnswerStream {
    type Item = TurnEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TurnEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(event));
            }
            if self.failed || self.choices.iter().all(|choice| choice.events.is_none()) {
                return Poll::Ready(None);
            }
            let Poll::Ready((at, event)) = self.poll_choices(cx) else { return Poll::Pending };
            self.turn = at + 1;
            self.on_event(at, event);
        }
    }
}

impl AnswerStream {
    fn poll_choices(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Option<RawEvent>)> {
        let count = self.choices.len();
        for offset in 0..count {
            let at = (self.turn + offset) % count;
            let Some(events) = self.choices[at].events.as_mut() else { continue };
            if let Poll::Ready(event) = events.poll_recv(cx) {
                return Poll::Ready((at, event));
            }
        }
        Poll::Pending
    }
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

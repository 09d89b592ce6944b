//! The body of a streamed answer: puts events that are already waiting into one write, and breaks long silences.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use sf_core::limits::{STREAM_SILENCE_MAX, STREAM_WRITE_BYTES_MAX};
use tokio::time::{Instant, Sleep, sleep_until};

use super::Answer;
use super::frames::Frames;

/// First size of a stream's buffer: some twenty tokens. It is used again once a write has left.
const BUFFER_BYTES: usize = 4096;

/// An event stream. Dropping it (the client went away) cancels the answer.
pub(super) struct EventStream {
    answer: Answer,
    frames: Frames,
    buffer: BytesMut,
    written: Instant,
    /// Set to `written` + the longest silence only when it fires, so that a token does not cost a timer.
    silence: Pin<Box<Sleep>>,
}

impl EventStream {
    pub(super) fn new(answer: Answer, frames: Frames) -> EventStream {
        let written = Instant::now();
        let silence = Box::pin(sleep_until(written + STREAM_SILENCE_MAX));
        EventStream { answer, frames, buffer: BytesMut::with_capacity(BUFFER_BYTES), written, silence }
    }

    fn hand_out(&mut self) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.written = self.answer.now;
        Poll::Ready(Some(Ok(Frame::data(self.buffer.split().freeze()))))
    }

    /// Whether nothing was written for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.silence.as_mut().poll(cx).is_ready() {
            let due = self.written + STREAM_SILENCE_MAX;
            let now = Instant::now();
            self.silence.as_mut().reset(if due <= now { now + STREAM_SILENCE_MAX } else { due });
            if due <= now {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

impl http_body::Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        this.answer.begin();
        while this.buffer.len() < STREAM_WRITE_BYTES_MAX {
            match this.answer.poll_piece(cx) {
                Poll::Ready(Some(piece)) => this.frames.write(&piece, &mut this.buffer),
                Poll::Ready(None) if this.buffer.is_empty() => return Poll::Ready(None),
                Poll::Ready(None) => break,
                Poll::Pending if this.buffer.is_empty() => {
                    if this.poll_silence(cx).is_pending() {
                        return Poll::Pending;
                    }
                    this.buffer.extend_from_slice(b": still here\n\n");
                }
                Poll::Pending => break,
            }
        }
        this.hand_out()
    }
}

//! Merges the turns of one request into one stream of events, numbers their choices through, and keeps the deadline.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_util::stream::SelectAll;
use sf_core::TurnEvent;
use sf_core::ports::TurnStream;
use tokio::time::{Instant, Sleep};

use super::too_late;

/// The events of all turns. Dropping it cancels them.
pub(super) struct Source {
    turns: Turns,
    added: u32,
    choices_each: u32,
    deadline: Option<Pin<Box<Sleep>>>,
}

/// Most requests are one turn, which then costs no merging.
enum Turns {
    None,
    One(Numbered),
    Many(SelectAll<Numbered>),
}

impl Source {
    pub(super) fn new(choices_each: u32, deadline: Option<Instant>) -> Source {
        let deadline = deadline.map(|at| Box::pin(tokio::time::sleep_until(at)));
        Source { turns: Turns::None, added: 0, choices_each, deadline }
    }

    /// One more turn; its choices come after those of the turns before.
    pub(super) fn add(&mut self, events: TurnStream) {
        let turn = Numbered { first: self.added * self.choices_each, count: self.choices_each, events };
        self.added += 1;
        self.turns = match std::mem::replace(&mut self.turns, Turns::None) {
            Turns::None => Turns::One(turn),
            Turns::One(before) => Turns::Many([before, turn].into_iter().collect()),
            Turns::Many(mut turns) => {
                turns.push(turn);
                Turns::Many(turns)
            }
        };
    }

    /// The next event of any turn at `now`; `None` when all have ended.
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Option<TurnEvent>> {
        if self.deadline.as_ref().is_some_and(|deadline| deadline.deadline() <= now) {
            return Poll::Ready(Some(TurnEvent::Failed(too_late())));
        }
        let event = match &mut self.turns {
            Turns::None => Poll::Ready(None),
            Turns::One(turn) => Pin::new(turn).poll_next(cx),
            Turns::Many(turns) => Pin::new(turns).poll_next(cx),
        };
        // The timer only matters to an answer that waits; an event does not pay for it.
        match &mut self.deadline {
            Some(deadline) if event.is_pending() => {
                deadline.as_mut().poll(cx).map(|()| Some(TurnEvent::Failed(too_late())))
            }
            _ => event,
        }
    }

    /// Frees the lanes.
    pub(super) fn cancel(&mut self) {
        self.turns = Turns::None;
    }
}

/// One turn's events with the choice numbers of the whole request.
struct Numbered {
    first: u32,
    count: u32,
    events: TurnStream,
}

impl Stream for Numbered {
    type Item = TurnEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TurnEvent>> {
        let this = self.get_mut();
        let mut event = ready!(this.events.as_mut().poll_next(cx));
        let choice = match &mut event {
            Some(
                TurnEvent::Prompt { choice, .. }
                | TurnEvent::Delta { choice, .. }
                | TurnEvent::Part { choice, .. }
                | TurnEvent::Finished { choice, .. },
            ) => Some(choice),
            Some(TurnEvent::Failed(_)) | None => None,
        };
        if let Some(choice) = choice {
            // A number outside the turn must not land on a neighbour: no choice of the request has u32::MAX.
            *choice = if *choice < this.count { this.first + *choice } else { u32::MAX };
        }
        Poll::Ready(event)
    }
}

//! The tokens of one answer between its lane thread and its stream: one buffer, one waker, woken once per round.
//!
//! The lane thread only ever appends; it never waits for a client. How far a client may fall behind is its to decide.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use sf_core::{Fault, FinishReason, Sampled};

use crate::sync::lock;

/// How an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ending {
    /// It is complete.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Tokens drawn, the end-of-text token included.
        drawn: u32,
        /// Prompt tokens that were not computed for it.
        cached: u32,
    },
    /// It failed.
    Failed(Fault),
    /// Its lane thread ended.
    Abandoned,
}

/// Shared by the lane thread and one stream.
#[derive(Debug, Default)]
pub(crate) struct Mailbox(Mutex<Mail>);

#[derive(Debug, Default)]
struct Mail {
    tokens: Vec<Sampled>,
    end: Option<Ending>,
    cached: u32,
    waker: Option<Waker>,
    /// Nobody reads any more.
    gone: bool,
    /// The lane is held until the reader has taken everything.
    held: bool,
}

/// What a look into the mailbox brought, the tokens apart.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Taken {
    /// Nothing comes after the tokens taken.
    pub(crate) end: Option<Ending>,
    /// The lane was held for this reader, which has now caught up.
    pub(crate) caught_up: bool,
}

impl Mailbox {
    /// Notes how much of its prompt was there already.
    pub(crate) fn started(&self, cached: u32) {
        lock(&self.0).cached = cached;
    }

    /// Prompt tokens that were there already.
    pub(crate) fn cached(&self) -> u32 {
        lock(&self.0).cached
    }

    /// Appends a token, unless nobody reads any more; returns how many wait. Does not wake the reader.
    pub(crate) fn push(&self, sampled: Sampled) -> usize {
        let mut mail = lock(&self.0);
        if !mail.gone {
            mail.tokens.push(sampled);
        }
        mail.tokens.len()
    }

    /// Ends the answer; the first end counts. Does not wake the reader.
    pub(crate) fn end(&self, end: Ending) {
        lock(&self.0).end.get_or_insert(end);
    }

    /// Asks the reader to report that it has caught up. False when it has already.
    pub(crate) fn hold(&self) -> bool {
        let mut mail = lock(&self.0);
        mail.held = !mail.tokens.is_empty();
        mail.held
    }

    /// Wakes the reader.
    pub(crate) fn wake(&self) {
        let waker = lock(&self.0).waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Nobody reads any more: what waits is dropped, and so is what comes.
    pub(crate) fn leave(&self) {
        let mut mail = lock(&self.0);
        mail.gone = true;
        mail.tokens = Vec::new();
    }

    /// Moves all tokens that wait into `tokens`, which is empty and whose memory the mailbox goes on with.
    pub(crate) fn poll_take(&self, tokens: &mut Vec<Sampled>, cx: &mut Context<'_>) -> Poll<Taken> {
        debug_assert!(tokens.is_empty(), "what was taken before is worked off");
        let mut mail = lock(&self.0);
        if mail.tokens.is_empty() && mail.end.is_none() {
            match &mut mail.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        std::mem::swap(&mut mail.tokens, tokens);
        Poll::Ready(Taken { end: mail.end.take(), caught_up: std::mem::take(&mut mail.held) })
    }
}

/// The writing end: whoever waits at the other never waits for somebody who has dropped this.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Arc<Mailbox>);

impl Outbox {
    /// The writing end of a mailbox.
    pub(crate) fn of(mailbox: &Arc<Mailbox>) -> Outbox {
        Outbox(Arc::clone(mailbox))
    }
}

impl Deref for Outbox {
    type Target = Mailbox;

    fn deref(&self) -> &Mailbox {
        &self.0
    }
}

impl Drop for Outbox {
    /// The first end counts.
    fn drop(&mut self) {
        self.0.end(Ending::Abandoned);
        self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use sf_core::Token;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn sampled(token: u32) -> Sampled {
        Sampled { token: Token(token), logprob: None, top: Vec::new() }
    }

    #[test]
    fn a_round_of_tokens_wakes_its_reader_once_and_comes_in_order() {
        let (mailbox, woken) = (Mailbox::default(), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let (mut cx, mut tokens) = (Context::from_waker(&waker), Vec::new());
        assert!(mailbox.poll_take(&mut tokens, &mut cx).is_pending());
        for token in 0..3 {
            mailbox.push(sampled(token));
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        mailbox.wake();
        mailbox.wake();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(mailbox.poll_take(&mut tokens, &mut cx), Poll::Ready(Taken::default()));
        assert_eq!(tokens, [0, 1, 2].map(sampled));
        tokens.clear();
        assert!(mailbox.poll_take(&mut tokens, &mut cx).is_pending());
    }

    #[test]
    fn an_end_comes_with_the_last_tokens_and_the_first_end_counts() {
        let (mailbox, mut cx, mut tokens) =
            (Mailbox::default(), Context::from_waker(Waker::noop()), Vec::new());
        mailbox.push(sampled(1));
        mailbox.end(Ending::Finished { reason: FinishReason::Length, drawn: 1, cached: 0 });
        mailbox.end(Ending::Abandoned);
        let Poll::Ready(taken) = mailbox.poll_take(&mut tokens, &mut cx) else { panic!("something waits") };
        assert!(matches!(taken.end, Some(Ending::Finished { drawn: 1, .. })));
        assert_eq!(tokens.len(), 1);
    }

    #[test]
    fn a_held_reader_reports_once_that_it_caught_up() {
        let (mailbox, mut cx, mut tokens) =
            (Mailbox::default(), Context::from_waker(Waker::noop()), Vec::new());
        assert!(!mailbox.hold(), "nothing waits");
        mailbox.push(sampled(1));
        assert!(mailbox.hold());
        assert_eq!(
            mailbox.poll_take(&mut tokens, &mut cx),
            Poll::Ready(Taken { end: None, caught_up: true })
        );
        tokens.clear();
        mailbox.push(sampled(2));
        assert_eq!(mailbox.poll_take(&mut tokens, &mut cx), Poll::Ready(Taken::default()));
    }

    #[test]
    fn nothing_piles_up_for_a_reader_that_left() {
        let mailbox = Mailbox::default();
        mailbox.push(sampled(1));
        mailbox.leave();
        assert_eq!(mailbox.push(sampled(2)), 0);
    }
}

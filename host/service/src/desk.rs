//! Where the HTTP side leaves what a lane thread must know, and how it wakes the thread or ends its running tick.
//!
//! The lane thread sleeps either here, when it has nothing to do, or in its link while the engine computes. In the
//! second case an arrival that is worth it raises the engine's yield word itself, so that the tick ends at its next step.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use sf_core::limits::QUEUE_REQUESTS_MAX;
use sf_core::{Moment, RequestId};
use sf_engine::Control;
use sf_sched::Admission;

use crate::embed::EmbedJob;
use crate::mailbox::Outbox;
use crate::sync::lock;

/// One answer to be generated.
#[derive(Debug)]
pub(crate) struct Job {
    /// What the scheduler gets.
    pub(crate) admission: Admission,
    /// Where its tokens go.
    pub(crate) mailbox: Outbox,
    /// When it was left here.
    pub(crate) submitted: Moment,
}

/// Why nobody reads an answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// The client is gone.
    Cancelled,
    /// A stop string completed it.
    Complete,
}

/// What lay on the desk.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Oldest first.
    pub(crate) jobs: Vec<Job>,
    /// Texts that want vectors, oldest first.
    pub(crate) embeds: Vec<EmbedJob>,
    /// Each may have ended by itself meanwhile.
    pub(crate) left: Vec<(RequestId, Leaving)>,
    /// Held answers whose clients have read everything.
    pub(crate) caught_up: Vec<RequestId>,
    /// The system runs out of memory.
    pub(crate) shed: bool,
    /// A new background divisor.
    pub(crate) background_every: Option<u32>,
}

/// All handles of the model are gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// Why a job was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// Too many wait.
    Full {
        /// How many.
        waiting: usize,
    },
    /// The lane thread has ended.
    Closed,
}

/// One per lane thread.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    papers: Mutex<Papers>,
    arrived: Condvar,
    /// Something lies here.
    news: AtomicBool,
    /// Of that, something that the running tick should end for.
    urgent: AtomicBool,
    /// Hint of the lane thread: an arrival would get a lane at once.
    has_room: AtomicBool,
    /// Word of the lane thread: so many it took from here wait for a lane.
    waiting: AtomicUsize,
    /// The same of texts that want vectors.
    waiting_embeds: AtomicUsize,
}

#[derive(Debug, Default)]
struct Papers {
    news: News,
    /// The open engine's.
    control: Option<Control>,
    closed: bool,
}

/// The HTTP side's half.
impl Desk {
    /// Leaves a job.
    pub(crate) fn submit(&self, job: Job) -> Result<(), NotTaken> {
        let sensitive = job.admission.class.is_latency_sensitive();
        let mut papers = lock(&self.papers);
        if papers.closed {
            return Err(NotTaken::Closed);
        }
        let waiting = papers.news.jobs.len() + self.waiting.load(Ordering::SeqCst);
        if waiting >= QUEUE_REQUESTS_MAX {
            return Err(NotTaken::Full { waiting });
        }
        papers.news.jobs.push(job);
        self.news.store(true, Ordering::SeqCst);
        self.ring(&papers, sensitive || self.has_room.load(Ordering::SeqCst));
        Ok(())
    }

    /// Leaves texts that want vectors.
    pub(crate) fn submit_embed(&self, job: EmbedJob) -> Result<(), NotTaken> {
        let mut papers = lock(&self.papers);
        if papers.closed {
            return Err(NotTaken::Closed);
        }
        let waiting = papers.news.embeds.len() + self.waiting_embeds.load(Ordering::SeqCst);
        if waiting >= QUEUE_REQUESTS_MAX {
            return Err(NotTaken::Full { waiting });
        }
        papers.news.embeds.push(job);
        self.news.store(true, Ordering::SeqCst);
        self.ring(&papers, false);
        Ok(())
    }

    /// Says that nobody reads an answer any more; its lane is free within one step.
    pub(crate) fn leave(&self, request: RequestId, why: Leaving) {
        self.note(true, |news| news.left.push((request, why)));
    }

    /// Says that the client of a held answer has read everything.
    pub(crate) fn caught_up(&self, request: RequestId) {
        self.note(true, |news| news.caught_up.push(request));
    }

    /// Says that the system runs out of memory.
    pub(crate) fn shed(&self) {
        self.note(false, |news| news.shed = true);
    }

    /// Changes the background divisor.
    pub(crate) fn set_background_every(&self, every: u32) {
        self.note(false, |news| news.background_every = Some(every));
    }

    /// Wakes the lane thread, which waits for something else.
    pub(crate) fn poke(&self) {
        self.note(false, |_| {});
    }

    /// Takes no more jobs and ends the lane thread.
    pub(crate) fn close(&self) {
        lock(&self.papers).closed = true;
        self.note(true, |_| {});
    }

    fn note(&self, urgent: bool, write: impl FnOnce(&mut News)) {
        let mut papers = lock(&self.papers);
        write(&mut papers.news);
        self.news.store(true, Ordering::SeqCst);
        self.ring(&papers, urgent);
    }

    fn ring(&self, papers: &Papers, urgent: bool) {
        if urgent {
            self.urgent.store(true, Ordering::SeqCst);
            if let Some(control) = &papers.control {
                control.raise_yield();
            }
        }
        self.arrived.notify_one();
    }
}

/// The lane thread's half.
impl Desk {
    /// An engine was opened, or is gone.
    pub(crate) fn connect(&self, control: Option<Control>) {
        lock(&self.papers).control = control;
    }

    /// So many requests wait for a lane.
    pub(crate) fn note_waiting(&self, waiting: usize) {
        self.waiting.store(waiting, Ordering::SeqCst);
    }

    /// So many requests for vectors are not answered yet.
    pub(crate) fn note_waiting_embeds(&self, waiting: usize) {
        self.waiting_embeds.store(waiting, Ordering::SeqCst);
    }

    /// The lane thread ends: nobody takes what lies here any more.
    pub(crate) fn abandon(&self) {
        self.close();
        // Dropped when the lock is free again: their streams are told.
        let news = std::mem::take(&mut lock(&self.papers).news);
        drop((news.jobs, news.embeds));
    }

    /// Whether an arrival would get a lane has changed while a tick runs.
    pub(crate) fn note_room(&self, has_room: bool) {
        if self.has_room.load(Ordering::SeqCst) != has_room {
            self.begun(has_room);
        }
    }

    /// A tick has begun. What came since the desk was last looked at was too early for the yield word.
    pub(crate) fn begun(&self, has_room: bool) {
        self.has_room.store(has_room, Ordering::SeqCst);
        let waits = self.news.load(Ordering::SeqCst);
        if waits && (has_room || self.urgent.load(Ordering::SeqCst)) {
            self.raise_yield();
        }
    }

    /// Ends the running tick at its next step.
    pub(crate) fn raise_yield(&self) {
        if let Some(control) = &lock(&self.papers).control {
            control.raise_yield();
        }
    }

    /// Takes what lies here into `news`, which is empty.
    pub(crate) fn take(&self, news: &mut News) -> Result<(), Closed> {
        if !self.news.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut papers = lock(&self.papers);
        self.news.store(false, Ordering::SeqCst);
        self.urgent.store(false, Ordering::SeqCst);
        std::mem::swap(&mut papers.news, news);
        if papers.closed { Err(Closed) } else { Ok(()) }
    }

    /// Waits until something lies here, at most for `limit`.
    pub(crate) fn wait(&self, limit: Option<Duration>) {
        let papers = lock(&self.papers);
        let empty = |_: &mut Papers| !self.news.load(Ordering::SeqCst);
        // The guard is of no use: what there is is taken later.
        match limit {
            Some(limit) => {
                drop(
                    self.arrived
                        .wait_timeout_while(papers, limit, empty)
                        .unwrap_or_else(PoisonError::into_inner),
                );
            }
            None => drop(self.arrived.wait_while(papers, empty).unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use sf_core::{QosClass, SamplerSpec, Token};
    use sf_sched::Stop;

    use super::*;
    use crate::mailbox::{Ending, Taken};

    fn job(request: u64) -> Job {
        let stop = Stop { end_tokens: Arc::from([]), tokens_max: 1, positions_max: 2 };
        let admission = Admission {
            request: RequestId(request),
            prompt: vec![Token(0)],
            sampler: SamplerSpec::default(),
            stop,
            class: QosClass::Agent,
            party: 0,
            deadline: None,
            reuse: true,
            pin: None,
        };
        Job { admission, mailbox: Outbox::default(), submitted: Moment::default() }
    }

    #[test]
    fn what_was_left_is_taken_once_and_in_order() {
        let (desk, mut news) = (Desk::default(), News::default());
        desk.submit(job(1)).unwrap();
        desk.submit(job(2)).unwrap();
        desk.leave(RequestId(1), Leaving::Cancelled);
        desk.set_background_every(7);
        desk.wait(None);
        desk.take(&mut news).unwrap();
        assert_eq!(news.jobs.drain(..).map(|job| job.admission.request.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(news.left.drain(..).collect::<Vec<_>>(), [(RequestId(1), Leaving::Cancelled)]);
        assert_eq!(news.background_every.take(), Some(7));
        desk.take(&mut news).unwrap();
        assert!(news.jobs.is_empty() && news.left.is_empty());
    }

    #[test]
    fn a_full_desk_and_a_closed_one_take_no_job() {
        let desk = Desk::default();
        for request in 0..QUEUE_REQUESTS_MAX as u64 {
            desk.submit(job(request)).unwrap();
        }
        assert_eq!(desk.submit(job(0)), Err(NotTaken::Full { waiting: QUEUE_REQUESTS_MAX }));
        // What the lane thread took and could not start counts as well.
        desk.take(&mut News::default()).unwrap();
        desk.submit(job(0)).unwrap();
        desk.note_waiting(QUEUE_REQUESTS_MAX - 1);
        assert_eq!(desk.submit(job(0)), Err(NotTaken::Full { waiting: QUEUE_REQUESTS_MAX }));
        desk.close();
        assert_eq!(desk.submit(job(0)), Err(NotTaken::Closed));
    }

    #[test]
    fn an_abandoned_job_is_told_to_its_stream() {
        let (desk, mailbox) = (Desk::default(), Arc::default());
        desk.submit(Job { mailbox: Outbox::of(&mailbox), ..job(1) }).unwrap();
        desk.abandon();
        let mut cx = Context::from_waker(Waker::noop());
        let ended = Taken { end: Some(Ending::Abandoned), caught_up: false };
        assert_eq!(mailbox.poll_take(&mut Vec::new(), &mut cx), Poll::Ready(ended));
        assert_eq!(desk.submit(job(2)), Err(NotTaken::Closed));
    }

    #[test]
    fn closing_wakes_a_thread_that_waits() {
        for limit in [None, Some(Duration::MAX)] {
            let desk = Arc::new(Desk::default());
            let theirs = Arc::clone(&desk);
            let thread = std::thread::spawn(move || {
                let mut news = News::default();
                while theirs.take(&mut news).is_ok() {
                    theirs.wait(limit);
                }
            });
            desk.close();
            thread.join().unwrap();
        }
    }
}

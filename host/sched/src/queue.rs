//! Requests that wait for a lane, and which of them goes next.
//!
//! Class first, then those that ran before, then the party that got least, then arrival; no request starves inside its
//! class. Of a class that was passed over for too long the first goes before higher classes, but only in every other
//! grant: when everybody has waited for long, classes still count. Of several such classes it is the one whose last grant
//! is the longest ago.

use sf_core::{LaneId, Moment, QosClass, RequestId, limits};

use crate::job::Job;
use crate::party::Parties;
use crate::types::SchedulerSettings;

/// What a waiting request waits for besides a lane: that another computes the beginning they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) lane: LaneId,
    /// Who runs on it.
    pub(crate) request: RequestId,
    /// Positions they share.
    pub(crate) until: u32,
}

/// A request in the queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) job: Job,
    /// Ticks that fed somebody, when it was queued.
    since: u64,
    /// It ran before.
    requeued: bool,
    pub(crate) block: Option<Block>,
}

/// A choice of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) at: usize,
    /// It has waited too long.
    pub(crate) starved: bool,
    /// Somebody else would have been next otherwise.
    pub(crate) overtakes: bool,
}

/// All waiting requests.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) parties: Parties,
    /// Ticks that fed somebody.
    busy_ticks: u64,
    /// The last grant overtook a higher class.
    overtook: bool,
    /// Grants so far, and the last one of each class.
    grant: u64,
    grants: [u64; 4],
}

impl Queue {
    pub(crate) fn push(&mut self, job: Job, requeued: bool) {
        self.waiting.push(Waiting { job, since: self.busy_ticks, requeued, block: None });
    }

    pub(crate) fn remove(&mut self, at: usize) -> Job {
        self.waiting.remove(at).job
    }

    pub(crate) fn find(&mut self, request: RequestId) -> Option<usize> {
        self.waiting.iter().position(|waiting| waiting.job.request == request)
    }

    /// A tick fed somebody: whoever waits was passed over.
    pub(crate) fn passed_over(&mut self) {
        self.busy_ticks += 1;
    }

    fn is_starved(&self, waiting: &Waiting, settings: &SchedulerSettings) -> bool {
        self.busy_ticks - waiting.since >= patience(waiting.job.class, settings)
    }

    /// The next request of those that `may` go.
    pub(crate) fn next(
        &self,
        settings: &SchedulerSettings,
        may: impl Fn(&Waiting) -> bool,
    ) -> Option<Choice> {
        let first = self.first_by_class(&may)?;
        let class = self.waiting[first].job.class;
        let starved = self.waiting.iter().filter(|waiting| {
            waiting.job.class > class && may(waiting) && self.is_starved(waiting, settings)
        });
        let starved =
            starved.min_by_key(|waiting| (self.grants[waiting.job.class.index()], waiting.job.class));
        if let Some(class) = starved.map(|waiting| waiting.job.class).filter(|_| !self.overtook) {
            let at = self.first_by_class(|waiting| waiting.job.class == class && may(waiting))?;
            return Some(Choice { at, starved: true, overtakes: true });
        }
        let starved = self.is_starved(&self.waiting[first], settings);
        Some(Choice { at: first, starved, overtakes: false })
    }

    /// The next request of those that `may` go when nobody has waited too long.
    pub(crate) fn first_by_class(&self, may: impl Fn(&Waiting) -> bool) -> Option<usize> {
        let candidates = self.waiting.iter().enumerate().filter(|(_, waiting)| may(waiting));
        candidates.min_by_key(|(_, waiting)| self.rank(waiting)).map(|(at, _)| at)
    }

    fn rank(&self, waiting: &Waiting) -> (QosClass, bool, u64, u64) {
        let job = &waiting.job;
        (job.class, !waiting.requeued, self.parties.served(job.party), job.seq)
    }

    /// A request of `class` was admitted.
    pub(crate) fn granted(&mut self, class: QosClass, overtakes: bool) {
        self.overtook = overtakes;
        self.grant += 1;
        self.grants[class.index()] = self.grant;
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.waiting.iter().filter_map(|waiting| waiting.job.deadline).min()
    }

    /// How many wait, by class.
    pub(crate) fn by_class(&self) -> [u32; 4] {
        let mut counts = [0; 4];
        for waiting in &self.waiting {
            counts[waiting.job.class.index()] += 1;
        }
        counts
    }
}

/// Ticks that a request of this class may be passed over.
pub(crate) fn patience(class: QosClass, settings: &SchedulerSettings) -> u64 {
    let every = if class == QosClass::Background { settings.background_every } else { 1 };
    u64::from(settings.starvation_ticks) * u64::from(every.min(limits::BACKGROUND_EVERY_MAX))
}

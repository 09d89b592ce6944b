//! One running request: how far its lane is, how it got there, and what becomes of the lane when it ends.

use sf_core::{LaneId, Moment, QosClass, StashKey, limits};

use crate::ability::Way;
use crate::job::Job;
use crate::kv::Pin;

/// How a lane came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Opened empty.
    Cold,
    /// From another lane, or from an idle one.
    Taken(Way),
    /// From a copy.
    Restored(StashKey),
}

/// What the engine must still say about a lane's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Its operation is in the plan in flight.
    Asked,
    /// The operation worked.
    Open,
    /// The operation failed: the next plan opens it empty.
    Reopen,
}

/// Whether a lane runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It does.
    No,
    /// Its request is over; its KV is good.
    Retire,
    /// Its request is over, and nobody knows what the lane holds.
    Close,
}

/// A lane with a request.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    pub(crate) job: Job,
    /// Positions in the engine.
    pub(crate) len: u32,
    pub(crate) how: How,
    pub(crate) entry: Entry,
    /// Positions taken over when it entered.
    pub(crate) taken: u32,
    /// Cells that were freed when it was cut for that.
    pub(crate) cut: u64,
    /// Failed openings.
    pub(crate) tries: u32,
    pub(crate) end: End,
    /// Order of admission.
    pub(crate) started: u64,
    pub(crate) admitted: Moment,
    /// Ticks for which a higher class may not take its lane.
    pub(crate) shielded: u64,
    /// Tokens known at its admission: up to here it prefills.
    pub(crate) prefill_until: u32,
    /// Ticks in which a later prompt was fed and this one was not.
    pub(crate) passed: u64,
    /// Tokens of its feed in flight.
    pub(crate) fed: u32,
    /// Tokens of its next feed at most: the engine refused more while it was alone.
    pub(crate) run_max: u32,
    /// Times in a row that it was refused a single cell while it was alone.
    pub(crate) refusals: u32,
    /// Of an idle lane that it took over.
    pub(crate) pin: Option<Pin>,
    /// The highest class of those that wait for what it computes.
    pub(crate) boost: QosClass,
    /// Where its next chunk ends at the latest, because somebody waits for that.
    pub(crate) stop_at: u32,
}

impl Lane {
    pub(crate) fn new(id: LaneId, job: Job, how: How, taken: u32) -> Lane {
        Lane {
            id,
            len: taken,
            how,
            entry: Entry::Asked,
            taken,
            cut: 0,
            tries: 0,
            end: End::No,
            started: 0,
            admitted: Moment(0),
            shielded: 0,
            prefill_until: job.len(),
            passed: 0,
            fed: 0,
            run_max: u32::MAX,
            refusals: 0,
            pin: None,
            boost: QosClass::Background,
            stop_at: u32::MAX,
            job,
        }
    }

    /// Tokens that are not in the engine yet.
    pub(crate) fn pending(&self) -> u32 {
        self.job.len() - self.len
    }

    /// Tokens that its next feed may have.
    pub(crate) fn feedable(&self) -> u32 {
        let scores = if self.job.wants_scores() { limits::SCORES_MAX } else { u32::MAX };
        self.pending().min(self.run_max).min(self.stop_at.saturating_sub(self.len)).min(scores)
    }

    /// Whether plans may feed it.
    pub(crate) fn is_live(&self) -> bool {
        self.end == End::No && !self.job.held
    }

    /// Whether it goes on token by token.
    pub(crate) fn is_decoding(&self) -> bool {
        self.job.drawn > 0 && self.pending() == 1
    }

    /// Its class, or that of whoever waits for it.
    pub(crate) fn urgency(&self) -> QosClass {
        self.job.class.min(self.boost)
    }

    /// Cells that it will need soon beyond those it has.
    pub(crate) fn reserve(&self, headroom: u32) -> u64 {
        u64::from(self.pending()) + u64::from(self.job.draws_left(self.job.len()).min(headroom))
    }
}

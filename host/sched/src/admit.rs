//! Admission: which waiting request gets a lane now, whose lane it takes, and which prefix it begins with.

use sf_core::{FinishReason, LaneOp, Moment, QosClass, StepPlan};

use crate::job::Job;
use crate::lane::{End, Entry};
use crate::queue::{Choice, Waiting};
use crate::scheduler::Scheduler;
use crate::settle::finished;
use crate::source::Source;
use crate::types::{Failure, Outcome};

/// Cells beyond its pending tokens that a running lane is expected to need soon.
const HEADROOM: u32 = 32;
/// A lane given to a request that had waited too long is safe from higher classes for this many times the patience; one
/// lane at a time, so that a backlog does not shut out those who cannot wait.
const SHIELD: u64 = 4;

/// Whether a request's cells can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Now,
    Later,
    Never,
}

impl Scheduler {
    /// Gives lanes to waiting requests as long as there are both.
    pub(crate) fn admit(&mut self, plan: &mut StepPlan, outcomes: &mut Vec<Outcome>) {
        self.unblock();
        self.stalled = false;
        while let Some((choice, victim)) = self.candidate() {
            let mut source = self.probe(&self.queue.waiting[choice.at].job);
            if let Source::Behind(block) = source {
                self.queue.waiting[choice.at].block = Some(block);
                continue;
            }
            if let Some(victim) = victim {
                self.preempt(victim, plan);
                source = self.probe(&self.queue.waiting[choice.at].job);
            }
            match self.settle_fit(choice, source, plan) {
                Fit::Now => {}
                Fit::Later => {
                    self.stalled = true;
                    break;
                }
                Fit::Never => self.refuse(choice.at, outcomes),
            }
        }
        self.mark_leaders();
    }

    /// Enters a choice if its cells can be had, taking lanes of lower classes for that.
    fn settle_fit(&mut self, choice: Choice, mut source: Source, plan: &mut StepPlan) -> Fit {
        loop {
            match self.fit(&self.queue.waiting[choice.at].job, source) {
                Fit::Never => return Fit::Never,
                Fit::Now => {
                    let entered = self.enter(choice, source, plan);
                    return if entered { Fit::Now } else { Fit::Later };
                }
                Fit::Later => {}
            }
            let class = self.queue.waiting[choice.at].job.class;
            let Some(victim) = self.victim_below(class) else { return Fit::Later };
            self.preempt(victim, plan);
            source = match self.probe(&self.queue.waiting[choice.at].job) {
                Source::Behind(_) => Source::Cold,
                other => other,
            };
        }
    }

    /// Ends waits for a prefix that is there now, or that nobody computes any more.
    fn unblock(&mut self) {
        for waiting in &mut self.queue.waiting {
            let Some(block) = waiting.block else { continue };
            let leader = self.slots.get(block.lane.0 as usize).and_then(|at| self.lanes.get(*at as usize));
            let holds = leader.is_some_and(|lane| {
                lane.id == block.lane
                    && lane.job.request == block.request
                    && lane.is_live()
                    && (lane.len < block.until || lane.entry == Entry::Asked)
            });
            if !holds {
                waiting.block = None;
            }
        }
    }

    /// Tells lanes who waits for what they compute.
    fn mark_leaders(&mut self) {
        for lane in &mut self.lanes {
            (lane.boost, lane.stop_at) = (QosClass::Background, u32::MAX);
        }
        let mut places = self.batch().saturating_sub(self.lanes.len());
        for waiting in &self.queue.waiting {
            let Some(block) = waiting.block else { continue };
            // It may have lost its lane in this very plan.
            let leader =
                self.slots.get(block.lane.0 as usize).and_then(|at| self.lanes.get_mut(*at as usize));
            let Some(lane) = leader else { continue };
            lane.boost = lane.boost.min(waiting.job.class);
            // A chunk is cut short only for those that can go on from there at once.
            if places > 0 && block.until > lane.len {
                places -= 1;
                lane.stop_at = lane.stop_at.min(block.until);
            }
        }
    }

    /// Who is next, and whose lane it takes if none is free.
    fn candidate(&self) -> Option<(Choice, Option<usize>)> {
        if self.queue.waiting.is_empty() {
            return None;
        }
        let room = self.class_room();
        let suspects = self.caution(room)?;
        let may_run = |waiting: &Waiting| may_run(waiting, room) && (!suspects || waiting.job.is_suspect());
        if self.lanes.len() < self.batch() {
            let choice = self.queue.next(&self.settings, may_run);
            return choice.map(|choice| (choice, None));
        }
        let victims = QosClass::ALL.map(|class| self.victim_below(class));
        let at = self
            .queue
            .first_by_class(|waiting| may_run(waiting) && victims[waiting.job.class.index()].is_some())?;
        let choice = Choice { at, starved: false, overtakes: false };
        Some((choice, victims[self.queue.waiting[at].job.class.index()]))
    }

    /// Whether only suspects of ending engines may be admitted; `None`: nobody may. One suspect at a time runs, beside
    /// requests that are proven, so that the next loss tells who it was, and only that one is failed for it.
    fn caution(&self, room: [bool; 4]) -> Option<bool> {
        let unproven = || self.lanes.iter().filter(|lane| lane.is_live() && !lane.job.is_proven());
        if unproven().any(|lane| lane.job.is_suspect()) {
            return None;
        }
        let mut waiting = self.queue.waiting.iter();
        let suspects = waiting.any(|waiting| waiting.job.is_suspect() && may_run(waiting, room));
        (!suspects || unproven().next().is_none()).then_some(suspects)
    }

    /// Which classes are below their caps.
    fn class_room(&self) -> [bool; 4] {
        let mut running = [0; 4];
        for lane in self.lanes.iter().filter(|lane| lane.end == End::No) {
            running[lane.job.class.index()] += 1;
        }
        QosClass::ALL.map(|class| running[class.index()] < self.settings.class_lanes[class.index()])
    }

    /// The lane that a request of `class` may take: of the lowest class below its own, the one that started last.
    pub(crate) fn victim_below(&self, class: QosClass) -> Option<usize> {
        let lanes = self.lanes.iter().enumerate();
        let below =
            lanes.filter(|(_, lane)| lane.end == End::No && lane.job.class > class && lane.shielded == 0);
        below.max_by_key(|(_, lane)| (lane.job.class, lane.started)).map(|(at, _)| at)
    }

    /// Takes a lane away from its request, which is queued again with all its tokens.
    pub(crate) fn preempt(&mut self, at: usize, plan: &mut StepPlan) {
        let mut lane = self.take_lane_out(at);
        self.totals.preemptions += 1;
        lane.end = End::Retire;
        let pin = lane.pin;
        let job = self.part(lane, pin, plan);
        self.queue.push(job, true);
    }

    fn refuse(&mut self, at: usize, outcomes: &mut Vec<Outcome>) {
        let job = self.queue.remove(at);
        self.queue.parties.leave(job.party);
        let failure = Failure::KvExhausted { needed: u64::from(job.len()), cells: self.kv.cells() };
        outcomes.push(Outcome::Failed { request: job.request, failure });
    }

    fn fit(&self, job: &Job, source: Source) -> Fit {
        let cells = self.kv.cells();
        if cells > 0 && u64::from(job.len()) > cells {
            return Fit::Never;
        }
        // The first one is always let in: it takes what there is, and fails if that is not enough.
        if self.kv.limit() == u64::MAX || self.lanes.is_empty() {
            return Fit::Now;
        }
        let (upto, becomes_busy) = match source {
            Source::Lane { from, upto, .. } => (upto, self.kv.tree.idle_within(from, upto)),
            Source::Copy { positions, upto, .. } => (upto, u64::from(positions)),
            Source::Cold | Source::Behind(_) => (0, 0),
        };
        let held = self.kv.tree.used().saturating_sub(self.kv.evictable());
        let promised: u64 = self.lanes.iter().map(|lane| lane.reserve(HEADROOM)).sum();
        let wanted = u64::from(job.len() - upto) + u64::from(job.draws_left(job.len()).min(HEADROOM));
        let needed = held + promised + becomes_busy + wanted;
        if needed <= self.kv.limit() { Fit::Now } else { Fit::Later }
    }

    /// Makes the chosen request run; false when no lane can be had after all.
    fn enter(&mut self, choice: Choice, source: Source, plan: &mut StepPlan) -> bool {
        let room = self.queue.waiting[choice.at].job.room();
        let Some(mut lane) = self.open_from(choice.at, source, room, plan) else { return false };
        self.queue.granted(lane.job.class, choice.overtakes);
        if choice.overtakes {
            self.totals.starvation_grants += 1;
        }
        self.starts += 1;
        (lane.started, lane.admitted) = (self.starts, self.now);
        if choice.starved && self.lanes.iter().all(|lane| lane.shielded == 0) {
            lane.shielded = match lane.job.class {
                // Nobody takes its lane anyway.
                QosClass::Interactive => 0,
                // Enough to get somewhere each time, and nobody waits long for it.
                QosClass::Background => 1,
                _ => SHIELD * u64::from(self.settings.starvation_ticks),
            };
        }
        lane.job.reserve();
        self.slots[lane.id.0 as usize] = self.lanes.len() as u32;
        self.lanes.push(lane);
        true
    }

    /// Opens lanes empty whose first operation failed.
    pub(crate) fn reopen(&mut self, plan: &mut StepPlan) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.entry == Entry::Reopen) {
            // Until now it may have held what it was made from.
            self.kv.tree.truncate(lane.id, 0);
            plan.ops.push(LaneOp::Close { lane: lane.id });
            plan.ops.push(LaneOp::Open { lane: lane.id, spec: lane.job.spec() });
            lane.entry = Entry::Asked;
        }
    }

    /// Whether somebody who waits could go on with a lane that just became free.
    pub(crate) fn somebody_waits(&self) -> bool {
        let room = self.class_room();
        self.queue.waiting.iter().any(|waiting| may_run(waiting, room))
    }

    /// Ends what passed its deadline. [`Scheduler::plan`] does it too; this is for times without an engine.
    pub fn expire(&mut self, now: Moment, outcomes: &mut Vec<Outcome>) {
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            if lane.end != End::No || !lane.job.is_due(now) {
                continue;
            }
            self.totals.deadlines += 1;
            if lane.job.started {
                self.finish(at, FinishReason::Deadline, outcomes);
            } else {
                // Its first lane could not be made, and the next one was not tried yet.
                self.drop_lane(at, Failure::Expired, outcomes);
            }
        }
        let mut at = 0;
        while at < self.queue.waiting.len() {
            if !self.queue.waiting[at].job.is_due(now) {
                at += 1;
                continue;
            }
            let job = self.queue.remove(at);
            self.totals.deadlines += 1;
            self.queue.parties.leave(job.party);
            outcomes.push(if job.started {
                finished(&job, FinishReason::Deadline)
            } else {
                Outcome::Failed { request: job.request, failure: Failure::Expired }
            });
        }
    }
}

/// Whether nothing but a lane is missing; `room` says which classes are below their caps.
fn may_run(waiting: &Waiting, room: [bool; 4]) -> bool {
    waiting.block.is_none() && !waiting.job.held && room[waiting.job.class.index()]
}

//! What the lanes are fed in the next tick: a token of the decoding lanes and a chunk of prompts, or several decode steps
//! when no prompt is pending.

use sf_core::{Feed, QosClass, StepPlan, limits};

use crate::lane::{End, Entry, Lane};
use crate::queue::patience;
use crate::scheduler::Scheduler;
use crate::types::{Failure, Outcome};

/// Indices of the lanes that the next tick feeds; kept for their memory.
#[derive(Debug, Default)]
pub(crate) struct Fare {
    decodes: Vec<usize>,
    /// The first to be fed first.
    prompts: Vec<usize>,
}

impl Scheduler {
    /// Fills the feeds.
    pub(crate) fn feed(&mut self, plan: &mut StepPlan, outcomes: &mut Vec<Outcome>) {
        let mut fare = std::mem::take(&mut self.fare);
        loop {
            self.choose(&mut fare);
            if fare.decodes.is_empty() && fare.prompts.is_empty() {
                break;
            }
            // Every decoding lane needs a cell, and if there are none, the first prompt does.
            let least = fare.decodes.len().max(1) as u64;
            if self.kv.make_room(least, false, plan) {
                if fare.prompts.is_empty() {
                    self.feed_decodes(&fare, plan);
                } else {
                    self.sit_out(&mut fare);
                    self.feed_mixed(&fare, plan);
                }
                break;
            }
            self.give_way(least, plan, outcomes);
        }
        self.fare = fare;
    }

    /// Sorts lanes into those that decode and those with pending prompts, in the order in which these are fed.
    fn choose(&self, fare: &mut Fare) {
        fare.decodes.clear();
        fare.prompts.clear();
        let fed = |lane: &Lane| lane.is_live() && lane.entry != Entry::Reopen;
        let others = self.lanes.iter().any(|lane| fed(lane) && lane.urgency() != QosClass::Background);
        let turn = !others || self.background_quiet.saturating_add(1) >= self.settings.background_every;
        for (at, lane) in self.lanes.iter().enumerate().filter(|(_, lane)| fed(lane)) {
            if !turn && lane.urgency() == QosClass::Background {
                continue;
            }
            if lane.is_decoding() {
                fare.decodes.push(at);
            } else {
                fare.prompts.push(at);
            }
        }
        fare.prompts.sort_unstable_by_key(|at| {
            let lane = &self.lanes[*at];
            (!self.is_aged(lane), lane.urgency(), lane.started)
        });
    }

    fn is_aged(&self, lane: &Lane) -> bool {
        lane.passed >= patience(lane.job.class, &self.settings)
    }

    /// No cell is left for `least` tokens: the last of the lowest class gives up its lane; one that is alone may break
    /// pins, and fails if that does not help.
    fn give_way(&mut self, least: u64, plan: &mut StepPlan, outcomes: &mut Vec<Outcome>) {
        let lanes = self.lanes.iter().enumerate().filter(|(_, lane)| lane.end == End::No);
        let Some((at, _)) = lanes.max_by_key(|(_, lane)| (lane.job.class, lane.started)) else { return };
        if self.lanes.len() > 1 {
            self.preempt(at, plan);
            return;
        }
        // What others taught about the cells there are need not hold for one that is alone.
        if self.kv.make_room(least, true, plan) || self.kv.forgive() {
            return;
        }
        let lane = self.take_lane_out(at);
        self.queue.parties.leave(lane.job.party);
        self.kv.close(lane.id, plan);
        let failure = Failure::KvExhausted { needed: u64::from(lane.job.len()), cells: self.kv.cells() };
        outcomes.push(Outcome::Failed { request: lane.job.request, failure });
    }

    fn feed_decodes(&mut self, fare: &Fare, plan: &mut StepPlan) {
        let count = fare.decodes.len() as u32;
        let steps = self.pace.steps(&self.settings, count);
        let room = match self.kv.make_room(u64::from(count) * u64::from(steps), false, plan) {
            true => steps,
            false => u32::try_from(self.kv.room() / u64::from(count)).unwrap_or(u32::MAX),
        };
        plan.steps_max = steps.min(room).max(1);
        for at in &fare.decodes {
            let lane = &mut self.lanes[*at];
            let draws = plan.steps_max.min(lane.job.draws_left(lane.job.len())).max(1);
            push(lane, 1, draws - 1, plan);
        }
    }

    /// While prompts are pending for more than this step, decoding lanes of the same class or a lower one leave some
    /// steps to them.
    fn sit_out(&mut self, fare: &mut Fare) {
        if self.pace.decodes_due(&self.settings, self.now, fare.decodes.len() as u32) {
            return;
        }
        let wanted: u64 = fare.prompts.iter().map(|at| u64::from(self.lanes[*at].feedable())).sum();
        if wanted > u64::from(self.pace.chunk(&self.settings, 0)) {
            let class = self.lanes[fare.prompts[0]].urgency();
            fare.decodes.retain(|at| self.lanes[*at].urgency() < class);
        }
    }

    fn feed_mixed(&mut self, fare: &Fare, plan: &mut StepPlan) {
        let decodes = fare.decodes.len() as u32;
        let mut chunk = self.pace.chunk(&self.settings, decodes);
        self.kv.make_room(u64::from(decodes) + u64::from(chunk), false, plan);
        let room = self.kv.room().saturating_sub(u64::from(decodes));
        chunk = chunk.min(u32::try_from(room).unwrap_or(u32::MAX));
        for at in &fare.decodes {
            push(&mut self.lanes[*at], 1, 0, plan);
        }
        let (mut last, mut scores) = (0, limits::SCORES_MAX);
        for at in &fare.prompts {
            let lane = &mut self.lanes[*at];
            let scored = lane.job.wants_scores();
            let most = chunk.min(lane.feedable()).min(if scored { scores } else { u32::MAX });
            if most == 0 {
                continue;
            }
            let fed = push(lane, most, 0, plan);
            chunk -= fed;
            scores -= if scored { fed } else { 0 };
            last = last.max(lane.started);
            lane.passed = 0;
        }
        // Whoever came before one that was fed, and was not fed itself, was passed over.
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_live() && lane.fed == 0) {
            if lane.started < last && !lane.is_decoding() {
                lane.passed += 1;
            }
        }
    }
}

/// Feeds up to `most` pending tokens of a lane and returns how many; the last one known is followed by a draw.
fn push(lane: &mut Lane, most: u32, more: u32, plan: &mut StepPlan) -> u32 {
    let pending = &lane.job.tokens[lane.len as usize..];
    let run = &pending[..pending.len().min(most as usize)];
    let start = plan.tokens.len() as u32;
    plan.tokens.extend_from_slice(run);
    let end = plan.tokens.len() as u32;
    let sample = run.len() == pending.len();
    if lane.job.wants_scores() {
        plan.tokens.extend(pending.get(run.len()));
    }
    plan.feeds.push(Feed { lane: lane.id, tokens: start..end, pos0: lane.len, sample, more });
    lane.fed = end - start;
    lane.shielded = lane.shielded.saturating_sub(1);
    lane.fed
}

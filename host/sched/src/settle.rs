//! What a step brought: positions, drawn tokens, faults, and what they mean for requests and lanes.

use sf_core::{FinishReason, LaneFault, LaneOut, Moment, QosClass, Sampled, Score, StepOut};

use crate::ability::Way;
use crate::job::{Drawn, Job};
use crate::lane::{End, Entry, How};
use crate::pace::Load;
use crate::scheduler::Scheduler;
use crate::types::{Failure, Outcome};

/// Openings of one lane that may fail for want of room, and for other reasons, before its request does.
const CAPACITY_TRIES_MAX: u32 = 8;
const TRIES_MAX: u32 = 2;
/// Times in a row that a lane which is alone may find no cell for a single token.
const REFUSALS_MAX: u32 = 3;

/// What the lanes of one step add up to.
#[derive(Debug, Default)]
struct Tally {
    load: Load,
    /// Tokens that found no cell.
    refused: u64,
    /// Some were refused.
    full: bool,
    /// Background was fed, others were.
    fed: [bool; 2],
}

impl Scheduler {
    /// Takes one step of the tick in flight.
    pub(crate) fn settle(&mut self, now: Moment, out: &StepOut, outcomes: &mut Vec<Outcome>) {
        let mut tally = Tally::default();
        let fed = if out.step == 0 { self.flight_feeds.min(out.lanes.len()) } else { out.lanes.len() };
        if out.step == 0 {
            self.kv.stash.settle(&out.moves);
            tally.load.moves_ns = out.moves.iter().map(|done| done.took_ns).sum();
            for lane_out in &out.lanes[fed..] {
                self.settle_fault(lane_out, outcomes);
            }
            self.confirm(outcomes);
            self.take_scores(&out.scores, outcomes);
        }
        for lane_out in &out.lanes[..fed] {
            self.settle_lane(lane_out, &mut tally, outcomes);
        }
        self.pace.learn(now, tally.load);
        if tally.full {
            self.kv.refused(tally.refused);
            self.squeeze(tally.refused, outcomes);
        }
        if out.step == 0 {
            for lane in &mut self.lanes {
                lane.fed = 0;
            }
            match tally.fed {
                [true, _] => self.background_quiet = 0,
                [false, others] => {
                    self.background_quiet = self.background_quiet.saturating_add(u32::from(others));
                }
            }
        }
    }

    /// An operation failed.
    fn settle_fault(&mut self, out: &LaneOut, outcomes: &mut Vec<Outcome>) {
        let Err(fault) = &out.result else { return };
        let copied = self.kv.stash.is_to_blame(out.lane);
        let at = self.at(out.lane);
        let Some(at) = at else {
            if !copied {
                self.kv.spoil(out.lane);
            }
            return;
        };
        let lane = &mut self.lanes[at];
        if lane.entry != Entry::Asked {
            return;
        }
        (lane.entry, lane.len) = (Entry::Reopen, 0);
        let how = std::mem::replace(&mut lane.how, How::Cold);
        let full = fault.code == LaneFault::CAPACITY;
        match how {
            // Still there, perhaps uncut, until the next plan closes it.
            How::Taken(Way::Adopt | Way::Cut) => self.kv.uncut += lane.cut,
            How::Restored(_) if !full => self.kv.uncut += lane.cut,
            _ => self.kv.tree.truncate(out.lane, 0),
        }
        if full {
            self.kv.press();
        }
        if lane.end != End::No {
            lane.end = End::Close;
            return;
        }
        lane.tries += 1;
        match how {
            How::Taken(way) if !full => self.kv.able.note(way, false),
            // It came back whole and could not be cut; whole it is as good as ever.
            How::Restored(_) if lane.cut > 0 && fault.code == LaneFault::UNSUPPORTED => {
                self.kv.able.note(Way::Cut, false);
            }
            How::Restored(key) if !full => self.kv.stash.spoil(key),
            How::Cold => {
                let tries_max = if full { CAPACITY_TRIES_MAX } else { TRIES_MAX };
                if lane.tries >= tries_max {
                    self.fail(at, fault, outcomes);
                }
            }
            How::Taken(_) | How::Restored(_) => {}
        }
    }

    /// All operations of the tick that did not fail have worked.
    fn confirm(&mut self, outcomes: &mut Vec<Outcome>) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.entry == Entry::Asked) {
            lane.entry = Entry::Open;
            let taken = if lane.how == How::Cold { 0 } else { lane.taken };
            if let How::Taken(way) = lane.how {
                self.kv.able.note(way, true);
            }
            let job = &mut lane.job;
            if lane.end != End::No || std::mem::replace(&mut job.started, true) {
                continue;
            }
            job.cached = taken.min(job.prompt_len);
            self.totals.prefix_tokens += u64::from(job.cached);
            if taken > 0 {
                self.totals.prefix_hits += 1;
            } else {
                self.totals.prefix_misses += 1;
            }
            let waited = lane.admitted.since(job.arrived);
            outcomes.push(Outcome::Started { request: job.request, cached: job.cached, waited });
        }
    }

    /// Prompt tokens were scored. What was reported before the lane was lost is not reported again.
    fn take_scores(&mut self, scores: &[Score], outcomes: &mut Vec<Outcome>) {
        for score in scores {
            let Some(at) = self.at(score.lane) else { continue };
            let lane = &mut self.lanes[at];
            if lane.entry != Entry::Open || lane.end != End::No || score.position <= lane.job.scored {
                continue;
            }
            lane.job.scored = score.position;
            outcomes.push(Outcome::Scored { request: lane.job.request, sampled: score.sampled.clone() });
        }
    }

    fn settle_lane(&mut self, out: &LaneOut, tally: &mut Tally, outcomes: &mut Vec<Outcome>) {
        let Some(at) = self.at(out.lane) else { return };
        if self.lanes[at].entry != Entry::Open {
            return;
        }
        tally.fed[usize::from(self.lanes[at].job.class != QosClass::Background)] = true;
        self.consume(at, out.consumed, tally);
        let lane = &mut self.lanes[at];
        match &out.result {
            Ok(Some(sampled)) => self.take_draw(at, sampled, outcomes),
            Ok(None) => {}
            Err(_) if lane.end != End::No => lane.end = End::Close,
            Err(fault) if fault.code == LaneFault::CAPACITY => {
                tally.full = true;
                tally.refused += u64::from(lane.fed.max(1).saturating_sub(out.consumed));
            }
            Err(fault) => self.fail(at, fault, outcomes),
        }
    }

    /// `refused` tokens found no cell. A lane that is alone tries fewer next time, and fails when not even one fits.
    fn squeeze(&mut self, refused: u64, outcomes: &mut Vec<Outcome>) {
        let [lane] = &mut self.lanes[..] else { return };
        if lane.end != End::No || !self.kv.residents.is_empty() {
            return;
        }
        lane.run_max = u32::try_from(refused / 2).unwrap_or(u32::MAX).max(1);
        if refused <= 1 {
            lane.refusals += 1;
        }
        if lane.refusals >= REFUSALS_MAX {
            let needed = u64::from(lane.job.len());
            self.drop_lane(0, Failure::KvExhausted { needed, cells: self.kv.tree.used() }, outcomes);
        }
    }

    /// The engine took `consumed` of a lane's pending tokens.
    fn consume(&mut self, at: usize, consumed: u32, tally: &mut Tally) {
        let lane = &mut self.lanes[at];
        debug_assert!(consumed <= lane.pending(), "more consumed than there was");
        let count = consumed.min(lane.pending());
        if lane.is_decoding() {
            tally.load.decodes += count;
        } else {
            tally.load.prompt += count;
        }
        let (from, to) = (lane.len, lane.len + count);
        if count > 0 {
            (lane.run_max, lane.refusals) = (lane.run_max.saturating_add(count), 0);
        }
        self.kv.tree.extend(lane.id, &lane.job.tokens[from as usize..to as usize]);
        lane.len = to;
        self.totals.prefill_tokens += u64::from(to.min(lane.prefill_until).saturating_sub(from));
        self.queue.parties.charge(lane.job.party, count);
    }

    fn take_draw(&mut self, at: usize, sampled: &Sampled, outcomes: &mut Vec<Outcome>) {
        let lane = &mut self.lanes[at];
        if lane.pending() > 0 {
            debug_assert!(false, "a token was drawn before all known ones were fed");
            return;
        }
        if lane.end != End::No {
            // Nobody wants it, but the engine may go on from it within the tick.
            lane.job.tokens.push(sampled.token);
            return;
        }
        self.totals.decode_tokens += 1;
        let drawn = lane.job.draw(sampled.token, lane.len);
        if drawn != Drawn::EndOfText {
            outcomes.push(Outcome::Token { request: lane.job.request, sampled: sampled.clone() });
        }
        match drawn {
            Drawn::Continue => {}
            Drawn::EndOfText => self.finish(at, FinishReason::Stop, outcomes),
            Drawn::LastToken => self.finish(at, FinishReason::Length, outcomes),
        }
    }

    /// A running request is complete.
    pub(crate) fn finish(&mut self, at: usize, reason: FinishReason, outcomes: &mut Vec<Outcome>) {
        let lane = &mut self.lanes[at];
        lane.end = End::Retire;
        outcomes.push(finished(&lane.job, reason));
        self.queue.parties.leave(lane.job.party);
        self.kv.relax();
        self.nudged |= self.somebody_waits();
    }

    fn fail(&mut self, at: usize, fault: &LaneFault, outcomes: &mut Vec<Outcome>) {
        self.drop_lane(at, Failure::Lane(fault.clone()), outcomes);
    }

    /// A running request fails, and nobody trusts its lane any more.
    pub(crate) fn drop_lane(&mut self, at: usize, failure: Failure, outcomes: &mut Vec<Outcome>) {
        let lane = &mut self.lanes[at];
        lane.end = End::Close;
        outcomes.push(Outcome::Failed { request: lane.job.request, failure });
        self.queue.parties.leave(lane.job.party);
        self.nudged |= self.somebody_waits();
    }
}

/// How the end of a request is told.
pub(crate) fn finished(job: &Job, reason: FinishReason) -> Outcome {
    Outcome::Finished { request: job.request, reason, drawn: job.drawn, cached: job.cached }
}

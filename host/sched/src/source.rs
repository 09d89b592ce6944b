//! Where a request begins: the longest prefix that is there or will be soon, and how it is taken over.

use sf_core::{LaneId, LaneOp, QosClass, StashKey, StepPlan, Token, limits};

use crate::ability::Way;
use crate::job::{Job, common};
use crate::kv::Pin;
use crate::lane::{Entry, How, Lane};
use crate::queue::Block;
use crate::scheduler::Scheduler;
use crate::stash::STASH_POSITIONS_MIN;

/// Where a request can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Cold,
    Lane {
        way: Way,
        from: LaneId,
        upto: u32,
    },
    Copy {
        key: StashKey,
        positions: u32,
        upto: u32,
    },
    /// Another computes the beginning right now: wait for it.
    Behind(Block),
}

impl Source {
    /// Positions that are there already.
    pub(crate) fn upto(self) -> u32 {
        match self {
            Source::Cold => 0,
            Source::Lane { upto, .. } | Source::Copy { upto, .. } => upto,
            Source::Behind(block) => block.until,
        }
    }
}

impl Scheduler {
    /// Finds the longest beginning that is there, or will be soon.
    pub(crate) fn probe(&self, job: &Job) -> Source {
        // Only what is computed can be scored.
        if job.wants_scores() {
            return Source::Cold;
        }
        // The last token is always computed: its logits are wanted.
        let tokens = &job.tokens[..job.tokens.len() - 1];
        if !job.reuse || (tokens.len() as u32) < limits::PREFIX_TOKENS_MIN {
            return Source::Cold;
        }
        let live = self.live_source(tokens);
        let whole = !self.kv.able.can(Way::Cut);
        let copy = self.kv.stash.best(tokens, whole, self.kv.prompt_ns);
        let copy = copy.filter(|copy| copy.len >= live.upto() + STASH_POSITIONS_MIN);
        let have = copy.map_or(live.upto(), |copy| copy.len);
        if let Some(block) = self.leader(tokens, job.class)
            && block.until >= have + limits::PREFIX_TOKENS_MIN
        {
            return Source::Behind(block);
        }
        match copy {
            Some(copy) => Source::Copy { key: copy.key, positions: copy.positions, upto: copy.len },
            None => live,
        }
    }

    /// The lane that is computing more of `tokens` than anybody has.
    fn leader(&self, tokens: &[Token], class: QosClass) -> Option<Block> {
        if !self.kv.able.can(Way::WholeFork) {
            return None;
        }
        // Background may pause for many ticks: nobody else waits for it.
        let slow = |lane: &Lane| lane.job.class == QosClass::Background && class != QosClass::Background;
        let leaders = self.lanes.iter().filter(|lane| lane.is_live() && lane.job.reuse && lane.pending() > 1);
        let leaders = leaders.filter(|lane| !slow(lane));
        let shared = leaders.map(|lane| (lane, common(&lane.job.tokens, tokens)));
        let ahead = shared.filter(|(lane, until)| *until > lane.len);
        // Of equals the oldest, which is fed first.
        let best = ahead.max_by_key(|(lane, until)| (*until, std::cmp::Reverse(lane.started)))?;
        Some(Block { lane: best.0.id, request: best.0.job.request, until: best.1 })
    }

    /// The lane to take a prefix from, and how.
    fn live_source(&self, tokens: &[Token]) -> Source {
        let able = &self.kv.able;
        let found = if able.can(Way::PartFork) {
            self.forkable(tokens)
        } else if able.can(Way::WholeFork) || !able.can(Way::Cut) {
            self.whole(tokens).or_else(|| self.adoptable(tokens))
        } else {
            self.adoptable(tokens)
        };
        found.filter(|found| found.upto() >= limits::PREFIX_TOKENS_MIN).unwrap_or(Source::Cold)
    }

    fn forkable(&self, tokens: &[Token]) -> Option<Source> {
        let (tree, able) = (&self.kv.tree, &self.kv.able);
        let found = tree.best(tokens, false);
        if found.len == 0 {
            return None;
        }
        let upto = found.len;
        let idle = self.kv.residents.iter().map(|resident| resident.lane);
        let mut idle = idle.filter(|lane| tree.holds(*lane, found));
        // An idle lane that holds nothing else is taken as it is, unless others may want it too.
        let crowd = self.queue.waiting.len() > 1 && self.kv.has_free();
        if able.can(Way::Adopt)
            && !crowd
            && let Some(from) = idle.clone().find(|lane| tree.len(*lane) == upto)
        {
            return Some(Source::Lane { way: Way::Adopt, from, upto });
        }
        let mut running = self.lanes.iter().filter(|lane| tree.holds(lane.id, found));
        let open = running.clone().find(|lane| lane.entry == Entry::Open).map(|lane| lane.id);
        let Some(from) = open.or_else(|| idle.next()) else {
            // Only lanes hold it that this very plan makes: whether that works shows when its first step is over.
            let lane = running.next()?;
            return Some(Source::Behind(Block { lane: lane.id, request: lane.job.request, until: upto }));
        };
        let way = if tree.len(from) == upto { Way::WholeFork } else { Way::PartFork };
        if able.can(way) && self.kv.has_lane(Some(from)) {
            return Some(Source::Lane { way, from, upto });
        }
        (open.is_none() && able.can(Way::Cut)).then_some(Source::Lane { way: Way::Cut, from, upto })
    }

    /// For engines that fork or take over whole lanes only.
    fn whole(&self, tokens: &[Token]) -> Option<Source> {
        let able = &self.kv.able;
        let running = self.lanes.iter().filter(|lane| lane.job.reuse && lane.entry == Entry::Open);
        let running = running.map(|lane| (Way::WholeFork, lane.id));
        let idle = self.kv.residents.iter().map(|resident| (Way::Adopt, resident.lane));
        let lanes = running.chain(idle).filter(|(way, _)| able.can(*way));
        let sized = lanes.map(|(way, lane)| (way, lane, self.kv.tree.len(lane)));
        let whole = sized.filter(|(_, lane, len)| self.kv.tree.agreement(*lane, tokens) == *len);
        let (way, from, upto) = whole.max_by_key(|(_, lane, len)| (*len, std::cmp::Reverse(*lane)))?;
        Some(Source::Lane { way, from, upto })
    }

    /// For engines that cannot fork: an idle lane is cut and taken, the one that loses least.
    fn adoptable(&self, tokens: &[Token]) -> Option<Source> {
        if !self.kv.able.can(Way::Cut) {
            return None;
        }
        let found = self.kv.tree.best(tokens, true);
        let idle = self.kv.residents.iter().filter(|resident| self.kv.tree.holds(resident.lane, found));
        let sized = idle.map(|resident| (resident.lane, self.kv.tree.len(resident.lane), resident));
        let (lane, len, resident) = sized.min_by_key(|(_, len, resident)| (*len, resident.stamp))?;
        // A short match is not worth the rest of a long prefix while lanes are there.
        let cheap = found.len.saturating_mul(2) >= len || !self.kv.has_free();
        let pinned = resident.pin.is_some_and(|pin| pin.len > found.len) && self.kv.has_lane(Some(lane));
        let way = if len == found.len { Way::Adopt } else { Way::Cut };
        (cheap && !pinned).then_some(Source::Lane { way, from: lane, upto: found.len })
    }

    /// Makes the lane of the waiting request `at`, with room for so many tokens; `None` when there is no lane.
    pub(crate) fn open_from(
        &mut self,
        at: usize,
        source: Source,
        room: usize,
        plan: &mut StepPlan,
    ) -> Option<Lane> {
        let kv = &mut self.kv;
        if let Source::Copy { key, .. } = source {
            kv.stash.lock(key);
        }
        let lane = match source {
            Source::Lane { way: way @ (Way::Adopt | Way::Cut), from, upto } => {
                let pin = kv.take_resident(from);
                let before = kv.tree.used();
                kv.tree.truncate(from, upto);
                let cut = before - kv.tree.used();
                kv.tree.reserve(from, room);
                let job = self.queue.remove(at);
                plan.ops.push(LaneOp::Adopt { lane: from, upto, spec: job.spec() });
                let mut lane = Lane::new(from, job, How::Taken(way), upto);
                lane.cut = cut;
                lane.pin = pin.map(|pin| Pin { len: pin.len.min(upto), ..pin });
                Some(lane)
            }
            Source::Lane { way, from, upto } => {
                let id = kv.take_lane(Some(from), plan)?;
                kv.tree.fork(from, upto, id, room);
                kv.touch(from);
                let job = self.queue.remove(at);
                plan.ops.push(LaneOp::Fork { from, upto, lane: id, spec: job.spec() });
                Some(Lane::new(id, job, How::Taken(way), upto))
            }
            Source::Copy { key, positions, upto } if kv.make_room(u64::from(positions), false, plan) => {
                let id = kv.take_lane(None, plan)?;
                let job = self.queue.remove(at);
                kv.tree.open(id, false, room);
                kv.tree.extend(id, &job.tokens[..upto as usize]);
                plan.ops.push(LaneOp::Restore { key, lane: id, spec: job.spec() });
                if upto < positions {
                    plan.ops.push(LaneOp::Truncate { lane: id, len: upto });
                }
                let mut lane = Lane::new(id, job, How::Restored(key), upto);
                lane.cut = u64::from(positions - upto);
                Some(lane)
            }
            Source::Cold | Source::Copy { .. } | Source::Behind(_) => {
                let id = kv.take_lane(None, plan)?;
                let job = self.queue.remove(at);
                kv.tree.open(id, !job.reuse, room);
                plan.ops.push(LaneOp::Open { lane: id, spec: job.spec() });
                Some(Lane::new(id, job, How::Cold, 0))
            }
        };
        self.kv.stash.unlock();
        lane
    }
}

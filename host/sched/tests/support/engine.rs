//! A model engine: holds lanes and their tokens, refuses every plan that breaks the contract, and misbehaves on demand.
//!
//! It panics where a plan breaks the contract: that is the scheduler's bug. What it is told to fail, it fails as a worker
//! would. The steps of a tick are in [`super::tick`].

use std::collections::{BTreeMap, BTreeSet};

use sf_core::{Direction, Feed, LaneFault, LaneId, LaneOp, LaneSpec, Move, StashKey, StepPlan, Token};
use sf_sched::{EngineFacts, SchedulerSettings};

use super::cells::Cells;
use super::chance::{Chance, Odds, mix};
use super::draw::{EMPTY, digest};
use super::tick::Tick;

/// What work costs, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Every step.
    pub(crate) step: u64,
    /// Every lane that feeds one token.
    pub(crate) decode: u64,
    /// Every token of a longer run.
    pub(crate) prompt: u64,
    /// Every position copied out of a lane.
    pub(crate) stash: u64,
    /// Every position copied back.
    pub(crate) restore: u64,
}

impl Cost {
    /// About what a small model takes on two CPU threads.
    pub(crate) const CPU: Cost =
        Cost { step: 4_000_000, decode: 4_500_000, prompt: 1_500_000, stash: 20_000, restore: 20_000 };
}

/// Bytes of a copied position.
pub(crate) const POSITION_BYTES: u64 = 1000;

/// What goes wrong, and how often.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noise {
    /// An operation that makes or cuts a lane fails.
    pub(crate) op: Odds,
    /// A lane fails in a step.
    pub(crate) lane: Odds,
    /// A step is refused for want of cells although there are some.
    pub(crate) capacity: Odds,
    /// A tick ends early although nobody asked for it.
    pub(crate) ends: Odds,
    /// The engine sees a raised yield word one step late.
    pub(crate) late: Odds,
    /// The engine dies.
    pub(crate) die: Odds,
}

/// How an engine is built.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// What the scheduler is told.
    pub(crate) facts: EngineFacts,
    /// Cells there really are; 0 = no end of them.
    pub(crate) cells_max: u64,
    pub(crate) cost: Cost,
    pub(crate) noise: Noise,
    pub(crate) seed: u64,
}

impl Setup {
    /// An engine that can do everything, with `lanes` lanes and `cells` cells (0 = no end of them, and it says so).
    pub(crate) fn new(lanes: u32, cells: u64) -> Self {
        Setup {
            facts: EngineFacts { lanes, kv_cells: cells, fork: true, truncate: true, stash: true },
            cells_max: cells,
            cost: Cost::CPU,
            noise: Noise::default(),
            seed: 1,
        }
    }
}

/// One lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) spec: LaneSpec,
    /// Digest of the first `i` tokens at `i`.
    pub(crate) digests: Vec<u64>,
    pub(crate) cells: Vec<u32>,
}

impl Lane {
    pub(crate) fn new(spec: LaneSpec) -> Self {
        Lane { spec, digests: vec![EMPTY], cells: Vec::new() }
    }

    /// Tokens it holds.
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(crate) fn push(&mut self, token: Token, cell: u32) {
        let all = digest(*self.digests.last().expect("an empty lane has a digest"), token);
        self.digests.push(all);
        self.cells.push(cell);
    }

    /// What it holds is of no use any more: whoever goes on from it says something else.
    pub(crate) fn poison(&mut self) {
        self.digests.iter_mut().for_each(|all| *all = mix(*all, 0xbad));
    }
}

/// What an engine did, counted since the first one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// Steps.
    pub(crate) steps: u64,
    /// Tokens fed in runs of more than one.
    pub(crate) prompt_tokens: u64,
    /// Tokens drawn.
    pub(crate) drawn: u64,
    /// Steps refused for want of cells.
    pub(crate) refused: u64,
    /// Forks, adoptions, stashes, restores.
    pub(crate) forks: u64,
    pub(crate) adoptions: u64,
    pub(crate) stashes: u64,
    pub(crate) restores: u64,
}

/// The engine.
#[derive(Debug)]
pub(crate) struct ModelEngine {
    pub(crate) setup: Setup,
    pub(crate) limits: SchedulerSettings,
    pub(crate) lanes: BTreeMap<LaneId, Lane>,
    pub(crate) cells: Cells,
    pub(crate) chance: Chance,
    pub(crate) done: Done,
    /// Faults that were a request's own, by its seed.
    pub(crate) faults: BTreeMap<u64, LaneFault>,
    /// Requests refused for want of cells while no other lane held any.
    pub(crate) refused_alone: BTreeSet<u64>,
    pub(crate) tick: Option<Tick>,
    /// Raised by the host: the tick is to end at the next step boundary.
    pub(crate) yields: bool,
    /// It dies in its next step.
    pub(crate) die: bool,
    /// A request that ends every engine as soon as it is fed, by its seed.
    pub(crate) killer: Option<u64>,
    stashes: BTreeMap<StashKey, Lane>,
    stash_keys: BTreeSet<StashKey>,
    failed: BTreeSet<LaneId>,
    /// Open lanes whose adoption failed: nobody knows what they hold.
    doubtful: BTreeSet<LaneId>,
    seq: Option<u64>,
}

impl ModelEngine {
    pub(crate) fn new(setup: Setup, limits: SchedulerSettings) -> Self {
        ModelEngine {
            chance: Chance::new(setup.seed),
            setup,
            limits,
            lanes: BTreeMap::new(),
            cells: Cells::default(),
            done: Done::default(),
            faults: BTreeMap::new(),
            refused_alone: BTreeSet::new(),
            tick: None,
            yields: false,
            die: false,
            killer: None,
            stashes: BTreeMap::new(),
            stash_keys: BTreeSet::new(),
            failed: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            seq: None,
        }
    }

    /// The next engine after this one died: empty, with the same chances and counts.
    pub(crate) fn reborn(&mut self) {
        let mut next = ModelEngine::new(self.setup.clone(), self.limits.clone());
        next.chance = self.chance.clone();
        next.done = self.done.clone();
        next.killer = self.killer;
        next.faults = std::mem::take(&mut self.faults);
        next.refused_alone = std::mem::take(&mut self.refused_alone);
        *self = next;
    }

    /// Whether a plan that was begun feeds the request that ends engines.
    pub(crate) fn feeds_killer(&self, plan: &StepPlan) -> bool {
        let seed = |feed: &Feed| self.lanes.get(&feed.lane).map(|lane| lane.spec.sampler.seed);
        self.killer.is_some() && plan.feeds.iter().any(|feed| seed(feed) == self.killer)
    }

    /// Cells in use by lanes of which that can be known.
    pub(crate) fn cells_used(&self) -> u64 {
        if self.doubtful.is_empty() {
            return self.cells.used();
        }
        let sure = self.lanes.iter().filter(|(id, _)| !self.doubtful.contains(id));
        sure.flat_map(|(_, lane)| &lane.cells).collect::<BTreeSet<_>>().len() as u64
    }

    /// Bytes of all copies.
    pub(crate) fn stash_bytes(&self) -> u64 {
        self.stashes.values().map(|copy| copy.digests.len() as u64 - 1).sum::<u64>() * POSITION_BYTES
    }

    /// Bytes of the copies that were there before the running tick; how large new ones are, nobody knew.
    pub(crate) fn stash_bytes_before(&self) -> u64 {
        let tick = self.tick.as_ref().expect("a tick runs");
        self.stash_bytes() - tick.stashed_bytes()
    }

    /// Takes a plan: checks it, applies its operations and gets its first step ready.
    pub(crate) fn begin(&mut self, plan: &StepPlan) {
        assert!(self.tick.is_none(), "a plan was begun while a tick runs");
        assert!(self.seq.is_none_or(|seq| plan.seq == seq + 1), "seq {} follows {:?}", plan.seq, self.seq);
        self.seq = Some(plan.seq);
        self.yields = false;
        let mut tick = Tick::new(plan);
        for op in &plan.ops {
            self.apply(op, &mut tick);
        }
        self.check_feeds(plan, &tick);
        self.tick = Some(tick);
    }

    fn apply(&mut self, op: &LaneOp, tick: &mut Tick) {
        match op {
            LaneOp::Open { lane, spec } => {
                if self.makes(*lane, spec, tick, true) {
                    self.lanes.insert(*lane, Lane::new(spec.clone()));
                }
            }
            LaneOp::Fork { from, upto, lane, spec } => self.fork(*from, *upto, (*lane, spec), tick),
            LaneOp::Adopt { lane, upto, spec } => self.adopt(*lane, *upto, spec, tick),
            LaneOp::Truncate { lane, len } => {
                assert!(self.setup.facts.truncate, "this engine cannot truncate");
                match tick.op_fault(*lane).cloned() {
                    // What it would cut was not made a moment ago.
                    Some(fault) => tick.fail_op(*lane, fault),
                    None => self.cut(*lane, *len as usize),
                }
            }
            LaneOp::Close { lane } => self.close(*lane),
            LaneOp::Stash { lane, upto, key } => self.stash(*lane, *upto, *key, tick),
            LaneOp::Restore { key, lane, spec } => self.restore(*key, (*lane, spec), tick),
            LaneOp::Forget { key } => {
                assert!(self.stash_keys.contains(key), "{key:?} was never made");
                self.stashes.remove(key);
            }
        }
    }

    /// Whether a lane is made now; notes the failure if not. `own`: then it is the request's own fault.
    fn makes(&mut self, lane: LaneId, spec: &LaneSpec, tick: &mut Tick, own: bool) -> bool {
        assert!(lane.0 < self.setup.facts.lanes, "lane {lane} of {}", self.setup.facts.lanes);
        assert!(!self.lanes.contains_key(&lane), "lane {lane} is open already");
        self.failed.remove(&lane);
        if !self.setup.noise.op.hit(&mut self.chance) {
            tick.pardon(lane);
            return true;
        }
        self.failed.insert(lane);
        let fault = LaneFault { code: -5, message: format!("lane {lane} was told to fail") };
        if own {
            self.faults.insert(spec.sampler.seed, fault.clone());
        }
        tick.fail_op(lane, fault);
        false
    }

    fn fork(&mut self, from: LaneId, upto: u32, (lane, spec): (LaneId, &LaneSpec), tick: &mut Tick) {
        assert!(self.setup.facts.fork, "this engine cannot fork");
        if let Some(fault) = tick.op_fault(from).cloned() {
            // The parent was not made a moment ago.
            self.failed.insert(lane);
            tick.fail_op(lane, fault);
            return;
        }
        let parent = self.lanes.get(&from).unwrap_or_else(|| panic!("lane {from} is forked and not open"));
        assert!(upto >= 1 && upto as usize <= parent.len(), "fork at {upto} of {}", parent.len());
        let digests = parent.digests[..=upto as usize].to_vec();
        let cells = parent.cells[..upto as usize].to_vec();
        if self.makes(lane, spec, tick, false) {
            self.done.forks += 1;
            self.cells.share(&cells);
            self.lanes.insert(lane, Lane { spec: spec.clone(), digests, cells });
        }
    }

    fn adopt(&mut self, id: LaneId, upto: u32, spec: &LaneSpec, tick: &mut Tick) {
        let lane = self.lanes.get_mut(&id).unwrap_or_else(|| panic!("lane {id} is adopted and not open"));
        assert!(upto as usize <= lane.len(), "adopt {upto} of {}", lane.len());
        assert!(self.setup.facts.truncate || upto as usize == lane.len(), "this engine cannot truncate");
        if self.setup.noise.op.hit(&mut self.chance) {
            lane.poison();
            self.doubtful.insert(id);
            tick.fail_op(id, LaneFault { code: -5, message: format!("lane {id} was told to fail") });
            return;
        }
        lane.spec = spec.clone();
        self.done.adoptions += 1;
        self.cut(id, upto as usize);
    }

    fn cut(&mut self, id: LaneId, len: usize) {
        let lane = self.lanes.get_mut(&id).unwrap_or_else(|| panic!("lane {id} is cut and not open"));
        if len < lane.len() {
            lane.digests.truncate(len + 1);
            let cells = lane.cells.split_off(len);
            self.cells.give_back(cells);
        }
    }

    fn close(&mut self, id: LaneId) {
        self.doubtful.remove(&id);
        let Some(lane) = self.lanes.remove(&id) else {
            assert!(self.failed.remove(&id), "lane {id} is closed and was never opened");
            return;
        };
        self.cells.give_back(lane.cells);
    }

    fn stash(&mut self, id: LaneId, upto: u32, key: StashKey, tick: &mut Tick) {
        assert!(self.setup.facts.stash, "this engine cannot stash");
        assert!(self.stash_keys.insert(key), "{key:?} was used before");
        let lane = self.lanes.get(&id).unwrap_or_else(|| panic!("lane {id} is stashed and not open"));
        assert!(upto >= 1 && upto as usize <= lane.len(), "stash {upto} of {}", lane.len());
        if self.setup.noise.op.hit(&mut self.chance) {
            tick.fail_op(id, LaneFault { code: -5, message: format!("lane {id} was told to fail") });
            return;
        }
        self.done.stashes += 1;
        let digests = lane.digests[..=upto as usize].to_vec();
        self.stashes.insert(key, Lane { spec: lane.spec.clone(), digests, cells: Vec::new() });
        tick.moved(self.moved(key, Direction::Stashed, upto));
    }

    fn restore(&mut self, key: StashKey, (lane, spec): (LaneId, &LaneSpec), tick: &mut Tick) {
        assert!(self.setup.facts.stash, "this engine cannot stash");
        let copy = self.stashes.get(&key).unwrap_or_else(|| panic!("{key:?} is restored and not there"));
        let digests = copy.digests.clone();
        if !self.makes(lane, spec, tick, false) {
            return;
        }
        let positions = digests.len() as u64 - 1;
        if self.setup.cells_max > 0 && self.cells.used() + positions > self.setup.cells_max {
            self.failed.insert(lane);
            tick.fail_op(lane, no_cells());
            return;
        }
        self.done.restores += 1;
        let cells = (0..positions).map(|_| self.cells.take()).collect();
        self.lanes.insert(lane, Lane { spec: spec.clone(), digests, cells });
        tick.moved(self.moved(key, Direction::Restored, positions as u32));
    }

    fn moved(&self, key: StashKey, direction: Direction, positions: u32) -> Move {
        let cost = match direction {
            Direction::Stashed => self.setup.cost.stash,
            Direction::Restored => self.setup.cost.restore,
        };
        let count = u64::from(positions);
        Move { key, direction, positions, bytes: count * POSITION_BYTES, took_ns: count * cost }
    }

    fn check_feeds(&self, plan: &StepPlan, tick: &Tick) {
        let limits = &self.limits;
        let fed: usize = plan.feeds.iter().map(|feed| feed.tokens.len()).sum();
        assert!(fed <= limits.step_tokens_max as usize, "{fed} tokens fed");
        // Behind a run that ends inside a scored prompt stands the token that follows it.
        let behind = plan.feeds.iter().filter(|feed| !feed.sample).count();
        assert!((fed..=fed + behind).contains(&plan.tokens.len()), "every token is fed once");
        assert!(plan.feeds.len() <= limits.batch_max as usize, "{} lanes fed", plan.feeds.len());
        let prompts: usize = plan.feeds.iter().map(|feed| feed.tokens.len()).filter(|run| *run > 1).sum();
        assert!(prompts <= limits.prefill_budget as usize, "{prompts} prompt tokens fed");
        let steps = plan.steps_max.max(1);
        let draws = plan.feeds.iter().filter(|feed| feed.sample).map(|feed| 1 + feed.more.min(steps - 1));
        assert!(draws.sum::<u32>() <= limits.tick_decode_budget, "draws over budget: {plan:?}");
        let mut seen = BTreeSet::new();
        for feed in &plan.feeds {
            assert!(seen.insert(feed.lane), "lane {} fed twice", feed.lane);
            assert!(feed.tokens.start < feed.tokens.end, "lane {}: an empty run", feed.lane);
            assert!(feed.more == 0 || feed.sample, "lane {}: more without a draw", feed.lane);
            let end = feed.pos0 + feed.tokens.len() as u32 + feed.more;
            assert!(end <= limits.window, "lane {}: {end} positions", feed.lane);
            if tick.op_fault(feed.lane).is_some() {
                continue;
            }
            let lane = self.lanes.get(&feed.lane).unwrap_or_else(|| panic!("lane {} is not open", feed.lane));
            assert_eq!(lane.len(), feed.pos0 as usize, "positions of lane {}", feed.lane);
        }
    }
}

/// The fault of a step that does not fit.
pub(crate) fn no_cells() -> LaneFault {
    LaneFault { code: LaneFault::CAPACITY, message: "no cells".into() }
}

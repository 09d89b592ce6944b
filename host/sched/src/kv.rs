//! Who holds which KV cells: running lanes, idle lanes that keep a prefix, copies in host memory; and what goes first
//! when cells or lanes run short.
//!
//! Knows nothing of requests: it is told which lanes run and with which tokens.

use sf_core::{LaneId, LaneOp, Moment, StepPlan, Token};

use crate::ability::{Ability, Way};
use crate::stash::Stash;
use crate::tree::Tree;
use crate::types::{EngineFacts, SchedulerSettings};

/// Plans without a refusal after which more cells are tried again.
const CALM_PLANS: u32 = 64;

/// The beginning of an idle lane that is not evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) until: Moment,
    /// Positions.
    pub(crate) len: u32,
}

impl Pin {
    /// The pin that covers both.
    pub(crate) fn join(a: Option<Pin>, b: Option<Pin>) -> Option<Pin> {
        match (a, b) {
            (Some(a), Some(b)) => Some(Pin { until: a.until.max(b.until), len: a.len.max(b.len) }),
            (a, b) => a.or(b),
        }
    }
}

/// An idle lane that keeps a prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    pub(crate) lane: LaneId,
    /// Order of last use.
    pub(crate) stamp: u64,
    pub(crate) pin: Option<Pin>,
}

/// Lanes, cells and copies of one engine.
#[derive(Debug)]
pub(crate) struct Kv {
    pub(crate) tree: Tree,
    pub(crate) residents: Vec<Resident>,
    pub(crate) stash: Stash,
    pub(crate) able: Ability,
    /// Unused lanes, the next one last.
    free: Vec<LaneId>,
    /// Lanes whose state in the engine is unknown; the next plan closes them.
    spoiled: Vec<LaneId>,
    lanes: u32,
    cells: u64,
    /// What refusals taught about the cells there really are.
    ceiling: Option<u64>,
    /// Plans since the last refusal.
    calm: u32,
    /// Cells of cuts that failed, until the next plan.
    pub(crate) uncut: u64,
    /// Nanoseconds per prompt token, once measured.
    pub(crate) prompt_ns: Option<u64>,
    clock: u64,
    shedding: bool,
    /// Idle lanes that the next plan evicts, because the engine refused to make a lane.
    pressed: usize,
    pub(crate) evictions: u64,
}

impl Kv {
    /// For an engine of which nothing is known: as many lanes as run, nothing reused.
    pub(crate) fn new(settings: &SchedulerSettings) -> Kv {
        let mut kv = Kv {
            tree: Tree::new(0),
            residents: Vec::new(),
            stash: Stash::default(),
            able: Ability::default(),
            free: Vec::new(),
            spoiled: Vec::new(),
            lanes: 0,
            cells: 0,
            ceiling: None,
            calm: 0,
            uncut: 0,
            prompt_ns: None,
            clock: 0,
            shedding: false,
            pressed: 0,
            evictions: 0,
        };
        let facts = EngineFacts { lanes: settings.batch_max, ..EngineFacts::default() };
        kv.reset(&facts, settings);
        kv
    }

    /// Another engine, which holds nothing.
    pub(crate) fn reset(&mut self, facts: &EngineFacts, settings: &SchedulerSettings) {
        self.tree = Tree::new(facts.lanes);
        self.residents.clear();
        self.stash.reset(if facts.stash { settings.stash_bytes_max } else { 0 });
        self.able = Ability::new(facts);
        self.free.clear();
        self.free.extend((0..facts.lanes).rev().map(LaneId));
        self.spoiled.clear();
        (self.lanes, self.cells, self.ceiling) = (facts.lanes, facts.kv_cells, None);
        (self.shedding, self.pressed) = (false, 0);
    }

    /// Lanes of the engine.
    pub(crate) fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Cells of the engine; 0 = unknown.
    pub(crate) fn cells(&self) -> u64 {
        self.cells
    }

    /// Cells that may be used.
    pub(crate) fn limit(&self) -> u64 {
        let cells = if self.cells == 0 { u64::MAX } else { self.cells };
        cells.min(self.ceiling.unwrap_or(u64::MAX))
    }

    /// Cells that may be used and are not.
    pub(crate) fn room(&self) -> u64 {
        self.limit().saturating_sub(self.tree.used())
    }

    /// The engine refused to hold `more` cells beyond those in use: fewer are tried next, by halves.
    pub(crate) fn refused(&mut self, more: u64) {
        let ceiling = (self.tree.used() + more / 2).min(self.limit());
        self.ceiling = Some(ceiling.max(1));
        self.calm = 0;
    }

    /// Forgets what refusals taught; whether there was anything.
    pub(crate) fn forgive(&mut self) -> bool {
        self.ceiling.take().is_some()
    }

    /// The engine refused to make a lane for want of room.
    pub(crate) fn press(&mut self) {
        self.pressed += 1;
    }

    /// Something ended well: what was refused once may fit now.
    pub(crate) fn relax(&mut self) {
        let Some(ceiling) = self.ceiling else { return };
        let more = ceiling + (ceiling / 16).max(1);
        self.ceiling = (self.cells == 0 || more < self.cells).then_some(more);
    }

    /// Begins a plan: gives spoiled lanes and copies back and lets pins expire.
    pub(crate) fn begin(&mut self, now: Moment, prompt_ns: Option<u64>, plan: &mut StepPlan) {
        self.prompt_ns = prompt_ns;
        self.stash.flush(plan);
        self.uncut = 0;
        self.calm += 1;
        if self.calm >= CALM_PLANS {
            self.calm = 0;
            self.relax();
        }
        while let Some(lane) = self.spoiled.pop() {
            self.close(lane, plan);
        }
        for resident in &mut self.residents {
            resident.pin = resident.pin.filter(|pin| pin.until > now);
        }
    }

    /// Whether a lane can be had without touching `but`.
    pub(crate) fn has_lane(&self, but: Option<LaneId>) -> bool {
        !self.free.is_empty() || self.residents.iter().any(|resident| Some(resident.lane) != but)
    }

    /// Whether an unused lane is there.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// An unused lane; evicts an idle one other than `but` if need be.
    pub(crate) fn take_lane(&mut self, but: Option<LaneId>, plan: &mut StepPlan) -> Option<LaneId> {
        if self.free.is_empty() {
            let victim = self.victim(but, false, false).or_else(|| self.victim(but, true, false))?;
            self.evict(victim, plan);
        }
        self.free.pop()
    }

    /// Frees a lane in the engine.
    pub(crate) fn close(&mut self, lane: LaneId, plan: &mut StepPlan) {
        plan.ops.push(LaneOp::Close { lane });
        self.tree.release(lane);
        self.free.push(lane);
    }

    /// An idle lane is not what it should be: the next plan closes it.
    pub(crate) fn spoil(&mut self, lane: LaneId) {
        let Some(at) = self.residents.iter().position(|resident| resident.lane == lane) else { return };
        self.residents.remove(at);
        self.spoiled.push(lane);
    }

    /// A running lane that holds `tokens` becomes idle. It is kept unless another makes it redundant, and makes others
    /// redundant itself.
    pub(crate) fn retire(&mut self, lane: LaneId, tokens: &[Token], pin: Option<Pin>, plan: &mut StepPlan) {
        self.tree.set_busy(lane, false);
        let len = tokens.len() as u32;
        let part = self.able.can(Way::PartFork) || self.able.can(Way::Cut);
        if !self.able.keeps() {
            self.close(lane, plan);
            return;
        }
        self.clock += 1;
        let mut pin = pin;
        let mut at = 0;
        while at < self.residents.len() {
            let other = self.residents[at];
            let (agree, size) = (self.tree.agreement(other.lane, tokens), self.tree.len(other.lane));
            if agree == len && size > len && pin.is_none() && part {
                self.residents[at].stamp = self.clock;
                self.close(lane, plan);
                return;
            }
            if agree == size && (part || size == len) {
                pin = Pin::join(pin, other.pin);
                self.residents.remove(at);
                self.close(other.lane, plan);
            } else {
                at += 1;
            }
        }
        self.residents.push(Resident { lane, stamp: self.clock, pin });
    }

    /// Takes an idle lane out of the index to be run.
    pub(crate) fn take_resident(&mut self, lane: LaneId) -> Option<Pin> {
        let at = self.residents.iter().position(|resident| resident.lane == lane)?;
        self.tree.set_busy(lane, true);
        self.residents.remove(at).pin
    }

    /// An idle lane was of use.
    pub(crate) fn touch(&mut self, lane: LaneId) {
        self.clock += 1;
        let clock = self.clock;
        if let Some(resident) = self.residents.iter_mut().find(|resident| resident.lane == lane) {
            resident.stamp = clock;
        }
    }

    /// The idle lane to go first: the least recently used one.
    fn victim(&self, but: Option<LaneId>, pinned: bool, gain: bool) -> Option<usize> {
        let fits = |resident: &Resident| {
            Some(resident.lane) != but
                && resident.pin.is_some() == pinned
                && (!gain || self.tree.own(resident.lane) > 0)
        };
        let candidates = self.residents.iter().enumerate().filter(|(_, resident)| fits(resident));
        candidates.min_by_key(|(_, resident)| resident.stamp).map(|(at, _)| at)
    }

    fn evict(&mut self, at: usize, plan: &mut StepPlan) {
        let lane = self.residents.remove(at).lane;
        let len = self.tree.len(lane);
        if !self.shedding && self.stash.wants(len, self.prompt_ns) {
            let tokens = self.tree.tokens(lane, len);
            self.stash.keep(lane, tokens, self.prompt_ns, plan);
        }
        self.close(lane, plan);
        self.evictions += 1;
    }

    /// Evicts idle lanes until `wanted` more cells fit; pinned ones only if `pinned` says so. Whether they do.
    pub(crate) fn make_room(&mut self, wanted: u64, pinned: bool, plan: &mut StepPlan) -> bool {
        loop {
            if self.room() >= wanted {
                return true;
            }
            let victim = self.victim(None, false, true);
            let victim = victim.or_else(|| pinned.then(|| self.victim(None, true, true))?);
            let Some(victim) = victim else { return false };
            self.evict(victim, plan);
        }
    }

    /// Evicts under the watermarks.
    pub(crate) fn relieve(&mut self, settings: &SchedulerSettings, plan: &mut StepPlan) {
        for _ in 0..std::mem::take(&mut self.pressed) {
            let Some(victim) = self.victim(None, false, false) else { break };
            self.evict(victim, plan);
        }
        let limit = self.limit();
        let percent = |pct: u32| (u128::from(limit) * u128::from(pct) / 100) as u64;
        let known = limit < u64::MAX;
        if self.shedding || (known && self.tree.used() > percent(settings.pressure_high_pct)) {
            let low = if known { percent(settings.pressure_low_pct) } else { 0 };
            while self.tree.used() > low {
                let Some(victim) = self.victim(None, false, true) else { break };
                self.evict(victim, plan);
            }
        }
        if std::mem::take(&mut self.shedding) {
            self.stash.clear();
            self.stash.flush(plan);
        }
    }

    /// Memory is short: the next plan relieves it without making copies.
    pub(crate) fn shed(&mut self) {
        self.shedding = true;
    }

    /// Lets the oldest pins beyond their budget go.
    pub(crate) fn bound_pins(&mut self, settings: &SchedulerSettings) {
        let pct = u64::from(settings.pin_budget_pct);
        let lanes_max = u64::from(self.lanes) * pct / 100;
        let lanes_max = lanes_max.max(u64::from(self.lanes.saturating_sub(settings.batch_max)));
        let cells_max = if self.cells == 0 { u64::MAX } else { self.cells * pct / 100 };
        loop {
            let pinned = self.residents.iter().filter(|resident| resident.pin.is_some()).count() as u64;
            if pinned <= lanes_max && self.pinned() <= cells_max {
                return;
            }
            let Some(oldest) = self.victim(None, true, false) else { return };
            self.residents[oldest].pin = None;
        }
    }

    /// Positions that pins hold, shared ones counted once.
    pub(crate) fn pinned(&self) -> u64 {
        self.pinned_cells(|resident| resident.pin.map_or(0, |pin| pin.len), false)
    }

    /// Cells that idle lanes hold and eviction could free.
    pub(crate) fn evictable(&self) -> u64 {
        self.tree.idle() - self.pinned_cells(|resident| self.tree.len(resident.lane), true)
    }

    /// Cells of the first `upto` positions of all pinned lanes; of idle nodes only if `idle` says so.
    fn pinned_cells(&self, upto: impl Fn(&Resident) -> u32, idle: bool) -> u64 {
        let mut cells = 0;
        for (at, resident) in self.residents.iter().enumerate().filter(|(_, it)| it.pin.is_some()) {
            for run in self.tree.path(resident.lane).filter(|run| run.idle || !idle) {
                let end = run.end.min(upto(resident));
                let before = self.residents[..at].iter().filter(|it| it.pin.is_some());
                let before = before.filter(|it| self.tree.is_on(it.lane, run.node));
                let counted = before.map(upto_of(&upto, run.end)).max().unwrap_or(0).max(run.start);
                cells += u64::from(end.saturating_sub(counted));
            }
        }
        cells
    }
}

fn upto_of(upto: &impl Fn(&Resident) -> u32, end: u32) -> impl Fn(&Resident) -> u32 {
    move |resident| upto(resident).min(end)
}

#[cfg(test)]
mod tests;

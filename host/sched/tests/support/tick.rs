//! The steps of one tick of the model engine: who goes on, what is drawn, and when the tick ends.

use sf_core::{
    Direction, LaneFault, LaneId, LaneOut, Move, Sampled, Score, StepOut, StepPlan, Token, limits,
};

use super::draw::draw;
use super::engine::{ModelEngine, no_cells};

/// The engine is gone.
#[derive(Debug)]
pub(crate) struct Died;

/// A tick that runs.
#[derive(Debug)]
pub(crate) struct Tick {
    seq: u64,
    step: u32,
    steps_max: u32,
    going: Vec<Going>,
    op_faults: Vec<(LaneId, LaneFault)>,
    moves: Vec<Move>,
}

#[derive(Debug)]
struct Going {
    lane: LaneId,
    run: Vec<Token>,
    /// What stands behind the run.
    behind: Option<Token>,
    sample: bool,
    more: u32,
}

impl Tick {
    pub(crate) fn new(plan: &StepPlan) -> Self {
        let going = plan.feeds.iter().map(|feed| Going {
            lane: feed.lane,
            run: plan.tokens[feed.tokens.start as usize..feed.tokens.end as usize].to_vec(),
            behind: plan.tokens.get(feed.tokens.end as usize).copied(),
            sample: feed.sample,
            more: feed.more,
        });
        Tick {
            seq: plan.seq,
            step: 0,
            steps_max: plan.steps_max.max(1),
            going: going.collect(),
            op_faults: Vec::new(),
            moves: Vec::new(),
        }
    }

    pub(crate) fn fail_op(&mut self, lane: LaneId, fault: LaneFault) {
        self.op_faults.push((lane, fault));
    }

    /// What failed on the lane's earlier life does not hit its next owner.
    pub(crate) fn pardon(&mut self, lane: LaneId) {
        self.op_faults.retain(|(failed, _)| *failed != lane);
    }

    pub(crate) fn moved(&mut self, moved: Move) {
        self.moves.push(moved);
    }

    /// Bytes of the copies that this tick makes.
    pub(crate) fn stashed_bytes(&self) -> u64 {
        let made = self.moves.iter().filter(|moved| moved.direction == Direction::Stashed);
        made.map(|moved| moved.bytes).sum()
    }

    pub(crate) fn op_fault(&self, lane: LaneId) -> Option<&LaneFault> {
        self.op_faults.iter().rev().find(|(failed, _)| *failed == lane).map(|(_, fault)| fault)
    }
}

impl ModelEngine {
    /// Time that the next step of the running tick takes, nanoseconds.
    pub(crate) fn step_ns(&self) -> u64 {
        let tick = self.tick.as_ref().expect("a tick runs");
        let cost = &self.setup.cost;
        let moves: u64 = tick.moves.iter().map(|moved| moved.took_ns).sum();
        let runs = tick.going.iter().map(|going| match going.run.len() as u64 {
            1 => cost.decode,
            tokens => tokens * cost.prompt,
        });
        let work: u64 = runs.sum();
        if work == 0 { moves } else { cost.step + work + moves }
    }

    /// Computes the next step of the running tick.
    pub(crate) fn next(&mut self, out: &mut StepOut) -> Result<(), Died> {
        if self.die || self.setup.noise.die.hit(&mut self.chance) {
            return Err(Died);
        }
        let mut tick = self.tick.take().expect("a tick runs");
        out.clear();
        (out.seq, out.step) = (tick.seq, tick.step);
        self.done.steps += 1;
        let refused = self.is_refused(&tick);
        let mut going = Vec::new();
        for one in std::mem::take(&mut tick.going) {
            let goes_on = one.sample && one.more > 0 && tick.step + 1 < tick.steps_max;
            let result = self.run(&one, &tick, refused);
            if result.is_ok() {
                self.score(&one, &mut out.scores);
            }
            let consumed = if result.is_ok() { one.run.len() as u32 } else { 0 };
            if let Ok(Some(sampled)) = &result
                && goes_on
                && !self.lanes[&one.lane].spec.ends.contains(&sampled.token)
            {
                let run = vec![sampled.token];
                going.push(Going { lane: one.lane, run, behind: None, sample: true, more: one.more - 1 });
            }
            out.lanes.push(LaneOut { lane: one.lane, consumed, result });
        }
        assert!(out.scores.len() <= limits::SCORES_MAX as usize, "{} scores", out.scores.len());
        if tick.step == 0 {
            let failed = tick.op_faults.drain(..);
            out.lanes.extend(failed.map(|(lane, fault)| LaneOut { lane, consumed: 0, result: Err(fault) }));
            out.moves.append(&mut tick.moves);
        }
        tick.step += 1;
        let noise = &mut self.setup.noise;
        let told = (self.yields && !noise.late.hit(&mut self.chance)) || noise.ends.hit(&mut self.chance);
        out.last = refused || going.is_empty() || told;
        tick.going = going;
        self.tick = (!out.last).then_some(tick);
        Ok(())
    }

    fn is_refused(&mut self, tick: &Tick) -> bool {
        let fed = tick.going.iter().filter(|one| tick.op_fault(one.lane).is_none());
        let needed: u64 = fed.map(|one| one.run.len() as u64).sum();
        let full = self.setup.cells_max > 0 && self.cells.used() + needed > self.setup.cells_max;
        if needed == 0 || !(full || self.setup.noise.capacity.hit(&mut self.chance)) {
            return false;
        }
        self.done.refused += 1;
        let fed = |id: LaneId| tick.going.iter().any(|one| one.lane == id);
        let holders = self.lanes.iter().filter(|(id, lane)| lane.len() > 0 || fed(**id));
        if let [seed] = holders.map(|(_, lane)| lane.spec.sampler.seed).collect::<Vec<_>>()[..] {
            self.refused_alone.insert(seed);
        }
        true
    }

    /// Scores what of a run's successors is prompt.
    fn score(&self, one: &Going, scores: &mut Vec<Score>) {
        let lane = &self.lanes[&one.lane];
        if !lane.spec.sampler.scores_prompt {
            return;
        }
        let pos0 = lane.len() - one.run.len();
        let successors = one.run.iter().skip(1).chain(&one.behind);
        let prompt = (lane.spec.prompt_len as usize).saturating_sub(pos0 + 1);
        assert!(prompt < one.run.len() || one.behind.is_some(), "a scored run has a successor");
        scores.extend(successors.take(prompt.min(one.run.len())).enumerate().map(|(at, token)| Score {
            lane: one.lane,
            position: (pos0 + at + 1) as u32,
            sampled: Sampled { token: *token, logprob: None, top: Vec::new() },
        }));
    }

    fn run(&mut self, one: &Going, tick: &Tick, refused: bool) -> Result<Option<Sampled>, LaneFault> {
        if let Some(fault) = tick.op_fault(one.lane) {
            return Err(fault.clone());
        }
        if refused {
            return Err(no_cells());
        }
        let lane = self.lanes.get_mut(&one.lane).expect("a fed lane is open");
        if self.setup.noise.lane.hit(&mut self.chance) {
            let fault = LaneFault { code: -16, message: format!("lane {} was told to fail", one.lane) };
            self.faults.insert(lane.spec.sampler.seed, fault.clone());
            lane.poison();
            return Err(fault);
        }
        if one.run.len() > 1 {
            self.done.prompt_tokens += one.run.len() as u64;
        }
        for token in &one.run {
            lane.push(*token, self.cells.take());
        }
        if !one.sample {
            return Ok(None);
        }
        self.done.drawn += 1;
        let all = *lane.digests.last().expect("a lane has a digest");
        let token = draw(all, lane.len(), &lane.spec);
        Ok(Some(Sampled { token, logprob: None, top: Vec::new() }))
    }
}

//! Runs step plans on a model: lane bookkeeping, the batch, and the draw for every lane that asked.
//!
//! What concerns one lane becomes that lane's fault; only what costs the model or more is an error of the step.

use std::sync::Arc;

use sf_abi::{
    SFR_E_ARG, SFR_E_CAPACITY, SFR_E_INTERNAL, SFR_E_NOT_FOUND, SFR_E_STATE, SFR_E_UNSUPPORTED, SFR_OK,
    SfrLaneOut, SfrStats,
};
use sf_core::{
    Feed, LaneFault, LaneId, LaneOp, LaneOut, Sampled, SamplerSpec, StepOut, StepPlan, Token, limits,
};

use crate::control::ControlPage;
use crate::error::{KitError, code_name};
use crate::history::History;
use crate::model::{Model, RuntimeLane};
use crate::sampler::{Recipe, Sampler};
use crate::step::{StepBuffer, StepView};

/// Positions a lane's history makes room for at once, bytes being 4 times that.
const HISTORY_ROOM_MAX: usize = 64 << 10;
/// Room for positions when the window is not known.
const HISTORY_ROOM_FALLBACK: usize = 8 << 10;

/// One lane of the batch. A closed one keeps its memory for the next.
#[derive(Debug, Default)]
struct Lane {
    runtime: Option<RuntimeLane>,
    recipe: Recipe,
    history: History,
}

/// A feed of the plan being run.
#[derive(Debug)]
struct Fed {
    lane: LaneId,
    sample: bool,
    /// Its place in the batch, or why it is not in it.
    place: Result<usize, LaneFault>,
}

/// A model with its lanes; one step at a time.
#[derive(Debug)]
pub struct Executor {
    model: Model,
    lanes: Vec<Lane>,
    step: StepBuffer,
    sampler: Sampler,
    feeds: Vec<Fed>,
    op_faults: Vec<(LaneId, LaneFault)>,
    /// Emptied `top` lists of earlier answers.
    rooms: Vec<Vec<(Token, f32)>>,
    /// The plan's number while one is in flight.
    flight: Option<u64>,
    history_room: usize,
}

type Outcome<T> = Result<Result<T, LaneFault>, KitError>;

impl Executor {
    /// Takes over a model without lanes.
    pub fn new(model: Model) -> Executor {
        let window = model.description().effective.get("ctx.max").and_then(serde_json::Value::as_u64);
        let room = window.and_then(|window| usize::try_from(window).ok()).unwrap_or(HISTORY_ROOM_FALLBACK);
        Executor {
            model,
            lanes: Vec::new(),
            step: StepBuffer::default(),
            sampler: Sampler::default(),
            feeds: Vec::new(),
            op_faults: Vec::new(),
            rooms: Vec::new(),
            flight: None,
            history_room: room.min(HISTORY_ROOM_MAX),
        }
    }

    /// The model; nothing can be changed through it.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The page on which a running step is asked to end; usable from any thread.
    pub fn control(&self) -> Arc<ControlPage> {
        Arc::clone(self.model.control())
    }

    /// Numbers of the running model.
    ///
    /// # Errors
    /// As [`Model::stats`].
    pub fn stats(&self) -> Result<SfrStats, KitError> {
        self.model.stats()
    }

    /// [`Executor::begin`] and [`Executor::finish`].
    ///
    /// # Errors
    /// As both.
    pub fn run(&mut self, plan: &StepPlan, out: &mut StepOut) -> Result<(), KitError> {
        self.begin(plan)?;
        self.finish(out)
    }

    /// Applies the plan's operations and hands its feeds to the runtime.
    ///
    /// # Errors
    /// What costs the model or more, a broken contract, or `SFR_E_STATE` while a step is in flight.
    pub fn begin(&mut self, plan: &StepPlan) -> Result<(), KitError> {
        if self.flight.is_some() {
            return Err(KitError::refused("step", SFR_E_STATE, "", "a step is in flight"));
        }
        self.op_faults.clear();
        self.feeds.clear();
        self.step.clear();
        for op in &plan.ops {
            let (lane, outcome) = self.apply(op);
            if let Err(fault) = outcome? {
                self.op_faults.push((lane, fault));
            }
        }
        for feed in &plan.feeds {
            let place = self.place(plan, feed);
            self.feeds.push(Fed { lane: feed.lane, sample: feed.sample, place });
        }
        if !self.step.is_empty() {
            match self.model.step_begin(&mut self.step) {
                Ok(()) => {}
                Err(error) => self.fail_all(error)?,
            }
        }
        self.flight = Some(plan.seq);
        Ok(())
    }

    /// Waits for the step and draws; fills `out` and reuses its memory.
    ///
    /// # Errors
    /// What costs the model or more, a broken contract, or `SFR_E_STATE` when no step was begun.
    pub fn finish(&mut self, out: &mut StepOut) -> Result<(), KitError> {
        let Some(seq) = self.flight.take() else {
            return Err(KitError::refused("step", SFR_E_STATE, "", "no step was begun"));
        };
        for old in out.lanes.drain(..) {
            if let Ok(Some(sampled)) = old.result
                && sampled.top.capacity() > 0
                && self.rooms.len() < limits::MAX_BATCH_MAX as usize
            {
                self.rooms.push(sampled.top);
            }
        }
        (out.seq, out.device_ns) = (seq, 0);
        let mut failed = None;
        if self.feeds.iter().any(|fed| fed.place.is_ok()) {
            match self.model.step_end(&mut self.step) {
                Ok(view) => {
                    out.device_ns = view.device_ns();
                    let lanes = &mut self.lanes;
                    let mut desk = Desk { sampler: &mut self.sampler, rooms: &mut self.rooms };
                    out.lanes.extend(self.feeds.drain(..).map(|fed| desk.settle(&view, fed, lanes)));
                }
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            self.fail_all(error)?;
        }
        out.lanes.extend(self.feeds.drain(..).map(|fed| LaneOut {
            lane: fed.lane,
            consumed: 0,
            result: fed.place.map(|_| None),
        }));
        let faults = self.op_faults.drain(..);
        out.lanes.extend(faults.map(|(lane, fault)| LaneOut { lane, consumed: 0, result: Err(fault) }));
        Ok(())
    }

    /// Turns a failed call into a fault of every feed that was in it, unless it costs more than that.
    fn fail_all(&mut self, error: KitError) -> Result<(), KitError> {
        let fault = spare(error)?;
        for fed in self.feeds.iter_mut().filter(|fed| fed.place.is_ok()) {
            fed.place = Err(fault.clone());
        }
        Ok(())
    }

    /// Puts a feed into the batch, or says why not.
    fn place(&mut self, plan: &StepPlan, feed: &Feed) -> Result<usize, LaneFault> {
        if let Some((_, fault)) = self.op_faults.iter().find(|(lane, _)| *lane == feed.lane) {
            return Err(fault.clone());
        }
        let Some(lane) = self.lanes.get(feed.lane.0 as usize) else { return Err(not_open(feed.lane)) };
        let Some(runtime) = lane.runtime else { return Err(not_open(feed.lane)) };
        if self.feeds.iter().any(|earlier| earlier.lane == feed.lane) {
            return Err(fault(SFR_E_ARG, format!("lane {} is fed twice in one step", feed.lane)));
        }
        let range = feed.tokens.start as usize..feed.tokens.end as usize;
        let (start, end) = (range.start, range.end);
        let Some(run) = plan.tokens.get(range).filter(|run| !run.is_empty()) else {
            let have = plan.tokens.len();
            return Err(fault(
                SFR_E_ARG,
                format!("the run {start}..{end} is not within {have} tokens, or empty"),
            ));
        };
        if let Some(token) = run.iter().find(|token| token.0 >= History::TOKENS_MAX) {
            return Err(fault(SFR_E_ARG, format!("token {token} is in no vocabulary")));
        }
        let len = lane.history.len();
        if feed.pos0 != len {
            return Err(fault(
                SFR_E_STATE,
                format!("the lane holds {len} positions, the feed begins at {}", feed.pos0),
            ));
        }
        let tokens = run.len() as u32;
        let rows = if feed.sample { tokens - 1..tokens } else { 0..0 };
        self.step.push(runtime, run, feed.pos0, rows);
        Ok(self.step.len() - 1)
    }

    fn apply(&mut self, op: &LaneOp) -> (LaneId, Outcome<()>) {
        match op {
            LaneOp::Open { lane, sampler } => (*lane, self.open(*lane, sampler)),
            LaneOp::Fork { from, upto, lane, sampler } => (*lane, self.fork(*from, *upto, *lane, sampler)),
            LaneOp::Truncate { lane, len } => (*lane, self.truncate(*lane, *len)),
            LaneOp::Close { lane } => (*lane, self.close(*lane)),
        }
    }

    /// The place of a lane that is to be made, and how it samples.
    fn vacant(&mut self, lane: LaneId, spec: &SamplerSpec) -> Result<Recipe, LaneFault> {
        let at = lane.0 as usize;
        if lane.0 >= limits::MAX_BATCH_MAX {
            let most = limits::MAX_BATCH_MAX;
            return Err(fault(SFR_E_ARG, format!("lane {lane} is out of 0..{most}")));
        }
        if self.lanes.len() <= at {
            self.lanes.resize_with(at + 1, Lane::default);
        }
        if self.lanes[at].runtime.is_some() {
            return Err(fault(SFR_E_STATE, format!("lane {lane} is open already")));
        }
        let vocab = self.model.description().model.vocab;
        Recipe::new(spec, vocab).map_err(|e| fault(SFR_E_ARG, e.to_string()))
    }

    fn open(&mut self, lane: LaneId, spec: &SamplerSpec) -> Outcome<()> {
        let recipe = match self.vacant(lane, spec) {
            Ok(recipe) => recipe,
            Err(fault) => return Ok(Err(fault)),
        };
        match self.model.lane_create() {
            Ok(runtime) => self.settle_in(lane, runtime, recipe, "lane_create").map(Ok),
            Err(error) => spare(error).map(Err),
        }
    }

    fn fork(&mut self, from: LaneId, upto: u32, lane: LaneId, spec: &SamplerSpec) -> Outcome<()> {
        let recipe = match self.vacant(lane, spec) {
            Ok(recipe) => recipe,
            Err(fault) => return Ok(Err(fault)),
        };
        let parent = match self.runtime_lane(from) {
            Ok(parent) => parent,
            Err(fault) => return Ok(Err(fault)),
        };
        let len = self.lanes[from.0 as usize].history.len();
        if upto > len {
            let message = format!("lane {from} holds {len} positions, {upto} are to be forked");
            return Ok(Err(fault(SFR_E_ARG, message)));
        }
        match self.model.fork(parent, upto) {
            Ok(runtime) => self.settle_in(lane, runtime, recipe, "fork")?,
            Err(error) => return spare(error).map(Err),
        }
        let (from, to) = (from.0 as usize, lane.0 as usize);
        // The two are never the same: the child was vacant, the parent open.
        if let Ok([parent, child]) = self.lanes.get_disjoint_mut([from, to]) {
            child.history.copy_from(&parent.history, upto);
        }
        Ok(Ok(()))
    }

    /// Fills a vacant place. The runtime must not give out a lane that is in use.
    fn settle_in(
        &mut self,
        lane: LaneId,
        runtime: RuntimeLane,
        recipe: Recipe,
        call: &'static str,
    ) -> Result<(), KitError> {
        if self.lanes.iter().any(|other| other.runtime == Some(runtime)) {
            return Err(KitError::contract(call, format!("it gave out lane {} a second time", runtime.0)));
        }
        let room = self.history_room;
        let place = &mut self.lanes[lane.0 as usize];
        place.runtime = Some(runtime);
        place.history.reset(recipe.counts_generated(), room);
        place.recipe = recipe;
        Ok(())
    }

    fn truncate(&mut self, lane: LaneId, want: u32) -> Outcome<()> {
        let runtime = match self.runtime_lane(lane) {
            Ok(runtime) => runtime,
            Err(fault) => return Ok(Err(fault)),
        };
        let got = match self.model.lane_truncate(runtime, want) {
            Ok(got) => got,
            Err(error) => return spare(error).map(Err),
        };
        let history = &mut self.lanes[lane.0 as usize].history;
        let keep = want.min(history.len());
        if got > keep {
            let len = history.len();
            let reason = format!("{got} positions are left of a lane that held {len}");
            return Err(KitError::contract("lane_truncate", reason));
        }
        history.truncate(got);
        if got < keep {
            let message = format!("the runtime could keep {got} of {keep} positions");
            return Ok(Err(fault(SFR_E_UNSUPPORTED, message)));
        }
        Ok(Ok(()))
    }

    fn close(&mut self, lane: LaneId) -> Outcome<()> {
        // A lane whose opening failed is closed all the same by a scheduler that cannot know.
        let Ok(runtime) = self.runtime_lane(lane) else { return Ok(Ok(())) };
        self.lanes[lane.0 as usize].runtime = None;
        match self.model.lane_free(runtime) {
            Ok(()) => Ok(Ok(())),
            Err(error) => spare(error).map(Err),
        }
    }

    fn runtime_lane(&self, lane: LaneId) -> Result<RuntimeLane, LaneFault> {
        let place = self.lanes.get(lane.0 as usize);
        place.and_then(|place| place.runtime).ok_or_else(|| not_open(lane))
    }
}

/// What turns an answer into results: the sampler and the memory for its lists.
struct Desk<'a> {
    sampler: &'a mut Sampler,
    rooms: &'a mut Vec<Vec<(Token, f32)>>,
}

impl Desk<'_> {
    /// Takes the answer for one feed into its lane and draws if asked.
    fn settle(&mut self, view: &StepView<'_>, fed: Fed, lanes: &mut [Lane]) -> LaneOut {
        let id = fed.lane;
        let at = match fed.place {
            Ok(at) => at,
            Err(fault) => return LaneOut { lane: id, consumed: 0, result: Err(fault) },
        };
        let told = view.lanes()[at];
        let lane = &mut lanes[id.0 as usize];
        let run = view.run(at);
        lane.history.fed(&run[..told.consumed as usize]);
        let whole = told.consumed as usize == run.len();
        let result = if told.status != SFR_OK {
            Err(lane_fault(&told))
        } else if fed.sample && whole {
            self.draw(view, at, lane).map(Some)
        } else {
            Ok(None)
        };
        LaneOut { lane: id, consumed: told.consumed, result }
    }

    fn draw(&mut self, view: &StepView<'_>, at: usize, lane: &mut Lane) -> Result<Sampled, LaneFault> {
        let Some(row) = view.rows(at).last() else {
            // The view was checked to hold every wanted row of a whole run.
            return Err(fault(SFR_E_INTERNAL, "the step brought no logits".to_owned()));
        };
        let wants_room = lane.recipe.spec().logprobs.is_some_and(|count| count > 0);
        let room = if wants_room { self.rooms.pop().unwrap_or_default() } else { Vec::new() };
        let sampled = self
            .sampler
            .sample(view.logits(row), &lane.recipe, &lane.history, room)
            .map_err(|e| fault(SFR_E_INTERNAL, e.to_string()))?;
        lane.history.drew(sampled.token.0);
        Ok(sampled)
    }
}

/// The lane's fault that an error amounts to, unless it costs the model or more.
fn spare(error: KitError) -> Result<LaneFault, KitError> {
    match error {
        KitError::Refused { code, .. } if code == SFR_E_CAPACITY || error.spares_the_model() => {
            Ok(fault(code, error.to_string()))
        }
        other => Err(other),
    }
}

fn fault(code: i32, message: String) -> LaneFault {
    LaneFault { code, message }
}

fn not_open(lane: LaneId) -> LaneFault {
    fault(SFR_E_NOT_FOUND, format!("lane {lane} is not open"))
}

fn lane_fault(told: &SfrLaneOut) -> LaneFault {
    let name = code_name(told.status);
    let message = match told.native_code {
        0 => format!("the runtime reported {name} for this lane at position {}", told.pos),
        native => {
            format!("the runtime reported {name} for this lane at position {} (native {native})", told.pos)
        }
    };
    fault(told.status, message)
}

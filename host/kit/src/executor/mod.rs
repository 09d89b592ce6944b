//! Runs step plans on a model: lane bookkeeping, the batch, and the draw for every lane that asked; in a tick of several
//! steps also the decision which lanes go on.
//!
//! What concerns one lane becomes that lane's fault; only what costs the model or more is an error of the step.

mod draw;
mod lanes;
mod scores;

use std::sync::Arc;
use std::time::Duration;

use sf_abi::{SFR_E_ARG, SFR_E_CAPACITY, SFR_E_INTERNAL, SFR_E_STATE, SFR_OK, SfrLaneOut, SfrStats};
use sf_core::{
    EmbedBatch, Feed, LaneFault, LaneId, LaneOp, LaneOut, Move, Score, StepOut, StepPlan, Token, Vocabulary,
};

use crate::control::ControlPage;
use crate::error::{KitError, code_name};
use crate::grammar::{Masks, Soon};
use crate::history::History;
use crate::model::Model;
use crate::rooms::Rooms;
use crate::sampler::Sampler;
use crate::step::{StepBuffer, StepView};
use draw::Drawing;
use lanes::Lanes;
use scores::Scored;

/// A lane that takes part in the step at hand.
#[derive(Debug)]
struct Fed {
    lane: LaneId,
    sample: bool,
    /// Draws left after this step's.
    more: u32,
    /// Its place in the batch, none where it sits this step out, or why it cannot be in it.
    place: Result<Option<usize>, LaneFault>,
    /// What of its run is scored.
    scored: Scored,
    /// The drawn token with which it goes on.
    next: Option<Token>,
}

impl Fed {
    fn of(feed: &Feed, place: Result<Option<usize>, LaneFault>) -> Fed {
        let Feed { lane, sample, more, .. } = *feed;
        Fed { lane, sample, more, place, scored: Scored::default(), next: None }
    }

    fn is_placed(&self) -> bool {
        matches!(self.place, Ok(Some(_)))
    }
}

/// Longest wait for a grammar that is being compiled while there is nothing else to do: new plans are made in between.
const GRAMMAR_WAIT: Duration = Duration::from_millis(5);

/// The plan being run.
#[derive(Clone, Copy, Debug)]
struct Tick {
    seq: u64,
    /// The step that comes next.
    step: u32,
    steps_max: u32,
    /// The yield word when the plan was made.
    word: u32,
}

/// A model with its lanes; one tick at a time.
#[derive(Debug)]
pub struct Executor {
    model: Model,
    lanes: Lanes,
    step: StepBuffer,
    sampler: Sampler,
    masks: Masks,
    feeds: Vec<Fed>,
    op_faults: Vec<(LaneId, LaneFault)>,
    moves: Vec<Move>,
    rooms: Rooms,
    /// While a plan is being run.
    tick: Option<Tick>,
    /// Plans so far.
    ticks: u64,
}

impl Executor {
    /// Takes over a model without lanes.
    pub fn new(model: Model) -> Executor {
        let lanes = Lanes::new(&model);
        Executor {
            model,
            lanes,
            step: StepBuffer::default(),
            sampler: Sampler::default(),
            masks: Masks::default(),
            feeds: Vec::new(),
            op_faults: Vec::new(),
            moves: Vec::new(),
            rooms: Rooms::default(),
            tick: None,
            ticks: 0,
        }
    }

    /// Lanes may have grammars from now on: these are the model's tokens.
    pub fn teach(&mut self, vocabulary: Arc<Vocabulary>) {
        self.lanes.teach(vocabulary);
    }

    /// The model; nothing can be changed through it.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// This process's own page on which a running tick is asked to end; usable from any thread.
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

    /// As [`Model::embed`].
    ///
    /// # Errors
    /// As [`Model::embed`], or `SFR_E_STATE` while a tick is running.
    pub fn embed(&mut self, batch: &EmbedBatch, out: &mut Vec<f32>) -> Result<usize, KitError> {
        if self.tick.is_some() {
            return Err(KitError::refused("embed", SFR_E_STATE, "", "a tick is running"));
        }
        self.model.embed(batch, out)
    }

    /// [`Executor::begin`] with the yield word as it is, and the first [`Executor::next`]: all of a plan of one step.
    ///
    /// # Errors
    /// As both.
    pub fn run(&mut self, plan: &StepPlan, out: &mut StepOut) -> Result<(), KitError> {
        self.begin(plan, self.model.page().yield_seq())?;
        self.next(out)
    }

    /// Applies the plan's operations and hands its feeds to the runtime. `word` is the yield word that whoever made the
    /// plan has seen: any other one ends the tick, so that none raised since is lost.
    ///
    /// # Errors
    /// What costs the model or more, a broken contract, or `SFR_E_STATE` while a tick is running.
    pub fn begin(&mut self, plan: &StepPlan, word: u32) -> Result<(), KitError> {
        if self.tick.is_some() {
            return Err(KitError::refused("step", SFR_E_STATE, "", "a tick is running"));
        }
        self.ticks += 1;
        self.op_faults.clear();
        self.moves.clear();
        self.feeds.clear();
        self.step.clear();
        for op in &plan.ops {
            self.apply(op)?;
        }
        for feed in &plan.feeds {
            let fed = self.place(plan, feed).unwrap_or_else(|fault| Fed::of(feed, Err(fault)));
            self.feeds.push(fed);
        }
        self.start()?;
        self.tick = Some(Tick { seq: plan.seq, step: 0, steps_max: plan.steps_max, word });
        Ok(())
    }

    /// Finishes the next step of the tick and draws; fills `out` and reuses its memory. A step after the first is handed
    /// to the runtime in here, so that what the one before it brought is on its way meanwhile. A yield that comes between
    /// two calls makes the second one an empty last step.
    ///
    /// # Errors
    /// What costs the model or more, a broken contract, or `SFR_E_STATE` when no tick is running. The tick is over then.
    pub fn next(&mut self, out: &mut StepOut) -> Result<(), KitError> {
        let Some(mut tick) = self.tick.take() else {
            return Err(KitError::refused("step", SFR_E_STATE, "", "no tick was begun"));
        };
        self.rooms.clear(out);
        (out.seq, out.step) = (tick.seq, tick.step);
        if tick.step > 0 {
            if self.is_yielded(tick) {
                out.last = true;
                return Ok(());
            }
            self.go_on();
            self.start()?;
        }
        out.moves.append(&mut self.moves);
        self.settle(out)?;
        let faults = self.op_faults.drain(..);
        out.lanes.extend(faults.map(|(lane, fault)| LaneOut { lane, consumed: 0, result: Err(fault) }));
        tick.step += 1;
        out.last = self.feeds.is_empty() || tick.step >= tick.steps_max || self.is_yielded(tick);
        self.tick = (!out.last).then_some(tick);
        Ok(())
    }

    /// Ends the tick after the step that [`Executor::next`] brought last; has no effect before the first one.
    pub fn cut(&mut self) {
        self.tick.take_if(|tick| tick.step > 0);
    }

    fn is_yielded(&self, tick: Tick) -> bool {
        self.model.page().yield_seq() != tick.word
    }

    fn apply(&mut self, op: &LaneOp) -> Result<(), KitError> {
        let (lane, is_new) = match op {
            LaneOp::Open { lane, .. } | LaneOp::Fork { lane, .. } | LaneOp::Restore { lane, .. } => {
                (*lane, true)
            }
            LaneOp::Adopt { lane, .. }
            | LaneOp::Truncate { lane, .. }
            | LaneOp::Close { lane }
            | LaneOp::Stash { lane, .. } => (*lane, false),
            LaneOp::Forget { .. } => (LaneId(0), false),
        };
        match self.lanes.apply(&mut self.model, op, &mut self.moves)? {
            Err(fault) => self.op_faults.push((lane, fault)),
            // What failed on the lane's earlier life, a copy say, must not hit its next owner.
            Ok(()) if is_new => self.op_faults.retain(|(other, _)| *other != lane),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Puts a feed into the batch, or says why not. Of a lane that is to draw and waits for its grammar, the last token
    /// stays behind: the others do not wait with it.
    fn place(&mut self, plan: &StepPlan, feed: &Feed) -> Result<Fed, LaneFault> {
        if let Some((_, fault)) = self.op_faults.iter().find(|(lane, _)| *lane == feed.lane) {
            return Err(fault.clone());
        }
        let (lane, runtime) = self.lanes.get(feed.lane)?;
        if lane.fed_in == self.ticks {
            return Err(fault(SFR_E_ARG, format!("lane {} is fed twice in one step", feed.lane)));
        }
        lane.fed_in = self.ticks;
        let (start, end) = (feed.tokens.start as usize, feed.tokens.end as usize);
        let Some(run) = plan.tokens.get(start..end).filter(|run| !run.is_empty()) else {
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
        let (mut run, mut behind, mut fed) = (run, plan.tokens.get(end), Fed::of(feed, Ok(None)));
        if feed.sample && lane.waits() {
            (fed.sample, fed.more) = (false, 0);
            if let Some((last, before)) = run.split_last() {
                (run, behind) = (before, Some(last));
            }
            if run.is_empty() {
                return Ok(fed);
            }
        }
        fed.scored = Scored::of(lane, run, behind)?;
        if fed.sample {
            lane.follow(run);
        }
        self.step.push(runtime, run, feed.pos0, fed.scored.rows(run.len() as u32, fed.sample));
        fed.place = Ok(Some(self.step.len() - 1));
        Ok(fed)
    }

    /// Makes the next step's batch of the lanes that go on.
    fn go_on(&mut self) {
        self.step.clear();
        for fed in &mut self.feeds {
            fed.scored = Scored::default();
            fed.place = match (self.lanes.get(fed.lane), fed.next.take()) {
                (Ok((lane, runtime)), Some(token)) => {
                    lane.follow(&[token]);
                    self.step.push(runtime, &[token], lane.history.len(), 0..1);
                    Ok(Some(self.step.len() - 1))
                }
                (Err(fault), _) => Err(fault),
                (Ok(_), None) => Err(fault(SFR_E_INTERNAL, "a lane went on without a token".to_owned())),
            };
        }
    }

    /// Hands the batch to the runtime, if there is one.
    fn start(&mut self) -> Result<(), KitError> {
        if self.step.is_empty() {
            // There is nothing else to do, but there may be soon.
            let waiting = self.feeds.iter().find(|fed| fed.place == Ok(None));
            if let Some(Ok((lane, _))) = waiting.map(|fed| self.lanes.get(fed.lane))
                && let Some(guide) = &mut lane.guide
            {
                guide.wait(GRAMMAR_WAIT);
            }
            return Ok(());
        }
        for fed in self.feeds.iter().filter(|fed| fed.sample && fed.is_placed()) {
            if let Ok((lane, _)) = self.lanes.get(fed.lane)
                && let Some(guide) = lane.send_guide()
            {
                lane.guide = self.masks.send(fed.lane.0 as usize, guide).map(Soon::Here);
            }
        }
        match self.model.step_begin(&mut self.step) {
            Ok(()) => Ok(()),
            Err(error) => self.fail_all(error),
        }
    }

    /// Waits for the batch, tells every feed's outcome and leaves the feeds that go on.
    fn settle(&mut self, out: &mut StepOut) -> Result<(), KitError> {
        let mut failed = None;
        if self.feeds.iter().any(Fed::is_placed) {
            let ended = self.model.step_end(&mut self.step);
            let masks = self.masks.collect(|place, guide| self.lanes.give_back(place, guide));
            match ended {
                Ok(view) => {
                    out.device_ns = view.device_ns();
                    let drawing = Drawing { sampler: &mut self.sampler, rooms: &mut self.rooms, masks };
                    let mut desk = Desk { lanes: &mut self.lanes, drawing };
                    for fed in &mut self.feeds {
                        let told = desk.settle(&view, fed, &mut out.scores);
                        out.lanes.push(told);
                    }
                    (out.mask_ns, out.mask_wait_ns) =
                        (desk.drawing.masks.took_ns, desk.drawing.masks.waited_ns);
                    self.feeds.retain(|fed| fed.next.is_some());
                    return Ok(());
                }
                Err(error) => failed = Some(error),
            }
        }
        // A batch that was never begun has its guides away all the same.
        self.masks.collect(|place, guide| self.lanes.give_back(place, guide));
        if let Some(error) = failed {
            self.fail_all(error)?;
        }
        out.lanes.extend(self.feeds.drain(..).map(|fed| LaneOut {
            lane: fed.lane,
            consumed: 0,
            result: fed.place.map(|_| None),
        }));
        Ok(())
    }

    /// Turns a failed call into a fault of every feed that was in it, unless it costs more than that.
    fn fail_all(&mut self, error: KitError) -> Result<(), KitError> {
        let fault = spare(error)?;
        for fed in self.feeds.iter_mut().filter(|fed| fed.is_placed()) {
            fed.place = Err(fault.clone());
        }
        Ok(())
    }
}

/// What turns an answer into results.
struct Desk<'a> {
    lanes: &'a mut Lanes,
    drawing: Drawing<'a>,
}

impl Desk<'_> {
    /// Takes the answer for one feed into its lane, draws if asked and notes whether the lane goes on.
    fn settle(&mut self, view: &StepView<'_>, fed: &mut Fed, scores: &mut Vec<Score>) -> LaneOut {
        let id = fed.lane;
        let (at, lane) = match (&fed.place, self.lanes.get(id)) {
            (Ok(Some(at)), Ok((lane, _))) => (*at, lane),
            (Ok(None), _) => return LaneOut { lane: id, consumed: 0, result: Ok(None) },
            (Err(fault), _) => return LaneOut { lane: id, consumed: 0, result: Err(fault.clone()) },
            (_, Err(fault)) => return LaneOut { lane: id, consumed: 0, result: Err(fault) },
        };
        let told = view.lanes()[at];
        let run = view.run(at);
        lane.history.fed(&run[..told.consumed as usize]);
        let whole = told.consumed as usize == run.len();
        if told.status == SFR_OK {
            self.drawing.score(fed.scored, (view, at), (id, lane), scores);
        }
        let result = if told.status != SFR_OK {
            Err(lane_fault(&told))
        } else if fed.sample && whole {
            match view.rows(at).last() {
                Some(row) => self.drawing.draw(view.logits(row), lane).map(Some),
                // The view was checked to hold every wanted row of a whole run.
                None => Err(fault(SFR_E_INTERNAL, "the step brought no logits".to_owned())),
            }
        } else {
            Ok(None)
        };
        if let Ok(Some(sampled)) = &result
            && fed.more > 0
            && !lane.is_end(sampled.token)
        {
            fed.next = Some(sampled.token);
            fed.more -= 1;
        }
        LaneOut { lane: id, consumed: told.consumed, result }
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

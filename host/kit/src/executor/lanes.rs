//! The lanes of an executor and the copies of lanes in host memory: what an operation of a plan does to them.
//!
//! What a runtime refuses is the lane's fault; what it does against the header's rules is an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use sf_abi::{SFR_E_ARG, SFR_E_CAPACITY, SFR_E_INTERNAL, SFR_E_NOT_FOUND, SFR_E_STATE, SFR_E_UNSUPPORTED};
use sf_core::{Direction, LaneFault, LaneId, LaneOp, LaneSpec, Move, StashKey, Token, Vocabulary, limits};

use super::{fault, spare};
use crate::error::KitError;
use crate::grammar::{Compiler, Guide, Soon};
use crate::history::History;
use crate::model::{Model, RuntimeLane};
use crate::sampler::Recipe;

/// Positions a lane's history makes room for at once, bytes being 4 times that.
const HISTORY_ROOM_MAX: usize = 64 << 10;
/// Room for positions when the window is not known.
const HISTORY_ROOM_FALLBACK: usize = 8 << 10;

/// What an operation came to: done, the lane's fault, or an error that costs more.
pub(super) type Outcome<T> = Result<Result<T, LaneFault>, KitError>;

/// One lane of the batch. A closed one keeps its memory for the next.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) runtime: Option<RuntimeLane>,
    pub(super) recipe: Recipe,
    pub(super) history: History,
    /// Where its answer is in its grammar; away while it is compiled or a mask is computed.
    pub(super) guide: Option<Soon>,
    /// Whether there is a grammar at all.
    pub(super) is_guided: bool,
    /// As [`LaneSpec::prompt_len`].
    pub(super) prompt_len: u32,
    /// As [`LaneSpec::ends`].
    ends: Option<Arc<[Token]>>,
    /// The tick that feeds it, so that a second feed is noticed.
    pub(super) fed_in: u64,
}

impl Lane {
    /// Whether a drawn token ends the request.
    pub(super) fn is_end(&self, token: Token) -> bool {
        self.ends.as_ref().is_some_and(|ends| ends.binary_search(&token).is_ok())
    }

    fn assign(&mut self, spec: &LaneSpec, way: Way) {
        self.ends = Some(Arc::clone(&spec.ends));
        self.prompt_len = spec.prompt_len;
        self.recipe = way.recipe;
        self.is_guided = way.guide.is_some();
        self.guide = way.guide;
    }

    /// The guide, if it is to compute a mask while the step runs: where one is surely needed, or likely.
    pub(super) fn send_guide(&mut self) -> Option<Box<Guide>> {
        let greedy = self.recipe.is_greedy();
        match self.guide.take() {
            Some(Soon::Here(guide)) if !greedy || guide.strays() => Some(guide),
            other => {
                self.guide = other;
                None
            }
        }
    }

    /// Whether its grammar is still being compiled, so that it cannot draw yet.
    pub(super) fn waits(&mut self) -> bool {
        self.guide.as_mut().is_some_and(|guide| !guide.is_settled())
    }

    /// What a lane with a grammar draws with.
    pub(super) fn hand(&mut self) -> Result<Hand<'_>, String> {
        let guide = self.guide.as_mut().ok_or("the lane's place in its grammar was lost")?.guide()?;
        Ok(Hand { recipe: &self.recipe, history: &self.history, guide })
    }

    /// Tells the guide what is generated already, and what of the run at hand is.
    pub(super) fn follow(&mut self, run: &[Token]) {
        if let Some(Soon::Here(guide)) = &mut self.guide {
            let (held, prompt) = (self.history.tokens(), self.prompt_len as usize);
            // A run may begin in the prompt and end behind it, when a lane is built again.
            let generated = run.get(prompt.saturating_sub(held.len())..).unwrap_or_default();
            guide.follow(held.get(prompt..).unwrap_or_default(), generated);
        }
    }
}

/// What a lane with a grammar draws with.
pub(super) struct Hand<'a> {
    pub(super) recipe: &'a Recipe,
    pub(super) history: &'a History,
    pub(super) guide: &'a mut Guide,
}

/// How a lane is to draw.
struct Way {
    recipe: Recipe,
    guide: Option<Soon>,
}

/// A copy of a lane: the runtime's envelope, and the tokens it stands for.
#[derive(Debug)]
struct Stash {
    state: Vec<u8>,
    tokens: Vec<u32>,
}

/// Lanes by number, copies by key.
#[derive(Debug)]
pub(super) struct Lanes {
    places: Vec<Lane>,
    stashes: BTreeMap<StashKey, Stash>,
    stash_bytes: u64,
    vocab: u32,
    history_room: usize,
    grammars: Option<Compiler>,
}

impl Lanes {
    pub(super) fn new(model: &Model) -> Lanes {
        let window = model.description().effective.get("ctx.max").and_then(serde_json::Value::as_u64);
        let room = window.and_then(|window| usize::try_from(window).ok()).unwrap_or(HISTORY_ROOM_FALLBACK);
        Lanes {
            places: Vec::new(),
            stashes: BTreeMap::new(),
            stash_bytes: 0,
            vocab: model.description().model.vocab,
            history_room: room.min(HISTORY_ROOM_MAX),
            grammars: None,
        }
    }

    /// Grammars work from now on.
    pub(super) fn teach(&mut self, vocabulary: Arc<Vocabulary>) {
        self.grammars = Some(Compiler::new(vocabulary));
    }

    /// Gives a guide back to its lane.
    pub(super) fn give_back(&mut self, place: usize, guide: Box<Guide>) {
        if let Some(lane) = self.places.get_mut(place) {
            lane.guide = Some(Soon::Here(guide));
        }
    }

    /// An open lane.
    pub(super) fn get(&mut self, lane: LaneId) -> Result<(&mut Lane, RuntimeLane), LaneFault> {
        let not_open = || fault(SFR_E_NOT_FOUND, format!("lane {lane} is not open"));
        let place = self.places.get_mut(lane.0 as usize).ok_or_else(not_open)?;
        let runtime = place.runtime.ok_or_else(not_open)?;
        Ok((place, runtime))
    }

    /// Does one operation; copies that succeed are told in `moves`.
    pub(super) fn apply(&mut self, model: &mut Model, op: &LaneOp, moves: &mut Vec<Move>) -> Outcome<()> {
        match op {
            LaneOp::Open { lane, spec } => self.open(model, *lane, spec),
            LaneOp::Fork { from, upto, lane, spec } => self.fork(model, (*from, *upto), *lane, spec),
            LaneOp::Adopt { lane, upto, spec } => self.adopt(model, *lane, *upto, spec),
            LaneOp::Truncate { lane, len } => self.truncate(model, *lane, *len),
            LaneOp::Close { lane } => self.close(model, *lane),
            LaneOp::Stash { lane, upto, key } => {
                let moved = self.stash(model, *lane, *upto, *key)?;
                Ok(moved.map(|moved| moves.push(moved)))
            }
            LaneOp::Restore { key, lane, spec } => {
                let moved = self.restore(model, *key, *lane, spec)?;
                Ok(moved.map(|moved| moves.push(moved)))
            }
            LaneOp::Forget { key } => {
                if let Some(stash) = self.stashes.remove(key) {
                    self.stash_bytes -= stash.state.len() as u64;
                }
                Ok(Ok(()))
            }
        }
    }

    /// How a lane that is to be made samples, once its place is known to be vacant.
    fn vacant(&mut self, lane: LaneId, spec: &LaneSpec) -> Result<Way, LaneFault> {
        let at = lane.0 as usize;
        if lane.0 >= limits::LANES_MAX {
            let most = limits::LANES_MAX;
            return Err(fault(SFR_E_ARG, format!("lane {lane} is out of 0..{most}")));
        }
        if self.places.len() <= at {
            self.places.resize_with(at + 1, Lane::default);
        }
        if self.places[at].runtime.is_some() {
            return Err(fault(SFR_E_STATE, format!("lane {lane} is open already")));
        }
        self.way(spec)
    }

    fn way(&self, spec: &LaneSpec) -> Result<Way, LaneFault> {
        let recipe = Recipe::new(&spec.sampler, self.vocab).map_err(|e| fault(SFR_E_ARG, e.to_string()))?;
        let recipe = recipe.keep_from_ending(&spec.ends, spec.prompt_len);
        let guide = match (&spec.sampler.grammar, &self.grammars) {
            (None, _) => None,
            (Some(grammar), Some(grammars)) => {
                Some(grammars.guide(grammar).map_err(|e| fault(SFR_E_ARG, e.to_string()))?)
            }
            (Some(_), None) => {
                let message = "a grammar needs the model's vocabulary, which this engine was not told";
                return Err(fault(SFR_E_UNSUPPORTED, message.to_owned()));
            }
        };
        Ok(Way { recipe, guide })
    }

    fn open(&mut self, model: &mut Model, lane: LaneId, spec: &LaneSpec) -> Outcome<()> {
        let way = match self.vacant(lane, spec) {
            Ok(way) => way,
            Err(fault) => return Ok(Err(fault)),
        };
        match model.lane_create() {
            Ok(runtime) => self.settle_in(lane, runtime, spec, way, "lane_create").map(|_| Ok(())),
            Err(error) => spare(error).map(Err),
        }
    }

    fn fork(
        &mut self,
        model: &mut Model,
        (from, upto): (LaneId, u32),
        lane: LaneId,
        spec: &LaneSpec,
    ) -> Outcome<()> {
        let way = match self.vacant(lane, spec) {
            Ok(way) => way,
            Err(fault) => return Ok(Err(fault)),
        };
        let parent = match self.get(from) {
            Ok((parent, _)) if upto > parent.history.len() => {
                let len = parent.history.len();
                let message = format!("lane {from} holds {len} positions, {upto} are to be forked");
                return Ok(Err(fault(SFR_E_ARG, message)));
            }
            Ok((_, runtime)) => runtime,
            Err(fault) => return Ok(Err(fault)),
        };
        match model.fork(parent, upto) {
            Ok(runtime) => self.settle_in(lane, runtime, spec, way, "fork")?,
            Err(error) => return spare(error).map(Err),
        };
        let (from, to) = (from.0 as usize, lane.0 as usize);
        // The two are never the same: the child was vacant, the parent open.
        if let Ok([parent, child]) = self.places.get_disjoint_mut([from, to]) {
            child.history.copy_from(&parent.history, upto);
        }
        Ok(Ok(()))
    }

    /// Fills a vacant place. The runtime must not give out a lane that is in use.
    fn settle_in(
        &mut self,
        lane: LaneId,
        runtime: RuntimeLane,
        spec: &LaneSpec,
        way: Way,
        call: &'static str,
    ) -> Result<&mut Lane, KitError> {
        if self.places.iter().any(|other| other.runtime == Some(runtime)) {
            return Err(KitError::contract(call, format!("it gave out lane {} a second time", runtime.0)));
        }
        let place = &mut self.places[lane.0 as usize];
        place.runtime = Some(runtime);
        place.history.reset(way.recipe.counts_generated(), spec.prompt_len, self.history_room);
        place.assign(spec, way);
        Ok(place)
    }

    fn adopt(&mut self, model: &mut Model, lane: LaneId, upto: u32, spec: &LaneSpec) -> Outcome<()> {
        let way = self.way(spec);
        let (way, len) = match (way, self.get(lane)) {
            (Ok(way), Ok((place, _))) => (way, place.history.len()),
            (Err(fault), _) | (_, Err(fault)) => return Ok(Err(fault)),
        };
        if upto > len {
            let message = format!("lane {lane} holds {len} positions, {upto} are to be kept");
            return Ok(Err(fault(SFR_E_ARG, message)));
        }
        if let Err(fault) = self.truncate(model, lane, upto)? {
            return Ok(Err(fault));
        }
        let place = &mut self.places[lane.0 as usize];
        place.history.assign(way.recipe.counts_generated(), spec.prompt_len);
        place.assign(spec, way);
        Ok(Ok(()))
    }

    fn truncate(&mut self, model: &mut Model, lane: LaneId, want: u32) -> Outcome<()> {
        let (place, runtime) = match self.get(lane) {
            Ok(found) => found,
            Err(fault) => return Ok(Err(fault)),
        };
        if want >= place.history.len() {
            return Ok(Ok(()));
        }
        match model.lane_truncate(runtime, want) {
            Ok(got) => place.history.truncate(got),
            Err(error) => return spare(error).map(Err),
        }
        let got = place.history.len();
        if got < want {
            let message = format!("the runtime could keep {got} of {want} positions");
            return Ok(Err(fault(SFR_E_UNSUPPORTED, message)));
        }
        Ok(Ok(()))
    }

    fn close(&mut self, model: &mut Model, lane: LaneId) -> Outcome<()> {
        // A lane whose opening failed is closed all the same by a scheduler that cannot know.
        let Ok((place, runtime)) = self.get(lane) else { return Ok(Ok(())) };
        (place.runtime, place.ends, place.guide) = (None, None, None);
        match model.lane_free(runtime) {
            Ok(()) => Ok(Ok(())),
            Err(error) => spare(error).map(Err),
        }
    }

    fn stash(&mut self, model: &mut Model, lane: LaneId, upto: u32, key: StashKey) -> Outcome<Move> {
        let begun = Instant::now();
        let (runtime, tokens) = match self.get(lane) {
            Ok((place, runtime)) => match place.history.tokens().get(..upto as usize) {
                Some(tokens) if upto > 0 => (runtime, tokens.to_vec()),
                _ => {
                    let len = place.history.len();
                    let message = format!("lane {lane} holds {len} positions, {upto} are to be copied");
                    return Ok(Err(fault(SFR_E_ARG, message)));
                }
            },
            Err(fault) => return Ok(Err(fault)),
        };
        if self.stashes.contains_key(&key) {
            return Ok(Err(fault(SFR_E_STATE, format!("copy {} is there already", key.0))));
        }
        if self.stashes.len() >= limits::STASHES_MAX {
            let most = limits::STASHES_MAX;
            return Ok(Err(fault(SFR_E_CAPACITY, format!("{most} copies are held, which is the most"))));
        }
        let room = limits::STASH_BYTES_MAX - self.stash_bytes;
        let state = match model.export_state(runtime, upto, room) {
            Ok(state) => state,
            Err(error) => return spare(error).map(Err),
        };
        let bytes = state.len() as u64;
        self.stash_bytes += bytes;
        self.stashes.insert(key, Stash { state, tokens });
        Ok(Ok(moved(key, Direction::Stashed, (upto, bytes), begun)))
    }

    fn restore(&mut self, model: &mut Model, key: StashKey, lane: LaneId, spec: &LaneSpec) -> Outcome<Move> {
        let begun = Instant::now();
        let way = match self.vacant(lane, spec) {
            Ok(way) => way,
            Err(fault) => return Ok(Err(fault)),
        };
        let Some(stash) = self.stashes.remove(&key) else {
            return Ok(Err(fault(SFR_E_NOT_FOUND, format!("there is no copy {}", key.0))));
        };
        let restored = self.import(model, &stash, lane, (spec, way));
        let size = (stash.tokens.len() as u32, stash.state.len() as u64);
        self.stashes.insert(key, stash);
        Ok(restored?.map(|()| moved(key, Direction::Restored, size, begun)))
    }

    /// Makes a lane from a copy, and holds the runtime to what the copy held.
    fn import(
        &mut self,
        model: &mut Model,
        stash: &Stash,
        lane: LaneId,
        (spec, way): (&LaneSpec, Way),
    ) -> Outcome<()> {
        let runtime = match model.import_state(&stash.state) {
            Ok(runtime) => runtime,
            Err(error) => return spare(error).map(Err),
        };
        let place = self.settle_in(lane, runtime, spec, way, "import_state")?;
        place.history.fed(&stash.tokens);
        let want = place.history.len();
        // The only call that tells how long a lane is; at its end it cuts nothing.
        let told = model.lane_truncate(runtime, want);
        if told.as_ref().is_ok_and(|got| *got == want) {
            return Ok(Ok(()));
        }
        let freed = self.close(model, lane)?;
        match told {
            Ok(got) => {
                let message = format!("{got} of {want} positions came back from a copy");
                Ok(freed.and(Err(fault(SFR_E_INTERNAL, message))))
            }
            Err(error) => spare(error).map(Err),
        }
    }
}

fn moved(key: StashKey, direction: Direction, (positions, bytes): (u32, u64), begun: Instant) -> Move {
    let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Move { key, direction, positions, bytes, took_ns }
}

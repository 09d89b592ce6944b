//! Draws a lane's next token, within its grammar where it has one.

use sf_abi::SFR_E_INTERNAL;
use sf_core::{LaneFault, LaneId, Sampled, Score, Token};

use super::fault;
use super::lanes::{Hand, Lane};
use super::scores::Scored;
use crate::grammar::{Guide, MaskCost};
use crate::rooms::Rooms;
use crate::sampler::{Logits, Sampler};
use crate::step::StepView;

/// The sampler, the memory for its lists, and what grammars have cost in this step.
pub(super) struct Drawing<'a> {
    pub(super) sampler: &'a mut Sampler,
    pub(super) rooms: &'a mut Rooms,
    pub(super) masks: MaskCost,
}

impl Drawing<'_> {
    /// Draws what follows all that the lane was fed.
    pub(super) fn draw(&mut self, logits: Logits<'_>, lane: &mut Lane) -> Result<Sampled, LaneFault> {
        let wants_room = lane.recipe.spec().logprobs.is_some_and(|count| count > 0);
        let room = if wants_room { self.rooms.take() } else { Vec::new() };
        let drawn = if lane.is_guided {
            self.guided(logits, lane, room)
        } else {
            self.sampler.sample(logits, &lane.recipe, &lane.history, room).map_err(|error| error.to_string())
        };
        drawn.map_err(|why| fault(SFR_E_INTERNAL, why))
    }

    /// Reads the scores of prompt tokens out of the rows that came back for the `at`-th feed.
    pub(super) fn score(
        &mut self,
        scored: Scored,
        rows: (&StepView<'_>, usize),
        lane: (LaneId, &Lane),
        scores: &mut Vec<Score>,
    ) {
        scored.tell((self.sampler, self.rooms), rows, lane, scores);
    }

    fn guided(
        &mut self,
        logits: Logits<'_>,
        lane: &mut Lane,
        mut room: Vec<(Token, f32)>,
    ) -> Result<Sampled, String> {
        let Hand { recipe, history, guide } = lane.hand()?;
        if recipe.is_greedy() {
            // The likeliest of all tokens is the likeliest of the allowed ones, if it is allowed.
            let free =
                self.sampler.sample(logits, recipe, history, room).map_err(|error| error.to_string())?;
            let allowed = guide.allows(free.token);
            guide.note(!allowed);
            if allowed {
                self.spent(guide);
                return Ok(free);
            }
            room = free.top;
        }
        guide.compute();
        self.spent(guide);
        let drawn = self.sampler.sample_allowed(logits, Some(guide.mask()?), (recipe, history), room);
        drawn.map_err(|error| error.to_string())
    }

    /// Counts what a guide was busy with while nothing else went on.
    fn spent(&mut self, guide: &mut Guide) {
        let took = u64::try_from(guide.take_time().as_nanos()).unwrap_or(u64::MAX);
        self.masks.took_ns += took;
        self.masks.waited_ns += took;
    }
}

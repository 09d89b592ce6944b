//! The log-probabilities of prompt tokens: which rows of a run they need, and what is read out of these rows.

use std::ops::Range;

use sf_abi::SFR_E_ARG;
use sf_core::{LaneFault, LaneId, Score, Token};

use super::fault;
use super::lanes::Lane;
use crate::rooms::Rooms;
use crate::sampler::Sampler;
use crate::step::StepView;

/// What of a run is scored: the successor of each of its first tokens, as far as that is a token of the prompt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scored {
    /// Tokens of the run whose successors are.
    count: u32,
    /// The successor of the run's last token, when that is scored too.
    behind: Option<Token>,
}

impl Scored {
    /// What of the run that the lane is fed next; `behind` stands behind the run in the plan.
    pub(super) fn of(lane: &Lane, run: &[Token], behind: Option<&Token>) -> Result<Scored, LaneFault> {
        if !lane.recipe.spec().scores_prompt {
            return Ok(Scored::default());
        }
        let left = lane.prompt_len.saturating_sub(lane.history.len().saturating_add(1));
        let count = left.min(run.len() as u32);
        let behind = behind.filter(|_| count == run.len() as u32).copied();
        if count == run.len() as u32 && behind.is_none() {
            let message = "the run ends inside a prompt that is scored, and no token stands behind it";
            return Err(fault(SFR_E_ARG, message.to_owned()));
        }
        Ok(Scored { count, behind })
    }

    /// The rows that a run of `tokens` needs for this, and for the draw behind it.
    pub(super) fn rows(self, tokens: u32, sample: bool) -> Range<u32> {
        match (self.count, sample) {
            (0, false) => 0..0,
            (0, true) => tokens - 1..tokens,
            (count, false) => 0..count,
            (_, true) => 0..tokens,
        }
    }

    /// Reads the rows that came back for the `at`-th feed. Each row is read once and not kept.
    pub(super) fn tell(
        self,
        (sampler, rooms): (&mut Sampler, &mut Rooms),
        (view, at): (&StepView<'_>, usize),
        (id, lane): (LaneId, &Lane),
        scores: &mut Vec<Score>,
    ) {
        let run = view.run(at);
        let count = lane.recipe.spec().logprobs.unwrap_or(0);
        // What a yield or a fault left out has no row.
        for (i, row) in view.rows(at).iter().enumerate().take(self.count as usize) {
            let Some(token) = run.get(i + 1).copied().map(Token).or(self.behind) else { return };
            let room = if count > 0 { rooms.take() } else { Vec::new() };
            let sampled = sampler.score(view.logits(row), token, count, room);
            scores.push(Score { lane: id, position: row.pos + 1, sampled });
        }
    }
}

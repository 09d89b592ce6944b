//! A lane that follows a script recorded from an undisturbed lane, and notices when anything else left a mark on it.

use std::rc::Rc;

use crate::compare::{Dice, best_token};
use crate::journal::{Broken, ensure};
use crate::plan::{Run, narrow};
use crate::raw::worked;
use crate::session::Session;

/// Tokens of a script's prompt, and of its greedy continuation.
const PROMPT: u32 = 6;
const GREEDY: u32 = 24;

/// A prompt, its greedy continuation, and the row after each token from the prompt's last on.
pub(super) struct Script {
    stream: Vec<u32>,
    prompt: u32,
    rows: Vec<Vec<f32>>,
}

impl Script {
    /// Records it in a lane of its own.
    pub(super) fn record(session: &mut Session, dice: &mut Dice) -> Result<Rc<Script>, Broken> {
        let mut stream = dice.tokens(session.vocab(), PROMPT);
        let lane = session.lane()?;
        let mut rows = vec![session.feed(lane, &stream, 0)?];
        for _ in 0..GREEDY {
            let token = best_token(&rows[rows.len() - 1])?;
            rows.push(session.feed(lane, &[token], narrow(stream.len()))?);
            stream.push(token);
        }
        worked(session.free(lane), "lane_free")?;
        Ok(Rc::new(Script { stream, prompt: PROMPT, rows }))
    }

    /// The row after the token at `at`, when one was recorded.
    fn row(&self, at: u32) -> Option<&[f32]> {
        self.rows.get(at.checked_sub(self.prompt - 1)? as usize).map(Vec::as_slice)
    }
}

/// A lane on its way through a script.
pub(super) struct Walker {
    pub(super) lane: u64,
    /// The lane's length.
    pub(super) at: u32,
    script: Rc<Script>,
    name: &'static str,
}

impl Walker {
    /// Starts after the prompt, in a new lane.
    pub(super) fn start(
        session: &mut Session,
        script: &Rc<Script>,
        name: &'static str,
    ) -> Result<Walker, Broken> {
        let lane = session.lane()?;
        let row = session.feed(lane, &script.stream[..script.prompt as usize], 0)?;
        session.closeness.judge(&script.rows[0], &row, &format!("the {name}'s prompt, fed again"))?;
        Ok(Walker { lane, at: script.prompt, script: Rc::clone(script), name })
    }

    /// Begins anew in a new lane.
    pub(super) fn restart(&mut self, session: &mut Session) -> Result<(), Broken> {
        worked(session.free(self.lane), &format!("lane_free of the {}", self.name))?;
        *self = Walker::start(session, &Rc::clone(&self.script), self.name)?;
        Ok(())
    }

    /// Begins anew when fewer than `more` tokens of the script are left.
    pub(super) fn stay_within(&mut self, session: &mut Session, more: u32) -> Result<(), Broken> {
        if (self.at + more) as usize > self.script.stream.len() {
            self.restart(session)?;
        }
        Ok(())
    }

    /// The next `len` tokens of the script.
    pub(super) fn next(&self, len: u32) -> Run<'_> {
        let from = self.at as usize;
        Run::last(self.lane, &self.script.stream[from..from + len as usize], self.at)
    }

    /// Takes note that the lane now has `pos` positions, after a step whose last row was `row`.
    pub(super) fn moved(&mut self, session: &Session, pos: u32, row: &[f32]) -> Result<(), Broken> {
        let what = format!("the {} at position {pos}", self.name);
        let want = pos.checked_sub(1).and_then(|at| self.script.row(at));
        ensure!(want.is_some(), "{what} is outside its script");
        session.closeness.judge(want.unwrap_or_default(), row, &what)?;
        self.at = pos;
        Ok(())
    }
}

/// Both walkers go one token on in one step; each must stand where an undisturbed lane would.
pub(super) fn stride(session: &mut Session, walkers: &mut [Walker]) -> Result<(), Broken> {
    for walker in walkers.iter_mut() {
        walker.stay_within(session, 1)?;
    }
    let step = session.step(&walkers.iter().map(|walker| walker.next(1)).collect::<Vec<_>>())?;
    for (i, walker) in walkers.iter_mut().enumerate() {
        let row = step.row(i)?;
        let pos = walker.at + 1;
        walker.moved(session, pos, row)?;
    }
    Ok(())
}

//! Memory of earlier answers, kept for the next: the lists of likeliest tokens, which most requests never ask for.

use sf_core::{StepOut, Token, limits};

/// Emptied `top` lists. Whoever fills a [`StepOut`] again and again takes them from here.
#[derive(Debug, Default)]
pub struct Rooms(Vec<Vec<(Token, f32)>>);

impl Rooms {
    /// Empties an answer and keeps the lists that its reader left in it.
    pub fn clear(&mut self, out: &mut StepOut) {
        for old in out.lanes.drain(..) {
            if let Ok(Some(sampled)) = old.result {
                self.keep(sampled.top);
            }
        }
        for old in out.scores.drain(..) {
            self.keep(old.sampled.top);
        }
        out.clear();
    }

    fn keep(&mut self, top: Vec<(Token, f32)>) {
        if top.capacity() > 0 && self.0.len() < (limits::LANES_MAX + limits::SCORES_MAX) as usize {
            self.0.push(top);
        }
    }

    /// A list, empty; it may have room already.
    pub fn take(&mut self) -> Vec<(Token, f32)> {
        let mut room = self.0.pop().unwrap_or_default();
        room.clear();
        room
    }
}

//! One request while it holds a lane: how far its prompt is fed and what it has drawn.

use sf_core::{LaneId, RequestId, SamplerSpec, Token};

use crate::scheduler::{Admission, Stop};

/// A running request.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    pub(crate) request: RequestId,
    /// The prompt, then what was drawn; the first `len` of them are in the engine.
    tokens: Vec<Token>,
    prompt_len: u32,
    /// Positions in the engine.
    pub(crate) len: u32,
    pub(crate) drawn: u32,
    sampler: SamplerSpec,
    stop: Stop,
    retried: bool,
    /// Fed in the step that is in flight.
    in_flight: u32,
    /// Done or given up; freed by the next plan.
    pub(crate) closing: bool,
}

/// What a drawn token means for its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    Continue,
    EndOfText,
    LastToken,
}

impl Lane {
    pub(crate) fn new(id: LaneId, admission: Admission) -> Self {
        Lane {
            id,
            request: admission.request,
            prompt_len: admission.prompt.len() as u32,
            tokens: admission.prompt,
            len: 0,
            drawn: 0,
            sampler: admission.sampler,
            stop: admission.stop,
            retried: admission.retried,
            in_flight: 0,
            closing: false,
        }
    }

    pub(crate) fn sampler(&self) -> &SamplerSpec {
        &self.sampler
    }

    pub(crate) fn is_decoding(&self) -> bool {
        !self.closing && self.drawn > 0
    }

    pub(crate) fn is_prefilling(&self) -> bool {
        !self.closing && self.drawn == 0
    }

    /// The request as it was admitted, if its client has seen nothing yet and this engine was its first.
    pub(crate) fn into_retry(mut self) -> Result<Admission, RequestId> {
        if self.drawn > 0 || self.retried {
            return Err(self.request);
        }
        self.tokens.truncate(self.prompt_len as usize);
        let (prompt, sampler, stop) = (self.tokens, self.sampler, self.stop);
        Ok(Admission { request: self.request, prompt, sampler, stop, retried: true })
    }

    /// Appends up to `most` tokens that are not in the engine yet to `plan`; returns how many, and whether they are
    /// the last known ones, so that the next token is to be drawn.
    pub(crate) fn feed(&mut self, most: u32, plan: &mut Vec<Token>) -> (u32, bool) {
        let pending = &self.tokens[self.len as usize..];
        let run = &pending[..pending.len().min(most as usize)];
        plan.extend_from_slice(run);
        self.in_flight = run.len() as u32;
        (self.in_flight, run.len() == pending.len())
    }

    /// The engine took `consumed` of the tokens in flight; the rest stays pending.
    pub(crate) fn consumed(&mut self, consumed: u32) {
        self.len += consumed.min(self.in_flight);
        self.in_flight = 0;
    }

    /// The engine drew `token` after everything pending was fed.
    pub(crate) fn draw(&mut self, token: Token) -> Drawn {
        self.drawn += 1;
        if self.stop.ends(token) {
            return Drawn::EndOfText;
        }
        // `len` positions are filled; feeding this token takes one more, and a further draw needs that position.
        if self.drawn >= self.stop.tokens_max || self.len >= self.stop.positions_max {
            return Drawn::LastToken;
        }
        self.tokens.push(token);
        Drawn::Continue
    }
}

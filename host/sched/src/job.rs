//! One request: its tokens, what it has drawn, and what follows it from queue to lane and back.

use std::sync::Arc;

use sf_core::{LaneSpec, Moment, QosClass, RequestId, SamplerSpec, Token, limits};

use crate::types::{Admission, Stop};

/// Drawn tokens for which a job's vectors make room at once; beyond that they grow by doubling.
const DRAWN_ROOM_MAX: usize = 8 << 10;

/// Engines that may die under a request before it is kept apart from others.
const SUSPECT_AFTER: u32 = 2;

/// A request, wherever it is.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: RequestId,
    /// The prompt, then what was drawn and not an end.
    pub(crate) tokens: Vec<Token>,
    pub(crate) prompt_len: u32,
    /// The last position of the prompt whose score was reported; the first has none.
    pub(crate) scored: u32,
    /// Tokens drawn, ends included.
    pub(crate) drawn: u32,
    sampler: SamplerSpec,
    stop: Stop,
    pub(crate) class: QosClass,
    pub(crate) party: u64,
    pub(crate) deadline: Option<Moment>,
    pub(crate) reuse: bool,
    pub(crate) pin: Option<std::time::Duration>,
    pub(crate) arrived: Moment,
    /// Order of arrival.
    pub(crate) seq: u64,
    /// `Started` was reported.
    pub(crate) started: bool,
    /// Prompt tokens that were there already when it started.
    pub(crate) cached: u32,
    /// Engines that died under it before it had proved harmless.
    pub(crate) engines_lost: u32,
    /// Tokens drawn on the present engine.
    fresh: u32,
    /// Its client is behind.
    pub(crate) held: bool,
}

/// What a drawn token means for its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    Continue,
    EndOfText,
    LastToken,
}

impl Job {
    pub(crate) fn new(admission: Admission, arrived: Moment, seq: u64) -> Job {
        Job {
            request: admission.request,
            prompt_len: admission.prompt.len() as u32,
            tokens: admission.prompt,
            scored: 0,
            drawn: 0,
            sampler: admission.sampler,
            stop: admission.stop,
            class: admission.class,
            party: admission.party,
            deadline: admission.deadline,
            reuse: admission.reuse,
            pin: admission.pin,
            arrived,
            seq,
            started: false,
            cached: 0,
            engines_lost: 0,
            fresh: 0,
            held: false,
        }
    }

    /// Tokens known so far.
    pub(crate) fn len(&self) -> u32 {
        self.tokens.len() as u32
    }

    pub(crate) fn spec(&self) -> LaneSpec {
        LaneSpec {
            sampler: SamplerSpec { scores_prompt: self.wants_scores(), ..self.sampler.clone() },
            ends: Arc::clone(&self.stop.end_tokens),
            prompt_len: self.prompt_len,
        }
    }

    /// Whether tokens of its prompt are still to be scored.
    pub(crate) fn wants_scores(&self) -> bool {
        self.sampler.scores_prompt && self.scored + 1 < self.prompt_len
    }

    /// Tokens that it may still draw when its lane holds `len` positions and nothing is pending.
    pub(crate) fn draws_left(&self, len: u32) -> u32 {
        let by_count = self.stop.tokens_max.saturating_sub(self.drawn);
        by_count.min(self.stop.positions_max.saturating_sub(len) + 1)
    }

    /// Tokens for which a vector that follows this job should have room, so that drawing does not allocate.
    pub(crate) fn room(&self) -> usize {
        let more = (self.draws_left(self.len()) as usize).min(DRAWN_ROOM_MAX);
        self.tokens.len() + more
    }

    pub(crate) fn reserve(&mut self) {
        self.tokens.reserve_exact(self.room() - self.tokens.len());
    }

    /// Takes a token drawn when the lane held `len` positions, all of this job's tokens.
    pub(crate) fn draw(&mut self, token: Token, len: u32) -> Drawn {
        self.drawn += 1;
        self.fresh = self.fresh.saturating_add(1);
        if self.is_proven() {
            self.engines_lost = 0;
        }
        if self.stop.ends(token) {
            return Drawn::EndOfText;
        }
        // Feeding this token takes one more position, and a further draw needs that position.
        if self.drawn >= self.stop.tokens_max || len >= self.stop.positions_max {
            return Drawn::LastToken;
        }
        self.tokens.push(token);
        Drawn::Continue
    }

    /// It has drawn so much on this engine that it is not what ends engines.
    pub(crate) fn is_proven(&self) -> bool {
        u64::from(self.fresh) >= limits::RESTART_TOKENS_MIN
    }

    /// Engines died under it, with others that may be to blame as well: it runs next to proven requests only.
    pub(crate) fn is_suspect(&self) -> bool {
        self.engines_lost >= SUSPECT_AFTER
    }

    /// Its engine is gone; true when it cannot be ruled out as the cause.
    pub(crate) fn lose_engine(&mut self) -> bool {
        let blamed = !self.is_proven();
        self.engines_lost += u32::from(blamed);
        self.fresh = 0;
        blamed
    }

    pub(crate) fn is_due(&self, now: Moment) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// Tokens at the beginning that two runs have in common.
pub(crate) fn common(a: &[Token], b: &[Token]) -> u32 {
    let len = a.len().min(b.len());
    // Whole blocks first: comparing slices is a memcmp.
    const BLOCK: usize = 64;
    let mut at = 0;
    while at + BLOCK <= len && a[at..at + BLOCK] == b[at..at + BLOCK] {
        at += BLOCK;
    }
    let rest = a[at..len].iter().zip(&b[at..len]).take_while(|(x, y)| x == y).count();
    (at + rest) as u32
}

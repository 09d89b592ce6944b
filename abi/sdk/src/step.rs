//! One step from the host's bytes to its outcome: the plan is checked as a whole, then lane by lane.
#![expect(unsafe_code, reason = "reads the caller's plan and writes its result")]

use sf_abi::*;

use crate::fault::{Code, Fault};
use crate::lanes::Lanes;
use crate::plan::{Feed, Rows};
use crate::runtime::Shape;
use crate::wire::{self, Span};

/// Buffers of the step in flight; reused, so that a step of a known size allocates nothing.
#[derive(Debug)]
pub(crate) struct StepState {
    pub(crate) feeds: Vec<Feed>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) outs: Vec<SfrLaneOut>,
    pub(crate) rows: Rows,
    pub(crate) rows_wanted: usize,
    out_rows: Vec<SfrRow>,
    seq: u64,
    ticket: u64,
    in_flight: bool,
    yielded: bool,
}

impl StepState {
    pub(crate) fn new() -> StepState {
        StepState {
            feeds: Vec::new(),
            tokens: Vec::new(),
            outs: Vec::new(),
            rows: Rows::new(),
            rows_wanted: 0,
            out_rows: Vec::new(),
            seq: 0,
            ticket: 0,
            in_flight: false,
            yielded: false,
        }
    }

    pub(crate) fn idle(&self) -> Result<(), Fault> {
        if self.in_flight {
            return Err(Fault::new(Code::State, "a step is in flight"));
        }
        Ok(())
    }

    /// Copies and checks the plan. Tokens and records are copied because the arena may be shared with a process that
    /// can still write to it.
    ///
    /// # Safety
    /// `plan` came from [`wire::read`] and its arena is readable.
    pub(crate) unsafe fn load(
        &mut self,
        plan: &SfrPlan,
        lanes: &mut Lanes,
        shape: Shape,
    ) -> Result<(), Fault> {
        check_head(plan)?;
        let arena = (plan.arena, plan.arena_len);
        let feeds = Span::in_arena::<SfrFeed>(arena.0, arena.1, plan.feeds, "feeds")?;
        let tokens = Span::in_arena::<u32>(arena.0, arena.1, plan.tokens, "tokens")?;
        if plan.tokens.count > 0 && plan.tokens.stride != 4 {
            return Err(Fault::layout("tokens", format_args!("a stride of {}, not 4", plan.tokens.stride)));
        }
        self.feeds.clear();
        self.outs.clear();
        self.tokens.clear();
        self.rows.forget();
        self.rows_wanted = 0;
        self.seq = plan.seq;
        self.ticket += 1;
        // SAFETY: the span was checked against the arena, which the caller promises.
        unsafe { tokens.append_words(&mut self.tokens) };
        for i in 0..feeds.count {
            // SAFETY: as above; `i` is below the count.
            let record = unsafe { feeds.get::<SfrFeed>(i, "feeds") }?;
            check_record(i, &record, self.tokens.len())?;
            self.admit(i, &record, lanes, shape)?;
        }
        Ok(())
    }

    /// A feed with a fault of its lane gets its status here and is not shown to the model.
    fn admit(&mut self, record: usize, feed: &SfrFeed, lanes: &mut Lanes, shape: Shape) -> Result<(), Fault> {
        let mut out = SfrLaneOut { lane: feed.lane, consumed: feed.token_len, ..SfrLaneOut::default() };
        match lanes.find(feed.lane) {
            Err(fault) => (out.status, out.consumed) = (fault.code() as i32, 0),
            Ok((lane, len)) => {
                if !lanes.stamp(lane, self.ticket) {
                    return Err(Fault::new(
                        Code::Arg,
                        format!("lane {} is fed twice in one plan", feed.lane),
                    )
                    .field("lane"));
                }
                out.pos = len;
                let tokens = feed.token_off as usize..(feed.token_off + feed.token_len) as usize;
                out.status = if feed.pos0 != len {
                    SFR_E_STATE
                } else if feed.token_len > shape.lane_tokens_max.saturating_sub(len) {
                    SFR_E_CAPACITY
                } else if self.tokens[tokens.clone()].iter().any(|&token| token >= shape.vocab) {
                    SFR_E_ARG
                } else {
                    SFR_OK
                };
                if out.status == SFR_OK {
                    let rows = feed.row_off as usize..(feed.row_off + feed.row_len) as usize;
                    let first_row = self.rows_wanted;
                    self.rows_wanted += rows.len();
                    self.feeds.push(Feed { lane, pos0: len, tokens, rows, first_row, record });
                } else {
                    out.consumed = 0;
                }
            }
        }
        self.outs.push(out);
        Ok(())
    }

    /// Turns what the model wrote into the result's records; returns the tokens consumed.
    pub(crate) fn finish(&mut self, lanes: &mut Lanes) -> Result<u64, Fault> {
        self.out_rows.clear();
        self.yielded = false;
        let mut fed = 0;
        for feed in &self.feeds {
            let out = &mut self.outs[feed.record];
            out.pos = feed.pos0 + out.consumed;
            out.row_off = self.out_rows.len() as u32;
            self.yielded |= out.status == SFR_OK && (out.consumed as usize) < feed.len();
            fed += u64::from(out.consumed);
            lanes.set_len(feed.lane, out.pos);
            if out.status != SFR_OK {
                continue;
            }
            for row in feed.rows().take_while(|row| row.in_run < out.consumed as usize) {
                self.out_rows.push(SfrRow {
                    lane: feed.lane.id(),
                    pos: feed.pos0 + row.in_run as u32,
                    logits_row: row.number as u32,
                    token: SFR_NONE,
                    logprob: 0.0,
                });
            }
            out.row_len = self.out_rows.len() as u32 - out.row_off;
        }
        if !self.out_rows.is_empty() && self.rows.at.is_null() {
            return Err(Fault::new(Code::Internal, "the model wrote no logits").scope(crate::Scope::Model));
        }
        self.in_flight = true;
        Ok(fed)
    }

    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Writes the result of the step in flight; on `SmallBuffer` it stays in flight.
    ///
    /// # Safety
    /// `result` follows the header.
    pub(crate) unsafe fn end(
        &mut self,
        ticket: u64,
        result: *mut SfrResult,
        vocab: u32,
    ) -> Result<(), Fault> {
        if !self.in_flight || ticket != self.ticket {
            return Err(Fault::new(Code::State, format!("no step {ticket} is in flight")).field("ticket"));
        }
        // SAFETY: the caller's promise.
        unsafe { wire::check_out(result, "result") }?;
        // SAFETY: the size was just checked.
        let mut answer = unsafe { result.read() };
        let lane_bytes = size_of_val(self.outs.as_slice());
        let row_bytes = size_of_val(self.out_rows.as_slice());
        answer.arena_used = (lane_bytes + row_bytes) as u64;
        if !answer.arena.addr().is_multiple_of(8) {
            return Err(Fault::layout("arena", "not aligned to 8"));
        }
        let small = answer.arena_len < answer.arena_used || (answer.arena.is_null() && answer.arena_used > 0);
        if !small {
            self.describe(&mut answer, lane_bytes, vocab);
        }
        // SAFETY: checked above, and the result is the caller's for this call.
        unsafe { wire::write(result, &answer) };
        if small {
            return Err(Fault::new(
                Code::SmallBuffer,
                format!("{} bytes needed, the arena has {}", answer.arena_used, answer.arena_len),
            )
            .field("arena"));
        }
        let arena = answer.arena.cast::<u8>();
        if lane_bytes > 0 {
            // SAFETY: the arena has room for both arrays and is not our memory.
            unsafe { core::ptr::copy_nonoverlapping(self.outs.as_ptr().cast::<u8>(), arena, lane_bytes) };
        }
        if row_bytes > 0 {
            let at = arena.wrapping_add(lane_bytes);
            // SAFETY: as above.
            unsafe { core::ptr::copy_nonoverlapping(self.out_rows.as_ptr().cast::<u8>(), at, row_bytes) };
        }
        self.in_flight = false;
        Ok(())
    }

    fn describe(&self, answer: &mut SfrResult, lane_bytes: usize, vocab: u32) {
        answer.flags = if self.yielded { SFR_RESULT_YIELDED } else { 0 };
        answer.seq = self.seq;
        answer.lanes = array(0, self.outs.len(), size_of::<SfrLaneOut>());
        answer.rows = array(lane_bytes, self.out_rows.len(), size_of::<SfrRow>());
        answer.logits = self.rows.at.cast();
        answer.logits_rows = if self.rows.at.is_null() { 0 } else { self.rows_wanted as u64 };
        answer.logits_stride = self.rows.stride_bytes as u32;
        answer.logits_dtype = SFR_DTYPE_F32;
        answer.vocab = vocab;
        answer.reserved0 = 0;
        answer.device_ns = self.rows.device_ns;
    }
}

fn array(at: usize, count: usize, stride: usize) -> SfrArray {
    SfrArray { at: at as u64, count: count as u32, stride: stride as u32 }
}

fn check_head(plan: &SfrPlan) -> Result<(), Fault> {
    if plan.flags != 0 {
        return Err(Fault::newer("flags", format_args!("unknown bits {:#x}", plan.flags)));
    }
    let optional = [
        ("samplers", plan.samplers),
        ("adapters", plan.adapters),
        ("media", plan.media),
        ("trees", plan.trees),
    ];
    for (name, array) in optional {
        if array.count != 0 {
            return Err(Fault::newer(name, "this runtime does not offer the interface"));
        }
    }
    Ok(())
}

fn check_record(i: usize, feed: &SfrFeed, tokens: usize) -> Result<(), Fault> {
    let plain = [feed.sampler, feed.adapter, feed.tree].iter().all(|&index| index == SFR_NONE);
    if feed.flags != 0 || feed.reserved0 != 0 || !plain || feed.media_len != 0 {
        return Err(Fault::newer("feeds", format_args!("feed {i} asks for more than plain tokens")));
    }
    let end = feed.token_off.checked_add(feed.token_len);
    if feed.token_len == 0 || end.is_none_or(|end| end as usize > tokens) {
        let (off, len) = (feed.token_off, feed.token_len);
        return Err(Fault::layout(
            "token_off",
            format_args!("feed {i}: {len} tokens from {off} on, the plan has {tokens}"),
        ));
    }
    if feed.row_off.checked_add(feed.row_len).is_none_or(|end| end > feed.token_len) {
        let (off, len) = (feed.row_off, feed.row_len);
        return Err(Fault::layout(
            "row_off",
            format_args!("feed {i}: {len} rows from {off} on in a run of {}", feed.token_len),
        ));
    }
    Ok(())
}

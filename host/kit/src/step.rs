//! One ragged batch: the plan's arena on the way in, the checked result on the way out.
#![expect(unsafe_code, reason = "reads logits rows in the runtime's memory")]

use std::ops::Range;

use sf_abi::{
    SFR_DTYPE_BF16, SFR_DTYPE_F16, SFR_DTYPE_F32, SFR_NONE, SFR_RESULT_YIELDED, SfrArray, SfrControl,
    SfrFeed, SfrLaneOut, SfrPlan, SfrResult, SfrRow,
};
use sf_core::Token;

use crate::error::KitError;
use crate::model::RuntimeLane;
use crate::records::{CALL, check_lane, check_rows, feed_words, lane_out, pack, row, span};
use crate::sampler::Logits;

const FEED_BYTES: u64 = size_of::<SfrFeed>() as u64;
const LANE_BYTES: u32 = size_of::<SfrLaneOut>() as u32;
const ROW_BYTES: u32 = size_of::<SfrRow>() as u32;

/// A batch being built and then its answer; its memory is reused from step to step.
#[derive(Debug, Default)]
pub struct StepBuffer {
    feeds: Vec<SfrFeed>,
    tokens: Vec<u32>,
    /// The plan's arena: feeds, then tokens. Words, so that it is aligned to 8.
    plan: Vec<u64>,
    /// The result's arena.
    answer: Vec<u64>,
    lanes: Vec<SfrLaneOut>,
    rows: Vec<SfrRow>,
    seq: u64,
}

impl StepBuffer {
    /// Empties the batch and keeps the memory.
    pub fn clear(&mut self) {
        self.feeds.clear();
        self.tokens.clear();
        self.seq = 0;
    }

    /// Feeds in the batch.
    pub fn len(&self) -> usize {
        self.feeds.len()
    }

    /// Whether nothing is fed.
    pub fn is_empty(&self) -> bool {
        self.feeds.is_empty()
    }

    /// Adds one lane's run, which begins at position `pos0`; `rows` are the positions within the run that want logits.
    pub fn push(&mut self, lane: RuntimeLane, run: &[Token], pos0: u32, rows: Range<u32>) {
        self.feeds.push(SfrFeed {
            lane: lane.0,
            token_off: self.tokens.len() as u32,
            token_len: run.len() as u32,
            pos0,
            flags: 0,
            row_off: rows.start,
            row_len: rows.end.saturating_sub(rows.start),
            sampler: SFR_NONE,
            adapter: SFR_NONE,
            media_off: 0,
            media_len: 0,
            tree: SFR_NONE,
            reserved0: 0,
        });
        self.tokens.extend(run.iter().map(|token| token.0));
    }

    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Writes the arena and returns the plan that points into it.
    pub(crate) fn seal(&mut self, seq: u64, control: *const SfrControl) -> SfrPlan {
        self.seq = seq;
        self.plan.clear();
        for feed in &self.feeds {
            self.plan.extend(feed_words(feed));
        }
        let pairs = self.tokens.chunks(2);
        self.plan.extend(pairs.map(|pair| pack(pair[0], pair.get(1).copied().unwrap_or(0))));
        let feeds = SfrArray { at: 0, count: self.feeds.len() as u32, stride: FEED_BYTES as u32 };
        let tokens_at = FEED_BYTES * self.feeds.len() as u64;
        let tokens = SfrArray { at: tokens_at, count: self.tokens.len() as u32, stride: 4 };
        SfrPlan {
            struct_size: size_of::<SfrPlan>() as u32,
            flags: 0,
            seq,
            deadline_ns: 0,
            arena: self.plan.as_ptr().cast(),
            arena_len: (self.plan.len() * 8) as u64,
            feeds,
            tokens,
            samplers: SfrArray::default(),
            adapters: SfrArray::default(),
            media: SfrArray::default(),
            trees: SfrArray::default(),
            control,
        }
    }

    /// The result's arena, zeroed, with room for what a runtime of our version writes.
    pub(crate) fn answer_room(&mut self) -> &mut Vec<u64> {
        let rows: usize = self.feeds.iter().map(|feed| feed.row_len.min(feed.token_len) as usize).sum();
        let bytes = self.feeds.len() * LANE_BYTES as usize + rows * ROW_BYTES as usize + 64;
        let words = bytes.div_ceil(8).max(self.answer.len().min(1024));
        // Zeroes, so that nothing of an earlier step passes for an answer.
        self.answer.clear();
        self.answer.resize(words, 0);
        &mut self.answer
    }

    /// Checks an answer and lends it.
    ///
    /// # Safety
    /// `result` is what step_end answered for this buffer's plan, and its logits stay valid for `'m`.
    pub(crate) unsafe fn read<'m>(
        &'m mut self,
        result: &SfrResult,
        vocab: u32,
    ) -> Result<StepView<'m>, KitError> {
        self.head(result)?;
        let used = result.arena_used as usize;
        let lanes_at = span(&result.lanes, "lanes", LANE_BYTES, used)?;
        let rows_at = span(&result.rows, "rows", ROW_BYTES, used)?;
        if lanes_at.count != self.feeds.len() {
            let reason = format!("{} lanes for {} feeds", lanes_at.count, self.feeds.len());
            return Err(KitError::contract(CALL, reason));
        }
        self.lanes.clear();
        self.lanes.extend((0..lanes_at.count).map(|i| lane_out(&self.answer, lanes_at.record(i))));
        self.rows.clear();
        self.rows.extend((0..rows_at.count).map(|i| row(&self.answer, rows_at.record(i))));
        let yielded = result.flags & SFR_RESULT_YIELDED != 0;
        let logits = LogitsBlock::check(result, !self.rows.is_empty(), vocab)?;
        let mut rows_told = 0;
        for (feed, lane) in self.feeds.iter().zip(&self.lanes) {
            check_lane(feed, lane, yielded)?;
            let rows = check_rows(feed, lane, &self.rows, logits.rows)?;
            rows_told += rows;
        }
        if rows_told != self.rows.len() {
            let reason = format!("{} rows, of which its lanes name {rows_told}", self.rows.len());
            return Err(KitError::contract(CALL, reason));
        }
        Ok(StepView {
            feeds: &self.feeds,
            tokens: &self.tokens,
            lanes: &self.lanes,
            rows: &self.rows,
            logits,
            yielded,
            device_ns: result.device_ns,
        })
    }

    fn head(&self, result: &SfrResult) -> Result<(), KitError> {
        let broken = |reason: String| Err(KitError::contract(CALL, reason));
        if result.struct_size as usize != size_of::<SfrResult>() {
            return broken(format!("it changed struct_size to {}", result.struct_size));
        }
        if result.seq != self.seq {
            return broken(format!("seq is {}, the plan's was {}", result.seq, self.seq));
        }
        if result.flags & !SFR_RESULT_YIELDED != 0 {
            return broken(format!("unknown bits in flags {:#x}", result.flags));
        }
        let room = (self.answer.len() * 8) as u64;
        if result.arena_len != room || result.arena.cast_const() != self.answer.as_ptr().cast() {
            return broken("it replaced the arena".to_owned());
        }
        if result.arena_used > room {
            return broken(format!("arena_used is {}, the arena has {room} bytes", result.arena_used));
        }
        Ok(())
    }
}

/// A step's answer, checked. Lives as long as its logits do.
#[derive(Debug)]
pub struct StepView<'m> {
    feeds: &'m [SfrFeed],
    tokens: &'m [u32],
    lanes: &'m [SfrLaneOut],
    rows: &'m [SfrRow],
    logits: LogitsBlock,
    yielded: bool,
    device_ns: u64,
}

impl StepView<'_> {
    /// One per feed, in the plan's order.
    pub fn lanes(&self) -> &[SfrLaneOut] {
        self.lanes
    }

    /// Rows of the `feed`-th feed; their `logits_row` goes into [`StepView::logits`].
    ///
    /// # Panics
    /// When `feed` is not a feed of the plan.
    pub fn rows(&self, feed: usize) -> &[SfrRow] {
        let lane = &self.lanes[feed];
        &self.rows[lane.row_off as usize..][..lane.row_len as usize]
    }

    /// The run of the `feed`-th feed.
    ///
    /// # Panics
    /// When `feed` is not a feed of the plan.
    pub fn run(&self, feed: usize) -> &[u32] {
        let feed = &self.feeds[feed];
        &self.tokens[feed.token_off as usize..][..feed.token_len as usize]
    }

    /// The logits of a row: one per token of the vocabulary.
    pub fn logits(&self, row: &SfrRow) -> Logits<'_> {
        self.logits.row(row.logits_row)
    }

    /// Whether the step ended early.
    pub fn yielded(&self) -> bool {
        self.yielded
    }

    /// Time in kernels as the runtime measured it, nanoseconds; 0 = not measured.
    pub fn device_ns(&self) -> u64 {
        self.device_ns
    }
}

/// Logits in the runtime's memory: `rows` rows of `vocab` values, `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
struct LogitsBlock {
    base: *const u8,
    rows: u64,
    stride: usize,
    dtype: u32,
    vocab: usize,
}

impl LogitsBlock {
    const NONE: LogitsBlock =
        LogitsBlock { base: std::ptr::null(), rows: 0, stride: 0, dtype: SFR_DTYPE_F32, vocab: 0 };

    /// Refuses a block that could not be read whole.
    fn check(result: &SfrResult, wanted: bool, vocab: u32) -> Result<LogitsBlock, KitError> {
        if !wanted {
            return Ok(LogitsBlock::NONE);
        }
        let broken = |reason: String| Err(KitError::contract(CALL, reason));
        let size = match result.logits_dtype {
            SFR_DTYPE_F32 => 4_usize,
            SFR_DTYPE_F16 | SFR_DTYPE_BF16 => 2,
            other => return broken(format!("logits_dtype is {other}")),
        };
        let stride = result.logits_stride as usize;
        if result.logits.is_null() || !result.logits.addr().is_multiple_of(size) {
            return broken(format!("logits stand at {:p}", result.logits));
        }
        if result.vocab == 0 || (vocab != 0 && result.vocab != vocab) {
            return broken(format!("a row has {} logits, the vocabulary {vocab}", result.vocab));
        }
        if !stride.is_multiple_of(size) || stride < result.vocab as usize * size {
            return broken(format!("logits_stride is {stride} for {} logits of {size} bytes", result.vocab));
        }
        let fits =
            (stride as u64).checked_mul(result.logits_rows).is_some_and(|bytes| bytes <= isize::MAX as u64);
        if result.logits_rows == 0 || !fits {
            return broken(format!("logits_rows is {} at a stride of {stride}", result.logits_rows));
        }
        Ok(LogitsBlock {
            base: result.logits.cast(),
            rows: result.logits_rows,
            stride,
            dtype: result.logits_dtype,
            vocab: result.vocab as usize,
        })
    }

    fn row(&self, row: u32) -> Logits<'_> {
        if u64::from(row) >= self.rows {
            return Logits::F32(&[]);
        }
        // SAFETY: the header: logits are [logits_rows, vocab] at logits_stride; `row` is below logits_rows and the
        // whole block is within isize::MAX.
        let at = unsafe { self.base.add(row as usize * self.stride) };
        match self.dtype {
            SFR_DTYPE_F32 => {
                // SAFETY: `vocab` values of 4 bytes stand at `at`, whose base and stride are multiples of 4.
                Logits::F32(unsafe { std::slice::from_raw_parts(at.cast(), self.vocab) })
            }
            SFR_DTYPE_F16 => {
                // SAFETY: `vocab` values of 2 bytes stand at `at`, whose base and stride are multiples of 2.
                Logits::F16(unsafe { std::slice::from_raw_parts(at.cast(), self.vocab) })
            }
            _ => {
                // SAFETY: `vocab` values of 2 bytes stand at `at`, whose base and stride are multiples of 2.
                Logits::Bf16(unsafe { std::slice::from_raw_parts(at.cast(), self.vocab) })
            }
        }
    }
}

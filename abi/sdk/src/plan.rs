//! A checked step as the model sees it, and the writer for its outcome.
#![expect(unsafe_code, reason = "rows may stay in the engine's own memory")]

use core::ops::Range;

use sf_abi::*;

use crate::fault::Fault;
use crate::lanes::Lane;
use crate::open::Control;

/// One lane's run of tokens.
#[derive(Clone, Debug)]
pub struct Feed {
    pub(crate) lane: Lane,
    pub(crate) pos0: u32,
    pub(crate) tokens: Range<usize>,
    pub(crate) rows: Range<usize>,
    pub(crate) first_row: usize,
    /// Index of the feed's record in the host's plan.
    pub(crate) record: usize,
}

/// One wanted position of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Index into the feed's run.
    pub in_run: usize,
    /// Number of the row in the step: 0, 1, ... over all feeds in order.
    pub number: usize,
}

impl Feed {
    /// The lane.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// The lane's length before this run.
    pub fn pos0(&self) -> u32 {
        self.pos0
    }

    /// Tokens in the run; never 0.
    #[allow(clippy::len_without_is_empty, reason = "a run is never empty")]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The positions that want logits, in order.
    pub fn rows(&self) -> impl Iterator<Item = Row> + use<> {
        let first = self.first_row;
        self.rows.clone().enumerate().map(move |(i, in_run)| Row { in_run, number: first + i })
    }

    /// Whether position `in_run` of the run wants logits.
    pub fn wants_row(&self, in_run: usize) -> bool {
        self.rows.contains(&in_run)
    }
}

/// A ragged batch. Only feeds that are free of faults are in it.
#[derive(Debug)]
pub struct Plan<'a> {
    pub(crate) feeds: &'a [Feed],
    pub(crate) tokens: &'a [u32],
    pub(crate) rows: usize,
    pub(crate) deadline_ns: u64,
    pub(crate) control: Control,
}

impl<'a> Plan<'a> {
    /// The feeds, in the host's order.
    pub fn feeds(&self) -> &'a [Feed] {
        self.feeds
    }

    /// The tokens of a feed.
    pub fn tokens(&self, feed: &Feed) -> &'a [u32] {
        &self.tokens[feed.tokens.clone()]
    }

    /// Tokens of all feeds together.
    pub fn tokens_total(&self) -> usize {
        self.feeds.iter().map(Feed::len).sum()
    }

    /// Wanted rows of all feeds together.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Soft deadline on the host's clock, 0 = none.
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Asks whether the step should end early.
    pub fn control(&self) -> &Control {
        &self.control
    }
}

/// Where the rows of the last step are.
#[derive(Debug)]
pub(crate) struct Rows {
    /// The SDK's own buffer, [rows, vocab].
    own: Vec<f32>,
    pub(crate) at: *const f32,
    pub(crate) stride_bytes: usize,
    pub(crate) device_ns: u64,
}

impl Rows {
    pub(crate) fn new() -> Rows {
        Rows { own: Vec::new(), at: core::ptr::null(), stride_bytes: 0, device_ns: 0 }
    }

    pub(crate) fn forget(&mut self) {
        self.at = core::ptr::null();
        self.stride_bytes = 0;
        self.device_ns = 0;
    }
}

/// Takes a step's outcome. A feed of which nothing is said was consumed whole.
#[derive(Debug)]
pub struct StepWriter<'a> {
    pub(crate) outs: &'a mut [SfrLaneOut],
    pub(crate) rows: &'a mut Rows,
    pub(crate) rows_wanted: usize,
    pub(crate) vocab: usize,
}

impl StepWriter<'_> {
    /// The lane could not be served and is as it was before the step.
    pub fn fault(&mut self, feed: &Feed, fault: &Fault) {
        let out = &mut self.outs[feed.record];
        out.status = fault.code() as i32;
        out.native_code = fault.native_code().cast_unsigned();
        out.consumed = 0;
    }

    /// Only the first `tokens` of the run are in the lane now, after a yield.
    pub fn consumed(&mut self, feed: &Feed, tokens: usize) {
        let tokens = tokens.min(feed.len());
        self.outs[feed.record].consumed = u32::try_from(tokens).expect("a run's length came as u32");
    }

    /// Tokens of the run that will be in the lane: all of them unless something else was said.
    pub fn consumed_of(&self, feed: &Feed) -> u32 {
        self.outs[feed.record].consumed
    }

    /// Time on the device or in kernels.
    pub fn device_ns(&mut self, ns: u64) {
        self.rows.device_ns = ns;
    }

    /// Row `number` of a buffer that the SDK owns, `[vocab]`, zeroed. Not to be mixed with [`StepWriter::rows_at`].
    pub fn row(&mut self, number: usize) -> &mut [f32] {
        if self.rows.stride_bytes == 0 {
            self.rows.own.clear();
            self.rows.own.resize(self.rows_wanted * self.vocab, 0.0);
            self.rows.at = self.rows.own.as_ptr();
            self.rows.stride_bytes = self.vocab * size_of::<f32>();
        }
        &mut self.rows.own[number * self.vocab..][..self.vocab]
    }

    /// The rows stand in the engine's memory: row `n` at `at + n * stride_bytes`.
    ///
    /// # Safety
    /// All wanted rows of the step are readable there and stay so, unchanged, until the model's next `step` or its
    /// drop, whatever other methods are called in between.
    pub unsafe fn rows_at(&mut self, at: *const f32, stride_bytes: usize) {
        self.rows.at = at;
        self.rows.stride_bytes = stride_bytes;
    }
}

//! Steps of a session: laid out, run, and every answer held against the plan.
#![expect(unsafe_code, reason = "calls the engine's table and reads logits")]

use core::{ptr, slice};

use sf_abi::{
    SFR_DTYPE_BF16, SFR_DTYPE_F16, SFR_DTYPE_F32, SFR_E_SMALL_BUFFER, SFR_NONE, SFR_OK, SfrArray, SfrFeed,
    SfrLaneOut, SfrResult, SfrRow,
};

use super::Session;
use crate::journal::{Broken, broken, ensure};
use crate::memory::{Guarded, record_at};
use crate::plan::{Draft, Laid, Run};
use crate::raw::{Refusal, call, code_name, size_u32, worked};

/// Largest arena a result may ask for, bytes.
const ARENA_MAX: u64 = 16 << 20;
/// What the arena of a plan is overwritten with once step_begin returned.
const SCRIBBLE: u8 = 0xA5;

/// A step that began.
#[derive(Clone)]
pub(crate) struct Flight {
    pub(crate) ticket: u64,
    seq: u64,
    feeds: Vec<SfrFeed>,
}

/// A step's answer in the result's own bytes.
pub(crate) struct Landed {
    pub(crate) result: SfrResult,
    arena: Guarded,
}

/// One wanted position and its logits.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) pos: u32,
    pub(crate) logits: Vec<f32>,
}

/// A step's answer, checked against the plan.
pub(crate) struct Step {
    pub(crate) lanes: Vec<SfrLaneOut>,
    rows: Vec<Row>,
}

impl Step {
    /// The rows of the i-th feed, whatever its status.
    pub(crate) fn rows_of(&self, i: usize) -> &[Row] {
        let SfrLaneOut { row_off, row_len, .. } = self.lanes[i];
        let from = row_off as usize;
        self.rows.get(from..from + row_len as usize).unwrap_or_default()
    }

    /// The rows of the i-th feed, which must have been served in full.
    pub(crate) fn served(&self, i: usize) -> Result<&[Row], Broken> {
        let status = self.lanes[i].status;
        ensure!(status == SFR_OK, "feed {i} of an honest plan got {}", code_name(status));
        Ok(self.rows_of(i))
    }

    /// The only row of the i-th feed.
    pub(crate) fn row(&self, i: usize) -> Result<&[f32], Broken> {
        let rows = self.served(i)?;
        rows.first().map(|row| row.logits.as_slice()).ok_or_else(|| broken!("feed {i} got no row"))
    }
}

impl Session {
    /// `step_begin` with a plan of any kind, whose memory is overwritten afterwards: it may die when the call returns.
    pub(crate) fn begin(&mut self, laid: &mut Laid) -> Result<Flight, Refusal> {
        let begin = self.engine.step_begin.expect("checked when the table was read");
        let feeds = laid.feeds();
        let seq = self.steps + 1;
        laid.plan.seq = seq;
        let mut plan = Guarded::holding(&laid.plan, &laid.tail);
        let mut ticket = u64::MAX;
        // SAFETY: plan and arena hold at least the bytes they declare; the output and the record are live.
        let begun = call(|err| unsafe { begin(self.model, plan.as_ptr().cast(), &raw mut ticket, err) });
        plan.bytes_mut().fill(SCRIBBLE);
        laid.arena.bytes_mut().fill(SCRIBBLE);
        begun?;
        self.steps = seq;
        Ok(Flight { ticket, seq, feeds })
    }

    /// `step_end` with an arena of that size and a result that `edit` may spoil. A refusal comes with `arena_used`.
    pub(crate) fn end(
        &mut self,
        flight: &Flight,
        arena_len: usize,
        edit: impl FnOnce(&mut SfrResult),
    ) -> Result<Landed, (Refusal, u64)> {
        let end = self.engine.step_end.expect("checked when the table was read");
        let arena = Guarded::zeroed(arena_len);
        let mut result = blank_result();
        result.arena = arena.as_ptr().cast();
        result.arena_len = arena_len as u64;
        edit(&mut result);
        let out = Guarded::holding(&result, &[]);
        // SAFETY: result and arena hold the bytes they declare; the record is live.
        let ended = call(|err| unsafe { end(self.model, flight.ticket, out.as_ptr().cast(), err) });
        let result: SfrResult = out.record();
        match ended {
            Ok(()) => Ok(Landed { result, arena }),
            Err(refusal) => Err((refusal, result.arena_used)),
        }
    }

    /// Ends the step with room enough and checks the answer against the plan.
    pub(crate) fn finish(&mut self, flight: &Flight) -> Result<Step, Broken> {
        let landed = self.land(flight)?;
        self.settle(flight, &landed)
    }

    /// Ends the step with room enough.
    pub(crate) fn land(&mut self, flight: &Flight) -> Result<Landed, Broken> {
        let rows: usize = flight.feeds.iter().map(|feed| feed.row_len.min(1 << 16) as usize).sum();
        let ample = flight.feeds.len() * size_of::<SfrLaneOut>() + rows * size_of::<SfrRow>() + 64;
        match self.end(flight, ample, |_| {}) {
            Ok(landed) => Ok(landed),
            Err((refusal, more)) => {
                let retry = refusal.code == SFR_E_SMALL_BUFFER && more > ample as u64 && more <= ARENA_MAX;
                ensure!(retry, "step_end failed: {refusal}, arena_used {more} of {ample}");
                let again = self.end(flight, usize::try_from(more).unwrap_or(ample), |_| {});
                again
                    .map_err(|(refusal, _)| broken!("step_end with the arena it asked for failed: {refusal}"))
            }
        }
    }

    /// An honest step.
    pub(crate) fn step(&mut self, runs: &[Run<'_>]) -> Result<Step, Broken> {
        let begun = self.begin(&mut Draft::of(runs).lay());
        let flight = worked(begun, "step_begin of an honest plan")?;
        self.finish(&flight)
    }

    /// The last row of one run that must be served.
    pub(crate) fn feed(&mut self, lane: u64, tokens: &[u32], pos0: u32) -> Result<Vec<f32>, Broken> {
        Ok(self.step(&[Run::last(lane, tokens, pos0)])?.row(0)?.to_vec())
    }

    /// The last row of a prompt in a fresh lane that is freed afterwards.
    pub(crate) fn alone(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Broken> {
        let lane = self.lane()?;
        let row = self.feed(lane, tokens, 0)?;
        worked(self.free(lane), "lane_free")?;
        Ok(row)
    }

    /// Reads the answer and holds it against the plan.
    pub(crate) fn settle(&self, flight: &Flight, landed: &Landed) -> Result<Step, Broken> {
        let result = &landed.result;
        ensure!(result.struct_size == size_u32::<SfrResult>(), "step_end changed result.struct_size");
        ensure!(result.flags == 0, "result.flags is {:#x} though nobody asked to yield", result.flags);
        ensure!(result.seq == flight.seq, "result.seq is {} instead of {}", result.seq, flight.seq);
        let used = result.arena_used;
        ensure!(used <= landed.arena.len() as u64, "arena_used is {used} of {}", landed.arena.len());
        let lanes: Vec<SfrLaneOut> = landed.records(result.lanes, "result.lanes")?;
        ensure!(lanes.len() == flight.feeds.len(), "{} lanes for {} feeds", lanes.len(), flight.feeds.len());
        let records: Vec<SfrRow> = landed.records(result.rows, "result.rows")?;
        let mut next_row = 0;
        for (feed, out) in flight.feeds.iter().zip(&lanes) {
            check_lane(feed, out)?;
            if out.row_len > 0 {
                ensure!(out.row_off == next_row, "lane_out.row_off is {} instead of {next_row}", out.row_off);
                next_row += out.row_len;
            }
            check_rows(feed, out, &records)?;
        }
        ensure!(records.len() == next_row as usize, "{} rows for {next_row} wanted ones", records.len());
        let rows = self.read_rows(result, &records)?;
        Ok(Step { lanes, rows })
    }

    fn read_rows(&self, result: &SfrResult, records: &[SfrRow]) -> Result<Vec<Row>, Broken> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let vocab = self.vocab();
        ensure!(result.vocab == vocab, "result.vocab is {}, describe().model.vocab {vocab}", result.vocab);
        let width = match result.logits_dtype {
            SFR_DTYPE_F32 => 4,
            SFR_DTYPE_F16 | SFR_DTYPE_BF16 => 2,
            other => return Err(broken!("logits_dtype is {other}")),
        };
        let stride = result.logits_stride;
        ensure!(!result.logits.is_null(), "rows without logits");
        ensure!(stride >= vocab * width && stride.is_multiple_of(width), "logits_stride is {stride}");
        ensure!(result.logits.addr().is_multiple_of(width as usize), "logits are misaligned");
        records
            .iter()
            .map(|row| {
                let at = u64::from(row.logits_row);
                ensure!(at < result.logits_rows, "logits_row {at} of {}", result.logits_rows);
                let skip = at as usize * stride as usize;
                let from = result.logits.cast::<u8>().wrapping_add(skip);
                // SAFETY: the result says that `logits_rows` rows of `stride` bytes stand there until the next step.
                let bytes = unsafe { slice::from_raw_parts(from, (vocab * width) as usize) };
                let logits = widen(bytes, result.logits_dtype);
                let odd = logits.iter().position(|value| !value.is_finite());
                ensure!(odd.is_none(), "the logit of token {odd:?} at position {} is not finite", row.pos);
                Ok(Row { pos: row.pos, logits })
            })
            .collect()
    }
}

impl Landed {
    fn records<T: crate::memory::Plain>(&self, array: SfrArray, what: &str) -> Result<Vec<T>, Broken> {
        let SfrArray { at, count, stride } = array;
        if count == 0 {
            return Ok(Vec::new());
        }
        ensure!(stride >= size_u32::<T>() && stride.is_multiple_of(4), "{what}.stride is {stride}");
        ensure!(at.is_multiple_of(8), "{what}.at is {at}, no multiple of 8");
        let end = u64::from(count).checked_mul(u64::from(stride)).and_then(|bytes| bytes.checked_add(at));
        let fits = end.is_some_and(|end| end <= self.result.arena_used.min(self.arena.len() as u64));
        ensure!(fits, "{what} ({count} records of {stride} bytes at {at}) is outside the used arena");
        let bytes = self.arena.bytes();
        let record = |i: u32| record_at(&bytes[(at + u64::from(i) * u64::from(stride)) as usize..]);
        Ok((0..count).filter_map(record).collect())
    }
}

fn check_lane(feed: &SfrFeed, out: &SfrLaneOut) -> Result<(), Broken> {
    let SfrLaneOut { lane, status, pos, consumed, row_len, .. } = *out;
    ensure!(lane == feed.lane, "lane_out names lane {lane} where the plan feeds {}", feed.lane);
    ensure!(consumed <= feed.token_len, "lane {lane} consumed {consumed} of {} tokens", feed.token_len);
    if status == SFR_OK {
        let want = feed.pos0.wrapping_add(feed.token_len);
        ensure!(
            consumed == feed.token_len,
            "lane {lane} is OK but consumed {consumed} of {}",
            feed.token_len
        );
        ensure!(pos == want, "lane {lane} is at {pos} after a run to {want}");
        ensure!(row_len == feed.row_len, "lane {lane} got {row_len} rows of {}", feed.row_len);
    } else {
        ensure!((sf_abi::SFR_E_INTERNAL..SFR_OK).contains(&status), "lane {lane} has status {status}");
        ensure!(row_len <= consumed, "lane {lane} faulted with {row_len} rows for {consumed} tokens");
    }
    Ok(())
}

fn check_rows(feed: &SfrFeed, out: &SfrLaneOut, records: &[SfrRow]) -> Result<(), Broken> {
    let from = out.row_off as usize;
    if out.row_len == 0 {
        return Ok(());
    }
    let rows = records.get(from..from.saturating_add(out.row_len as usize));
    let rows = rows.ok_or_else(|| broken!("lane {}'s rows are outside result.rows", out.lane))?;
    for (i, row) in rows.iter().enumerate() {
        let want = feed.pos0 + feed.row_off + u32::try_from(i).expect("few rows");
        ensure!(row.lane == feed.lane && row.pos == want, "row {i} is of lane {} at {}", row.lane, row.pos);
        ensure!(row.token == SFR_NONE, "row {i} carries token {} though no sampler was asked", row.token);
    }
    Ok(())
}

fn widen(bytes: &[u8], dtype: u32) -> Vec<f32> {
    let half = |pair: &[u8]| u16::from_le_bytes([pair[0], pair[1]]);
    match dtype {
        SFR_DTYPE_F16 => bytes.chunks_exact(2).map(|pair| from_f16(half(pair))).collect(),
        SFR_DTYPE_BF16 => {
            bytes.chunks_exact(2).map(|pair| f32::from_bits(u32::from(half(pair)) << 16)).collect()
        }
        _ => bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
            .collect(),
    }
}

fn from_f16(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1F), f32::from(bits & 0x3FF));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

fn blank_result() -> SfrResult {
    SfrResult {
        struct_size: size_u32::<SfrResult>(),
        flags: 0,
        seq: 0,
        arena: ptr::null_mut(),
        arena_len: 0,
        arena_used: 0,
        lanes: SfrArray::default(),
        rows: SfrArray::default(),
        logits: ptr::null(),
        logits_rows: 0,
        logits_stride: 0,
        logits_dtype: 0,
        vocab: 0,
        reserved0: 0,
        device_ns: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_logits_widen_to_their_values() {
        let check = |bits: u16, want: f32| assert_eq!(from_f16(bits), want, "{bits:#06x}");
        check(0x3C00, 1.0);
        check(0xC000, -2.0);
        check(0x0001, 2f32.powi(-24));
        check(0x7BFF, 65504.0);
        check(0x7C00, f32::INFINITY);
        assert!(from_f16(0x7E00).is_nan());
        assert_eq!(widen(&[0x80, 0x3F], SFR_DTYPE_BF16), [1.0]);
        assert_eq!(widen(&1.5f32.to_le_bytes(), SFR_DTYPE_F32), [1.5]);
    }

    #[test]
    fn a_lane_that_is_ok_was_served_in_full() {
        let feed = SfrFeed { lane: 3, token_len: 4, pos0: 10, row_len: 1, row_off: 3, ..SfrFeed::default() };
        let good = SfrLaneOut { lane: 3, pos: 14, consumed: 4, row_len: 1, ..SfrLaneOut::default() };
        let check =
            |out: SfrLaneOut, sound: bool| assert_eq!(check_lane(&feed, &out).is_ok(), sound, "{out:?}");
        check(good, true);
        check(SfrLaneOut { lane: 4, ..good }, false);
        check(SfrLaneOut { pos: 13, ..good }, false);
        check(SfrLaneOut { consumed: 3, ..good }, false);
        check(SfrLaneOut { row_len: 0, ..good }, false);
        check(SfrLaneOut { status: -16, pos: 10, consumed: 0, row_len: 0, ..good }, true);
        check(SfrLaneOut { status: -77, pos: 10, consumed: 0, row_len: 0, ..good }, false);
        let row = SfrRow { lane: 3, pos: 13, token: SFR_NONE, ..SfrRow::default() };
        assert!(check_rows(&feed, &good, &[row]).is_ok());
        assert!(check_rows(&feed, &good, &[SfrRow { pos: 12, ..row }]).is_err());
        assert!(check_rows(&feed, &good, &[SfrRow { token: 5, ..row }]).is_err());
        assert!(check_rows(&feed, &good, &[]).is_err());
    }
}

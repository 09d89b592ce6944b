//! An open model under test: its lanes and steps, with every answer held against the header.
#![expect(unsafe_code, reason = "calls the engine's table and reads logits")]

use core::ffi::{CStr, c_void};
use core::{ptr, slice};

use sf_abi::descriptor::{Capability, Descriptor, ModelDescription};
use sf_abi::{
    SF_EMBED_1, SF_KV_1, SFR_DTYPE_BF16, SFR_DTYPE_F16, SFR_DTYPE_F32, SFR_E_SMALL_BUFFER, SFR_E_UNSUPPORTED,
    SFR_NONE, SFR_OK, SfrArray, SfrEmbedVt, SfrEngineVt, SfrError, SfrFeed, SfrKvVt, SfrLaneOut, SfrModel,
    SfrResult, SfrRow, SfrStats, SfrStatus,
};

use crate::compare::Closeness;
use crate::journal::{Broken, broken, ensure};
use crate::memory::{Guarded, record_at};
use crate::options::{OpenCall, close};
use crate::plan::{Draft, Laid, Run};
use crate::raw::{Bound, Refusal, call, code_name, copy_table, fetch, refused, size_u32, worked};
use crate::vectors::Vectors;

/// Largest arena a result may ask for, bytes.
const ARENA_MAX: u64 = 16 << 20;
/// What the arena of a plan is overwritten with once step_begin returned.
const SCRIBBLE: u8 = 0xA5;

/// An open model.
pub(crate) struct Session {
    engine: SfrEngineVt,
    model: *mut SfrModel,
    kv: Option<SfrKvVt>,
    steps: u64,
    lanes: Vec<u64>,
    ever: Vec<u64>,
    pub(crate) description: ModelDescription,
    pub(crate) descriptor: Descriptor,
    pub(crate) closeness: Closeness,
}

// SAFETY: a model's calls are serialised per model and the OS thread may change; the checks move a session to another
// thread only when the descriptor does not claim thread affinity.
unsafe impl Send for Session {}

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
    /// Opens the model and reads what it says about itself.
    pub(crate) fn open(bound: &Bound, request: &OpenCall) -> Result<Session, Broken> {
        let descriptor: Descriptor = serde_json::from_str(bound.descriptor()?)
            .map_err(|error| broken!("the descriptor does not parse: {error}"))?;
        let engine = bound.engine()?;
        let model = worked(request.run(&engine).0, "open")?;
        ensure!(!model.is_null(), "open returned OK and a NULL model");
        let mut session = Session {
            engine,
            model,
            kv: None,
            steps: 0,
            lanes: Vec::new(),
            ever: Vec::new(),
            description: ModelDescription::default(),
            descriptor,
            closeness: Closeness::Near,
        };
        session.description = serde_json::from_str(&session.describe()?)
            .map_err(|error| broken!("describe() does not parse: {error}"))?;
        ensure!(session.vocab() > 0, "describe().model.vocab is 0 or missing");
        if session.capability("determinism", "batch_invariant").is_some_and(is_yes) {
            session.closeness = Closeness::Exact;
        }
        let at: *const SfrKvVt = session.interface(SF_KV_1).cast();
        if !at.is_null() {
            session.kv = Some(copy_table(at, |vt| vt.struct_size)?.0);
        }
        Ok(session)
    }

    /// Logits in a row.
    pub(crate) fn vocab(&self) -> u32 {
        self.description.model.vocab
    }

    /// The effective value of a whole-number option.
    pub(crate) fn effective(&self, key: &str) -> Option<u32> {
        self.description.effective.get(key)?.as_u64().and_then(|value| u32::try_from(value).ok())
    }

    /// What the model, else the runtime, says about a capability.
    pub(crate) fn capability(&self, section: &str, name: &str) -> Option<&Capability> {
        let of_model = self.description.capabilities.get(section).and_then(|section| section.get(name));
        of_model.or_else(|| self.descriptor.capabilities.get(section)?.get(name))
    }

    pub(crate) fn describe(&self) -> Result<String, Broken> {
        self.peek().describe()
    }

    pub(crate) fn stats(&self) -> Result<SfrStats, Broken> {
        self.peek().stats()
    }

    /// The calls that may be made from any thread at any time.
    pub(crate) fn peek(&self) -> Peek {
        Peek { engine: self.engine, model: self.model }
    }

    pub(crate) fn interface(&self, id: &CStr) -> *const c_void {
        let get = self.engine.get_interface.expect("checked when the table was read");
        // SAFETY: the model is open and the id NUL-terminated.
        unsafe { get(self.model, id.as_ptr()) }
    }

    pub(crate) fn kv(&self) -> Option<Kv> {
        self.kv.map(|vt| Kv { vt, model: self.model })
    }

    /// The vectors of a model that offers them, of `dims` elements.
    pub(crate) fn vectors(&self, dims: usize) -> Result<Vectors, Broken> {
        let at: *const SfrEmbedVt = self.interface(SF_EMBED_1).cast();
        let (vt, _) = copy_table(at, |vt| vt.struct_size)?;
        // SAFETY: the table is this model's, and whoever asks keeps the session and asks from one thread.
        Ok(unsafe { Vectors::new(vt, self.model, dims) })
    }

    /// Why there are no lanes, where a model makes vectors only: it then must refuse each with E_UNSUPPORTED.
    pub(crate) fn no_lanes(&mut self) -> Result<Option<String>, Broken> {
        let Some(Capability::No(reason)) = self.capability("workload", "completion").cloned() else {
            return Ok(None);
        };
        if self.description.embedding.is_none() {
            return Ok(None);
        }
        refused(self.create(), &[SFR_E_UNSUPPORTED], "a lane of a model that makes no text")?;
        Ok(Some(reason))
    }

    /// Lanes created and not yet freed by [`Session::free`].
    pub(crate) fn live(&self) -> u32 {
        u32::try_from(self.lanes.len()).expect("few lanes")
    }

    /// A new lane.
    pub(crate) fn create(&mut self) -> Result<u64, Refusal> {
        let create = self.engine.lane_create.expect("checked when the table was read");
        let mut lane = u64::MAX;
        // SAFETY: the model is open; the output and the record are live.
        call(|err| unsafe { create(self.model, &raw mut lane, err) })?;
        self.lanes.push(lane);
        Ok(lane)
    }

    /// A new lane where one must be free, with an id never seen before.
    pub(crate) fn lane(&mut self) -> Result<u64, Broken> {
        let lane = worked(self.create(), &format!("lane_create with {} lanes live", self.lanes.len()))?;
        self.adopt(lane)
    }

    /// Records a lane that was made by other means.
    pub(crate) fn adopt(&mut self, lane: u64) -> Result<u64, Broken> {
        if !self.lanes.contains(&lane) {
            self.lanes.push(lane);
        }
        ensure!(!self.ever.contains(&lane), "lane id {lane} was given before; ids are never reused");
        self.ever.push(lane);
        Ok(lane)
    }

    pub(crate) fn free(&mut self, lane: u64) -> Result<(), Refusal> {
        self.lanes.retain(|live| *live != lane);
        call(|err| self.free_raw(lane, err))
    }

    /// `lane_free` with any record.
    pub(crate) fn free_raw(&self, lane: u64, err: *mut SfrError) -> SfrStatus {
        let free = self.engine.lane_free.expect("checked when the table was read");
        // SAFETY: the model is open; the record is live or NULL.
        unsafe { free(self.model, lane, err) }
    }

    /// Frees all live lanes, so that one check's lanes never hinder the next.
    pub(crate) fn sweep(&mut self) -> Result<(), Broken> {
        for lane in core::mem::take(&mut self.lanes) {
            worked(self.free(lane), &format!("lane_free of lane {lane}"))?;
        }
        Ok(())
    }

    pub(crate) fn truncate(&mut self, lane: u64, want: u32) -> Result<u32, Refusal> {
        let truncate = self.engine.lane_truncate.expect("checked when the table was read");
        let mut got = u32::MAX;
        // SAFETY: the model is open; the output and the record are live.
        call(|err| unsafe { truncate(self.model, lane, want, &raw mut got, err) })?;
        Ok(got)
    }

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

    /// Closes the model.
    pub(crate) fn close(self) {
        drop(self);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        close(&self.engine, self.model);
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

/// True only for a plain "can".
pub(crate) fn is_yes(capability: &Capability) -> bool {
    matches!(capability, Capability::Yes(_))
}

/// The [any] calls of a model.
#[derive(Clone, Copy)]
pub(crate) struct Peek {
    engine: SfrEngineVt,
    model: *mut SfrModel,
}

// SAFETY: the header tags describe and stats [any].
unsafe impl Sync for Peek {}

impl Peek {
    pub(crate) fn describe(self) -> Result<String, Broken> {
        let describe = self.engine.describe.expect("checked when the table was read");
        // SAFETY: the model is open; the buffer and the record are live.
        fetch("describe", |json, err| unsafe { describe(self.model, json, err) })
    }

    /// The counters.
    pub(crate) fn stats(self) -> Result<SfrStats, Broken> {
        let (status, told) = self.stats_into(size_u32::<SfrStats>());
        ensure!(status == SFR_OK, "stats returned {}", code_name(status));
        ensure!(
            told.struct_size == size_u32::<SfrStats>(),
            "stats changed struct_size to {}",
            told.struct_size
        );
        Ok(told)
    }

    /// `stats` into a struct that says it is of `struct_size` bytes.
    pub(crate) fn stats_into(self, struct_size: u32) -> (SfrStatus, SfrStats) {
        let stats = self.engine.stats.expect("checked when the table was read");
        let out = Guarded::holding(&SfrStats { struct_size, ..SfrStats::default() }, &[]);
        // SAFETY: the model is open and the output holds at least the bytes it declares.
        let status = unsafe { stats(self.model, out.as_ptr().cast()) };
        (status, out.record())
    }
}

/// `sf.kv/1` of a model.
#[derive(Clone, Copy)]
pub(crate) struct Kv {
    vt: SfrKvVt,
    model: *mut SfrModel,
}

impl Kv {
    pub(crate) fn has_fork(&self) -> bool {
        self.vt.fork.is_some()
    }

    pub(crate) fn has_export(&self) -> bool {
        self.vt.export_size.is_some() && self.vt.export_state.is_some() && self.vt.import_state.is_some()
    }

    /// A child lane, which the session must adopt.
    pub(crate) fn fork(&self, parent: u64, upto: u32) -> Result<u64, Refusal> {
        let fork = self.vt.fork.expect("asked after has_fork");
        let mut child = u64::MAX;
        // SAFETY: the model is open; the output and the record are live.
        call(|err| unsafe { fork(self.model, parent, upto, &raw mut child, err) })?;
        Ok(child)
    }

    pub(crate) fn export(&self, lane: u64, upto: u32, most: usize) -> Result<Vec<u8>, Broken> {
        let (size, export) =
            (self.vt.export_size.expect("asked after has_export"), self.vt.export_state.expect("likewise"));
        let mut bytes = 0u64;
        // SAFETY: the model is open; the output and the record are live.
        let sized = call(|err| unsafe { size(self.model, lane, upto, &raw mut bytes, err) });
        worked(sized, "export_size")?;
        let mut f = |out, err| {
            // SAFETY: the model is open; the buffer and the record are live.
            unsafe { export(self.model, lane, upto, out, err) }
        };
        let state = crate::raw::fetch_bytes("export_state", most, &mut f)?;
        ensure!(bytes >= state.len() as u64, "export_size said {bytes}, export_state wrote {}", state.len());
        Ok(state)
    }

    /// A lane, which the session must adopt.
    pub(crate) fn import(&self, state: &[u8]) -> Result<u64, Refusal> {
        let import = self.vt.import_state.expect("asked after has_export");
        let held = Guarded::copy_of(state);
        let mut lane = u64::MAX;
        let bytes = held.as_ptr().cast::<c_void>();
        // SAFETY: the model is open; the bytes, the output and the record are live.
        call(|err| unsafe { import(self.model, bytes, held.len() as u64, &raw mut lane, err) })?;
        Ok(lane)
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

//! A runtime that computes nothing: for tests of everything above the ABI, and for measuring what the link costs.
//!
//! It keeps the header's rules. Its logits depend on a lane's last token and position only and come from a table that is
//! made when the model is opened, so that a step costs little more than the calls.
#![expect(unsafe_code, reason = "the other side of the ABI: fills its tables and records")]

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use sf_abi::{
    SF_ENGINE_1, SF_KV_1, SFR_ABI_MAJOR, SFR_ABI_MINOR, SFR_DTYPE_F32, SFR_E_ARG, SFR_E_CAPACITY,
    SFR_E_CHECKSUM, SFR_E_FORMAT, SFR_E_IDENTITY, SFR_E_NOT_FOUND, SFR_E_SMALL_BUFFER, SFR_E_STATE,
    SFR_HONOURED_EXACTLY, SFR_NONE, SFR_OK, SFR_SCOPE_LANE, SFR_T_BOOL, SFR_T_F64, SFR_T_I64, SfrArray,
    SfrBuf, SfrEngineVt, SfrError, SfrFeed, SfrHost, SfrKvVt, SfrLaneOut, SfrModel, SfrOpen, SfrOpt, SfrPlan,
    SfrProbe, SfrQuery, SfrResult, SfrRow, SfrRuntime, SfrStats, SfrStatus, SfrStr,
};

use crate::calls::borrow;

/// Tokens in the vocabulary.
pub const VOCAB: usize = 64;
/// Different rows of logits.
pub const ROWS: usize = 64;
/// Lanes that a model may have at a time unless `lanes.max` says otherwise.
pub const LANES: usize = 64;
/// Option keys that are honoured; all others stay unseen.
pub const KEYS: [&str; 6] = ["ctx.max", "lanes.max", "step.tokens.max", "threads", "kv.type_k", "kv.type_v"];

const WINDOW: u32 = 1 << 20;
/// What begins an exported lane: "noop".
const IDENTITY: u32 = u32::from_le_bytes(*b"noop");
/// Bytes of an exported lane.
const ENVELOPE: usize = 12;
const DESCRIPTOR: &str = concat!(
    r#"{"descriptor_version":1,"id":"noop","version":"0.1.0","about":"computes nothing","abi":[0,1],"#,
    r#""formats":[{"format":"none"}],"interfaces":["sf.engine/1","sf.kv/1"],"#,
    r#""capabilities":{"kv":{"fork":true,"truncate":true,"export":true,"import":true}}}"#
);

struct Shared<T>(T);
// SAFETY: the tables hold functions and pointers to static text only.
unsafe impl<T> Sync for Shared<T> {}

static RUNTIME: Shared<SfrRuntime> = Shared(SfrRuntime {
    struct_size: size_of::<SfrRuntime>() as u32,
    abi_major: SFR_ABI_MAJOR,
    abi_minor: SFR_ABI_MINOR,
    abi_minor_min_host: SFR_ABI_MINOR,
    descriptor_json: SfrStr { p: DESCRIPTOR.as_ptr().cast(), n: DESCRIPTOR.len() as u64 },
    init: Some(init),
    shutdown: Some(shutdown),
    probe: Some(probe),
    get_interface: Some(get_interface),
});

static ENGINE: SfrEngineVt = SfrEngineVt {
    struct_size: size_of::<SfrEngineVt>() as u32,
    reserved0: 0,
    open: Some(open),
    close: Some(close),
    describe: Some(describe),
    lane_create: Some(lane_create),
    lane_free: Some(lane_free),
    lane_truncate: Some(lane_truncate),
    step_begin: Some(step_begin),
    step_end: Some(step_end),
    stats: Some(stats),
    get_interface: Some(model_interface),
};

static KV: SfrKvVt = SfrKvVt {
    struct_size: size_of::<SfrKvVt>() as u32,
    reserved0: 0,
    fork: Some(fork),
    export_size: Some(export_size),
    export_state: Some(export_state),
    import_state: Some(import_state),
};

/// The entry point, as a library would export it.
///
/// # Safety
/// `query` points to an `sfr_query` of the header.
pub unsafe extern "C" fn entry(query: *const SfrQuery) -> *const SfrRuntime {
    // SAFETY: the caller passes a readable query.
    let query = unsafe { &*query };
    let fits = query.struct_size as usize >= size_of::<SfrQuery>()
        && (query.abi_major, query.abi_minor) == (SFR_ABI_MAJOR, SFR_ABI_MINOR);
    if fits { &RUNTIME.0 } else { std::ptr::null() }
}

/// The logits of a lane whose last token is `last` and stands at `position`.
pub fn row_of(last: u32, position: u32) -> usize {
    last.wrapping_mul(31).wrapping_add(position) as usize % ROWS
}

/// The logit of `token` in row `row`: within `[-4, 4]`, all different in a row.
pub fn logit(row: usize, token: usize) -> f32 {
    let place = (token * 37 + row * 11 + 5) % VOCAB;
    place as f32 / 8.0 - 4.0
}

/// One sequence: how many positions it holds.
#[derive(Clone, Copy)]
struct Lane {
    id: u64,
    len: u32,
}

/// What changes while a model lives.
#[derive(Default)]
struct Live {
    lanes: Vec<Lane>,
    next: u64,
    /// Number of the step in flight.
    flight: Option<u64>,
    outs: Vec<SfrLaneOut>,
    rows: Vec<SfrRow>,
    steps: u64,
    tokens: u64,
}

struct NoopModel {
    live: Mutex<Live>,
    table: Vec<f32>,
    description: String,
    lanes_max: usize,
    window: u32,
}

impl NoopModel {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The model behind a handle.
///
/// # Safety
/// `model` was returned by [`open`] and is not closed.
unsafe fn model_of<'a>(model: *mut SfrModel) -> &'a NoopModel {
    // SAFETY: the caller passes a handle of ours that is open.
    unsafe { &*model.cast::<NoopModel>() }
}

/// Fills an error record and returns its code.
///
/// # Safety
/// `err` is NULL or a writable `sfr_error`.
unsafe fn fail(err: *mut SfrError, code: SfrStatus, scope: u32, message: &str) -> SfrStatus {
    // SAFETY: the caller passes NULL or a record of the header.
    if let Some(err) = unsafe { err.as_mut() } {
        (err.code, err.scope, err.field_len) = (code, scope, 0);
        let len = message.len().min(err.message.len());
        for (to, from) in err.message.iter_mut().zip(message.bytes()) {
            *to = from as c_char;
        }
        err.message_len = len as u32;
    }
    code
}

/// Answers a two-call buffer.
///
/// # Safety
/// `buf` is a writable `sfr_buf`.
unsafe fn answer(buf: *mut SfrBuf, text: &[u8]) -> SfrStatus {
    // SAFETY: the caller passes a live record.
    let buf = unsafe { &mut *buf };
    buf.needed = text.len() as u64;
    if buf.cap < buf.needed {
        return SFR_E_SMALL_BUFFER;
    }
    // SAFETY: `cap` bytes are writable at `p`, and the text is not longer.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buf.p.cast(), text.len()) };
    SFR_OK
}

unsafe extern "C" fn init(_host: *const SfrHost, _err: *mut SfrError) -> SfrStatus {
    SFR_OK
}

unsafe extern "C" fn shutdown() {}

unsafe extern "C" fn probe(_req: *const SfrProbe, json: *mut SfrBuf, _err: *mut SfrError) -> SfrStatus {
    // SAFETY: the header: `json` is the caller's record.
    unsafe { answer(json, br#"{"available":true,"devices":[{"id":"none:0","backend":"none"}]}"#) }
}

unsafe extern "C" fn get_interface(id: *const c_char) -> *const c_void {
    // SAFETY: the header: ids are NUL-terminated.
    if unsafe { CStr::from_ptr(id) } == SF_ENGINE_1 {
        return std::ptr::from_ref(&ENGINE).cast();
    }
    std::ptr::null()
}

unsafe extern "C" fn model_interface(_model: *mut SfrModel, id: *const c_char) -> *const c_void {
    // SAFETY: the header: ids are NUL-terminated.
    if unsafe { CStr::from_ptr(id) } == SF_KV_1 {
        return std::ptr::from_ref(&KV).cast();
    }
    std::ptr::null()
}

/// Reads one option, marks it honoured and returns it when its key is known.
///
/// # Safety
/// The option's strings are readable, as in an open call.
unsafe fn honour(opt: &mut SfrOpt) -> Option<(String, Value)> {
    // SAFETY: the caller passes an option of an open call.
    let key = String::from_utf8_lossy(unsafe { borrow(opt.key, 256) }).into_owned();
    if !KEYS.contains(&key.as_str()) {
        return None;
    }
    let value = match opt.r#type {
        SFR_T_BOOL => json!(opt.i != 0),
        SFR_T_I64 => json!(opt.i),
        SFR_T_F64 => json!(opt.f),
        // SAFETY: the caller passes an option of an open call.
        _ => json!(String::from_utf8_lossy(unsafe { borrow(opt.s, 256) })),
    };
    opt.honoured = SFR_HONOURED_EXACTLY;
    Some((key, value))
}

unsafe extern "C" fn open(req: *const SfrOpen, out: *mut *mut SfrModel, err: *mut SfrError) -> SfrStatus {
    // SAFETY: the header: `req` is the caller's record.
    let req = unsafe { &*req };
    if req.paths.count == 0 {
        // SAFETY: the header: `err` is NULL or the caller's record.
        return unsafe { fail(err, SFR_E_FORMAT, 0, "no model file was named") };
    }
    let mut effective = Map::new();
    effective.insert("ctx.max".to_owned(), json!(WINDOW));
    effective.insert("lanes.max".to_owned(), json!(LANES));
    for nth in 0..req.opts.count as usize {
        let at = req.opts.at as usize + nth * req.opts.stride as usize;
        let opt = std::ptr::with_exposed_provenance_mut::<SfrOpt>(at);
        // SAFETY: the header: `count` options stand `stride` bytes apart, writable for their `honoured`.
        let opt = unsafe { &mut *opt };
        // SAFETY: an option of an open call.
        if let Some((key, value)) = unsafe { honour(opt) } {
            effective.insert(key, value);
        }
    }
    let number = |key: &str| effective.get(key).and_then(Value::as_u64).unwrap_or(0);
    let (lanes_max, window) = (number("lanes.max") as usize, number("ctx.max") as u32);
    let facts =
        json!({"architecture": "none", "vocab": VOCAB, "ctx_trained": WINDOW, "quantization": "none"});
    let model = NoopModel {
        live: Mutex::new(Live { next: 1, ..Live::default() }),
        table: (0..ROWS * VOCAB).map(|at| logit(at / VOCAB, at % VOCAB)).collect(),
        description: json!({"effective": effective, "model": facts}).to_string(),
        lanes_max,
        window,
    };
    // SAFETY: the header: `out` is the caller's.
    unsafe { *out = Box::into_raw(Box::new(model)).cast() };
    SFR_OK
}

unsafe extern "C" fn close(model: *mut SfrModel) {
    // SAFETY: the handle is ours, from Box::into_raw in `open`, and dies here.
    drop(unsafe { Box::from_raw(model.cast::<NoopModel>()) });
}

unsafe extern "C" fn describe(model: *mut SfrModel, json: *mut SfrBuf, _err: *mut SfrError) -> SfrStatus {
    // SAFETY: the header: the handle is open.
    let model = unsafe { model_of(model) };
    // SAFETY: the header: `json` is the caller's record.
    unsafe { answer(json, model.description.as_bytes()) }
}

impl Live {
    /// A new lane of `len` positions; `None` when all are taken.
    fn add(&mut self, len: u32, most: usize) -> Option<u64> {
        if self.lanes.len() >= most {
            return None;
        }
        let id = self.next;
        self.next += 1;
        self.lanes.push(Lane { id, len });
        Some(id)
    }

    fn lane(&mut self, id: u64) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.id == id)
    }

    /// Takes one feed; `run` is its tokens.
    fn feed(&mut self, feed: &SfrFeed, run: &[u32], window: u32) {
        let row_off = self.rows.len() as u32;
        let mut out = SfrLaneOut { lane: feed.lane, row_off, ..SfrLaneOut::default() };
        let Some(lane) = self.lane(feed.lane) else {
            out.status = SFR_E_NOT_FOUND;
            return self.outs.push(out);
        };
        out.pos = lane.len;
        out.status = if feed.pos0 != lane.len {
            SFR_E_STATE
        } else if run.iter().any(|token| *token as usize >= VOCAB) {
            SFR_E_ARG
        } else if u64::from(lane.len) + run.len() as u64 > u64::from(window) {
            SFR_E_CAPACITY
        } else {
            SFR_OK
        };
        if out.status == SFR_OK {
            lane.len += run.len() as u32;
            (out.pos, out.consumed, out.row_len) = (lane.len, run.len() as u32, feed.row_len);
            self.tokens += run.len() as u64;
            for nth in feed.row_off..feed.row_off + feed.row_len {
                let pos = feed.pos0 + nth;
                let logits_row = row_of(run[nth as usize], pos) as u32;
                self.rows.push(SfrRow { lane: feed.lane, pos, logits_row, token: SFR_NONE, logprob: 0.0 });
            }
        }
        self.outs.push(out);
    }
}

unsafe extern "C" fn lane_create(model: *mut SfrModel, lane: *mut u64, err: *mut SfrError) -> SfrStatus {
    // SAFETY: the header: the handle is open.
    let model = unsafe { model_of(model) };
    match model.live().add(0, model.lanes_max) {
        Some(id) => {
            // SAFETY: the header: `lane` is the caller's.
            unsafe { *lane = id };
            SFR_OK
        }
        // SAFETY: the header: `err` is NULL or the caller's record.
        None => unsafe { fail(err, SFR_E_CAPACITY, SFR_SCOPE_LANE, "all lanes are taken") },
    }
}

unsafe extern "C" fn lane_free(model: *mut SfrModel, lane: u64, err: *mut SfrError) -> SfrStatus {
    // SAFETY: the header: the handle is open.
    let model = unsafe { model_of(model) };
    let mut live = model.live();
    match live.lanes.iter().position(|one| one.id == lane) {
        Some(at) => {
            live.lanes.swap_remove(at);
            SFR_OK
        }
        // SAFETY: the header: `err` is NULL or the caller's record.
        None => unsafe { fail(err, SFR_E_NOT_FOUND, SFR_SCOPE_LANE, "no such lane") },
    }
}

unsafe extern "C" fn lane_truncate(
    model: *mut SfrModel,
    lane: u64,
    want: u32,
    got: *mut u32,
    err: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the header: the handle is open.
    let model = unsafe { model_of(model) };
    let mut live = model.live();
    let Some(lane) = live.lane(lane) else {
        // SAFETY: the header: `err` is NULL or the caller's record.
        return unsafe { fail(err, SFR_E_NOT_FOUND, SFR_SCOPE_LANE, "no such lane") };
    };
    lane.len = lane.len.min(want);
    // SAFETY: the header: `got` is the caller's.
    unsafe { *got = lane.len };
    SFR_OK
}

/// A lane's state is its length; the envelope says whose it is and what it adds up to.
fn envelope(len: u32) -> [u8; ENVELOPE] {
    let mut bytes = [0; ENVELOPE];
    for (to, word) in bytes.chunks_exact_mut(4).zip([IDENTITY, len, !len.wrapping_mul(0x9E37_79B9)]) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Whether a lane holds `upto` positions; else the error's code and words.
fn covers(live: &mut Live, lane: u64, upto: u32) -> Result<(), (SfrStatus, &'static str)> {
    match live.lane(lane).map(|lane| lane.len) {
        None => Err((SFR_E_NOT_FOUND, "no such lane")),
        Some(len) if upto > len => Err((SFR_E_ARG, "upto lies past the lane's end")),
        Some(_) => Ok(()),
    }
}

unsafe extern "C" fn export_size(
    model: *mut SfrModel,
    lane: u64,
    upto: u32,
    bytes: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the header: the handle is open.
    let model = unsafe { model_of(model) };
    if let Err((code, message)) = covers(&mut model.live(), lane, upto) {
        // SAFETY: the header: `err` is NULL or the caller's record.
        return unsafe { fail(err, code, SFR_SCOPE_LANE, message) };
    }
    // SAFETY: the header: `bytes` is the caller's.
    unsafe { *bytes = ENVELOPE as u64 };
    SFR_OK
}

unsafe extern "C" fn export_state(
    model: *mut SfrModel,
    lane: u64,
    upto: u32,
    out: *mut SfrBuf,
    err: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the header: the handle is open.
    let model = unsafe { model_of(model) };
    if let Err((code, message)) = covers(&mut model.live(), lane, upto) {
        // SAFETY: the header: `err` is NULL or the caller's record.
        return unsafe { fail(err, code, SFR_SCOPE_LANE, message) };
    }
    // SAFETY: the header: `out` is the caller's record.
    unsafe { answer(out, &envelope(upto)) }
}

unsafe extern "C" fn import_state(
    model: *mut SfrModel,
    bytes: *const c_void,
    len: u64,
    lane: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the header: the handle is open.
    let model = unsafe { model_of(model) };
    let state = SfrStr { p: bytes.cast(), n: len };
    // SAFETY: the header: `len` bytes are readable at `bytes`.
    let state = unsafe { borrow(state, ENVELOPE + 1) };
    let word = |at: usize| state.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let (code, message) = match (word(0), word(4)) {
        (Some(IDENTITY), Some(held)) if state == envelope(held) && held <= model.window => {
            match model.live().add(held, model.lanes_max) {
                Some(id) => {
                    // SAFETY: the header: `lane` is the caller's.
                    unsafe { *lane = id };
                    return SFR_OK;
                }
                None => (SFR_E_CAPACITY, "all lanes are taken"),
            }
        }
        (Some(IDENTITY), _) => (SFR_E_CHECKSUM, "the envelope is damaged"),
        _ => (SFR_E_IDENTITY, "the envelope is not of this runtime"),
    };
    // SAFETY: the header: `err` is NULL or the caller's record.
    unsafe { fail(err, code, SFR_SCOPE_LANE, message) }
}

unsafe extern "C" fn fork(
    model: *mut SfrModel,
    parent: u64,
    upto: u32,
    child: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the header: the handle is open.
    let model = unsafe { model_of(model) };
    let mut live = model.live();
    let (code, message) = match live.lane(parent).map(|lane| lane.len) {
        None => (SFR_E_NOT_FOUND, "no such lane"),
        Some(len) if upto > len => (SFR_E_ARG, "upto lies past the parent's end"),
        Some(_) => match live.add(upto, model.lanes_max) {
            Some(id) => {
                // SAFETY: the header: `child` is the caller's.
                unsafe { *child = id };
                return SFR_OK;
            }
            None => (SFR_E_CAPACITY, "all lanes are taken"),
        },
    };
    // SAFETY: the header: `err` is NULL or the caller's record.
    unsafe { fail(err, code, SFR_SCOPE_LANE, message) }
}

/// The records of an array of the plan.
///
/// # Safety
/// `plan` is a plan of the header whose array holds records of type `T`, written with our stride.
unsafe fn records<'a, T>(plan: &SfrPlan, array: &SfrArray) -> Option<&'a [T]> {
    let bytes = u64::from(array.count) * size_of::<T>() as u64;
    let fits = array.at.checked_add(bytes).is_some_and(|end| end <= plan.arena_len);
    if !fits || !array.at.is_multiple_of(8) || array.stride as usize != size_of::<T>() {
        return None;
    }
    // SAFETY: the array was just found to lie within the arena.
    let at = unsafe { plan.arena.cast::<u8>().add(array.at as usize) };
    // SAFETY: `count` records stand there, aligned to 8 by `at` and the arena.
    Some(unsafe { std::slice::from_raw_parts(at.cast(), array.count as usize) })
}

unsafe extern "C" fn step_begin(
    model: *mut SfrModel,
    plan: *const SfrPlan,
    ticket: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the header: the handle is open.
    let model = unsafe { model_of(model) };
    // SAFETY: the header: `plan` is the caller's record.
    let plan = unsafe { &*plan };
    let mut live = model.live();
    if live.flight.is_some() {
        // SAFETY: the header: `err` is NULL or the caller's record.
        return unsafe { fail(err, SFR_E_STATE, 0, "a step is in flight") };
    }
    // SAFETY: the plan's feeds are sfr_feed.
    let feeds = unsafe { records::<SfrFeed>(plan, &plan.feeds) };
    // SAFETY: the plan's tokens are uint32_t.
    let tokens = unsafe { records::<u32>(plan, &plan.tokens) };
    let (Some(feeds), Some(tokens)) = (feeds, tokens) else {
        // SAFETY: the header: `err` is NULL or the caller's record.
        return unsafe { fail(err, sf_abi::SFR_E_ABI, 0, "an array leaves the arena") };
    };
    let whole = |feed: &SfrFeed| {
        let end = u64::from(feed.token_off) + u64::from(feed.token_len);
        let rows = u64::from(feed.row_off) + u64::from(feed.row_len);
        feed.token_len > 0 && end <= tokens.len() as u64 && rows <= u64::from(feed.token_len)
    };
    if !feeds.iter().all(whole) {
        // SAFETY: the header: `err` is NULL or the caller's record.
        return unsafe { fail(err, SFR_E_ARG, 0, "a run leaves the tokens, or its rows leave the run") };
    }
    live.outs.clear();
    live.rows.clear();
    for feed in feeds {
        let run = &tokens[feed.token_off as usize..][..feed.token_len as usize];
        live.feed(feed, run, model.window);
    }
    live.steps += 1;
    live.flight = Some(plan.seq);
    // SAFETY: the header: `ticket` is the caller's.
    unsafe { *ticket = plan.seq };
    SFR_OK
}

unsafe extern "C" fn step_end(
    model: *mut SfrModel,
    ticket: u64,
    result: *mut SfrResult,
    err: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the header: the handle is open.
    let model = unsafe { model_of(model) };
    // SAFETY: the header: `result` is the caller's record.
    let result = unsafe { &mut *result };
    let mut live = model.live();
    if live.flight != Some(ticket) {
        // SAFETY: the header: `err` is NULL or the caller's record.
        return unsafe { fail(err, SFR_E_STATE, 0, "this step is not in flight") };
    }
    let lanes_bytes = size_of_val(live.outs.as_slice());
    let rows_bytes = size_of_val(live.rows.as_slice());
    result.arena_used = (lanes_bytes + rows_bytes) as u64;
    if result.arena_len < result.arena_used {
        return SFR_E_SMALL_BUFFER;
    }
    let arena = result.arena.cast::<u8>();
    // SAFETY: the arena has room for both arrays.
    unsafe { std::ptr::copy_nonoverlapping(live.outs.as_ptr().cast(), arena, lanes_bytes) };
    // SAFETY: the arena has room for both arrays.
    let behind = unsafe { arena.add(lanes_bytes) };
    // SAFETY: the arena has room for both arrays.
    unsafe { std::ptr::copy_nonoverlapping(live.rows.as_ptr().cast(), behind, rows_bytes) };
    let lane = size_of::<SfrLaneOut>() as u32;
    let row = size_of::<SfrRow>() as u32;
    result.lanes = SfrArray { at: 0, count: live.outs.len() as u32, stride: lane };
    result.rows = SfrArray { at: lanes_bytes as u64, count: live.rows.len() as u32, stride: row };
    result.logits = model.table.as_ptr().cast();
    (result.logits_rows, result.logits_stride) = (ROWS as u64, (VOCAB * 4) as u32);
    (result.logits_dtype, result.vocab) = (SFR_DTYPE_F32, VOCAB as u32);
    (result.seq, result.flags, result.device_ns) = (ticket, 0, 0);
    live.flight = None;
    SFR_OK
}

unsafe extern "C" fn stats(model: *mut SfrModel, out: *mut SfrStats) -> SfrStatus {
    // SAFETY: the header: the handle is open.
    let model = unsafe { model_of(model) };
    // SAFETY: the header: `out` is the caller's record.
    let out = unsafe { &mut *out };
    let live = model.live();
    (out.lanes_live, out.steps, out.tokens_fed) = (live.lanes.len() as u32, live.steps, live.tokens);
    out.kv_cells_used = live.lanes.iter().map(|lane| u64::from(lane.len)).sum();
    out.kv_cells_total = model.lanes_max as u64 * u64::from(model.window);
    SFR_OK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_is_one_and_says_what_the_tables_hold() {
        let descriptor: sf_abi::descriptor::Descriptor = serde_json::from_str(DESCRIPTOR).unwrap();
        assert_eq!((descriptor.id.as_str(), descriptor.abi), ("noop", [SFR_ABI_MAJOR, SFR_ABI_MINOR]));
        assert_eq!(DESCRIPTOR.len() as u64, RUNTIME.0.descriptor_json.n);
    }

    #[test]
    fn every_row_has_one_largest_logit() {
        for row in 0..ROWS {
            let mut logits: Vec<f32> = (0..VOCAB).map(|token| logit(row, token)).collect();
            logits.sort_by(f32::total_cmp);
            assert!(logits.windows(2).all(|pair| pair[0] < pair[1]), "{row}");
        }
    }
}

//! A runtime that computes nothing: for tests of everything above the ABI, and for measuring what the link costs.
//!
//! It keeps the header's rules. Its logits depend on a lane's last token and position only and come from a table that is
//! made when the model is opened, so that a step costs little more than the calls.
#![expect(unsafe_code, reason = "the other side of the ABI: fills its tables and records")]

mod lanes;
mod steps;

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
use lanes::{export_size, export_state, fork, import_state, lane_create, lane_free, lane_truncate};
use steps::{step_begin, step_end};

/// Tokens in the vocabulary.
pub const VOCAB: usize = 64;
/// Different rows of logits.
pub const ROWS: usize = 64;
/// Lanes that a model may have at a time unless `lanes.max` says otherwise.
pub const LANES: usize = 64;
/// Option keys that are honoured; all others stay unseen.
pub const KEYS: [&str; 6] = ["ctx.max", "lanes.max", "step.tokens.max", "threads", "kv.type_k", "kv.type_v"];

const WINDOW: u32 = 1 << 20;
const DESCRIPTOR: &str = concat!(
    r#"{"descriptor_version":1,"id":"noop","version":"0.1.0","about":"computes nothing","abi":[0,2],"#,
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

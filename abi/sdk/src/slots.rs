//! The functions behind the tables: one per entry of the header, each a guard around a checked call.
#![expect(unsafe_code, reason = "functions of the C boundary; every pointer is the caller's")]

use core::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use sf_abi::*;

use crate::export::{Exported, Tables};
use crate::fault::{Code, Fault};
use crate::handshake;
use crate::model::Handle;
use crate::open::OpenRequest;
use crate::runtime::{Runtime, Tokenizer};
use crate::wire;

type Handled<R> = Handle<<R as Runtime>::Model>;

/// Runs a call; a fault is written down, a panic becomes one.
///
/// # Safety
/// `err` is NULL or the caller's `sfr_error`.
unsafe fn guard(err: *mut SfrError, f: impl FnOnce() -> Result<(), Fault>) -> SfrStatus {
    let fault = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => return SFR_OK,
        Ok(Err(fault)) => fault,
        Err(payload) => {
            let fault = Fault::panicked(&*payload);
            // A payload may panic when it is dropped; it is leaked instead.
            core::mem::forget(payload);
            fault
        }
    };
    // SAFETY: the caller's promise.
    unsafe { fault.store(err) }
}

fn runtime<R: Exported>() -> Result<&'static R, Fault> {
    R::slot().runtime().ok_or_else(|| Fault::new(Code::State, "the runtime is not initialised"))
}

/// # Safety
/// `model` is NULL or came from this runtime's `open` and was not closed.
unsafe fn handle<'a, R: Runtime>(model: *mut SfrModel) -> Result<&'a Handled<R>, Fault> {
    // SAFETY: the caller's promise; a handle is only ever shared.
    unsafe { model.cast::<Handled<R>>().as_ref() }
        .ok_or_else(|| Fault::new(Code::Arg, "there is no model").field("model"))
}

pub(crate) unsafe extern "C" fn init<R: Exported>(host: *const SfrHost, err: *mut SfrError) -> SfrStatus {
    let call = || {
        // SAFETY: the host's table follows the header.
        let table = unsafe { crate::host::read_host(host) }?;
        if table.abi_minor != SFR_ABI_MINOR {
            let (theirs, mine) = (table.abi_minor, SFR_ABI_MINOR);
            return Err(Fault::new(Code::Abi, format!("the host speaks ABI 0.{theirs}, this is 0.{mine}"))
                .field("abi_minor"));
        }
        R::slot().init(table)
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn shutdown<R: Exported>() {
    let call = || {
        if let Some(runtime) = R::slot().runtime() {
            runtime.shutdown();
        }
        Ok(())
    };
    // SAFETY: no error record.
    unsafe { guard(core::ptr::null_mut(), call) };
}

pub(crate) unsafe extern "C" fn probe<R: Exported>(
    req: *const SfrProbe,
    json: *mut SfrBuf,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        // SAFETY: the request follows the header.
        let req = unsafe { wire::read(req, "probe") }?;
        if req.depth > 2 {
            return Err(Fault::new(Code::Arg, format!("depth {}, at most 2", req.depth)).field("depth"));
        }
        let answer = runtime::<R>()?.probe(req.depth, Duration::from_nanos(req.budget_ns))?;
        let text = serde_json::to_string(&answer).map_err(|e| Fault::new(Code::Internal, e.to_string()))?;
        // SAFETY: the buffer is the caller's.
        unsafe { wire::fill(json, text.as_bytes()) }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn get_interface<R: Exported>(id: *const c_char) -> *const c_void {
    // SAFETY: an id is a C string by the header.
    let Some(id) = (unsafe { c_str(id) }) else { return core::ptr::null() };
    if id == SF_ENGINE_1 {
        core::ptr::from_ref(Tables::<R>::ENGINE).cast()
    } else if id == SF_INSPECT_1 && R::INSPECT {
        core::ptr::from_ref(Tables::<R>::INSPECT).cast()
    } else if id == SF_TOKENIZER_1 && R::TOKENIZER {
        core::ptr::from_ref(Tables::<R>::TOKENIZER).cast()
    } else if id == handshake::RUST_LAYOUT_1 {
        core::ptr::from_ref(handshake::table()).cast()
    } else {
        core::ptr::null()
    }
}

/// # Safety
/// `id` is NULL or a C string that lives for the call.
unsafe fn c_str<'a>(id: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!id.is_null()).then(|| unsafe { CStr::from_ptr(id) })
}

pub(crate) unsafe extern "C" fn open<R: Exported>(
    req: *const SfrOpen,
    out: *mut *mut SfrModel,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        // SAFETY: the request follows the header.
        let mut request = unsafe { OpenRequest::read(req) }?;
        if out.is_null() {
            return Err(Fault::new(Code::Arg, "there is no place for the model").field("out"));
        }
        let model = runtime::<R>()?.open(&mut request)?;
        request.check_must()?;
        let handle = Box::into_raw(Box::new(Handle::new(model, R::DESCRIPTOR)?));
        // SAFETY: checked above.
        unsafe { wire::put(out, handle.cast(), "out") }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn close<R: Exported>(model: *mut SfrModel) {
    let call = || {
        if !model.is_null() {
            // SAFETY: a handle dies once, by this function, with no other call running.
            drop(unsafe { Box::from_raw(model.cast::<Handled<R>>()) });
        }
        Ok(())
    };
    // SAFETY: no error record.
    unsafe { guard(core::ptr::null_mut(), call) };
}

pub(crate) unsafe extern "C" fn describe<R: Exported>(
    model: *mut SfrModel,
    json: *mut SfrBuf,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        // SAFETY: the handle is the caller's.
        let handle = unsafe { handle::<R>(model) }?;
        // SAFETY: the buffer is the caller's.
        unsafe { wire::fill(json, handle.description().as_bytes()) }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn lane_create<R: Exported>(
    model: *mut SfrModel,
    lane: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        place(lane, "lane")?;
        // SAFETY: the handle is the caller's.
        let id = unsafe { handle::<R>(model) }?.with(|core| core.lane_create())?;
        // SAFETY: checked above.
        unsafe { wire::put(lane, id, "lane") }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

/// An output pointer is checked before the work, so that nothing is made that cannot be handed over.
fn place<T>(to: *mut T, what: &str) -> Result<(), Fault> {
    if to.is_null() {
        return Err(Fault::new(Code::Arg, format!("there is no place for {what}")).field(what));
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn lane_free<R: Exported>(
    model: *mut SfrModel,
    lane: u64,
    err: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the handle is the caller's.
    let call = || unsafe { handle::<R>(model) }?.with(|core| core.lane_free(lane));
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn lane_truncate<R: Exported>(
    model: *mut SfrModel,
    lane: u64,
    want: u32,
    got: *mut u32,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        place(got, "got")?;
        // SAFETY: the handle is the caller's.
        let left = unsafe { handle::<R>(model) }?.with(|core| core.lane_truncate(lane, want))?;
        // SAFETY: checked above.
        unsafe { wire::put(got, left, "got") }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn step_begin<R: Exported>(
    model: *mut SfrModel,
    plan: *const SfrPlan,
    ticket: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        place(ticket, "ticket")?;
        // SAFETY: the handle is the caller's.
        let handle = unsafe { handle::<R>(model) }?;
        // SAFETY: the plan follows the header.
        let number = handle.with(|core| unsafe { core.step_begin(plan) })?;
        // SAFETY: checked above.
        unsafe { wire::put(ticket, number, "ticket") }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn step_end<R: Exported>(
    model: *mut SfrModel,
    ticket: u64,
    result: *mut SfrResult,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        // SAFETY: the handle is the caller's.
        let handle = unsafe { handle::<R>(model) }?;
        // SAFETY: the result follows the header.
        handle.with(|core| unsafe { core.step_end(ticket, result) })
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn stats<R: Exported>(model: *mut SfrModel, out: *mut SfrStats) -> SfrStatus {
    let call = || {
        // SAFETY: the handle is the caller's.
        let stats = unsafe { handle::<R>(model) }?.stats();
        // SAFETY: the struct is the caller's.
        unsafe { wire::check_out(out, "stats") }?;
        // SAFETY: as above.
        unsafe { wire::write(out, &stats) };
        Ok(())
    };
    // SAFETY: no error record.
    unsafe { guard(core::ptr::null_mut(), call) }
}

pub(crate) unsafe extern "C" fn model_interface<R: Exported>(
    model: *mut SfrModel,
    id: *const c_char,
) -> *const c_void {
    // SAFETY: an id is a C string by the header.
    let id = unsafe { c_str(id) };
    // SAFETY: the handle is the caller's.
    let Ok(handle) = (unsafe { handle::<R>(model) }) else { return core::ptr::null() };
    match id {
        Some(id) if id == SF_KV_1 && handle.has_lanes() => Tables::<R>::kv(handle.exports())
            .map_or(core::ptr::null(), |table| core::ptr::from_ref(table).cast()),
        Some(id) if id == SF_EMBED_1 && handle.embeds() => core::ptr::from_ref(Tables::<R>::EMBED).cast(),
        _ => core::ptr::null(),
    }
}

pub(crate) unsafe extern "C" fn fork<R: Exported>(
    model: *mut SfrModel,
    parent: u64,
    upto: u32,
    child: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        place(child, "child")?;
        // SAFETY: the handle is the caller's.
        let id = unsafe { handle::<R>(model) }?.with(|core| core.fork(parent, upto))?;
        // SAFETY: checked above.
        unsafe { wire::put(child, id, "child") }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn export_size<R: Exported>(
    model: *mut SfrModel,
    lane: u64,
    upto: u32,
    bytes: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        place(bytes, "bytes")?;
        // SAFETY: the handle is the caller's.
        let size = unsafe { handle::<R>(model) }?.with(|core| core.export_size(lane, upto))?;
        // SAFETY: checked above.
        unsafe { wire::put(bytes, size, "bytes") }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn export_state<R: Exported>(
    model: *mut SfrModel,
    lane: u64,
    upto: u32,
    out: *mut SfrBuf,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        // SAFETY: the handle is the caller's.
        let handle = unsafe { handle::<R>(model) }?;
        handle.with(|core| {
            let size = core.export_size(lane, upto)?;
            // SAFETY: the buffer is the caller's, for this call.
            let envelope = unsafe { wire::room(out, size) }?;
            core.export(lane, upto, envelope)
        })
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn import_state<R: Exported>(
    model: *mut SfrModel,
    bytes: *const c_void,
    len: u64,
    lane: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        place(lane, "lane")?;
        // SAFETY: the bytes are the caller's for the call.
        let envelope = unsafe { wire::bytes(bytes, len, "bytes") }?;
        // SAFETY: the handle is the caller's.
        let id = unsafe { handle::<R>(model) }?.with(|core| core.import(envelope))?;
        // SAFETY: checked above.
        unsafe { wire::put(lane, id, "lane") }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn embed<R: Exported>(
    model: *mut SfrModel,
    req: *const SfrEmbed,
    out: *mut SfrBuf,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        // SAFETY: the handle is the caller's.
        let handle = unsafe { handle::<R>(model) }?;
        // SAFETY: the request follows the header, the buffer is the caller's.
        handle.with(|core| unsafe { core.embed(req, out) })
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn inspect<R: Exported>(
    req: *const SfrOpen,
    json: *mut SfrBuf,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        // SAFETY: the request follows the header.
        let request = unsafe { OpenRequest::read(req) }?;
        let text = runtime::<R>()?.inspect(&request)?;
        // SAFETY: the buffer is the caller's.
        unsafe { wire::fill(json, text.as_bytes()) }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn estimate<R: Exported>(
    req: *const SfrOpen,
    out: *mut SfrEstimate,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        // SAFETY: the struct is the caller's.
        unsafe { wire::check_out(out, "estimate") }?;
        // SAFETY: the request follows the header.
        let request = unsafe { OpenRequest::read(req) }?;
        let own = runtime::<R>()?.estimate(&request)?;
        let answer = SfrEstimate {
            struct_size: 0,
            confidence: own.confidence,
            bytes_weights: own.bytes_weights,
            bytes_kv_per_token: own.bytes_kv_per_token,
            bytes_fixed_per_lane: own.bytes_fixed_per_lane,
            bytes_compute: own.bytes_compute,
            ctx_trained: own.ctx_trained,
            lanes_max: own.lanes_max,
        };
        // SAFETY: checked above.
        unsafe { wire::write(out, &answer) };
        Ok(())
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

/// # Safety
/// `tokenizer` is NULL or came from `tokenizer_open` and was not closed.
unsafe fn vocabulary<'a, R: Runtime>(tokenizer: *mut SfrTokenizer) -> Result<&'a R::Tokenizer, Fault> {
    // SAFETY: the caller's promise; a tokenizer is only ever shared.
    unsafe { tokenizer.cast::<R::Tokenizer>().as_ref() }
        .ok_or_else(|| Fault::new(Code::Arg, "there is no tokenizer").field("tokenizer"))
}

pub(crate) unsafe extern "C" fn tokenizer_open<R: Exported>(
    req: *const SfrOpen,
    out: *mut *mut SfrTokenizer,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        place(out, "out")?;
        // SAFETY: the request follows the header.
        let request = unsafe { OpenRequest::read(req) }?;
        let tokenizer = runtime::<R>()?.tokenizer(&request)?;
        // SAFETY: checked above.
        unsafe { wire::put(out, Box::into_raw(Box::new(tokenizer)).cast(), "out") }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn tokenizer_close<R: Exported>(tokenizer: *mut SfrTokenizer) {
    let call = || {
        if !tokenizer.is_null() {
            // SAFETY: a tokenizer dies once, by this function, with no other call running.
            drop(unsafe { Box::from_raw(tokenizer.cast::<R::Tokenizer>()) });
        }
        Ok(())
    };
    // SAFETY: no error record.
    unsafe { guard(core::ptr::null_mut(), call) };
}

pub(crate) unsafe extern "C" fn encode<R: Exported>(
    tokenizer: *mut SfrTokenizer,
    text: SfrStr,
    flags: u32,
    out: *mut SfrBuf,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        if flags & !(SFR_ENCODE_SPECIAL | SFR_ENCODE_ADD_BOS) != 0 {
            return Err(Fault::newer("flags", format_args!("unknown bits {flags:#x}")));
        }
        // SAFETY: the text is the caller's for the call.
        let text = unsafe { wire::text(text, "text") }?;
        // SAFETY: the tokenizer is the caller's.
        let tokenizer = unsafe { vocabulary::<R>(tokenizer) }?;
        let tokens =
            tokenizer.encode(text, flags & SFR_ENCODE_SPECIAL != 0, flags & SFR_ENCODE_ADD_BOS != 0)?;
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_ne_bytes()).collect();
        // SAFETY: the buffer is the caller's.
        unsafe { wire::fill(out, &bytes) }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn token_bytes<R: Exported>(
    tokenizer: *mut SfrTokenizer,
    first: u32,
    count: u32,
    ends: *mut u32,
    bytes: *mut SfrBuf,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        // SAFETY: the tokenizer is the caller's.
        let tokenizer = unsafe { vocabulary::<R>(tokenizer) }?;
        let vocab = tokenizer.vocab();
        let Some(end) = first.checked_add(count).filter(|&end| end <= vocab) else {
            return Err(Fault::new(Code::Arg, format!("{count} tokens from {first} on, there are {vocab}"))
                .field("first"));
        };
        if count > 0 {
            place(ends, "ends")?;
        }
        let (mut text, mut borders) = (Vec::new(), Vec::with_capacity(count as usize));
        for token in first..end {
            tokenizer.token_bytes(token, &mut text)?;
            borders.push(u32::try_from(text.len()).map_err(|_| {
                Fault::new(Code::Arg, "the tokens' text is larger than 4 GiB").field("count")
            })?);
        }
        // SAFETY: the buffer is the caller's.
        unsafe { wire::fill(bytes, &text) }?;
        if count > 0 {
            // SAFETY: `ends` has room for `count` values by the header, and they are not our memory.
            unsafe { core::ptr::copy_nonoverlapping(borders.as_ptr(), ends, borders.len()) };
        }
        Ok(())
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

pub(crate) unsafe extern "C" fn facts<R: Exported>(
    tokenizer: *mut SfrTokenizer,
    json: *mut SfrBuf,
    err: *mut SfrError,
) -> SfrStatus {
    let call = || {
        // SAFETY: the tokenizer is the caller's.
        let text = unsafe { vocabulary::<R>(tokenizer) }?.facts();
        // SAFETY: the buffer is the caller's.
        unsafe { wire::fill(json, text.as_bytes()) }
    };
    // SAFETY: `err` is the caller's.
    unsafe { guard(err, call) }
}

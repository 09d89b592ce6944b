//! A runtime that lies about a lane's state: the executor believes neither its sizes nor what came back.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(unsafe_code, reason = "builds a broken table around those of the no-op runtime")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use sf_abi::*;
use sf_core::{Feed, LaneId, LaneOp, LaneSpec, StashKey, StepOut, StepPlan, Token};
use sf_kit::{Executor, KitError, OpenRequest, Runtime, host, noop};

struct Tables {
    runtime: SfrRuntime,
    engine: SfrEngineVt,
    kv: SfrKvVt,
}
// SAFETY: the tables hold functions and pointers to static text only.
unsafe impl Send for Tables {}
// SAFETY: the tables hold functions and pointers to static text only.
unsafe impl Sync for Tables {}

/// The no-op runtime with a table of lane states of our own.
fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| {
        let struct_size = size_of::<SfrQuery>() as u32;
        let (abi_major, abi_minor) = (SFR_ABI_MAJOR, SFR_ABI_MINOR);
        let query = SfrQuery { struct_size, abi_major, abi_minor, abi_minor_min: abi_minor };
        // SAFETY: the query is live.
        let at = unsafe { noop::entry(&query) };
        // SAFETY: the no-op runtime answers our version with a static table.
        let mut runtime = unsafe { *at };
        // SAFETY: the id is NUL-terminated.
        let engine = unsafe { (runtime.get_interface.unwrap())(SF_ENGINE_1.as_ptr()) };
        // SAFETY: "sf.engine/1" names an sfr_engine_vt.
        let mut engine = unsafe { *engine.cast::<SfrEngineVt>() };
        runtime.get_interface = Some(lookup);
        engine.get_interface = Some(model_lookup);
        let kv = SfrKvVt {
            struct_size: size_of::<SfrKvVt>() as u32,
            reserved0: 0,
            fork: None,
            export_size: Some(export_size),
            export_state: Some(export_state),
            import_state: Some(import_state),
        };
        Tables { runtime, engine, kv }
    })
}

unsafe extern "C" fn lookup(_id: *const c_char) -> *const c_void {
    std::ptr::from_ref(&tables().engine).cast()
}

unsafe extern "C" fn model_lookup(_model: *mut SfrModel, id: *const c_char) -> *const c_void {
    // SAFETY: ids are NUL-terminated.
    match unsafe { CStr::from_ptr(id) } == SF_KV_1 {
        true => std::ptr::from_ref(&tables().kv).cast(),
        false => std::ptr::null(),
    }
}

unsafe extern "C" fn entry(_query: *const SfrQuery) -> *const SfrRuntime {
    &tables().runtime
}

thread_local! {
    /// What export_size says, what export_state claims to have written, and the lane that import_state gives out.
    static LIE: Cell<(u64, u64, Option<u64>)> = const { Cell::new((8, 8, None)) };
}

unsafe extern "C" fn export_size(
    _: *mut SfrModel,
    _: u64,
    _: u32,
    bytes: *mut u64,
    _: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the caller's word.
    unsafe { *bytes = LIE.get().0 };
    SFR_OK
}

unsafe extern "C" fn export_state(
    _: *mut SfrModel,
    _: u64,
    _: u32,
    out: *mut SfrBuf,
    _: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the caller's record.
    unsafe { (*out).needed = LIE.get().1 };
    SFR_OK
}

/// Makes an empty lane, whatever the envelope held.
unsafe extern "C" fn import_state(
    model: *mut SfrModel,
    _: *const c_void,
    _: u64,
    lane: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
    if let Some(id) = LIE.get().2 {
        // SAFETY: the caller's word.
        unsafe { *lane = id };
        return SFR_OK;
    }
    // SAFETY: passed on as it came.
    unsafe { (tables().engine.lane_create.unwrap())(model, lane, err) }
}

/// A copy of the first two of three positions, and its way back into another lane.
fn round_trip(lie: (u64, u64, Option<u64>)) -> Result<StepOut, KitError> {
    // SAFETY: the runtime breaks rules on numbers only; its memory is sound.
    let runtime = unsafe { Runtime::bind(entry, host::host()) }.unwrap();
    let request = OpenRequest { models: vec!["/none".into()], ..OpenRequest::default() };
    let mut executor = Executor::new(runtime.open(&request).unwrap());
    let (lane, other, key) = (LaneId(0), LaneId(1), StashKey(1));
    let spec = LaneSpec::default;
    let mut out = StepOut::default();
    let plan = StepPlan {
        ops: vec![LaneOp::Open { lane, spec: spec() }],
        feeds: vec![Feed { lane, tokens: 0..3, pos0: 0, sample: false, more: 0 }],
        tokens: vec![Token(1); 3],
        ..StepPlan::default()
    };
    executor.run(&plan, &mut out)?;
    let ops = vec![LaneOp::Stash { lane, upto: 2, key }, LaneOp::Restore { key, lane: other, spec: spec() }];
    LIE.set(lie);
    let answer = executor.run(&StepPlan { ops, ..StepPlan::default() }, &mut out);
    LIE.set((8, 8, None));
    assert!(executor.stats()?.lanes_live <= 2);
    answer.map(|()| out)
}

#[test]
fn a_lie_about_a_copy_is_named() {
    let broken = |lie, expect: &str| {
        let error = round_trip(lie).unwrap_err();
        assert!(matches!(error, KitError::Contract { .. }) && error.to_string().contains(expect), "{error}");
    };
    broken((8, 9, None), "in export_state: it wrote 9 bytes, export_size said 8");
    broken((8, 0, None), "in export_state: it wrote 0 bytes");
    broken((8, 8, Some(1)), "in import_state: it gave out lane 1 a second time");
}

#[test]
fn a_copy_that_cannot_be_held_or_comes_back_short_is_a_lanes_fault() {
    let codes = |lie| {
        let out = round_trip(lie).unwrap();
        out.lanes.iter().map(|told| told.result.as_ref().unwrap_err().code).collect::<Vec<_>>()
    };
    assert_eq!(codes((u64::MAX, 8, None)), [SFR_E_CAPACITY, SFR_E_NOT_FOUND]);
    let out = round_trip((8, 8, None)).unwrap();
    let fault = out.lanes[0].result.as_ref().unwrap_err();
    assert_eq!(
        (fault.code, fault.message.as_str()),
        (SFR_E_INTERNAL, "0 of 2 positions came back from a copy")
    );
    assert_eq!(out.moves.len(), 1, "only the way out succeeded");
}

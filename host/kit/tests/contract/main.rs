//! Runtimes that break the header's rules, one at a time: each gets an error that names the rule, never a panic.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(unsafe_code, reason = "builds broken tables around those of the no-op runtime")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use sf_abi::*;
use sf_core::{Feed, LaneId, LaneOp, LaneOut, LaneSpec, StepOut, StepPlan, Token};
use sf_kit::{EncodeFlags, Executor, KitError, OpenRequest, Runtime, host, noop};

mod outside;
mod steps;
mod twists;

use outside::{INSPECT, TOKENIZER, count_init, count_shutdown};
use twists::*;

/// The tables that a runtime of these tests answers with.
#[derive(Clone, Copy)]
struct Tables {
    runtime: SfrRuntime,
    engine: Option<SfrEngineVt>,
    tokenizer: Option<SfrTokenizerVt>,
    inspect: Option<SfrInspectVt>,
    silent: bool,
}
// SAFETY: the tables hold functions and pointers to static text only.
unsafe impl Send for Tables {}
// SAFETY: the tables hold functions and pointers to static text only.
unsafe impl Sync for Tables {}

type Lookup = unsafe extern "C" fn(*const c_char) -> *const c_void;

fn query() -> SfrQuery {
    let struct_size = size_of::<SfrQuery>() as u32;
    SfrQuery { struct_size, abi_major: SFR_ABI_MAJOR, abi_minor: SFR_ABI_MINOR, abi_minor_min: SFR_ABI_MINOR }
}

/// The no-op runtime's tables, to be spoiled.
fn sound(lookup: Lookup) -> Tables {
    // SAFETY: the query is live.
    let at = unsafe { noop::entry(&query()) };
    // SAFETY: the no-op runtime answers our version with a static table.
    let mut runtime = unsafe { *at };
    // SAFETY: the id is NUL-terminated.
    let engine = unsafe { (runtime.get_interface.unwrap())(SF_ENGINE_1.as_ptr()) };
    // SAFETY: "sf.engine/1" names an sfr_engine_vt.
    let engine = unsafe { *engine.cast::<SfrEngineVt>() };
    runtime.get_interface = Some(lookup);
    Tables { runtime, engine: Some(engine), tokenizer: None, inspect: None, silent: false }
}

fn address<T>(table: &'static Option<T>) -> *const c_void {
    table.as_ref().map_or(std::ptr::null(), |table| std::ptr::from_ref(table).cast())
}

macro_rules! runtimes {
    ($($name:ident: $spoil:expr;)*) => {$(
        mod $name {
            use super::*;
            fn tables() -> &'static Tables {
                static TABLES: OnceLock<Tables> = OnceLock::new();
                TABLES.get_or_init(|| {
                    let mut tables = sound(lookup);
                    let spoil: fn(&mut Tables) = $spoil;
                    spoil(&mut tables);
                    tables
                })
            }
            unsafe extern "C" fn lookup(id: *const c_char) -> *const c_void {
                // SAFETY: ids are NUL-terminated.
                let id = unsafe { CStr::from_ptr(id) };
                if id == SF_ENGINE_1 {
                    address(&tables().engine)
                } else if id == SF_TOKENIZER_1 {
                    address(&tables().tokenizer)
                } else if id == SF_INSPECT_1 {
                    address(&tables().inspect)
                } else {
                    std::ptr::null()
                }
            }
            pub(super) unsafe extern "C" fn entry(_query: *const SfrQuery) -> *const SfrRuntime {
                if tables().silent { std::ptr::null() } else { &tables().runtime }
            }
        }
    )*};
}

runtimes! {
    silent: |t| t.silent = true;
    newer: |t| t.runtime.abi_minor = 3;
    major: |t| t.runtime.abi_major = 1;
    picky: |t| t.runtime.abi_minor_min_host = 3;
    short: |t| t.runtime.struct_size -= 8;
    no_init: |t| t.runtime.init = None;
    no_probe: |t| t.runtime.probe = None;
    wordless: |t| t.runtime.descriptor_json.n = 0;
    endless: |t| t.runtime.descriptor_json.n = u64::MAX;
    latin1: |t| t.runtime.descriptor_json = SfrStr { p: c"\xff".as_ptr(), n: 1 };
    no_engine: |t| t.engine = None;
    short_engine: |t| if let Some(engine) = &mut t.engine { engine.struct_size = 16 };
    no_step: |t| if let Some(engine) = &mut t.engine { engine.step_begin = None };
    sulky: |t| t.runtime.init = Some(sulk);
    twisted: |t| if let Some(engine) = &mut t.engine {
        engine.open = Some(twisted_open);
        engine.describe = Some(twisted_describe);
        engine.lane_create = Some(twisted_create);
        engine.lane_truncate = Some(twisted_truncate);
        engine.step_begin = Some(twisted_begin);
        engine.step_end = Some(twisted_end);
    };
    wordy: |t| {
        t.tokenizer = Some(TOKENIZER);
        t.inspect = Some(INSPECT);
    };
    mortal: |t| {
        t.runtime.shutdown = Some(count_shutdown);
        t.runtime.init = Some(count_init);
    };
}

fn bind(entry: SfrEntryFn) -> Result<Runtime, KitError> {
    // SAFETY: the runtimes of these tests break rules on numbers only; their memory is sound.
    unsafe { Runtime::bind(entry, host::host()) }
}

fn request() -> OpenRequest {
    OpenRequest { models: vec!["/none".into()], ..OpenRequest::default() }
}

unsafe extern "C" fn sulk(_host: *const SfrHost, _err: *mut SfrError) -> SfrStatus {
    SFR_E_INTERNAL
}

#[test]
fn a_library_that_does_not_fit_is_refused_with_the_reason() {
    let check = |entry: SfrEntryFn, expect: &str| {
        let text = bind(entry).expect_err("it is refused").to_string();
        assert!(text.contains(expect), "{text}");
    };
    check(silent::entry, "does not speak ABI 0.2: it answered NULL to our version (kit.version)");
    check(newer::entry, "it speaks 0.3");
    check(major::entry, "it speaks 1.2");
    check(picky::entry, "it needs a host of at least 0.3");
    check(short::entry, "broke its contract in query: its table has");
    check(no_init::entry, "init is NULL");
    check(no_probe::entry, "probe is NULL");
    check(wordless::entry, "its descriptor is empty");
    check(endless::entry, "its descriptor has 18446744073709551615 bytes, the limit is 1048576");
    check(latin1::entry, "its descriptor is not UTF-8");
    check(no_engine::entry, "it offers no sf.engine/1");
    check(short_engine::entry, "in sf.engine/1: its table has 16 bytes");
    check(no_step::entry, "step_begin is NULL");
    check(sulky::entry, "init refused: the runtime gave no message (code -19)");
}

// ------------------------------------------------------------------ a runtime that is told how to misbehave

type EndTwist = fn(&mut SfrResult) -> SfrStatus;

thread_local! {
    static OPEN: Cell<SfrStatus> = const { Cell::new(SFR_OK) };
    static DESCRIPTION: Cell<Option<&'static [u8]>> = const { Cell::new(None) };
    static CREATE: Cell<Option<u64>> = const { Cell::new(None) };
    static TRUNCATE: Cell<Option<u32>> = const { Cell::new(None) };
    static BEGIN: Cell<(SfrStatus, u32)> = const { Cell::new((SFR_OK, 0)) };
    static END: Cell<Option<EndTwist>> = const { Cell::new(None) };
}

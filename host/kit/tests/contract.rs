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
    newer: |t| t.runtime.abi_minor = 2;
    major: |t| t.runtime.abi_major = 1;
    picky: |t| t.runtime.abi_minor_min_host = 2;
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
    check(silent::entry, "does not speak ABI 0.1: it answered NULL to our version (kit.version)");
    check(newer::entry, "it speaks 0.2");
    check(major::entry, "it speaks 1.1");
    check(picky::entry, "it needs a host of at least 0.2");
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

fn engine() -> SfrEngineVt {
    unsafe extern "C" fn nothing(_id: *const c_char) -> *const c_void {
        std::ptr::null()
    }
    sound(nothing).engine.unwrap()
}

unsafe extern "C" fn twisted_open(
    req: *const SfrOpen,
    out: *mut *mut SfrModel,
    err: *mut SfrError,
) -> SfrStatus {
    if OPEN.get() == SFR_OK {
        // SAFETY: passed on as it came.
        return unsafe { (engine().open.unwrap())(req, out, err) };
    }
    // 1 stands for "success without a model".
    if OPEN.get() == 1 { SFR_OK } else { OPEN.get() }
}

unsafe extern "C" fn twisted_describe(
    model: *mut SfrModel,
    buf: *mut SfrBuf,
    err: *mut SfrError,
) -> SfrStatus {
    let Some(bytes) = DESCRIPTION.get() else {
        // SAFETY: passed on as it came.
        return unsafe { (engine().describe.unwrap())(model, buf, err) };
    };
    // SAFETY: the caller's record.
    let buf = unsafe { &mut *buf };
    buf.needed = bytes.len() as u64;
    if buf.cap < buf.needed {
        return SFR_E_SMALL_BUFFER;
    }
    // SAFETY: `cap` bytes are writable and the answer is not longer.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.p.cast(), bytes.len()) };
    SFR_OK
}

unsafe extern "C" fn twisted_create(model: *mut SfrModel, lane: *mut u64, err: *mut SfrError) -> SfrStatus {
    // SAFETY: passed on as it came.
    let status = unsafe { (engine().lane_create.unwrap())(model, lane, err) };
    if let Some(id) = CREATE.get() {
        // SAFETY: the caller's word.
        unsafe { *lane = id };
    }
    status
}

unsafe extern "C" fn twisted_truncate(
    model: *mut SfrModel,
    lane: u64,
    want: u32,
    got: *mut u32,
    err: *mut SfrError,
) -> SfrStatus {
    // SAFETY: passed on as it came.
    let status = unsafe { (engine().lane_truncate.unwrap())(model, lane, want, got, err) };
    if let Some(left) = TRUNCATE.get() {
        // SAFETY: the caller's word.
        unsafe { *got = left };
    }
    status
}

unsafe extern "C" fn twisted_begin(
    model: *mut SfrModel,
    plan: *const SfrPlan,
    ticket: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
    let (status, scope) = BEGIN.get();
    if status != SFR_OK {
        // SAFETY: the caller's record.
        unsafe { (*err).scope = scope };
        return status;
    }
    // SAFETY: passed on as it came.
    unsafe { (engine().step_begin.unwrap())(model, plan, ticket, err) }
}

unsafe extern "C" fn twisted_end(
    model: *mut SfrModel,
    ticket: u64,
    result: *mut SfrResult,
    err: *mut SfrError,
) -> SfrStatus {
    // SAFETY: passed on as it came.
    let status = unsafe { (engine().step_end.unwrap())(model, ticket, result, err) };
    match END.get() {
        // SAFETY: the caller's record.
        Some(twist) if status == SFR_OK => twist(unsafe { &mut *result }),
        _ => status,
    }
}

/// The `nth` lane of a result of the no-op runtime.
fn lane(result: &mut SfrResult, nth: usize) -> &mut SfrLaneOut {
    // SAFETY: the no-op runtime put its lanes at the arena's beginning.
    let at = unsafe { result.arena.cast::<SfrLaneOut>().add(nth) };
    // SAFETY: as above; the arena is aligned to 8.
    unsafe { &mut *at }
}

/// The `nth` row of a result of the no-op runtime.
fn row(result: &mut SfrResult, nth: usize) -> &mut SfrRow {
    // SAFETY: the no-op runtime put its rows at that offset of the arena.
    let at = unsafe { result.arena.cast::<u8>().add(result.rows.at as usize) };
    // SAFETY: as above.
    let at = unsafe { at.cast::<SfrRow>().add(nth) };
    // SAFETY: as above; offset and record are multiples of 8.
    unsafe { &mut *at }
}

/// Two lanes; the second feeds two tokens. Both want a token.
fn plan() -> StepPlan {
    let open = |lane| LaneOp::Open { lane: LaneId(lane), spec: LaneSpec::default() };
    let feed = |lane, tokens| Feed { lane: LaneId(lane), tokens, pos0: 0, sample: true, more: 0 };
    StepPlan {
        seq: 1,
        ops: vec![open(0), open(1)],
        feeds: vec![feed(0, 0..1), feed(1, 1..3)],
        tokens: vec![Token(1), Token(2), Token(3)],
        steps_max: 1,
    }
}

fn twisted_executor() -> Executor {
    Executor::new(bind(twisted::entry).unwrap().open(&request()).unwrap())
}

/// Runs the plan with a spoiled result.
fn step(twist: EndTwist) -> Result<StepOut, KitError> {
    let mut executor = twisted_executor();
    let mut out = StepOut::default();
    END.set(Some(twist));
    let answer = executor.run(&plan(), &mut out);
    END.set(None);
    answer.map(|()| out)
}

#[test]
fn every_lie_in_a_result_is_named() {
    let check = |expect: &str, twist: EndTwist| match step(twist) {
        Err(KitError::Contract { call: "step_end", reason }) => assert!(reason.contains(expect), "{reason}"),
        other => panic!("{expect}: {other:?}"),
    };
    macro_rules! lie {
        ($expect:literal, $change:expr) => {
            check($expect, |result| {
                let change: fn(&mut SfrResult) = $change;
                change(result);
                SFR_OK
            })
        };
    }
    lie!("struct_size", |r| r.struct_size = 8);
    lie!("seq is 7", |r| r.seq = 7);
    lie!("flags 0x4", |r| r.flags = 4);
    lie!("replaced the arena", |r| r.arena_len = 1 << 40);
    lie!("arena_used is 4096", |r| r.arena_used = 4096);
    lie!("lanes take 2 times 32 bytes from 8000", |r| r.lanes.at = 8000);
    lie!("lanes stand at 4", |r| r.lanes.at = 4);
    lie!("stride of 16", |r| r.lanes.stride = 16);
    lie!("1 lanes for 2 feeds", |r| r.lanes.count = 1);
    lie!("rows take 4294967295", |r| r.rows.count = u32::MAX);
    lie!("rows stand at 64 with a stride of 7", |r| r.rows.stride = 7);
    lie!("3 rows, of which its lanes name 2", |r| {
        r.arena_used += 24;
        r.rows.count = 3;
    });
    lie!("lane 9 stands where lane 1", |r| lane(r, 0).lane = 9);
    lie!("has status 5", |r| lane(r, 0).status = 5);
    lie!("consumed 9 of 2", |r| lane(r, 1).consumed = 9);
    lie!("without a yield", |r| lane(r, 1).consumed = 1);
    lie!("is at 5 after 2", |r| lane(r, 1).pos = 5);
    lie!("rows 9+1 of 2", |r| lane(r, 1).row_off = 9);
    lie!("rows 4294967295+1 of 2", |r| lane(r, 1).row_off = u32::MAX);
    lie!("wanted are 1", |r| lane(r, 1).row_len = 0);
    lie!("is of lane 2", |r| lane(r, 0).row_off = 1);
    lie!("is of lane 1 at 7, not at 0", |r| row(r, 0).pos = 7);
    lie!("logits row 64 of 64", |r| row(r, 0).logits_row = 64);
    lie!("logits row 4294967295", |r| row(r, 1).logits_row = SFR_NONE);
    lie!("holds token 3", |r| row(r, 1).token = 3);
    lie!("logits stand at 0x0", |r| r.logits = std::ptr::null());
    lie!("logits stand at", |r| r.logits = r.logits.wrapping_byte_add(2));
    lie!("logits_dtype is 9", |r| r.logits_dtype = 9);
    lie!("a row has 63 logits", |r| r.vocab = 63);
    lie!("a row has 0 logits", |r| r.vocab = 0);
    lie!("logits_stride is 252", |r| r.logits_stride = 252);
    lie!("logits_stride is 258", |r| r.logits_stride = 258);
    lie!("logits_rows is 0", |r| r.logits_rows = 0);
    lie!("logits_rows is 18446744073709551615", |r| r.logits_rows = u64::MAX);
    check("it asks for an arena of", |r| {
        r.arena_used = u64::MAX;
        SFR_E_SMALL_BUFFER
    });
    check("it returned 3", |_| 3);
}

#[test]
fn a_yield_and_a_faulty_lane_are_told_to_their_lane_alone() {
    let out = step(|result| {
        result.flags = SFR_RESULT_YIELDED;
        let second = lane(result, 1);
        (second.consumed, second.pos, second.row_len) = (1, 1, 0);
        result.rows.count = 1;
        SFR_OK
    });
    let lanes = out.unwrap().lanes;
    assert!(matches!(lanes[0].result, Ok(Some(_))));
    assert_eq!((lanes[1].consumed, &lanes[1].result), (1, &Ok(None)));
    let out = step(|result| {
        let first = lane(result, 0);
        (first.status, first.native_code, first.consumed, first.row_len) = (SFR_E_CAPACITY, 12, 0, 0);
        lane(result, 1).row_off = 0;
        *row(result, 0) = *row(result, 1);
        result.rows.count = 1;
        SFR_OK
    });
    let lanes = out.unwrap().lanes;
    let fault = lanes[0].result.as_ref().unwrap_err();
    assert_eq!(fault.code, SFR_E_CAPACITY);
    assert!(
        fault.message.contains("SFR_E_CAPACITY for this lane at position 1 (native 12)"),
        "{}",
        fault.message
    );
    assert!(matches!(lanes[1].result, Ok(Some(_))));
}

/// The plan, going on for three more steps.
fn long_plan() -> StepPlan {
    let mut plan = plan();
    plan.steps_max = 4;
    plan.feeds.iter_mut().for_each(|feed| feed.more = 3);
    plan
}

/// The lanes of every step of the long plan; `between` runs after the first.
fn steps(executor: &mut Executor, between: impl FnOnce()) -> Vec<Vec<LaneOut>> {
    let (mut out, mut told, mut between) = (StepOut::default(), Vec::new(), Some(between));
    executor.begin(&long_plan(), 0).unwrap();
    while !out.last {
        executor.next(&mut out).unwrap();
        told.push(out.lanes.clone());
        if let Some(between) = between.take() {
            between();
        }
    }
    told
}

#[test]
fn a_run_that_was_taken_in_part_ends_its_lanes_part_of_a_tick() {
    let mut executor = twisted_executor();
    END.set(Some(|result| {
        result.flags = SFR_RESULT_YIELDED;
        let second = lane(result, 1);
        (second.consumed, second.pos, second.row_len) = (1, 1, 0);
        result.rows.count = 1;
        SFR_OK
    }));
    let told = steps(&mut executor, || END.set(None));
    assert_eq!((told[0][1].consumed, &told[0][1].result), (1, &Ok(None)));
    assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 1, 1]);
    assert!(told[1..].iter().all(|lanes| lanes[0].lane == LaneId(0)));
}

#[test]
fn a_later_step_that_is_refused_fails_its_lanes_and_ends_the_tick() {
    for (status, scope) in [(SFR_E_CAPACITY, SFR_SCOPE_LANE), (SFR_E_CANCELLED, SFR_SCOPE_CALL)] {
        let mut executor = twisted_executor();
        let told = steps(&mut executor, || BEGIN.set((status, scope)));
        BEGIN.set((SFR_OK, 0));
        assert_eq!(told.len(), 2);
        for lane in &told[1] {
            assert_eq!((lane.consumed, lane.result.as_ref().unwrap_err().code), (0, status));
        }
    }
    let mut executor = twisted_executor();
    let mut out = StepOut::default();
    executor.begin(&long_plan(), 0).unwrap();
    executor.next(&mut out).unwrap();
    BEGIN.set((SFR_E_FATAL, SFR_SCOPE_PROCESS));
    let error = executor.next(&mut out).unwrap_err();
    BEGIN.set((SFR_OK, 0));
    assert_eq!(error.scope(), SFR_SCOPE_PROCESS);
}

#[test]
fn a_wider_stride_from_a_newer_writer_is_read() {
    let out = step(|result| {
        // The second lane moves eight bytes up, over the rows, which move behind it.
        let (second, rows) = (*lane(result, 1), [*row(result, 0), *row(result, 1)]);
        (result.lanes.stride, result.rows.at, result.arena_used) = (40, 80, 128);
        // SAFETY: the arena has room for 128 bytes: it was given 64 to spare.
        let to = unsafe { result.arena.cast::<u8>().add(40) };
        // SAFETY: within the arena and aligned to 8.
        unsafe { to.cast::<SfrLaneOut>().write(second) };
        for (nth, one) in rows.into_iter().enumerate() {
            *row(result, nth) = one;
        }
        SFR_OK
    });
    assert!(out.unwrap().lanes.iter().all(|told| matches!(told.result, Ok(Some(_)))));
}

#[test]
fn a_failed_step_costs_what_its_scope_says() {
    let run = |status, scope| {
        let mut executor = twisted_executor();
        let mut out = StepOut::default();
        BEGIN.set((status, scope));
        let answer = executor.run(&plan(), &mut out);
        BEGIN.set((SFR_OK, 0));
        answer.map(|()| out.lanes)
    };
    let lanes = |status, scope| {
        let lanes = run(status, scope).unwrap();
        assert_eq!(lanes.len(), 2);
        for told in lanes {
            let fault = told.result.unwrap_err();
            assert_eq!((told.consumed, fault.code), (0, status));
            assert!(fault.message.contains("the runtime gave no message"), "{}", fault.message);
        }
    };
    lanes(SFR_E_ARG, SFR_SCOPE_CALL);
    lanes(SFR_E_ARG, SFR_SCOPE_LANE);
    lanes(SFR_E_CAPACITY, SFR_SCOPE_LANE);
    lanes(SFR_E_CAPACITY, SFR_SCOPE_MODEL);
    let engine = |status, scope, expect| assert_eq!(run(status, scope).unwrap_err().scope(), expect);
    engine(SFR_E_INTERNAL, SFR_SCOPE_MODEL, SFR_SCOPE_MODEL);
    engine(SFR_E_FATAL, SFR_SCOPE_CALL, SFR_SCOPE_PROCESS);
    engine(SFR_E_DEVICE_LOST, SFR_SCOPE_CALL, SFR_SCOPE_MODEL);
    engine(7, SFR_SCOPE_CALL, SFR_SCOPE_PROCESS);
}

#[test]
fn lies_outside_of_steps_are_named_too() {
    let runtime = bind(twisted::entry).unwrap();
    OPEN.set(1);
    let text = runtime.open(&request()).unwrap_err().to_string();
    OPEN.set(SFR_OK);
    assert!(text.contains("in open: it returned 0 and no model"), "{text}");

    let described = |bytes: &'static [u8], expect: &str| {
        DESCRIPTION.set(Some(bytes));
        let text = runtime.open(&request()).unwrap_err().to_string();
        DESCRIPTION.set(None);
        assert!(text.contains(expect), "{text}");
    };
    described(b"{", "in describe: its answer is not a description");
    described(b"[1]", "in describe: its answer is not a description");
    described(b"\xff", "in describe: its answer is not UTF-8");
    static LONG: [u8; (1 << 20) + 1] = [b' '; (1 << 20) + 1];
    described(&LONG, "its answer takes 1048577 bytes, the limit is 1048576");

    let mut executor = twisted_executor();
    let mut out = StepOut::default();
    CREATE.set(Some(44));
    let text = executor.run(&plan(), &mut out).unwrap_err().to_string();
    CREATE.set(None);
    assert!(text.contains("in lane_create: it gave out lane 44 a second time"), "{text}");
}

#[test]
fn what_a_cut_leaves_is_compared_with_what_was_asked() {
    let cut = |left: u32| {
        let mut executor = twisted_executor();
        let mut out = StepOut::default();
        executor.run(&plan(), &mut out).unwrap();
        let cut = LaneOp::Truncate { lane: LaneId(1), len: 1 };
        let ops = StepPlan { seq: 2, ops: vec![cut], ..StepPlan::default() };
        TRUNCATE.set(Some(left));
        let answer = executor.run(&ops, &mut out);
        TRUNCATE.set(None);
        answer.map(|()| out.lanes)
    };
    assert_eq!(cut(1), Ok(vec![]));
    let fault = cut(0).unwrap().remove(0).result.unwrap_err();
    assert_eq!(
        (fault.code, fault.message.as_str()),
        (SFR_E_UNSUPPORTED, "the runtime could keep 0 of 1 positions")
    );
    assert!(cut(2).unwrap_err().to_string().contains("2 positions are left of 1 wanted"));
}

#[test]
fn an_option_that_is_honoured_but_not_in_effect_is_refused() {
    let must =
        sf_core::EngineOption { key: "ctx.max".into(), value: sf_core::OptionValue::Int(4096), must: true };
    let asked = OpenRequest { options: vec![must], ..request() };
    let check = |bytes: &'static [u8], expect: &str| {
        DESCRIPTION.set(Some(bytes));
        let answer = bind(twisted::entry).unwrap().open(&asked);
        DESCRIPTION.set(None);
        let text = answer.unwrap_err().to_string();
        assert!(text.contains(expect), "{text}");
    };
    check(
        br#"{"effective":{"ctx.max":2048}}"#,
        "option ctx.max = 4096: the model runs with 2048 (code -4, ctx.max)",
    );
    check(br#"{"effective":{}}"#, "option ctx.max = 4096: the model does not say what it runs with");
}

// ------------------------------------------------------------------ tokenizer, inspect, shutdown

const TOKENIZER: SfrTokenizerVt = SfrTokenizerVt {
    struct_size: size_of::<SfrTokenizerVt>() as u32,
    reserved0: 0,
    open: Some(tokenizer_open),
    close: Some(tokenizer_close),
    encode: Some(tokenizer_encode),
    token_bytes: Some(tokenizer_bytes),
    facts: None,
};

const INSPECT: SfrInspectVt = SfrInspectVt {
    struct_size: size_of::<SfrInspectVt>() as u32,
    reserved0: 0,
    inspect: Some(inspect),
    estimate: Some(estimate),
};

unsafe extern "C" fn tokenizer_open(
    _: *const SfrOpen,
    out: *mut *mut SfrTokenizer,
    _: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the caller's pointer; the handle is never read.
    unsafe { *out = std::ptr::dangling_mut::<u64>().cast() };
    SFR_OK
}

unsafe extern "C" fn tokenizer_close(_: *mut SfrTokenizer) {}

/// One token per byte; a text of "odd" gets one byte too many.
unsafe extern "C" fn tokenizer_encode(
    _: *mut SfrTokenizer,
    text: SfrStr,
    flags: u32,
    out: *mut SfrBuf,
    _: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the caller's text.
    let text = unsafe { std::slice::from_raw_parts(text.p.cast::<u8>(), text.n as usize) };
    let mut bytes: Vec<u8> =
        text.iter().flat_map(|byte| (u32::from(*byte) + (flags << 8)).to_le_bytes()).collect();
    if text == b"odd" {
        bytes.push(0);
    }
    // SAFETY: the caller's record.
    let out = unsafe { &mut *out };
    out.needed = bytes.len() as u64;
    if out.cap < out.needed {
        return SFR_E_SMALL_BUFFER;
    }
    // SAFETY: `cap` bytes are writable and the answer is not longer.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.p.cast(), bytes.len()) };
    SFR_OK
}

/// Every token is "ab"; token 7 has ends that fall.
unsafe extern "C" fn tokenizer_bytes(
    _: *mut SfrTokenizer,
    first: u32,
    count: u32,
    ends: *mut u32,
    bytes: *mut SfrBuf,
    _: *mut SfrError,
) -> SfrStatus {
    // SAFETY: the caller's record.
    let out = unsafe { &mut *bytes };
    out.needed = u64::from(count) * 2;
    if out.cap < out.needed {
        return SFR_E_SMALL_BUFFER;
    }
    for nth in 0..count as usize {
        // SAFETY: the caller has room for `count` ends.
        let end = unsafe { ends.add(nth) };
        let value = if first == 7 { 9 - nth as u32 } else { 2 * nth as u32 + 2 };
        // SAFETY: as above.
        unsafe { *end = value };
    }
    // SAFETY: `needed` bytes are writable.
    unsafe { std::slice::from_raw_parts_mut(out.p.cast::<u8>(), out.needed as usize) }
        .copy_from_slice(&b"ab".repeat(count as usize));
    SFR_OK
}

unsafe extern "C" fn inspect(_: *const SfrOpen, json: *mut SfrBuf, _: *mut SfrError) -> SfrStatus {
    // SAFETY: the caller's record with room to spare.
    let json = unsafe { &mut *json };
    json.needed = 2;
    // SAFETY: the caller gave room for more than two bytes.
    unsafe { std::ptr::copy_nonoverlapping(b"{}".as_ptr(), json.p.cast(), 2) };
    SFR_OK
}

unsafe extern "C" fn estimate(_: *const SfrOpen, out: *mut SfrEstimate, _: *mut SfrError) -> SfrStatus {
    // SAFETY: the caller's record.
    unsafe { (*out).bytes_weights = 42 };
    SFR_OK
}

#[test]
fn the_optional_interfaces_of_a_library_are_called_and_checked() {
    let runtime = bind(wordy::entry).unwrap();
    assert_eq!(runtime.interfaces(), ["sf.inspect/1", "sf.tokenizer/1"]);
    assert_eq!(runtime.inspect(&request()).unwrap().as_deref(), Some("{}"));
    assert_eq!(runtime.estimate(&request()).unwrap().unwrap().bytes_weights, 42);
    let tokenizer = runtime.tokenizer(&request()).unwrap().unwrap();
    let flags = EncodeFlags { special: true, add_bos: true };
    assert_eq!(tokenizer.encode("a", flags).unwrap(), [Token(0x361)]);
    assert_eq!(tokenizer.encode("ab", EncodeFlags::default()).unwrap(), [Token(0x61), Token(0x62)]);
    let odd = tokenizer.encode("odd", EncodeFlags::default()).unwrap_err().to_string();
    assert!(odd.contains("13 bytes are no whole tokens"), "{odd}");
    let found = tokenizer.token_bytes(Token(0), 20).unwrap();
    assert_eq!((found.get(0), found.get(19), found.get(20)), (&b"ab"[..], &b"ab"[..], &b""[..]));
    let fallen = tokenizer.token_bytes(Token(7), 2).unwrap_err().to_string();
    assert!(fallen.contains("its ends fall"), "{fallen}");
    assert!(tokenizer.facts().unwrap_err().to_string().contains("facts is NULL"));
    assert!(!runtime.shutdown(), "a tokenizer is open");
}

static INITS: AtomicU32 = AtomicU32::new(0);
static SHUTDOWNS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn count_init(_: *const SfrHost, _: *mut SfrError) -> SfrStatus {
    INITS.fetch_add(1, Ordering::SeqCst);
    SFR_OK
}

unsafe extern "C" fn count_shutdown() {
    SHUTDOWNS.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_library_is_set_up_once_and_shut_down_once_and_never_under_a_model() {
    let first = bind(mortal::entry).unwrap();
    let second = bind(mortal::entry).unwrap();
    let model = second.open(&request()).unwrap();
    assert!(!first.shutdown());
    drop(model);
    assert!(first.shutdown() && second.shutdown());
    assert_eq!((INITS.load(Ordering::SeqCst), SHUTDOWNS.load(Ordering::SeqCst)), (1, 1));
    let refused =
        |error: KitError| assert!(error.to_string().contains("was shut down in this process"), "{error}");
    refused(second.open(&request()).unwrap_err());
    refused(bind(mortal::entry).unwrap_err());
}

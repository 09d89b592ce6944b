//! The no-op runtime with one twist in an answer, and the plans that it is asked.

use super::*;

pub(crate) fn engine() -> SfrEngineVt {
    unsafe extern "C" fn nothing(_id: *const c_char) -> *const c_void {
        std::ptr::null()
    }
    sound(nothing).engine.unwrap()
}

pub(crate) unsafe extern "C" fn twisted_open(
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

pub(crate) unsafe extern "C" fn twisted_describe(
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

pub(crate) unsafe extern "C" fn twisted_create(
    model: *mut SfrModel,
    lane: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
    // SAFETY: passed on as it came.
    let status = unsafe { (engine().lane_create.unwrap())(model, lane, err) };
    if let Some(id) = CREATE.get() {
        // SAFETY: the caller's word.
        unsafe { *lane = id };
    }
    status
}

pub(crate) unsafe extern "C" fn twisted_truncate(
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

pub(crate) unsafe extern "C" fn twisted_begin(
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

pub(crate) unsafe extern "C" fn twisted_end(
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
pub(crate) fn lane(result: &mut SfrResult, nth: usize) -> &mut SfrLaneOut {
    // SAFETY: the no-op runtime put its lanes at the arena's beginning.
    let at = unsafe { result.arena.cast::<SfrLaneOut>().add(nth) };
    // SAFETY: as above; the arena is aligned to 8.
    unsafe { &mut *at }
}

/// The `nth` row of a result of the no-op runtime.
pub(crate) fn row(result: &mut SfrResult, nth: usize) -> &mut SfrRow {
    // SAFETY: the no-op runtime put its rows at that offset of the arena.
    let at = unsafe { result.arena.cast::<u8>().add(result.rows.at as usize) };
    // SAFETY: as above.
    let at = unsafe { at.cast::<SfrRow>().add(nth) };
    // SAFETY: as above; offset and record are multiples of 8.
    unsafe { &mut *at }
}

/// Two lanes; the second feeds two tokens. Both want a token.
pub(crate) fn plan() -> StepPlan {
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

pub(crate) fn twisted_executor() -> Executor {
    Executor::new(bind(twisted::entry).unwrap().open(&request()).unwrap())
}

/// Runs the plan with a spoiled result.
pub(crate) fn step(twist: EndTwist) -> Result<StepOut, KitError> {
    let mut executor = twisted_executor();
    let mut out = StepOut::default();
    END.set(Some(twist));
    let answer = executor.run(&plan(), &mut out);
    END.set(None);
    answer.map(|()| out)
}

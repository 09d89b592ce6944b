//! Lanes of the runtime that computes nothing: made, cut, forked, copied out and in.
#![expect(unsafe_code, reason = "the other side of the ABI: fills its records")]

use super::*;

/// What begins an exported lane: "noop".
const IDENTITY: u32 = u32::from_le_bytes(*b"noop");
/// Bytes of an exported lane.
const ENVELOPE: usize = 12;
pub(super) unsafe extern "C" fn lane_create(
    model: *mut SfrModel,
    lane: *mut u64,
    err: *mut SfrError,
) -> SfrStatus {
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

pub(super) unsafe extern "C" fn lane_free(model: *mut SfrModel, lane: u64, err: *mut SfrError) -> SfrStatus {
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

pub(super) unsafe extern "C" fn lane_truncate(
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

pub(super) unsafe extern "C" fn export_size(
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

pub(super) unsafe extern "C" fn export_state(
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

pub(super) unsafe extern "C" fn import_state(
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

pub(super) unsafe extern "C" fn fork(
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

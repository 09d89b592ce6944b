//! Steps of the runtime that computes nothing.
#![expect(unsafe_code, reason = "the other side of the ABI: fills its records")]

use super::*;

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

pub(super) unsafe extern "C" fn step_begin(
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

pub(super) unsafe extern "C" fn step_end(
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

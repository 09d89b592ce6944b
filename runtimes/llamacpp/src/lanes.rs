//! Lanes as sequences of one KV cache: cutting, forking and forgetting them, and when llama.cpp cannot.
#![expect(unsafe_code, reason = "calls llama.cpp")]

use llama_cpp_sys_2 as sys;
use sf_abi_sdk::{Code, Fault, Lane};

use crate::context::Context;
use crate::weights::Weights;

/// What a model's memory allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Every position is kept: any cut is possible.
    Whole,
    /// Some layers keep only the last positions: a cut is possible while they still hold what the next token needs.
    Window(u32),
    /// A state instead of positions: all or nothing.
    State,
}

impl Memory {
    pub(crate) fn of(weights: &Weights, swa_full: bool) -> Memory {
        let model = weights.raw();
        // SAFETY: a live model, here and below.
        let recurrent = unsafe { sys::llama_model_is_recurrent(model) };
        // SAFETY: as above.
        let hybrid = unsafe { sys::llama_model_is_hybrid(model) };
        // SAFETY: as above.
        let window = unsafe { sys::llama_model_n_swa(model) };
        if recurrent || hybrid {
            Memory::State
        } else if window > 0 && !swa_full {
            Memory::Window(window.cast_unsigned())
        } else {
            Memory::Whole
        }
    }
}

pub(crate) fn sequence(lane: Lane) -> sys::llama_seq_id {
    sys::llama_seq_id::try_from(lane.slot()).expect("a slot is below LLAMA_MAX_SEQ")
}

/// Forgets a lane.
pub(crate) fn clear(context: &mut Context, lane: Lane) {
    // SAFETY: a live memory and one of its sequences; removing a whole sequence never fails.
    unsafe { sys::llama_memory_seq_rm(context.memory(), sequence(lane), -1, -1) };
}

/// Whether a lane of `len` positions can go on after its first `upto`.
pub(crate) fn holds(context: &Context, memory: Memory, (lane, len): (Lane, u32), upto: u32) -> bool {
    if upto == 0 || upto == len {
        return true;
    }
    match memory {
        Memory::Whole => true,
        Memory::State => false,
        Memory::Window(window) => {
            // SAFETY: a live memory and one of its sequences.
            let oldest = unsafe { sys::llama_memory_seq_pos_min(context.memory(), sequence(lane)) };
            // Position `upto` sees itself and `window - 1` before it; an empty sequence answers -1.
            oldest >= 0 && oldest.cast_unsigned() <= (upto + 1).saturating_sub(window)
        }
    }
}

/// Cuts to `want < len` positions, or to none when the rest could not be continued. Returns what is left.
pub(crate) fn truncate(context: &mut Context, memory: Memory, lane: Lane, len: u32, want: u32) -> u32 {
    let cut = want > 0
        && holds(context, memory, (lane, len), want)
        // SAFETY: a live memory and one of its sequences; it answers false when it cannot.
        && unsafe {
            sys::llama_memory_seq_rm(context.memory(), sequence(lane), want.cast_signed(), -1)
        };
    if cut {
        return want;
    }
    clear(context, lane);
    0
}

/// Undoes what a failed step left in a lane that had `pos0` positions. False when the lane is lost.
pub(crate) fn roll_back(context: &mut Context, memory: Memory, lane: Lane, pos0: u32) -> bool {
    // SAFETY: a live memory and one of its sequences; an empty one answers -1.
    let last = unsafe { sys::llama_memory_seq_pos_max(context.memory(), sequence(lane)) };
    let len = last.saturating_add(1).cast_unsigned();
    len == pos0 || (len > pos0 && truncate(context, memory, lane, len, pos0) == pos0)
}

/// Makes an empty `child` share the first `upto` positions of `parent`; no bytes are copied.
pub(crate) fn fork(
    context: &mut Context,
    memory: Memory,
    parent: (Lane, u32),
    upto: u32,
    child: Lane,
) -> Result<(), Fault> {
    let (parent, len) = parent;
    if !holds(context, memory, (parent, len), upto) {
        let why = match memory {
            Memory::State => "this model keeps one state per lane: only the whole lane can be forked",
            _ => "the sliding window has moved past that position",
        };
        return Err(Fault::new(Code::Unsupported, why).field("upto"));
    }
    if upto == 0 {
        return Ok(());
    }
    let end = if upto == len { -1 } else { upto.cast_signed() };
    // SAFETY: a live memory and two of its sequences; with a unified cache a partial copy is allowed.
    unsafe { sys::llama_memory_seq_cp(context.memory(), sequence(parent), sequence(child), -1, end) };
    Ok(())
}

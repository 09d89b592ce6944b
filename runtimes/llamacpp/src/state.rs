//! A lane's state as bytes and back: llama.cpp's own format, which the SDK wraps.
//!
//! A part of a lane is first shared with the spare sequence, cut there, and saved from there: no cell is copied.
#![expect(unsafe_code, reason = "calls llama.cpp")]

use llama_cpp_sys_2 as sys;
use sf_abi_sdk::{Code, Fault, Lane};

use crate::context::Context;
use crate::lanes::{self, Memory, sequence};
use crate::log;

/// The sequence behind those of the lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare(sys::llama_seq_id);

impl Spare {
    pub(crate) fn behind(lanes_max: u32) -> Spare {
        Spare(lanes_max.cast_signed())
    }
}

/// Runs `save` on a sequence that holds the first `upto` positions of a lane of `len`.
fn with_part<T>(
    context: &mut Context,
    memory: Memory,
    (lane, len): (Lane, u32),
    (upto, spare): (u32, Spare),
    save: impl FnOnce(&mut Context, sys::llama_seq_id) -> T,
) -> Result<T, Fault> {
    if upto == len {
        return Ok(save(context, sequence(lane)));
    }
    if !lanes::holds(context, memory, (lane, len), upto) {
        let words = "the sliding window has moved past that position";
        return Err(Fault::new(Code::Unsupported, words).field("upto"));
    }
    // SAFETY: a live memory and two of its sequences; with a unified cache a partial copy is allowed.
    unsafe {
        sys::llama_memory_seq_cp(context.memory(), sequence(lane), spare.0, -1, upto.cast_signed());
    };
    let saved = save(context, spare.0);
    // SAFETY: a live memory and one of its sequences; removing a whole sequence never fails.
    unsafe { sys::llama_memory_seq_rm(context.memory(), spare.0, -1, -1) };
    Ok(saved)
}

/// Bytes of the first `upto` positions.
pub(crate) fn size(
    context: &mut Context,
    memory: Memory,
    lane: (Lane, u32),
    part: (u32, Spare),
) -> Result<u64, Fault> {
    let bytes = with_part(context, memory, lane, part, |context, sequence| {
        // SAFETY: a live context and one of its sequences.
        unsafe { sys::llama_state_seq_get_size(context.raw(), sequence) }
    })?;
    if bytes == 0 {
        return Err(Fault::new(Code::Internal, "llama.cpp cannot tell the size of the lane's state"));
    }
    Ok(bytes as u64)
}

/// Writes the first `upto` positions into all of `out`.
pub(crate) fn save(
    context: &mut Context,
    memory: Memory,
    lane: (Lane, u32),
    part: (u32, Spare),
    out: &mut [u8],
) -> Result<(), Fault> {
    let (written, words) = log::capture(|| {
        with_part(context, memory, lane, part, |context, sequence| {
            // SAFETY: a live context, one of its sequences, and room of the length that is passed.
            unsafe { sys::llama_state_seq_get_data(context.raw(), out.as_mut_ptr(), out.len(), sequence) }
        })
    });
    match written? {
        bytes if bytes == out.len() => Ok(()),
        bytes => {
            let message = format!("llama.cpp saved {bytes} of {} bytes: {words}", out.len());
            Err(Fault::new(Code::Internal, message))
        }
    }
}

/// Restores `len` positions into an empty lane.
pub(crate) fn restore(context: &mut Context, lane: Lane, len: u32, state: &[u8]) -> Result<(), Fault> {
    let (read, words) = log::capture(|| {
        let to = sequence(lane);
        // SAFETY: a live context, one of its sequences, and bytes of the length that is passed; whose bytes they are and
        // that they are whole was checked before.
        unsafe { sys::llama_state_seq_set_data(context.raw(), state.as_ptr(), state.len(), to) }
    });
    // SAFETY: a live memory and one of its sequences; an empty one answers -1.
    let last = unsafe { sys::llama_memory_seq_pos_max(context.memory(), sequence(lane)) };
    if read == state.len() && last.saturating_add(1).cast_unsigned() == len {
        return Ok(());
    }
    lanes::clear(context, lane);
    if read == 0 {
        // The same model, precision and build wrote these bytes: nothing but room is left to be wanting.
        let message = format!("no room for {len} saved positions in {} cells: {words}", context.cells());
        return Err(Fault::new(Code::Capacity, message).field("kv.cells"));
    }
    let message =
        format!("{read} of {} bytes gave {} of {len} positions", state.len(), last.saturating_add(1));
    Err(Fault::new(Code::Internal, message))
}

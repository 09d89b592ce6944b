//! A lane as bytes and back: for each layer its positions in order, as they stand in the pages.

use super::pages::{LanePages, Pages};

/// Writes the first `upto` positions into all of `out`.
pub(super) fn save(lane: &LanePages, pages: &Pages, upto: u32, out: &mut [u8]) {
    let mut rows = out.chunks_exact_mut(pages.width * 4);
    for layer in 0..pages.layers {
        for position in 0..upto as usize {
            let Some(row) = rows.next() else { return };
            for (to, value) in row.chunks_exact_mut(4).zip(lane.position(pages, layer, position)) {
                to.copy_from_slice(&value.to_le_bytes());
            }
        }
    }
}

/// Reads `len` positions into a lane that has its pages.
pub(super) fn restore(lane: &mut LanePages, pages: &Pages, len: u32, state: &[u8]) {
    let mut rows = state.chunks_exact(pages.width * 4);
    for layer in 0..pages.layers {
        for position in 0..len as usize {
            let Some(row) = rows.next() else { return };
            let to = lane.position_mut(pages, layer, position);
            for (value, bytes) in to.iter_mut().zip(row.chunks_exact(4)) {
                *value = f32::from_le_bytes(bytes.try_into().expect("four bytes"));
            }
        }
    }
}

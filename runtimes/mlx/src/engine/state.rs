//! A lane as bytes and back: for each layer its positions in order, as they stand in the pages.

use sf_abi_sdk::LanePages;

use super::PAGE_ROWS;
use crate::config::Config;

/// Where a position of a layer is: its page, and its elements there. A page holds for each layer, and in it for each
/// position, keys and then values.
fn place(config: &Config, layer: usize, position: usize) -> (usize, std::ops::Range<usize>) {
    let (rows, width) = (PAGE_ROWS as usize, config.kv_width() as usize);
    let at = (layer * rows + position % rows) * width;
    (position / rows, at..at + width)
}

/// Layers and positions in the order of the bytes.
fn order(config: &Config, len: u32) -> impl Iterator<Item = (usize, usize)> + use<> {
    (0..config.layers as usize)
        .flat_map(move |layer| (0..len as usize).map(move |position| (layer, position)))
}

/// Writes the first `upto` positions into all of `out`.
pub(super) fn save(lane: &LanePages<f32>, config: &Config, upto: u32, out: &mut [u8]) {
    let rows = out.chunks_exact_mut(config.kv_width() as usize * 4);
    for (to, (layer, position)) in rows.zip(order(config, upto)) {
        let (page, range) = place(config, layer, position);
        for (to, value) in to.chunks_exact_mut(4).zip(&lane.page(page)[range]) {
            to.copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// Reads `len` positions into a lane that has its pages.
pub(super) fn restore(lane: &mut LanePages<f32>, config: &Config, len: u32, state: &[u8]) {
    let rows = state.chunks_exact(config.kv_width() as usize * 4);
    for (from, (layer, position)) in rows.zip(order(config, len)) {
        let (page, range) = place(config, layer, position);
        for (value, bytes) in lane.page_mut(page)[range].iter_mut().zip(from.chunks_exact(4)) {
            *value = f32::from_le_bytes(bytes.try_into().expect("four bytes"));
        }
    }
}

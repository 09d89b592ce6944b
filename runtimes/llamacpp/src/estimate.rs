//! Memory of a model from its header: weights, KV by layer kind, and scratch.
#![expect(unsafe_code, reason = "asks ggml for the size of a row")]

use std::path::Path;

use llama_cpp_sys_2 as sys;
use sf_abi_sdk::Estimate;

use crate::header::Header;
use crate::params::{CELL_PAD, KvType, LANES_MAX, Params};

/// Architectures whose every n-th layer looks at everything while the others look through a sliding window, when the
/// file itself does not say. (Source: each model's loader in llama.cpp.)
const WINDOW_PERIODS: [(&str, usize); 11] = [
    ("gemma2", 2),
    ("gpt-oss", 2),
    ("afmoe", 4),
    ("cohere2", 4),
    ("exaone4", 4),
    ("exaone-moe", 4),
    ("llama4", 4),
    ("olmo2", 4),
    ("gemma3n", 5),
    ("gemma3", 6),
    ("plamo3", 8),
];

/// KV sizes of a model at given options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) ctx_max: u32,
    /// Cells for layers that look at everything.
    pub(crate) cells: u32,
    /// Bytes of one such cell over all those layers.
    cell_bytes: u64,
    /// Cells for layers with a sliding window.
    window_cells: u32,
    window_cell_bytes: u64,
    window: u32,
    ubatch: u32,
}

impl Sizes {
    pub(crate) fn new(header: &Header, params: &Params) -> Sizes {
        let (cell_bytes, window_cell_bytes) = kv_bytes(header, params);
        let ctx_max = params.ctx_max(header.ctx_trained());
        let all = u64::from(ctx_max) * u64::from(params.lanes_max);
        let wanted = params.kv_cells_wanted.map_or(all, u64::from);
        let cells = match params.kv_cells {
            Some(cells) => u64::from(cells),
            None => affordable(wanted, u64::from(ctx_max), cell_bytes + window_cell_bytes),
        };
        let cells = pad(cells.min(u64::from(u32::MAX >> 1)) as u32);
        let window = header.of_arch("attention.sliding_window").map_or(0, |n| u32::try_from(n).unwrap_or(0));
        let batch = params.batch.min(cells);
        let ubatch = params.ubatch.min(batch);
        let window_cells = match window {
            0 => 0,
            _ if params.swa_full => cells,
            // llama.cpp sizes that cache so.
            _ => pad(window.saturating_mul(params.sequences()).saturating_add(ubatch).min(cells)),
        };
        Sizes { ctx_max, cells, cell_bytes, window_cells, window_cell_bytes, window, ubatch }
    }

    /// Reserved address space of the KV cache; pages cost memory once they are written.
    pub(crate) fn kv_bytes(&self) -> u64 {
        u64::from(self.cells) * self.cell_bytes + u64::from(self.window_cells) * self.window_cell_bytes
    }

    pub(crate) fn compute_bytes(&self, header: &Header, lanes: u32) -> u64 {
        let embedding = header.of_arch("embedding_length").unwrap_or(0);
        let hidden = header.per_layer(&header.arch_key("feed_forward_length"), 0).unwrap_or(4 * embedding);
        // Per token of a micro-batch: residual, norm, q, k, v, attention and the two halves of the gate, in f32.
        let per_token = 4 * (6 * embedding + 3 * hidden);
        let mask = 2 * u64::from(self.cells);
        u64::from(self.ubatch) * (per_token + mask) + u64::from(lanes) * header.vocab() * 4
    }

    /// The answer of `sf.inspect/1`.
    pub(crate) fn estimate(&self, header: &Header, paths: &[&Path]) -> Estimate {
        let more: u64 = paths
            .iter()
            .skip(1)
            .filter_map(|path| Header::open(path).ok())
            .map(|part| part.tensor_bytes())
            .sum();
        Estimate {
            confidence: 1,
            bytes_weights: header.tensor_bytes() + more,
            bytes_kv_per_token: self.cell_bytes,
            bytes_fixed_per_lane: u64::from(self.window) * self.window_cell_bytes,
            bytes_compute: self.compute_bytes(header, 1),
            ctx_trained: header.ctx_trained(),
            lanes_max: LANES_MAX,
        }
    }
}

/// Bytes of one position over the layers that look at everything, and over those with a window.
fn kv_bytes(header: &Header, params: &Params) -> (u64, u64) {
    let embedding = header.of_arch("embedding_length").unwrap_or(0);
    let period = WINDOW_PERIODS
        .iter()
        .find(|(architecture, _)| *architecture == header.architecture())
        .map(|&(_, period)| period);
    let windowed = header.of_arch("attention.sliding_window").unwrap_or(0) > 0;
    let pattern = header.arch_key("attention.sliding_window_pattern");
    let (mut whole, mut window) = (0, 0);
    for layer in 0..header.layers() {
        let heads = header.per_layer(&header.arch_key("attention.head_count"), layer).unwrap_or(0);
        let heads_kv = header.per_layer(&header.arch_key("attention.head_count_kv"), layer).unwrap_or(heads);
        let head = embedding.checked_div(heads).unwrap_or(0);
        let key = header.of_arch("attention.key_length").unwrap_or(head);
        let value = header.of_arch("attention.value_length").unwrap_or(head);
        let bytes = row_bytes(params.type_k, heads_kv.saturating_mul(key))
            + row_bytes(params.type_v, heads_kv.saturating_mul(value));
        let every = header.uint(&pattern).and_then(|n| usize::try_from(n).ok()).or(period);
        let looks_through_window = if header.is_array(&pattern) {
            header.per_layer(&pattern, layer).unwrap_or(0) != 0
        } else {
            every.is_some_and(|every| every == 0 || layer % every < every - 1)
        };
        if windowed && looks_through_window {
            window += bytes;
        } else {
            whole += bytes;
        }
    }
    (whole, window)
}

fn row_bytes(kind: KvType, elements: u64) -> u64 {
    // A damaged header may say anything; no real row is longer.
    let elements = elements.min(1 << 24);
    // SAFETY: a type of ggml's own list.
    let block = unsafe { sys::ggml_blck_size(kind.ggml) }.max(1) as u64;
    // SAFETY: as above.
    let bytes = unsafe { sys::ggml_type_size(kind.ggml) } as u64;
    elements.div_ceil(block) * bytes
}

fn pad(cells: u32) -> u32 {
    cells.div_ceil(CELL_PAD).max(1).saturating_mul(CELL_PAD)
}

/// Cells whose bytes fit half of the memory that is free now, but never less than one full lane.
fn affordable(wanted: u64, least: u64, cell_bytes: u64) -> u64 {
    let Some(free) = sf_abi_sdk::machine::memory_available().filter(|_| cell_bytes > 0) else {
        return wanted;
    };
    wanted.min((free / 2 / cell_bytes).max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_never_falls_below_one_lane() {
        assert_eq!(affordable(1000, 10, u64::MAX), 10);
        assert_eq!(affordable(1000, 10, 0), 1000);
        assert_eq!((pad(0), pad(1), pad(256), pad(257)), (256, 256, 256, 512));
    }
}

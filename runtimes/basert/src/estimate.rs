//! Memory of a model from its header: weights, keys and values, and what a step computes with.

use sf_abi_sdk::Estimate;
use sf_base::{Arch, Bundle, Kind};

use crate::engine::{PAGE_ROWS, page_elements};
use crate::params::{LANES_MAX, Params};

/// The answer of `sf.inspect/1`.
pub(crate) fn of(bundle: &Bundle, params: &Params) -> Estimate {
    let arch = &bundle.header.architecture;
    let decoder = arch.kind == Kind::Decoder;
    Estimate {
        confidence: 1,
        bytes_weights: bundle.file_bytes - bundle.data_offset,
        bytes_kv_per_token: if decoder { kv_bytes(arch) } else { 0 },
        bytes_fixed_per_lane: 0,
        bytes_compute: compute_bytes(arch, params.step_tokens),
        ctx_trained: arch.context,
        lanes_max: LANES_MAX,
    }
}

/// Bytes of one position in all layers; every position is kept, whatever a layer's window is.
pub(crate) fn kv_bytes(arch: &Arch) -> u64 {
    page_elements(arch) as u64 * 2 / u64::from(PAGE_ROWS)
}

/// Of a step of so many tokens and up to sixteen rows: hidden states, queries, keys, values, and the inner state of the
/// feed-forward, as floats and as codes.
fn compute_bytes(arch: &Arch, tokens: u32) -> u64 {
    let heads = u64::from(arch.heads + 2 * arch.kv_heads) * u64::from(arch.head_dim);
    let attended = u64::from(arch.heads) * u64::from(arch.head_dim);
    let widest = u64::from(arch.hidden).max(attended);
    let floats = 2 * u64::from(arch.hidden) + widest + heads + attended + u64::from(arch.ffn);
    // A code with its share of scale and sums has 44/32 bytes.
    let codes = (widest + u64::from(arch.ffn)) * 44 / 32;
    u64::from(tokens) * (4 * floats + codes) + 16 * 4 * u64::from(arch.vocab)
}

//! Memory of a model from its headers: weights, keys and values, and what a step computes with.

use sf_abi_sdk::Estimate;

use crate::Found;
use crate::config::Config;
use crate::encoder::EncoderConfig;
use crate::params::{LANES_MAX, Params};

/// The answer of `sf.inspect/1`.
pub(crate) fn of(found: &Found, params: &Params) -> Estimate {
    let checked = match found {
        Found::Text(checked) => checked,
        Found::Encoder(encoder) => {
            return Estimate {
                confidence: 1,
                bytes_weights: encoder.files.bytes(),
                bytes_compute: encoder_bytes(&encoder.config, params.step_tokens),
                ctx_trained: encoder.config.positions - encoder.config.first_position,
                lanes_max: LANES_MAX,
                ..Estimate::default()
            };
        }
    };
    Estimate {
        confidence: 1,
        bytes_weights: checked.files.bytes(),
        bytes_kv_per_token: kv_bytes(&checked.config),
        bytes_fixed_per_lane: 0,
        bytes_compute: compute_bytes(&checked.config, params.step_tokens),
        ctx_trained: checked.config.ctx_trained,
        lanes_max: LANES_MAX,
    }
}

/// Bytes of one position in all layers; every position is kept, whatever a layer's window is.
pub(crate) fn kv_bytes(config: &Config) -> u64 {
    u64::from(config.layers) * u64::from(config.kv_width()) * 4
}

/// Of a step of so many tokens and one row: two hidden states, queries, keys, values, and both halves of the gate.
pub(crate) fn compute_bytes(config: &Config, tokens: u32) -> u64 {
    let heads = u64::from(config.heads + 2 * config.kv_heads) * u64::from(config.head_dim);
    let per_token = 3 * u64::from(config.hidden) + 2 * heads + 3 * u64::from(config.ffn);
    4 * (u64::from(tokens) * per_token + u64::from(config.vocab))
}

/// Of texts of so many tokens: three hidden states, queries, keys and values, and twice the inner size.
pub(crate) fn encoder_bytes(config: &EncoderConfig, tokens: u32) -> u64 {
    4 * u64::from(tokens) * (6 * u64::from(config.hidden) + 2 * u64::from(config.ffn))
}

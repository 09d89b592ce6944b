//! Names what a saved lane depends on: the bundle, and what keys and values are kept as.

use sf_base::Bundle;
use xxhash_rust::xxh3::xxh3_128;

use crate::params::KV_TYPE;

/// The words for a model. The header holds a checksum of every tensor, so that it tells two bundles apart; kernels of all
/// instruction sets give the same bits, so that they are no part of it.
pub(crate) fn of(bundle: &Bundle) -> String {
    let header = serde_json::to_vec(&bundle.header).expect("a header is JSON");
    format!("bundle {:032x}, kv {KV_TYPE}, pages 1", xxh3_128(&header))
}

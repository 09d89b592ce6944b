//! What computes: an open model, its lanes, and the calls of the SDK's trait.

mod encoder;
mod forward;
mod network;
mod open;
mod rope;
mod scratch;
mod text;
mod weights;

pub(crate) use network::page_elements;
pub(crate) use open::{OpenModel, open};

/// Positions of a page of the cache.
pub(crate) const PAGE_ROWS: u32 = crate::kernels::attention::PAGE as u32;

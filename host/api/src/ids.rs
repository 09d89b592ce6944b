//! Gives out request ids: unique in the process, unlikely to repeat across restarts.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use sf_core::RequestId;

/// A counter from a random start, mixed so that neighbours look unrelated.
pub(crate) struct RequestIds(AtomicU64);

impl RequestIds {
    pub(crate) fn new() -> RequestIds {
        // `RandomState` is keyed by the system's randomness: no dependency for 64 bits.
        RequestIds(AtomicU64::new(RandomState::new().build_hasher().finish()))
    }

    /// The next id. The mix is a bijection, so 2^64 calls pass before one comes again.
    pub(crate) fn next(&self) -> RequestId {
        let mut x = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        RequestId(x ^ (x >> 31))
    }
}

#[cfg(test)]
mod tests {
    use super::RequestIds;

    #[test]
    fn ids_do_not_repeat() {
        let ids = RequestIds::new();
        let seen: std::collections::HashSet<_> = (0..10_000).map(|_| ids.next()).collect();
        assert_eq!(seen.len(), 10_000);
    }
}

//! How much of the KV cache llama.cpp was kept from touching; see `pages.c`.
#![expect(unsafe_code, reason = "calls the C side")]

unsafe extern "C" {
    fn sf_llamacpp_pages_released() -> u64;
}

/// Bytes of KV caches that were cleared without making their pages resident, since the process began.
pub fn released_bytes() -> u64 {
    // SAFETY: no arguments; an atomic load.
    unsafe { sf_llamacpp_pages_released() }
}

//! The attention of `attention.cpp`, which costs no more than what each row may see, and the way back to llama.cpp's own.
#![expect(unsafe_code, reason = "calls the C++ side")]

#[cfg(sf_attention)]
unsafe extern "C" {
    fn sf_llamacpp_attention_original(on: core::ffi::c_int);
}

/// Whether steps use llama.cpp's own attention from now on, in the whole process. For tests and measurements: both
/// give the same bits where the file says so. False where ours is not compiled in, and it is llama.cpp's either way.
pub fn use_original_attention(on: bool) -> bool {
    #[cfg(sf_attention)]
    // SAFETY: stores an atomic.
    unsafe {
        sf_llamacpp_attention_original(on.into());
    };
    let _ = on;
    cfg!(sf_attention)
}

//! The attention of `attention.cpp`, which costs no more than what each row may see, and the way back to llama.cpp's own.
#![expect(unsafe_code, reason = "calls the C++ side")]

#[cfg(sf_attention)]
unsafe extern "C" {
    fn sf_llamacpp_attention_original(on: core::ffi::c_int);
}

/// Whether steps use llama.cpp's own attention from now on, in the whole process. For tests and measurements: both
/// give the same bits where the file says so.
pub fn use_original_attention(on: bool) {
    #[cfg(sf_attention)]
    // SAFETY: stores an atomic.
    unsafe {
        sf_llamacpp_attention_original(on.into());
    };
    // Where it is not compiled in, it is llama.cpp's own anyway.
    let _ = on;
}

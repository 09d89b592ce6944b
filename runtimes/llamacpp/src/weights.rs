//! Loading a model's files into llama.cpp, with progress, cancellation and words when it fails.
#![expect(unsafe_code, reason = "calls llama.cpp")]

use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;
use sf_abi_sdk::{Code, Fault, OpenRequest};

use crate::header::readable;
use crate::log;
use crate::params::Params;

/// Starts ggml's tables. Cheap, no threads, and harmless when repeated.
pub(crate) fn start_backend() {
    // SAFETY: no arguments; `init` is serialised by the host.
    unsafe { sys::llama_backend_init() };
}

/// A loaded model (or only its vocabulary).
#[derive(Debug)]
pub(crate) struct Weights(NonNull<sys::llama_model>);

// SAFETY: llama.cpp's model is immutable after the load and bound to no thread.
unsafe impl Send for Weights {}
// SAFETY: as above; everything done through a shared reference reads it.
unsafe impl Sync for Weights {}

impl Drop for Weights {
    fn drop(&mut self) {
        // SAFETY: made by a load and freed once, after every context of it.
        unsafe { sys::llama_model_free(self.0.as_ptr()) };
    }
}

impl Weights {
    /// Loads the weights.
    pub(crate) fn load(request: &OpenRequest<'_>, params: &Params) -> Result<Weights, Fault> {
        let mut settings = default_settings();
        settings.load_mode = match (params.mmap, params.mlock) {
            (true, false) => sys::LLAMA_LOAD_MODE_MMAP,
            (true, true) => sys::LLAMA_LOAD_MODE_MMAP_MLOCK,
            (false, true) => sys::LLAMA_LOAD_MODE_MLOCK,
            (false, false) => sys::LLAMA_LOAD_MODE_NONE,
        };
        settings.use_extra_bufts = params.repack;
        load(request, settings)
    }

    /// Loads the vocabulary alone.
    pub(crate) fn vocabulary(request: &OpenRequest<'_>) -> Result<Weights, Fault> {
        let mut settings = default_settings();
        settings.vocab_only = true;
        load(request, settings)
    }

    pub(crate) fn raw(&self) -> *mut sys::llama_model {
        self.0.as_ptr()
    }

    /// The vocabulary, alive as long as `self`.
    pub(crate) fn vocab(&self) -> *const sys::llama_vocab {
        // SAFETY: a live model.
        unsafe { sys::llama_model_get_vocab(self.raw()) }
    }

    pub(crate) fn vocab_len(&self) -> u32 {
        // SAFETY: the vocabulary of a live model.
        u32::try_from(unsafe { sys::llama_vocab_n_tokens(self.vocab()) }).unwrap_or(0)
    }

    /// Bytes of all tensors.
    pub(crate) fn bytes(&self) -> u64 {
        // SAFETY: a live model.
        unsafe { sys::llama_model_size(self.raw()) }
    }
}

fn default_settings() -> sys::llama_model_params {
    // SAFETY: no arguments.
    unsafe { sys::llama_model_default_params() }
}

fn load(request: &OpenRequest<'_>, mut settings: sys::llama_model_params) -> Result<Weights, Fault> {
    let paths = c_paths(request.paths())?;
    settings.n_gpu_layers = 0;
    settings.progress_callback = Some(on_progress);
    settings.progress_callback_user_data = std::ptr::from_ref(request).cast_mut().cast::<c_void>();
    let mut pointers: Vec<*const c_char> = paths.iter().map(|path| path.as_ptr()).collect();
    let (model, words) = log::capture(|| {
        if pointers.len() == 1 {
            // SAFETY: a C string and a request that both live for the call; exceptions are caught inside.
            unsafe { sys::llama_model_load_from_file(pointers[0], settings) }
        } else {
            // SAFETY: as above.
            unsafe { sys::llama_model_load_from_splits(pointers.as_mut_ptr(), pointers.len(), settings) }
        }
    });
    if let Some(model) = NonNull::new(model) {
        return Ok(Weights(model));
    }
    if request.control().aborted() {
        return Err(Fault::new(Code::Cancelled, "the load was aborted"));
    }
    let name = request.paths()[0].file_name().unwrap_or_default().to_string_lossy();
    Err(Fault::new(Code::Format, format!("{name}: {words}")).field("paths"))
}

fn c_paths(paths: &[&Path]) -> Result<Vec<CString>, Fault> {
    paths.iter().map(|path| readable(path).map(|(path, _)| path)).collect()
}

unsafe extern "C" fn on_progress(fraction: f32, request: *mut c_void) -> bool {
    // SAFETY: the request that `load` passed, alive until it returns; llama.cpp calls on the loading thread.
    let Some(request) = (unsafe { request.cast::<OpenRequest<'_>>().as_ref() }) else { return true };
    request.progress(fraction.clamp(0.0, 1.0));
    !request.control().aborted()
}

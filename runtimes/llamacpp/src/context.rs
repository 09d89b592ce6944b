//! A model's context and its threads: made once, freed in the right order, aborted through one word.
#![expect(unsafe_code, reason = "calls llama.cpp")]

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use llama_cpp_sys_2 as sys;
use sf_abi_sdk::{Code, Control, Fault};

use crate::estimate::Sizes;
use crate::log;
use crate::params::{Flash, Params};
use crate::weights::Weights;

/// The control page of the step that runs now, or null.
#[derive(Debug)]
pub(crate) struct AbortCell(AtomicPtr<Control>);

/// Worker threads that live as long as the context, instead of being made for every step.
#[derive(Debug)]
struct Threads(NonNull<sys::ggml_threadpool>);

impl Drop for Threads {
    fn drop(&mut self) {
        // SAFETY: made by `ggml_threadpool_new`; the context that used it is gone (field order below).
        unsafe { sys::ggml_threadpool_free(self.0.as_ptr()) };
    }
}

/// A `llama_context`. Fields drop in order: the context before the threads and weights it points to.
#[derive(Debug)]
pub(crate) struct Context {
    raw: Raw,
    _threads: Option<Threads>,
    abort: Box<AbortCell>,
    weights: Weights,
}

#[derive(Debug)]
struct Raw(NonNull<sys::llama_context>);

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: made by `llama_init_from_model` and freed once.
        unsafe { sys::llama_free(self.0.as_ptr()) };
    }
}

// SAFETY: llama.cpp binds a context to no thread; `&mut` keeps two threads from using it at once.
unsafe impl Send for Context {}

impl Context {
    pub(crate) fn new(weights: Weights, params: &Params, sizes: &Sizes) -> Result<Context, Fault> {
        let abort = Box::new(AbortCell(AtomicPtr::new(null_mut())));
        let settings = settings(params, sizes, &abort);
        let make = || {
            // SAFETY: a live model; llama.cpp catches its exceptions and answers NULL.
            unsafe { sys::llama_init_from_model(weights.raw(), settings) }
        };
        let (raw, words) = log::capture(|| log::quietly(make));
        let raw = NonNull::new(raw).map(Raw).ok_or_else(|| {
            // Nothing but memory and unfit options is left to fail after the load.
            let code = if words.contains("alloc") { Code::NomemHost } else { Code::Unsupported };
            Fault::new(code, format!("cannot make a context of {} cells: {words}", sizes.cells))
                .field("ctx.max")
        })?;
        let threads = start_threads(&raw, params)?;
        Ok(Context { raw, _threads: threads, abort, weights })
    }

    pub(crate) fn raw(&self) -> *mut sys::llama_context {
        self.raw.0.as_ptr()
    }

    pub(crate) fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The KV cache; null for a model without one.
    pub(crate) fn memory(&self) -> sys::llama_memory_t {
        // SAFETY: a live context.
        unsafe { sys::llama_get_memory(self.raw()) }
    }

    /// Positions all lanes together may hold.
    pub(crate) fn cells(&self) -> u32 {
        // SAFETY: a live context.
        unsafe { sys::llama_n_ctx(self.raw()) }
    }

    /// Tokens of one `llama_decode`.
    pub(crate) fn batch(&self) -> u32 {
        // SAFETY: a live context.
        unsafe { sys::llama_n_batch(self.raw()) }
    }

    /// Tokens of one pass over the weights.
    pub(crate) fn ubatch(&self) -> u32 {
        // SAFETY: a live context.
        unsafe { sys::llama_n_ubatch(self.raw()) }
    }

    /// Runs `f` while `control` can stop what llama.cpp computes.
    pub(crate) fn abortable<T>(&mut self, control: &Control, f: impl FnOnce(&mut Context) -> T) -> T {
        struct Reset(*const AbortCell);
        impl Drop for Reset {
            fn drop(&mut self) {
                // SAFETY: the cell is boxed in the context, which outlives this guard.
                if let Some(cell) = unsafe { self.0.as_ref() } {
                    cell.0.store(null_mut(), Ordering::Release);
                }
            }
        }
        self.abort.0.store(std::ptr::from_ref(control).cast_mut(), Ordering::Release);
        let _reset = Reset(&raw const *self.abort);
        f(self)
    }
}

fn settings(params: &Params, sizes: &Sizes, abort: &AbortCell) -> sys::llama_context_params {
    // SAFETY: no arguments.
    let mut settings = unsafe { sys::llama_context_default_params() };
    settings.n_ctx = sizes.cells;
    settings.n_batch = params.batch;
    settings.n_ubatch = params.ubatch;
    settings.n_seq_max = params.sequences();
    settings.n_threads = params.threads.cast_signed();
    settings.n_threads_batch = params.threads_batch.cast_signed();
    settings.type_k = params.type_k.ggml;
    settings.type_v = params.type_v.ggml;
    settings.flash_attn_type = match params.flash {
        Flash::Auto => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
        Flash::On => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
        Flash::Off => sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
    };
    settings.swa_full = params.swa_full;
    // One pool of cells: a lane takes what it needs, a fork shares, and no stream is computed for an idle lane.
    settings.kv_unified = true;
    settings.embeddings = false;
    settings.no_perf = true;
    settings.abort_callback = Some(on_abort);
    settings.abort_callback_data = std::ptr::from_ref(abort).cast_mut().cast();
    settings
}

fn start_threads(context: &Raw, params: &Params) -> Result<Option<Threads>, Fault> {
    let count = params.threads.max(params.threads_batch);
    if count == 1 {
        return Ok(None);
    }
    // SAFETY: a plain value.
    let mut settings = unsafe { sys::ggml_threadpool_params_default(count.cast_signed()) };
    settings.poll = params.poll;
    // SAFETY: valid parameters.
    let pool =
        NonNull::new(unsafe { sys::ggml_threadpool_new(&mut settings) }).map(Threads).ok_or_else(|| {
            Fault::new(Code::NomemHost, format!("cannot start {count} threads")).field("threads")
        })?;
    // SAFETY: a live context and a pool that outlives it.
    unsafe { sys::llama_attach_threadpool(context.0.as_ptr(), pool.0.as_ptr(), pool.0.as_ptr()) };
    Ok(Some(pool))
}

unsafe extern "C" fn on_abort(cell: *mut c_void) -> bool {
    // SAFETY: the boxed cell of a live context; llama.cpp calls on the thread that runs the step.
    let Some(cell) = (unsafe { cell.cast::<AbortCell>().as_ref() }) else { return false };
    // SAFETY: null, or the control of the step that is on this thread's stack.
    unsafe { cell.0.load(Ordering::Acquire).as_ref() }.is_some_and(Control::aborted)
}

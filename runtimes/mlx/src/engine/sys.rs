//! The shim's functions and records as `shim/shim.h` has them, and the few that need no array.
#![expect(unsafe_code, reason = "calls the shim")]

use std::ffi::{CStr, c_char, c_void};

use sf_abi_sdk::{Code, Fault, Scope};

pub(super) const F32: i32 = 0;
pub(super) const F16: i32 = 1;
pub(super) const BF16: i32 = 2;
pub(super) const U32: i32 = 3;

/// An array of MLX's, behind a pointer.
#[repr(C)]
pub(super) struct RawArray {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(super) struct RawMatrix {
    pub(super) weight: *const RawArray,
    pub(super) scales: *const RawArray,
    pub(super) biases: *const RawArray,
    pub(super) bias: *const RawArray,
    pub(super) bits: i32,
    pub(super) group: i32,
    pub(super) rows: i32,
    pub(super) cols: i32,
}

#[repr(C)]
pub(super) struct RawRun {
    pub(super) row: i32,
    pub(super) rows: i32,
    pub(super) first: i32,
    pub(super) page_count: i32,
    pub(super) pages: *const *mut f32,
}

#[repr(C)]
pub(super) struct RawAttention {
    pub(super) qkv: *const RawArray,
    pub(super) turns: *const RawArray,
    pub(super) q_norm: *const RawArray,
    pub(super) k_norm: *const RawArray,
    pub(super) runs: *const RawRun,
    pub(super) layer_at: i64,
    pub(super) run_count: i32,
    pub(super) heads: i32,
    pub(super) kv_heads: i32,
    pub(super) head_dim: i32,
    pub(super) page_rows: i32,
    pub(super) window: i32,
    pub(super) scale: f32,
    pub(super) softcap: f32,
    pub(super) norm_eps: f32,
    pub(super) threads: i32,
}

unsafe extern "C" {
    fn sf_mlx_message() -> *const c_char;
    fn sf_mlx_version() -> *const c_char;
    fn sf_mlx_kernels() -> *const c_char;
    fn sf_mlx_use_kernels(name: *const c_char) -> i32;
    fn sf_mlx_has_gpu() -> i32;
    fn sf_mlx_start(cache_bytes: usize, gpu: i32) -> i32;
    fn sf_mlx_memory(out: *mut usize);
    pub(super) fn sf_mlx_new(
        shape: *const i32,
        dims: i32,
        dtype: i32,
        out: *mut *mut RawArray,
        data: *mut *mut c_void,
    ) -> i32;
    pub(super) fn sf_mlx_free(array: *mut RawArray);
    pub(super) fn sf_mlx_side_by_side(rows: *const RawArray, out: *mut *mut RawArray) -> i32;
    pub(super) fn sf_mlx_embed(
        matrix: *const RawMatrix,
        tokens: *const u32,
        count: i32,
        factor: f32,
        out: *mut *mut RawArray,
    ) -> i32;
    pub(super) fn sf_mlx_linear(
        x: *const RawArray,
        parts: *const RawMatrix,
        count: i32,
        threads: i32,
        out: *mut *mut RawArray,
    ) -> i32;
    pub(super) fn sf_mlx_norm(
        x: *const RawArray,
        weight: *const RawArray,
        eps: f32,
        out: *mut *mut RawArray,
    ) -> i32;
    pub(super) fn sf_mlx_gate(
        x: *const RawArray,
        activation: i32,
        threads: i32,
        out: *mut *mut RawArray,
    ) -> i32;
    pub(super) fn sf_mlx_attend(
        attention: *const RawAttention,
        out: *mut *mut RawArray,
        kv: *mut *mut RawArray,
    ) -> i32;
    pub(super) fn sf_mlx_keep(attention: *const RawAttention, kv: *const RawArray) -> i32;
    pub(super) fn sf_mlx_layer_norm(
        x: *const RawArray,
        weight: *const RawArray,
        bias: *const RawArray,
        eps: f32,
        out: *mut *mut RawArray,
    ) -> i32;
    pub(super) fn sf_mlx_activate(
        x: *const RawArray,
        activation: i32,
        threads: i32,
        out: *mut *mut RawArray,
    ) -> i32;
    pub(super) fn sf_mlx_attend_texts(
        qkv: *const RawArray,
        lengths: *const u32,
        count: i32,
        heads: i32,
        scale: f32,
        threads: i32,
        out: *mut *mut RawArray,
    ) -> i32;
    pub(super) fn sf_mlx_add(a: *const RawArray, b: *const RawArray, out: *mut *mut RawArray) -> i32;
    pub(super) fn sf_mlx_select(
        x: *const RawArray,
        rows: *const u32,
        count: i32,
        out: *mut *mut RawArray,
    ) -> i32;
    pub(super) fn sf_mlx_squash(x: *const RawArray, cap: f32, out: *mut *mut RawArray) -> i32;
    pub(super) fn sf_mlx_eval(array: *const RawArray) -> i32;
    pub(super) fn sf_mlx_floats(array: *const RawArray, out: *mut *const f32, count: *mut usize) -> i32;
}

/// An error of the shim, by its code and the words it left on this thread.
pub(super) fn check(code: i32, what: &str) -> Result<(), Fault> {
    let (code, scope) = match code {
        0 => return Ok(()),
        // Graphs are made of checked shapes: an argument that is wrong is our mistake.
        1 => (Code::Internal, Scope::Call),
        2 => (Code::NomemHost, Scope::Call),
        _ => (Code::Internal, Scope::Model),
    };
    // SAFETY: a text of this thread, until the shim's next error.
    let words = text(unsafe { sf_mlx_message() });
    Err(Fault::new(code, format!("{what}: {words}")).scope(scope))
}

/// MLX's own version.
pub(super) fn version() -> String {
    // SAFETY: a static text.
    text(unsafe { sf_mlx_version() })
}

/// The instruction set of the kernels.
pub(super) fn kernels() -> String {
    // SAFETY: a static text.
    text(unsafe { sf_mlx_kernels() })
}

/// Computes with the kernels of this name from now on, if this CPU runs them: for tests, before any model is open.
pub fn use_kernels(name: &CStr) -> bool {
    // SAFETY: a text that lives for the call.
    unsafe { sf_mlx_use_kernels(name.as_ptr()) == 1 }
}

/// Whether this build of MLX can use a GPU here.
pub(super) fn has_gpu() -> bool {
    // SAFETY: no pointer is passed, here and below.
    unsafe { sf_mlx_has_gpu() == 1 }
}

/// Prepares MLX; device and limit of the cache hold for the whole process.
pub(super) fn start(cache_bytes: usize, gpu: bool) -> Result<(), Fault> {
    // SAFETY: as above.
    check(unsafe { sf_mlx_start(cache_bytes, i32::from(gpu)) }, "MLX does not start")
}

/// Bytes in use, their peak, and freed bytes that are kept.
pub(super) fn memory() -> [u64; 3] {
    let mut out = [0; 3];
    // SAFETY: three counters are written.
    unsafe { sf_mlx_memory(out.as_mut_ptr()) };
    out.map(|bytes| bytes as u64)
}

fn text(at: *const c_char) -> String {
    // SAFETY: both kinds of text above are closed by a zero.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

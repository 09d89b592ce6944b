//! Plain records and constants of the header. Field meanings stand in the header, not twice.
#![allow(missing_docs, reason = "the C header documents each field; two copies would drift")]

use core::ffi::{c_char, c_void};

pub const SFR_ABI_MAJOR: u32 = 0;
pub const SFR_ABI_MINOR: u32 = 2;

/// Name of the one exported symbol, without a terminating NUL.
pub const SFR_ENTRY_NAME: &str = "superfluid_runtime_v1";

/// ELF section that holds the descriptor.
pub const SFR_DESCRIPTOR_SECTION_ELF: &str = ".sfr_desc";

pub type SfrStatus = i32;
pub const SFR_OK: SfrStatus = 0;
pub const SFR_E_ABI: SfrStatus = -1;
pub const SFR_E_ARG: SfrStatus = -2;
pub const SFR_E_UNSUPPORTED: SfrStatus = -3;
pub const SFR_E_OPTION: SfrStatus = -4;
pub const SFR_E_NOT_FOUND: SfrStatus = -5;
pub const SFR_E_FORMAT: SfrStatus = -6;
pub const SFR_E_NOMEM_HOST: SfrStatus = -7;
pub const SFR_E_NOMEM_DEVICE: SfrStatus = -8;
pub const SFR_E_CAPACITY: SfrStatus = -9;
pub const SFR_E_BUSY: SfrStatus = -10;
pub const SFR_E_CANCELLED: SfrStatus = -11;
pub const SFR_E_DEADLINE: SfrStatus = -12;
pub const SFR_E_IDENTITY: SfrStatus = -13;
pub const SFR_E_CHECKSUM: SfrStatus = -14;
pub const SFR_E_SMALL_BUFFER: SfrStatus = -15;
pub const SFR_E_STATE: SfrStatus = -16;
pub const SFR_E_DEVICE_LOST: SfrStatus = -17;
pub const SFR_E_FATAL: SfrStatus = -18;
pub const SFR_E_INTERNAL: SfrStatus = -19;

pub const SFR_SCOPE_CALL: u32 = 0;
pub const SFR_SCOPE_LANE: u32 = 1;
pub const SFR_SCOPE_MODEL: u32 = 2;
pub const SFR_SCOPE_RUNTIME: u32 = 3;
pub const SFR_SCOPE_PROCESS: u32 = 4;

pub const SFR_ERROR_MESSAGE_MAX: usize = 400;
pub const SFR_ERROR_FIELD_MAX: usize = 88;

pub const SFR_LOG_ERROR: i32 = 1;
pub const SFR_LOG_WARN: i32 = 2;
pub const SFR_LOG_INFO: i32 = 3;
pub const SFR_LOG_DEBUG: i32 = 4;
pub const SFR_LOG_TRACE: i32 = 5;

pub const SFR_T_BOOL: u32 = 1;
pub const SFR_T_I64: u32 = 2;
pub const SFR_T_F64: u32 = 3;
pub const SFR_T_STR: u32 = 4;
pub const SFR_OPT_MUST: u32 = 1;
pub const SFR_HONOURED_UNSEEN: u32 = 0;
pub const SFR_HONOURED_EXACTLY: u32 = 1;
pub const SFR_HONOURED_APPROXIMATELY: u32 = 2;
pub const SFR_HONOURED_IGNORED: u32 = 3;

pub const SFR_NONE: u32 = 0xFFFF_FFFF;
pub const SFR_DTYPE_F32: u32 = 1;
pub const SFR_DTYPE_F16: u32 = 2;
pub const SFR_DTYPE_BF16: u32 = 3;
pub const SFR_RESULT_YIELDED: u32 = 1;
pub const SFR_ENCODE_SPECIAL: u32 = 1;
pub const SFR_ENCODE_ADD_BOS: u32 = 2;

/// Interface ids.
pub const SF_ENGINE_1: &core::ffi::CStr = c"sf.engine/1";
pub const SF_INSPECT_1: &core::ffi::CStr = c"sf.inspect/1";
pub const SF_TOKENIZER_1: &core::ffi::CStr = c"sf.tokenizer/1";
pub const SF_KV_1: &core::ffi::CStr = c"sf.kv/1";
pub const SF_EMBED_1: &core::ffi::CStr = c"sf.embed/1";

pub const SFR_POOLING_MODEL: u32 = 0;
pub const SFR_POOLING_MEAN: u32 = 1;
pub const SFR_POOLING_FIRST: u32 = 2;
pub const SFR_POOLING_LAST: u32 = 3;
pub const SFR_NORMALIZE_MODEL: u32 = 0;
pub const SFR_NORMALIZE_YES: u32 = 1;
pub const SFR_NORMALIZE_NO: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrStr {
    pub p: *const c_char,
    pub n: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrBuf {
    pub p: *mut c_void,
    pub cap: u64,
    pub needed: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SfrArray {
    pub at: u64,
    pub count: u32,
    pub stride: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrError {
    pub struct_size: u32,
    pub code: i32,
    pub native_code: i32,
    pub scope: u32,
    pub message_len: u32,
    pub field_len: u32,
    pub message: [c_char; SFR_ERROR_MESSAGE_MAX],
    pub field: [c_char; SFR_ERROR_FIELD_MAX],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrHost {
    pub struct_size: u32,
    pub abi_minor: u32,
    pub ctx: *mut c_void,
    pub host_name: SfrStr,
    pub host_version: SfrStr,
    pub log: Option<unsafe extern "C" fn(ctx: *mut c_void, level: i32, target: SfrStr, message: SfrStr)>,
    pub log_enabled: Option<unsafe extern "C" fn(ctx: *mut c_void, level: i32, target: SfrStr) -> i32>,
    pub now_ns: Option<unsafe extern "C" fn(ctx: *mut c_void) -> u64>,
    pub get_interface: Option<unsafe extern "C" fn(ctx: *mut c_void, id: *const c_char) -> *const c_void>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SfrControl {
    pub struct_size: u32,
    pub yield_seq: u32,
    pub abort_seq: u32,
    pub reserved0: u32,
    pub reserved: [u64; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrOpt {
    pub key: SfrStr,
    pub s: SfrStr,
    pub i: i64,
    pub f: f64,
    pub r#type: u32,
    pub flags: u32,
    pub honoured: u32,
    pub reserved0: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrOpen {
    pub struct_size: u32,
    pub flags: u32,
    pub paths: SfrArray,
    pub opts: SfrArray,
    pub devices: SfrArray,
    pub scratch_dir: SfrStr,
    pub cache_dir: SfrStr,
    pub progress: Option<unsafe extern "C" fn(ctx: *mut c_void, fraction: f32)>,
    pub progress_ctx: *mut c_void,
    pub control: *const SfrControl,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SfrFeed {
    pub lane: u64,
    pub token_off: u32,
    pub token_len: u32,
    pub pos0: u32,
    pub flags: u32,
    pub row_off: u32,
    pub row_len: u32,
    pub sampler: u32,
    pub adapter: u32,
    pub media_off: u32,
    pub media_len: u32,
    pub tree: u32,
    pub reserved0: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrPlan {
    pub struct_size: u32,
    pub flags: u32,
    pub seq: u64,
    pub deadline_ns: u64,
    pub arena: *const c_void,
    pub arena_len: u64,
    pub feeds: SfrArray,
    pub tokens: SfrArray,
    pub samplers: SfrArray,
    pub adapters: SfrArray,
    pub media: SfrArray,
    pub trees: SfrArray,
    pub control: *const SfrControl,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SfrLaneOut {
    pub lane: u64,
    pub status: i32,
    pub native_code: u32,
    pub pos: u32,
    pub consumed: u32,
    pub row_off: u32,
    pub row_len: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SfrRow {
    pub lane: u64,
    pub pos: u32,
    pub logits_row: u32,
    pub token: u32,
    pub logprob: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrResult {
    pub struct_size: u32,
    pub flags: u32,
    pub seq: u64,
    pub arena: *mut c_void,
    pub arena_len: u64,
    pub arena_used: u64,
    pub lanes: SfrArray,
    pub rows: SfrArray,
    pub logits: *const c_void,
    pub logits_rows: u64,
    pub logits_stride: u32,
    pub logits_dtype: u32,
    pub vocab: u32,
    pub reserved0: u32,
    pub device_ns: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SfrStats {
    pub struct_size: u32,
    pub lanes_live: u32,
    pub steps: u64,
    pub tokens_fed: u64,
    pub bytes_weights: u64,
    pub bytes_kv: u64,
    pub bytes_compute: u64,
    pub bytes_mapped: u64,
    pub device_free: u64,
    pub kv_cells_total: u64,
    pub kv_cells_used: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SfrEstimate {
    pub struct_size: u32,
    pub confidence: u32,
    pub bytes_weights: u64,
    pub bytes_kv_per_token: u64,
    pub bytes_fixed_per_lane: u64,
    pub bytes_compute: u64,
    pub ctx_trained: u32,
    pub lanes_max: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SfrEmbed {
    pub struct_size: u32,
    pub flags: u32,
    pub tokens: SfrArray,
    pub lengths: SfrArray,
    pub pooling: u32,
    pub normalize: u32,
    pub control: *const SfrControl,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SfrProbe {
    pub struct_size: u32,
    pub depth: u32,
    pub budget_ns: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SfrQuery {
    pub struct_size: u32,
    pub abi_major: u32,
    pub abi_minor: u32,
    pub abi_minor_min: u32,
}

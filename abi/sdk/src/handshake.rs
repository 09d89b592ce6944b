//! The optional handshake of Rust authors: both sides compare, with `abi_stable`, how they lay out the header's
//! structs, and a difference becomes a readable report instead of a crash.
//!
//! The C boundary does not depend on it: a runtime without it is as good, and nothing of Rust crosses here but the
//! layout's description.
#![expect(unsafe_code, reason = "follows a table of the other library")]

use core::ffi::CStr;
use core::fmt;
use core::mem::offset_of;

use abi_stable::StableAbi;
use abi_stable::abi_stability::check_layout_compatibility;
use abi_stable::library::AbiHeader;
use abi_stable::type_layout::TypeLayout;
use sf_abi::*;

/// Id of the interface, from the runtime's `get_interface`.
pub const RUST_LAYOUT_1: &CStr = c"sfx.rust-layout/1";

/// The interface's table. Its own layout is as frozen as the header's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RustLayoutVt {
    /// Bytes of this struct.
    pub struct_size: u32,
    /// Zero.
    pub reserved0: u32,
    /// Major of the description's own format: `abi_stable`'s.
    pub format_major: u32,
    /// Its minor; while the major is 0 both must be the same.
    pub format_minor: u32,
    /// The description of [`Header`], static.
    pub layout: Option<unsafe extern "C" fn() -> *const TypeLayout>,
}

/// Declares a description of a mirror struct and proves at compile time that it is one.
macro_rules! described {
    ($($mirror:ident { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        #[doc = concat!("Layout of [`sf_abi::", stringify!($mirror), "`].")]
        #[repr(C)]
        #[derive(Debug, StableAbi)]
        #[allow(missing_docs, reason = "the C header documents each field")]
        pub struct $mirror { $(pub $field: $kind),* }
        const _: () = {
            assert!(size_of::<$mirror>() == size_of::<sf_abi::$mirror>());
            $(assert!(offset_of!($mirror, $field) == offset_of!(sf_abi::$mirror, $field));)*
        };
    )*};
}

/// Descriptions of the header's structs, under the same names. Pointers are words: only their place matters.
pub mod described {
    use super::*;

    described! {
        SfrStr { p: usize, n: u64 }
        SfrBuf { p: usize, cap: u64, needed: u64 }
        SfrArray { at: u64, count: u32, stride: u32 }
        SfrError {
            struct_size: u32, code: i32, native_code: i32, scope: u32, message_len: u32, field_len: u32,
            message: [u8; SFR_ERROR_MESSAGE_MAX], field: [u8; SFR_ERROR_FIELD_MAX],
        }
        SfrOpt { key: SfrStr, s: SfrStr, i: i64, f: f64, r#type: u32, flags: u32, honoured: u32, reserved0: u32 }
        SfrOpen {
            struct_size: u32, flags: u32, paths: SfrArray, opts: SfrArray, devices: SfrArray, scratch_dir: SfrStr,
            cache_dir: SfrStr, progress: usize, progress_ctx: usize, control: usize,
        }
        SfrFeed {
            lane: u64, token_off: u32, token_len: u32, pos0: u32, flags: u32, row_off: u32, row_len: u32,
            sampler: u32, adapter: u32, media_off: u32, media_len: u32, tree: u32, reserved0: u32,
        }
        SfrPlan {
            struct_size: u32, flags: u32, seq: u64, deadline_ns: u64, arena: usize, arena_len: u64, feeds: SfrArray,
            tokens: SfrArray, samplers: SfrArray, adapters: SfrArray, media: SfrArray, trees: SfrArray,
            control: usize,
        }
        SfrLaneOut {
            lane: u64, status: i32, native_code: u32, pos: u32, consumed: u32, row_off: u32, row_len: u32,
        }
        SfrRow { lane: u64, pos: u32, logits_row: u32, token: u32, logprob: f32 }
        SfrResult {
            struct_size: u32, flags: u32, seq: u64, arena: usize, arena_len: u64, arena_used: u64, lanes: SfrArray,
            rows: SfrArray, logits: usize, logits_rows: u64, logits_stride: u32, logits_dtype: u32, vocab: u32,
            reserved0: u32, device_ns: u64,
        }
        SfrEngineVt {
            struct_size: u32, reserved0: u32, open: usize, close: usize, describe: usize, lane_create: usize,
            lane_free: usize, lane_truncate: usize, step_begin: usize, step_end: usize, stats: usize,
            get_interface: usize,
        }
        SfrRuntime {
            struct_size: u32, abi_major: u32, abi_minor: u32, abi_minor_min_host: u32, descriptor_json: SfrStr,
            init: usize, shutdown: usize, probe: usize, get_interface: usize,
        }
    }
}

/// Root of the description: what crosses the boundary on the way of a request.
#[repr(C)]
#[derive(Debug, StableAbi)]
#[allow(missing_docs, reason = "one field per struct of the header")]
pub struct Header {
    pub runtime: described::SfrRuntime,
    pub engine: described::SfrEngineVt,
    pub error: described::SfrError,
    pub open: described::SfrOpen,
    pub opt: described::SfrOpt,
    pub buf: described::SfrBuf,
    pub plan: described::SfrPlan,
    pub feed: described::SfrFeed,
    pub result: described::SfrResult,
    pub lane_out: described::SfrLaneOut,
    pub row: described::SfrRow,
}

unsafe extern "C" fn layout() -> *const TypeLayout {
    Header::LAYOUT
}

pub(crate) fn table() -> &'static RustLayoutVt {
    const TABLE: &RustLayoutVt = &RustLayoutVt {
        struct_size: size_of::<RustLayoutVt>() as u32,
        reserved0: 0,
        format_major: AbiHeader::VALUE.abi_major,
        format_minor: AbiHeader::VALUE.abi_minor,
        layout: Some(layout),
    };
    TABLE
}

/// What the handshake found out when nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Both sides lay out the header alike.
    Same,
    /// The runtime does not take part: it is not Rust, or does not use this SDK.
    Absent,
}

/// The two sides do not agree.
#[derive(Debug)]
pub enum LayoutMismatch {
    /// They describe layouts in different formats, so nothing can be compared.
    Format {
        /// Major and minor of this side.
        mine: (u32, u32),
        /// Major and minor of the runtime.
        theirs: (u32, u32),
    },
    /// The report of `abi_stable`: which struct and field, expected and found.
    Layout(String),
}

impl fmt::Display for LayoutMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutMismatch::Format { mine, theirs } => write!(
                f,
                "the runtime describes its layout in abi_stable {}.{}, this host in {}.{} (abi.layout_format)",
                theirs.0, theirs.1, mine.0, mine.1
            ),
            LayoutMismatch::Layout(report) => {
                write!(f, "the runtime lays out the ABI's structs differently (abi.layout):\n{report}")
            }
        }
    }
}

impl core::error::Error for LayoutMismatch {}

/// Compares a runtime's layout with this side's.
///
/// # Errors
/// [`LayoutMismatch`] with a report for people.
///
/// # Safety
/// `runtime` came from the exported symbol of a library that stays mapped.
pub unsafe fn check(runtime: &SfrRuntime) -> Result<Handshake, LayoutMismatch> {
    let Some(get_interface) = runtime.get_interface else { return Ok(Handshake::Absent) };
    // SAFETY: [any] by the header, and the id is a C string.
    let table = unsafe { get_interface(RUST_LAYOUT_1.as_ptr()) }.cast::<RustLayoutVt>();
    // SAFETY: NULL, or the table that the id stands for, static.
    let Some(table) = (unsafe { table.as_ref() }) else { return Ok(Handshake::Absent) };
    let mine = (self::table().format_major, self::table().format_minor);
    let theirs = (table.format_major, table.format_minor);
    if mine != theirs {
        return Err(LayoutMismatch::Format { mine, theirs });
    }
    let Some(layout) = table.layout else { return Ok(Handshake::Absent) };
    // SAFETY: the interface makes the function pure and its answer static.
    let layout = unsafe { layout() };
    // SAFETY: as above; the format of the description was just compared.
    match unsafe { layout.as_ref() } {
        Some(theirs) => compare(Header::LAYOUT, theirs).map(|()| Handshake::Same),
        None => Ok(Handshake::Absent),
    }
}

fn compare(mine: &'static TypeLayout, theirs: &'static TypeLayout) -> Result<(), LayoutMismatch> {
    check_layout_compatibility(mine, theirs)
        .into_result()
        .map_err(|report| LayoutMismatch::Layout(report.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    mod other {
        use super::*;

        /// A feed whose positions moved behind the rows.
        #[repr(C)]
        #[derive(StableAbi)]
        pub(super) struct SfrRow {
            lane: u64,
            logits_row: u32,
            pos: u32,
            token: u32,
            logprob: f64,
        }
    }

    #[test]
    fn a_different_layout_fails_with_a_readable_report() {
        let error = compare(described::SfrRow::LAYOUT, other::SfrRow::LAYOUT).unwrap_err().to_string();
        for word in ["SfrRow", "pos", "logits_row", "f64", "(abi.layout)"] {
            assert!(error.contains(word), "{word} is missing in:\n{error}");
        }
    }

    #[test]
    fn the_same_layout_passes() {
        assert!(compare(Header::LAYOUT, Header::LAYOUT).is_ok());
    }
}

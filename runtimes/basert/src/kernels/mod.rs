//! The kernels: one set of algorithms, compiled for each instruction set, of which the best that the machine has is taken.
//!
//! All sets give the same bits. The arithmetic is in `matmul`, `ops`, `attention` and `heads`, written once over
//! [`simd::Simd`]; an instruction set brings the operations of its vectors and the products of bytes.
#![expect(
    unsafe_code,
    reason = "functions for one instruction set, called through a table that was made for it"
)]

pub(crate) mod act;
pub(crate) mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod heads;
pub(crate) mod matmul;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod ops;
mod portable;
mod simd;
#[cfg(test)]
mod tests;

use core::ops::Range;

use heads::Heads;
use matmul::Matmul;
use ops::{Norm, Sink};

/// The kernels of an instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernels {
    /// E.g. `avx512-vnni`.
    pub(crate) name: &'static str,
    /// Whether the machine has it.
    here: fn() -> bool,
    matmul: unsafe fn(&Matmul, Range<usize>),
    norm: unsafe fn(&Norm, Rows, &Sink),
    norm_add: unsafe fn(&Norm, Rows, *mut f32),
    put: unsafe fn(Rows, usize, &Sink),
    place: unsafe fn(&Heads<'_>, Range<usize>),
    attend: unsafe fn(&Heads<'_>, Range<usize>, bool),
    softcap: unsafe fn(*mut f32, usize, f32),
}

/// Some rows of `[rows, stride]` floats.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) at: *const f32,
    pub(crate) stride: usize,
    pub(crate) rows: Range<usize>,
}

macro_rules! kernels {
    ($module:ident, $name:literal, $simd:ty, $here:expr $(, $features:literal)?) => {
        mod $module {
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn matmul(task: &Matmul, units: Range<usize>) {
                // SAFETY: the caller's promises.
                unsafe { task.run::<$simd>(units) };
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn norm(norm: &Norm, rows: Rows, sink: &Sink) {
                for row in rows.rows {
                    // SAFETY: as above; so in all below.
                    unsafe { norm.to::<$simd>(rows.at.add(row * rows.stride), row, sink) };
                }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn norm_add(norm: &Norm, rows: Rows, to: *mut f32) {
                for row in rows.rows {
                    let at = row * rows.stride;
                    // SAFETY: as above.
                    unsafe { norm.add_to::<$simd>(rows.at.add(at), to.add(at)) };
                }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn put(rows: Rows, blocks: usize, sink: &Sink) {
                for row in rows.rows {
                    // SAFETY: as above.
                    unsafe { sink.put_all::<$simd>(row, blocks, rows.at.add(row * rows.stride)) };
                }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn place(heads: &Heads<'_>, pieces: Range<usize>) {
                // SAFETY: as above.
                unsafe { heads.place::<$simd>(pieces) };
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn attend(heads: &Heads<'_>, units: Range<usize>, place: bool) {
                // SAFETY: as above.
                unsafe { heads.attend::<$simd>(units, place) };
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn softcap(at: *mut f32, len: usize, cap: f32) {
                for at in (0..len).step_by(simd::LANES).map(|offset| at.wrapping_add(offset)) {
                    // SAFETY: as above.
                    unsafe { <$simd as simd::Simd>::store(at, attention::softcap::<$simd>(<$simd as simd::Simd>::load(at), cap)) };
                }
            }

            pub(super) static KERNELS: Kernels =
                Kernels { name: $name, here: $here, matmul, norm, norm_add, put, place, attend, softcap };
        }
    };
}

kernels!(plain, "portable", portable::Portable, || true);
#[cfg(target_arch = "x86_64")]
kernels!(
    vnni512,
    "avx512-vnni",
    avx512::Avx512,
    || is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("fma"),
    "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma"
);
#[cfg(target_arch = "x86_64")]
kernels!(
    fma256,
    "avx2",
    avx2::Avx2,
    || is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c"),
    "avx2,fma,f16c"
);
#[cfg(target_arch = "aarch64")]
kernels!(
    dotprod128,
    "neon",
    neon::Neon,
    || std::arch::is_aarch64_feature_detected!("dotprod"),
    "neon,dotprod"
);

/// All sets that were compiled, the best first.
static ALL: &[&Kernels] = &[
    #[cfg(target_arch = "x86_64")]
    &vnni512::KERNELS,
    #[cfg(target_arch = "x86_64")]
    &fma256::KERNELS,
    #[cfg(target_arch = "aarch64")]
    &dotprod128::KERNELS,
    &plain::KERNELS,
];

impl Kernels {
    /// The sets that this machine has, the best first; the portable one is always there.
    pub(crate) fn here() -> impl Iterator<Item = &'static Kernels> {
        ALL.iter().copied().filter(|kernels| (kernels.here)())
    }

    /// The best, or the one of that name.
    pub(crate) fn named(name: Option<&str>) -> Option<&'static Kernels> {
        Kernels::here().find(|kernels| name.is_none_or(|name| kernels.name == name))
    }

    /// Some units of a product.
    ///
    /// # Safety
    /// The task's addresses hold what they say they do, and nobody else writes the units' rows meanwhile.
    pub(crate) unsafe fn matmul(&self, task: &Matmul, units: Range<usize>) {
        // SAFETY: the caller's promises; a table that was handed out is of an instruction set that is here.
        unsafe { (self.matmul)(task, units) };
    }

    /// Norms of rows.
    ///
    /// # Safety
    /// Rows are padded to 32 floats; the sink has room for them and nobody else writes there.
    pub(crate) unsafe fn norm(&self, norm: &Norm, rows: Rows, sink: &Sink) {
        // SAFETY: as above.
        unsafe { (self.norm)(norm, rows, sink) };
    }

    /// Adds the norms of rows to rows of the same stride.
    ///
    /// # Safety
    /// As [`Kernels::norm`].
    pub(crate) unsafe fn norm_add(&self, norm: &Norm, rows: Rows, to: *mut f32) {
        // SAFETY: as above.
        unsafe { (self.norm_add)(norm, rows, to) };
    }

    /// Puts rows of `blocks` times 32 floats.
    ///
    /// # Safety
    /// As [`Kernels::norm`].
    pub(crate) unsafe fn put(&self, rows: Rows, blocks: usize, sink: &Sink) {
        // SAFETY: as above.
        unsafe { (self.put)(rows, blocks, sink) };
    }

    /// Prepares the heads of some pieces.
    ///
    /// # Safety
    /// Addresses hold what they say they do; nobody else writes the pieces' rows and positions.
    pub(crate) unsafe fn place(&self, heads: &Heads<'_>, pieces: Range<usize>) {
        // SAFETY: as above.
        unsafe { (self.place)(heads, pieces) };
    }

    /// Computes some units of attention.
    ///
    /// # Safety
    /// As [`Kernels::place`]; keys and values that are looked at are in their pages, or are with `place` the unit's own.
    pub(crate) unsafe fn attend(&self, heads: &Heads<'_>, units: Range<usize>, place: bool) {
        // SAFETY: as above.
        unsafe { (self.attend)(heads, units, place) };
    }

    /// Bounds a row of logits.
    ///
    /// # Safety
    /// `len` floats, a multiple of sixteen.
    pub(crate) unsafe fn softcap(&self, at: *mut f32, len: usize, cap: f32) {
        // SAFETY: as above.
        unsafe { (self.softcap)(at, len, cap) };
    }
}

//! The operations with AVX-512 and its byte products (VNNI).
#![expect(clippy::needless_range_loop, reason = "indexes planes of arrays side by side")]
#![expect(unsafe_code, reason = "vector instructions and pointers, as its trait asks")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "each line of a kernel is one instruction; one reason holds for all"
)]

use core::arch::x86_64::*;

use super::act::Tile;
use super::simd::{LANES, Simd, ahead, each_column};

/// AVX-512 F, BW, VL, DQ and VNNI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512;

#[inline(always)]
unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: the caller's pointer and instruction set.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
}

#[inline(always)]
unsafe fn line(at: *const u8) -> __m512i {
    // SAFETY: as above.
    unsafe { _mm512_loadu_si512(at.cast()) }
}

/// Four bytes of a token, for all rows.
#[inline(always)]
unsafe fn quad(codes: *const i8, number: usize) -> __m512i {
    // SAFETY: as above.
    unsafe { _mm512_set1_epi32(codes.cast::<i32>().add(number).read_unaligned()) }
}

/// Products with unsigned codes of eight planes, which `planes` makes from a block.
#[inline(always)]
unsafe fn affine<const N: usize>(
    (w, blocks, bytes): (*const u8, usize, usize),
    act: Tile,
    out: *mut f32,
    planes: impl Fn(*const u8) -> [__m512i; 8],
    kind: Kind,
) {
    // SAFETY: the caller's group, tile and room; each line inside of them.
    unsafe {
        let mut sums = [_mm512_setzero_ps(); N];
        let mut minima = [_mm512_setzero_ps(); N];
        for number in 0..blocks {
            let block = w.add(number * bytes);
            if act.fetch {
                ahead::<Avx512>(block, bytes);
            }
            let x = act.block(number);
            let q = planes(block);
            let scale = halves(block.add(bytes - if kind.minima() { 64 } else { 32 }));
            each_column!(column < N => {
                let codes = x.codes(column);
                let mut dot = [_mm512_setzero_si512(); 2];
                for p in 0..8 {
                    // One column alone has two chains, so that it does not wait for itself.
                    let chain = if N == 1 { p % 2 } else { 0 };
                    dot[chain] = _mm512_dpbusd_epi32(dot[chain], q[p], quad(codes, p));
                }
                let mut dot = if N == 1 { _mm512_add_epi32(dot[0], dot[1]) } else { dot[0] };
                if kind == Kind::Signed {
                    dot = _mm512_sub_epi32(dot, _mm512_set1_epi32(*x.codes_sum(column) << 7));
                }
                let factor = _mm512_mul_ps(scale, _mm512_set1_ps(*x.scale(column)));
                sums[column] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), factor, sums[column]);
            });
            if kind.minima() && N <= 8 {
                let minimum = halves(block.add(bytes - 32));
                each_column!(column < N => {
                    let sum = _mm512_set1_ps(*x.sum(column));
                    minima[column] = _mm512_fmadd_ps(minimum, sum, minima[column]);
                });
            }
        }
        // Many columns leave no registers for minima beside the sums.
        if kind.minima() && N > 8 {
            for number in 0..blocks {
                let minimum = halves(w.add(number * bytes + bytes - 32));
                let x = act.block(number);
                each_column!(column < N => {
                    let sum = _mm512_set1_ps(*x.sum(column));
                    minima[column] = _mm512_fmadd_ps(minimum, sum, minima[column]);
                });
            }
        }
        each_column!(column < N => {
            let y = if kind.minima() { _mm512_add_ps(sums[column], minima[column]) } else { sums[column] };
            _mm512_storeu_ps(out.add(column * LANES), y);
        });
    }
}

/// What codes are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Unsigned, with minima.
    Minima,
    /// Signed, given with 128 added.
    Signed,
}

impl Kind {
    #[inline(always)]
    fn minima(self) -> bool {
        self == Kind::Minima
    }
}

// SAFETY: whoever calls has the instruction set.
unsafe impl Simd for Avx512 {
    type F = __m512;
    const ROWS_MAX: usize = 12;

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: the caller has the instruction set; so in all below.
        unsafe { _mm512_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_loadu_ps(at) }
    }
    #[inline(always)]
    unsafe fn store(at: *mut f32, value: __m512) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(at, value) };
    }
    #[inline(always)]
    fn soon<T>(at: *const T) {
        // SAFETY: a prefetch touches nothing, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> __m512 {
        // SAFETY: as above.
        unsafe { halves(at.cast()) }
    }
    #[inline(always)]
    unsafe fn store_f16(at: *mut u16, value: __m512) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(at.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value)) };
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> __m512 {
        // SAFETY: as above.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn where_above(x: __m512, limit: f32, a: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, _mm512_set1_ps(limit)), a) }
    }
    #[inline(always)]
    unsafe fn abs(a: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    unsafe fn exp2(n: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    unsafe fn sum_across(a: __m512) -> f32 {
        // SAFETY: as above.
        unsafe {
            let a = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
        }
    }
    #[inline(always)]
    unsafe fn max_across(a: __m512) -> f32 {
        // SAFETY: as above.
        unsafe {
            let a = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)))
        }
    }
    #[inline(always)]
    unsafe fn store_i8(at: *mut i8, value: __m512) {
        // SAFETY: as above.
        unsafe { _mm_storeu_si128(at.cast(), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(value))) };
    }

    #[inline(always)]
    unsafe fn q4m<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32) {
        // SAFETY: the caller's promises.
        unsafe {
            let low = _mm512_set1_epi8(15);
            let planes = |block: *const u8| {
                let mut q = [_mm512_setzero_si512(); 8];
                for p in 0..4 {
                    let both = line(block.add(p * 64));
                    q[2 * p] = _mm512_and_si512(both, low);
                    q[2 * p + 1] = _mm512_and_si512(_mm512_srli_epi16::<4>(both), low);
                }
                q
            };
            affine::<N>((w, blocks, 320), act, out, planes, Kind::Minima);
        }
    }
    #[inline(always)]
    unsafe fn q8<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32) {
        // SAFETY: the caller's promises.
        unsafe {
            let sign = _mm512_set1_epi8(-128);
            let planes =
                |block: *const u8| core::array::from_fn(|p| _mm512_xor_si512(line(block.add(p * 64)), sign));
            affine::<N>((w, blocks, 544), act, out, planes, Kind::Signed);
        }
    }
    #[inline(always)]
    unsafe fn q8m<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32) {
        // SAFETY: the caller's promises.
        unsafe {
            let planes = |block: *const u8| core::array::from_fn(|p| line(block.add(p * 64)));
            affine::<N>((w, blocks, 576), act, out, planes, Kind::Minima);
        }
    }
}

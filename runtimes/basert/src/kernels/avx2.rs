//! The operations with AVX2, FMA and F16C: two vectors of eight, and byte products summed in sixteen bits.
#![expect(clippy::needless_range_loop, reason = "indexes halves and columns of arrays side by side")]
#![expect(unsafe_code, reason = "vector instructions and pointers, as its trait asks")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "each line of a kernel is one instruction; one reason holds for all"
)]

use core::arch::x86_64::*;

use super::act::Tile;
use super::simd::{LANES, Simd, ahead, each_column};

/// AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2;

type Pair = [__m256; 2];

/// Eight halves from a group's sixteen: `half` is 0 or 1.
#[inline(always)]
unsafe fn halves(at: *const u8, half: usize) -> __m256 {
    // SAFETY: the caller's pointer and instruction set.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.add(half * 16).cast())) }
}

/// Eight rows of a plane.
#[inline(always)]
unsafe fn line(at: *const u8) -> __m256i {
    // SAFETY: as above.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// Four bytes of a token, for all rows.
#[inline(always)]
unsafe fn quad(codes: *const i8, number: usize) -> __m256i {
    // SAFETY: as above.
    unsafe { _mm256_set1_epi32(codes.cast::<i32>().add(number).read_unaligned()) }
}

/// What codes are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Of four bits.
    Nibbles,
    Signed,
    /// Unsigned, with minima.
    Unsigned,
}

/// Products of eight rows of a block with a token's codes.
#[inline(always)]
unsafe fn dot(planes: &[__m256i; 8], codes: *const i8, kind: Kind) -> __m256i {
    // SAFETY: as above; the token's codes are 32.
    unsafe {
        let ones = _mm256_set1_epi16(1);
        if kind == Kind::Nibbles {
            // 15 * 127, twice, in each of eight planes: at most 30480.
            let mut sum = _mm256_setzero_si256();
            for (number, plane) in planes.iter().enumerate() {
                sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(*plane, quad(codes, number)));
            }
            return _mm256_madd_epi16(sum, ones);
        }
        let mut sum = _mm256_setzero_si256();
        for (number, plane) in planes.iter().enumerate() {
            // Magnitudes up to 128 and codes up to 127: a pair stays within sixteen bits.
            let signed = _mm256_sign_epi8(quad(codes, number), *plane);
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(*plane), signed);
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
        }
        sum
    }
}

/// Products with the codes of eight planes, which `planes` makes of a block's lower or upper eight rows.
#[inline(always)]
unsafe fn affine<const N: usize>(
    (w, blocks, bytes): (*const u8, usize, usize),
    act: Tile,
    out: *mut f32,
    planes: impl Fn(*const u8) -> [__m256i; 8],
    kind: Kind,
) {
    let minima = kind != Kind::Signed;
    // SAFETY: the caller's group, tile and room; each line inside of them.
    unsafe {
        for half in 0..2 {
            let mut sums = [_mm256_setzero_ps(); N];
            let mut lows = [_mm256_setzero_ps(); N];
            for number in 0..blocks {
                let block = w.add(number * bytes);
                if act.fetch && half == 0 {
                    ahead::<Avx2>(block, bytes);
                }
                let x = act.block(number);
                let q = planes(block.add(half * 32));
                let scale = halves(block.add(bytes - if minima { 64 } else { 32 }), half);
                each_column!(column < N => {
                    let mut dot = dot(&q, x.codes(column), kind);
                    if kind == Kind::Unsigned {
                        dot = _mm256_add_epi32(dot, _mm256_set1_epi32(*x.codes_sum(column) << 7));
                    }
                    let factor = _mm256_mul_ps(scale, _mm256_set1_ps(*x.scale(column)));
                    sums[column] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, sums[column]);
                    if minima {
                        let low = halves(block.add(bytes - 32), half);
                        lows[column] = _mm256_fmadd_ps(low, _mm256_set1_ps(*x.sum(column)), lows[column]);
                    }
                });
            }
            each_column!(column < N => {
                let y = if minima { _mm256_add_ps(sums[column], lows[column]) } else { sums[column] };
                _mm256_storeu_ps(out.add(column * LANES + half * 8), y);
            });
        }
    }
}

// SAFETY: whoever calls has the instruction set.
unsafe impl Simd for Avx2 {
    type F = Pair;
    const ROWS_MAX: usize = 3;

    #[inline(always)]
    unsafe fn zero() -> Pair {
        // SAFETY: the caller has the instruction set; so in all below.
        unsafe { [_mm256_setzero_ps(); 2] }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Pair {
        // SAFETY: as above.
        unsafe { [_mm256_set1_ps(value); 2] }
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Pair {
        // SAFETY: as above.
        unsafe { [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))] }
    }
    #[inline(always)]
    unsafe fn store(at: *mut f32, value: Pair) {
        // SAFETY: as above.
        unsafe {
            _mm256_storeu_ps(at, value[0]);
            _mm256_storeu_ps(at.add(8), value[1]);
        }
    }
    #[inline(always)]
    fn soon<T>(at: *const T) {
        // SAFETY: a prefetch touches nothing, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Pair {
        // SAFETY: as above.
        unsafe { [halves(at.cast(), 0), halves(at.cast(), 1)] }
    }
    #[inline(always)]
    unsafe fn store_f16(at: *mut u16, value: Pair) {
        // SAFETY: as above.
        unsafe {
            for half in 0..2 {
                let bits = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value[half]);
                _mm_storeu_si128(at.add(half * 8).cast(), bits);
            }
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Pair {
        // SAFETY: as above.
        let wide = |half: usize| unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.add(half * 8).cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        };
        [wide(0), wide(1)]
    }
    #[inline(always)]
    unsafe fn add(a: Pair, b: Pair) -> Pair {
        // SAFETY: as above.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn sub(a: Pair, b: Pair) -> Pair {
        // SAFETY: as above.
        unsafe { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn mul(a: Pair, b: Pair) -> Pair {
        // SAFETY: as above.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn div(a: Pair, b: Pair) -> Pair {
        // SAFETY: as above.
        unsafe { [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn max(a: Pair, b: Pair) -> Pair {
        // SAFETY: as above.
        unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn min(a: Pair, b: Pair) -> Pair {
        // SAFETY: as above.
        unsafe { [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn fma(a: Pair, b: Pair, c: Pair) -> Pair {
        // SAFETY: as above.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }
    #[inline(always)]
    unsafe fn where_above(x: Pair, limit: f32, a: Pair) -> Pair {
        // SAFETY: as above.
        let kept = |half: usize| unsafe {
            _mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(x[half], _mm256_set1_ps(limit)), a[half])
        };
        [kept(0), kept(1)]
    }
    #[inline(always)]
    unsafe fn abs(a: Pair) -> Pair {
        // SAFETY: as above.
        a.map(|a| unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) })
    }
    #[inline(always)]
    unsafe fn round(a: Pair) -> Pair {
        // SAFETY: as above.
        a.map(|a| unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) })
    }
    #[inline(always)]
    unsafe fn exp2(n: Pair) -> Pair {
        // SAFETY: as above.
        n.map(|n| unsafe {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        })
    }
    #[inline(always)]
    unsafe fn sum_across(a: Pair) -> f32 {
        // SAFETY: as above.
        unsafe {
            let a = _mm256_add_ps(a[0], a[1]);
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
        }
    }
    #[inline(always)]
    unsafe fn max_across(a: Pair) -> f32 {
        // SAFETY: as above.
        unsafe {
            let a = _mm256_max_ps(a[0], a[1]);
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)))
        }
    }
    #[inline(always)]
    unsafe fn store_i8(at: *mut i8, value: Pair) {
        // SAFETY: as above.
        unsafe {
            let words = _mm256_packs_epi32(_mm256_cvtps_epi32(value[0]), _mm256_cvtps_epi32(value[1]));
            // Packing works in halves; this puts the quarters in order.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(at.cast(), bytes);
        }
    }

    #[inline(always)]
    unsafe fn q4m<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32) {
        // SAFETY: the caller's promises.
        unsafe {
            let low = _mm256_set1_epi8(15);
            let planes = |block: *const u8| {
                let mut q = [_mm256_setzero_si256(); 8];
                for p in 0..4 {
                    let both = line(block.add(p * 64));
                    q[2 * p] = _mm256_and_si256(both, low);
                    q[2 * p + 1] = _mm256_and_si256(_mm256_srli_epi16::<4>(both), low);
                }
                q
            };
            affine::<N>((w, blocks, 320), act, out, planes, Kind::Nibbles);
        }
    }
    #[inline(always)]
    unsafe fn q8<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32) {
        // SAFETY: the caller's promises.
        unsafe {
            let planes = |block: *const u8| core::array::from_fn(|p| line(block.add(p * 64)));
            affine::<N>((w, blocks, 544), act, out, planes, Kind::Signed);
        }
    }
    #[inline(always)]
    unsafe fn q8m<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32) {
        // SAFETY: the caller's promises.
        unsafe {
            let sign = _mm256_set1_epi8(-128);
            let planes =
                |block: *const u8| core::array::from_fn(|p| _mm256_xor_si256(line(block.add(p * 64)), sign));
            affine::<N>((w, blocks, 576), act, out, planes, Kind::Unsigned);
        }
    }
}

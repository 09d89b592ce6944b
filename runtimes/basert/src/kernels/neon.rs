//! The operations with NEON and its byte products (`sdot`): four vectors of four.
#![expect(clippy::needless_range_loop, reason = "indexes quarters and columns of arrays side by side")]
#![expect(unsafe_code, reason = "vector instructions and pointers, as its trait asks")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "each line of a kernel is one instruction; one reason holds for all"
)]

use core::arch::aarch64::*;
use core::arch::asm;

use super::act::Tile;
use super::simd::{LANES, Simd, ahead, each_column};

/// Advanced SIMD with byte products (`dotprod`), as every core since about 2018 has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon;

type Quad = [float32x4_t; 4];

/// Four halves from a group's sixteen: `quarter` is 0 to 3.
#[inline(always)]
unsafe fn halves(at: *const u8, quarter: usize) -> float32x4_t {
    // SAFETY: the caller's pointer.
    unsafe { widen(vld1_u16(at.add(quarter * 8).cast())) }
}

/// From half precision: the intrinsic is not stable yet; neither are those of the next two.
#[inline(always)]
unsafe fn widen(half: uint16x4_t) -> float32x4_t {
    let wide: float32x4_t;
    // SAFETY: reads and writes registers only.
    unsafe {
        asm!(
            "fcvtl {0:v}.4s, {1:v}.4h",
            lateout(vreg) wide,
            in(vreg) half,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    wide
}

/// To half precision, rounded as the machine is set: to the nearest, ties to even.
#[inline(always)]
unsafe fn narrow(wide: float32x4_t) -> uint16x4_t {
    let half: uint16x4_t;
    // SAFETY: as above.
    unsafe {
        asm!(
            "fcvtn {0:v}.4h, {1:v}.4s",
            lateout(vreg) half,
            in(vreg) wide,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    half
}

/// Adds to each lane the products of its four bytes with the four bytes of `$lane` of `$codes`.
macro_rules! sdot {
    ($sum:expr, $bytes:expr, $codes:expr, $lane:literal) => {
        asm!(
            concat!(".arch_extension dotprod\nsdot {0:v}.4s, {1:v}.16b, {2:v}.4b[", $lane, "]"),
            inout(vreg) $sum,
            in(vreg) $bytes,
            in(vreg) $codes,
            options(pure, nomem, nostack, preserves_flags)
        )
    };
}

/// Products of four rows of a block with a token's codes: in two chains, so that one does not wait for itself.
#[inline(always)]
unsafe fn dot(planes: &[int8x16_t; 8], codes: *const i8) -> int32x4_t {
    // SAFETY: the caller has the instruction set; the token's codes are 32.
    unsafe {
        let (low, high) = (vld1q_s8(codes), vld1q_s8(codes.add(16)));
        let (mut first, mut second) = (vdupq_n_s32(0), vdupq_n_s32(0));
        sdot!(first, planes[0], low, "0");
        sdot!(second, planes[4], high, "0");
        sdot!(first, planes[1], low, "1");
        sdot!(second, planes[5], high, "1");
        sdot!(first, planes[2], low, "2");
        sdot!(second, planes[6], high, "2");
        sdot!(first, planes[3], low, "3");
        sdot!(second, planes[7], high, "3");
        vaddq_s32(first, second)
    }
}

/// What codes are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Of four bits, with minima.
    Nibbles,
    Signed,
    /// Unsigned, given with 128 taken off, with minima.
    Unsigned,
}

/// Products with the codes of eight planes, which `planes` makes of four rows of a block.
#[inline(always)]
unsafe fn affine<const N: usize>(
    group: (*const u8, usize, usize),
    act: Tile,
    out: *mut f32,
    planes: impl Fn(*const u8) -> [int8x16_t; 8],
    kind: Kind,
) {
    // SAFETY: the caller's promises.
    unsafe {
        if N == 16 {
            // Planes, sums and minima of more than eight tokens would not stay in 32 registers.
            some::<8>(group, act, out, &planes, kind);
            let rest = Tile { first: act.first + 8, fetch: false, ..act };
            some::<8>(group, rest, out.add(8 * LANES), &planes, kind);
        } else {
            some::<N>(group, act, out, &planes, kind);
        }
    }
}

/// The same, for as many tokens as there are registers for.
#[inline(always)]
unsafe fn some<const N: usize>(
    (w, blocks, bytes): (*const u8, usize, usize),
    act: Tile,
    out: *mut f32,
    planes: &impl Fn(*const u8) -> [int8x16_t; 8],
    kind: Kind,
) {
    let minima = kind != Kind::Signed;
    // SAFETY: the caller's group, tile and room; each line inside of them.
    unsafe {
        for quarter in 0..4 {
            let mut sums = [vdupq_n_f32(0.0); N];
            let mut lows = [vdupq_n_f32(0.0); N];
            for number in 0..blocks {
                let block = w.add(number * bytes);
                if act.fetch && quarter == 0 {
                    ahead::<Neon>(block, bytes);
                }
                let x = act.block(number);
                let q = planes(block.add(quarter * 16));
                let scale = halves(block.add(bytes - if minima { 64 } else { 32 }), quarter);
                let low = if minima { halves(block.add(bytes - 32), quarter) } else { scale };
                each_column!(column < N => {
                    let mut dot = dot(&q, x.codes(column));
                    if kind == Kind::Unsigned {
                        dot = vaddq_s32(dot, vdupq_n_s32(*x.codes_sum(column) << 7));
                    }
                    let factor = vmulq_n_f32(scale, *x.scale(column));
                    sums[column] = vfmaq_f32(sums[column], vcvtq_f32_s32(dot), factor);
                    if minima {
                        lows[column] = vfmaq_n_f32(lows[column], low, *x.sum(column));
                    }
                });
            }
            each_column!(column < N => {
                let y = if minima { vaddq_f32(sums[column], lows[column]) } else { sums[column] };
                vst1q_f32(out.add(column * LANES + quarter * 4), y);
            });
        }
    }
}

#[inline(always)]
fn zip(a: Quad, b: Quad, f: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) -> Quad {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
}

/// The larger of each lane; the machine's own maximum hands on what is no number.
#[inline(always)]
unsafe fn larger(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    // SAFETY: the caller has the instruction set.
    unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) }
}

/// Lanes onto each other: `i` with `i + 8`, then 4, 2, 1.
#[inline(always)]
unsafe fn fold(a: Quad, f: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) -> f32 {
    let a = f(f(a[0], a[2]), f(a[1], a[3]));
    // SAFETY: the caller has the instruction set.
    unsafe {
        let a = f(a, vextq_f32::<2>(a, a));
        vgetq_lane_f32::<0>(f(a, vdupq_laneq_f32::<1>(a)))
    }
}

// SAFETY: whoever calls has the instruction set.
unsafe impl Simd for Neon {
    type F = Quad;
    // Rows times four vectors of sums leave a third of the 32 registers for what they are made of.
    const ROWS_MAX: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Quad {
        // SAFETY: the caller has the instruction set; so in all below.
        unsafe { [vdupq_n_f32(0.0); 4] }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Quad {
        // SAFETY: as above.
        unsafe { [vdupq_n_f32(value); 4] }
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Quad {
        // SAFETY: as above.
        unsafe { [vld1q_f32(at), vld1q_f32(at.add(4)), vld1q_f32(at.add(8)), vld1q_f32(at.add(12))] }
    }
    #[inline(always)]
    unsafe fn store(at: *mut f32, value: Quad) {
        for quarter in 0..4 {
            // SAFETY: as above.
            unsafe { vst1q_f32(at.add(quarter * 4), value[quarter]) };
        }
    }
    #[inline(always)]
    fn soon<T>(at: *const T) {
        // SAFETY: a prefetch touches nothing, wherever it points.
        unsafe { asm!("prfm pldl1keep, [{0}]", in(reg) at, options(readonly, nostack, preserves_flags)) };
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Quad {
        // SAFETY: as above.
        let quarter = |number: usize| unsafe { halves(at.cast(), number) };
        [quarter(0), quarter(1), quarter(2), quarter(3)]
    }
    #[inline(always)]
    unsafe fn store_f16(at: *mut u16, value: Quad) {
        for quarter in 0..4 {
            // SAFETY: as above.
            unsafe { vst1_u16(at.add(quarter * 4), narrow(value[quarter])) };
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Quad {
        // SAFETY: as above.
        let quarter =
            |number: usize| unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(at.add(number * 4)))) };
        [quarter(0), quarter(1), quarter(2), quarter(3)]
    }
    #[inline(always)]
    unsafe fn add(a: Quad, b: Quad) -> Quad {
        // SAFETY: as above.
        zip(a, b, |a, b| unsafe { vaddq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn sub(a: Quad, b: Quad) -> Quad {
        // SAFETY: as above.
        zip(a, b, |a, b| unsafe { vsubq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn mul(a: Quad, b: Quad) -> Quad {
        // SAFETY: as above.
        zip(a, b, |a, b| unsafe { vmulq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn div(a: Quad, b: Quad) -> Quad {
        // SAFETY: as above.
        zip(a, b, |a, b| unsafe { vdivq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn fma(a: Quad, b: Quad, c: Quad) -> Quad {
        // SAFETY: as above.
        let quarter = |i: usize| unsafe { vfmaq_f32(c[i], a[i], b[i]) };
        [quarter(0), quarter(1), quarter(2), quarter(3)]
    }
    #[inline(always)]
    unsafe fn max(a: Quad, b: Quad) -> Quad {
        // SAFETY: as above.
        zip(a, b, |a, b| unsafe { larger(a, b) })
    }
    #[inline(always)]
    unsafe fn min(a: Quad, b: Quad) -> Quad {
        // SAFETY: as above.
        zip(a, b, |a, b| unsafe { vbslq_f32(vcltq_f32(a, b), a, b) })
    }
    #[inline(always)]
    unsafe fn where_above(x: Quad, limit: f32, a: Quad) -> Quad {
        // SAFETY: as above.
        zip(x, a, |x, a| unsafe {
            let above = vcgtq_f32(x, vdupq_n_f32(limit));
            vreinterpretq_f32_u32(vandq_u32(above, vreinterpretq_u32_f32(a)))
        })
    }
    #[inline(always)]
    unsafe fn abs(a: Quad) -> Quad {
        // SAFETY: as above.
        a.map(|a| unsafe { vabsq_f32(a) })
    }
    #[inline(always)]
    unsafe fn round(a: Quad) -> Quad {
        // SAFETY: as above.
        a.map(|a| unsafe { vrndnq_f32(a) })
    }
    #[inline(always)]
    unsafe fn exp2(n: Quad) -> Quad {
        // SAFETY: as above.
        n.map(|n| unsafe {
            let biased = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased))
        })
    }
    #[inline(always)]
    unsafe fn sum_across(a: Quad) -> f32 {
        // SAFETY: as above.
        unsafe { fold(a, |a, b| vaddq_f32(a, b)) }
    }
    #[inline(always)]
    unsafe fn max_across(a: Quad) -> f32 {
        // SAFETY: as above.
        unsafe { fold(a, |a, b| larger(a, b)) }
    }
    #[inline(always)]
    unsafe fn store_i8(at: *mut i8, value: Quad) {
        // SAFETY: as above.
        unsafe {
            let words = |a, b| vcombine_s16(vqmovn_s32(vcvtq_s32_f32(a)), vqmovn_s32(vcvtq_s32_f32(b)));
            let (low, high) = (words(value[0], value[1]), words(value[2], value[3]));
            vst1q_s8(at, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
        }
    }

    #[inline(always)]
    unsafe fn q4m<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32) {
        // SAFETY: the caller's promises.
        unsafe {
            let planes = |rows: *const u8| {
                let mut q = [vdupq_n_s8(0); 8];
                for p in 0..4 {
                    let both = vld1q_u8(rows.add(p * 64));
                    q[2 * p] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
                    q[2 * p + 1] = vreinterpretq_s8_u8(vshrq_n_u8::<4>(both));
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
            let planes = |rows: *const u8| core::array::from_fn(|p| vld1q_s8(rows.add(p * 64).cast()));
            affine::<N>((w, blocks, 544), act, out, planes, Kind::Signed);
        }
    }
    #[inline(always)]
    unsafe fn q8m<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32) {
        // SAFETY: the caller's promises.
        unsafe {
            let sign = vdupq_n_u8(128);
            let planes = |rows: *const u8| {
                core::array::from_fn(|p| vreinterpretq_s8_u8(veorq_u8(vld1q_u8(rows.add(p * 64)), sign)))
            };
            affine::<N>((w, blocks, 576), act, out, planes, Kind::Unsigned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::portable::Portable;
    use super::*;

    /// Halves of integers, limits of halves, numbers too small for their format, infinities and what is no number.
    const EDGES: [f32; LANES] = [
        0.0,
        -0.0,
        0.5,
        -1.5,
        2.5,
        1.000_488_3,
        65_519.0,
        65_520.0,
        -2.980_232_2e-8,
        6.1e-5,
        -1e-40,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];

    /// Bits of floats, where all that are no number are one.
    fn bits(values: [f32; LANES]) -> [u32; LANES] {
        values.map(|value| if value.is_nan() { f32::NAN } else { value }.to_bits())
    }

    /// What each operation makes of two vectors, by name.
    fn results<S: Simd>(a: &[f32; LANES], b: &[f32; LANES]) -> Vec<(&'static str, [u32; LANES])> {
        // SAFETY: the caller's machine has the instruction set; arrays have sixteen elements.
        unsafe {
            let (a, b) = (S::load(a.as_ptr()), S::load(b.as_ptr()));
            let stored = |value: S::F| {
                let mut out = [0.0; LANES];
                S::store(out.as_mut_ptr(), value);
                bits(out)
            };
            let mut halves = [0_u16; LANES];
            S::store_f16(halves.as_mut_ptr(), a);
            let mut bytes = [0_i8; LANES];
            let small = S::min(S::max(S::round(a), S::splat(-127.0)), S::splat(127.0));
            S::store_i8(bytes.as_mut_ptr(), small);
            vec![
                ("add", stored(S::add(a, b))),
                ("sub", stored(S::sub(a, b))),
                ("mul", stored(S::mul(a, b))),
                ("div", stored(S::div(a, b))),
                ("fma", stored(S::fma(a, b, a))),
                ("max", stored(S::max(a, b))),
                ("min", stored(S::min(a, b))),
                ("where_above", stored(S::where_above(a, 0.5, b))),
                ("abs", stored(S::abs(a))),
                ("round", stored(S::round(a))),
                ("exp2", stored(S::exp2(small))),
                ("sum_across", bits([S::sum_across(a); LANES])),
                ("sum_across in order", bits([S::sum_across(S::mul(small, S::splat(0.1))); LANES])),
                ("max_across", bits([S::max_across(a); LANES])),
                ("halves", stored(S::load_f16(halves.as_ptr()))),
                ("brain floats", stored(S::load_bf16(halves.as_ptr()))),
                ("bytes", bytes.map(|byte| byte.cast_unsigned().into())),
            ]
        }
    }

    #[test]
    fn every_operation_has_the_portable_bits_at_the_edges_too() {
        for turn in 0..LANES {
            let mut turned = EDGES;
            turned.rotate_left(turn);
            for (a, b) in [(&EDGES, &turned), (&turned, &EDGES)] {
                for (neon, portable) in results::<Neon>(a, b).iter().zip(results::<Portable>(a, b)) {
                    assert_eq!(*neon, portable, "{a:?} with {b:?}");
                }
            }
        }
    }

    #[test]
    fn every_half_is_widened_exactly() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        for halves in all.chunks_exact(LANES) {
            let (mut neon, mut portable) = ([0.0; LANES], [0.0; LANES]);
            // SAFETY: NEON is part of the architecture; sixteen elements each.
            unsafe {
                Neon::store(neon.as_mut_ptr(), Neon::load_f16(halves.as_ptr()));
                Portable::store(portable.as_mut_ptr(), Portable::load_f16(halves.as_ptr()));
            }
            assert_eq!(bits(neon), bits(portable), "{halves:?}");
        }
    }
}

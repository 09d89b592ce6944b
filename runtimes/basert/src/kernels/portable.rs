//! The operations without any vector instructions: slow, and the measure of all others.
#![expect(unsafe_code, reason = "reads and writes through pointers, as its trait asks")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one reason holds for a whole kernel")]

use sf_base::{from_f16, to_f16};

use super::act::{BLOCK, Tile};
use super::simd::{LANES, Simd};

/// Plain Rust.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

#[inline(always)]
fn map(a: [f32; LANES], f: impl Fn(f32) -> f32) -> [f32; LANES] {
    a.map(f)
}

#[inline(always)]
fn zip(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    core::array::from_fn(|i| f(a[i], b[i]))
}

/// Folds lanes onto each other, the upper half onto the lower.
#[inline(always)]
fn fold(mut a: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            a[i] = f(a[i], a[i + half]);
        }
    }
    a[0]
}

/// A code of `q4m`: planes hold columns `8p..8p+4` in the low halves of their bytes and the next four in the high ones.
#[inline(always)]
unsafe fn nibble(block: *const u8, row: usize, column: usize) -> i32 {
    let (plane, in_plane) = (column / 8, column % 8);
    // SAFETY: inside of the block's planes.
    let byte = unsafe { *block.add(plane * 64 + row * 4 + in_plane % 4) };
    i32::from(if in_plane < 4 { byte & 15 } else { byte >> 4 })
}

/// Products with affine codes: integers are summed exactly within a block, blocks in order.
#[inline(always)]
unsafe fn affine<const N: usize>(
    (w, blocks, bytes): (*const u8, usize, usize),
    act: Tile,
    out: *mut f32,
    code: impl Fn(*const u8, usize, usize) -> i32,
    with_minima: bool,
) {
    for column in 0..N {
        for row in 0..LANES {
            let (mut sum, mut minima) = (0.0_f32, 0.0_f32);
            for number in 0..blocks {
                // SAFETY: the caller's group and tile have these blocks.
                unsafe {
                    let block = w.add(number * bytes);
                    let halves = block.add(bytes - if with_minima { 64 } else { 32 }).cast::<u16>();
                    let x = act.block(number);
                    let codes = x.codes(column);
                    let dot: i32 = (0..BLOCK).map(|k| code(block, row, k) * i32::from(*codes.add(k))).sum();
                    let scale = from_f16(halves.add(row).read_unaligned());
                    sum = (dot as f32).mul_add(scale * *x.scale(column), sum);
                    if with_minima {
                        let minimum = from_f16(halves.add(LANES + row).read_unaligned());
                        minima = minimum.mul_add(*x.sum(column), minima);
                    }
                }
            }
            // SAFETY: the caller's room for N columns.
            unsafe { out.add(column * LANES + row).write(if with_minima { sum + minima } else { sum }) };
        }
    }
}

// SAFETY: no instruction set is needed.
unsafe impl Simd for Portable {
    type F = [f32; LANES];
    const ROWS_MAX: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self::F {
        [0.0; LANES]
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self::F {
        // SAFETY: the caller's pointer.
        unsafe { at.cast::<Self::F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(at: *mut f32, value: Self::F) {
        // SAFETY: the caller's pointer.
        unsafe { at.cast::<Self::F>().write_unaligned(value) };
    }
    #[inline(always)]
    fn soon<T>(_: *const T) {}
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Self::F {
        // SAFETY: the caller's pointer.
        unsafe { at.cast::<[u16; LANES]>().read_unaligned() }.map(from_f16)
    }
    #[inline(always)]
    unsafe fn store_f16(at: *mut u16, value: Self::F) {
        // SAFETY: the caller's pointer.
        unsafe { at.cast::<[u16; LANES]>().write_unaligned(value.map(to_f16)) };
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Self::F {
        // SAFETY: the caller's pointer.
        unsafe { at.cast::<[u16; LANES]>().read_unaligned() }.map(|b| f32::from_bits(u32::from(b) << 16))
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        core::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn where_above(x: Self::F, limit: f32, a: Self::F) -> Self::F {
        zip(x, a, |x, a| if x > limit { a } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        map(a, f32::abs)
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        map(a, f32::round_ties_even)
    }
    #[inline(always)]
    unsafe fn exp2(n: Self::F) -> Self::F {
        map(n, |n| f32::from_bits(((n as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn sum_across(a: Self::F) -> f32 {
        fold(a, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn max_across(a: Self::F) -> f32 {
        fold(a, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn store_i8(at: *mut i8, value: Self::F) {
        // SAFETY: the caller's pointer.
        unsafe { at.cast::<[i8; LANES]>().write_unaligned(value.map(|v| v as i8)) };
    }

    #[inline(always)]
    unsafe fn q4m<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32) {
        // SAFETY: the caller's promises; codes are read inside of the block.
        unsafe { affine::<N>((w, blocks, 320), act, out, |block, row, k| nibble(block, row, k), true) };
    }
    #[inline(always)]
    unsafe fn q8<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32) {
        // SAFETY: as above.
        let code = |block: *const u8, row: usize, k: usize| unsafe {
            i32::from((*block.add(k / 4 * 64 + row * 4 + k % 4)).cast_signed())
        };
        // SAFETY: as above.
        unsafe { affine::<N>((w, blocks, 544), act, out, code, false) };
    }
    #[inline(always)]
    unsafe fn q8m<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32) {
        // SAFETY: as above.
        let code = |block: *const u8, row: usize, k: usize| unsafe {
            i32::from(*block.add(k / 4 * 64 + row * 4 + k % 4))
        };
        // SAFETY: as above.
        unsafe { affine::<N>((w, blocks, 576), act, out, code, true) };
    }
}

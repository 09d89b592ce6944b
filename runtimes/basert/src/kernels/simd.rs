//! Sixteen floats at a time: the operations that every instruction set has in its own form, with the same bits.
//!
//! All of them are exact or correctly rounded, so that a kernel written with them gives one result on every machine. Sums
//! across lanes go in one order: lane `i` with `i + 8`, then 4, 2, 1.

use super::act::Tile;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// A loop over the columns of a tile that is written out, so that what it indexes stays in registers: compilers give up on
/// loops of this size.
macro_rules! each_column {
    ($column:ident < $count:expr => $body:block) => {
        $crate::kernels::simd::each_column!(@ $column $count, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $column:ident $count:expr, $body:block, $($number:literal)*) => {
        $(if $number < $count {
            let $column: usize = $number;
            $body
        })*
    };
}
pub(crate) use each_column;

/// Bytes ahead of the block in hand that a product with few tokens asks for: what the machine fetches by itself does not
/// keep a core busy when memory is slow (3 times the time on a busy host, no difference on a quiet one).
const AHEAD: usize = 8192;

/// An instruction set.
///
/// # Safety
/// Every function needs the instruction set it is for; pointers are readable (or writable) for sixteen elements unless said
/// otherwise, of any alignment.
pub(crate) unsafe trait Simd: Copy + 'static {
    /// Sixteen floats.
    type F: Copy;

    /// Rows that the attention kernel holds in registers at a time.
    const ROWS_MAX: usize;

    unsafe fn zero() -> Self::F;
    unsafe fn splat(value: f32) -> Self::F;
    unsafe fn load(at: *const f32) -> Self::F;
    unsafe fn store(at: *mut f32, value: Self::F);
    /// Asks for a cache line that is read soon; nothing is touched.
    fn soon<T>(at: *const T);
    /// From half precision, exactly.
    unsafe fn load_f16(at: *const u16) -> Self::F;
    /// To half precision, to the nearest, ties to even.
    unsafe fn store_f16(at: *mut u16, value: Self::F);
    /// From brain floats, exactly.
    unsafe fn load_bf16(at: *const u16) -> Self::F;
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger; where one is no number, `b`.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller; where one is no number, `b`.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// `a` where `x` is above a limit, and 0 elsewhere.
    unsafe fn where_above(x: Self::F, limit: f32, a: Self::F) -> Self::F;
    unsafe fn abs(a: Self::F) -> Self::F;
    /// To the nearest integer, ties to even.
    unsafe fn round(a: Self::F) -> Self::F;
    /// Two to the power of integers from -126 to 127.
    unsafe fn exp2(n: Self::F) -> Self::F;
    unsafe fn sum_across(a: Self::F) -> f32;
    unsafe fn max_across(a: Self::F) -> f32;
    /// Writes integers from -127 to 127, given as floats, as bytes.
    unsafe fn store_i8(at: *mut i8, value: Self::F);

    /// Products of a group of sixteen rows in the layout `q4m.16x32` with `N` tokens of a tile; writes
    /// sixteen floats for each token.
    unsafe fn q4m<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32);
    /// The same for `q8.16x32`.
    unsafe fn q8<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32);
    /// The same for `q8m.16x32`.
    unsafe fn q8m<const N: usize>(w: *const u8, blocks: usize, act: Tile, out: *mut f32);
}

/// Asks for the lines of a block of weights that comes later.
#[inline(always)]
pub(crate) fn ahead<S: Simd>(block: *const u8, bytes: usize) {
    (0..bytes.div_ceil(64)).for_each(|line| S::soon(block.wrapping_add(AHEAD + line * 64)));
}

/// `e` to the power of each lane, to about one unit in the last place; 0 from -87 down, and no more than at 88.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // Taylor's polynomial of degree 7 on half a step of ln 2 to each side; ln 2 in two parts (Cody and Waite).
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const TERMS: [f32; 6] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one reason holds for the whole kernel")]
    // SAFETY: the caller has the instruction set.
    unsafe {
        let (given, x) = (x, S::min(S::max(x, S::splat(-87.0)), S::splat(88.0)));
        let n = S::round(S::mul(x, S::splat(core::f32::consts::LOG2_E)));
        let r = S::fma(n, S::splat(-LN2_HIGH), x);
        let r = S::fma(n, S::splat(-LN2_LOW), r);
        let mut p = S::splat(TERMS[0]);
        for term in &TERMS[1..] {
            p = S::fma(p, r, S::splat(*term));
        }
        let p = S::fma(S::fma(p, r, S::splat(1.0)), r, S::splat(1.0));
        // In two steps, as 2^127 times a number just below one has no exponent of its own.
        let half = S::round(S::mul(n, S::splat(0.5)));
        S::where_above(given, -87.0, S::mul(S::mul(p, S::exp2(half)), S::exp2(S::sub(n, half))))
    }
}

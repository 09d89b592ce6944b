//! Attention of some queries over pages of keys and values, one block of 32 positions after the other.
//!
//! A softmax is kept for each stretch of 512 positions, and stretches are merged in order. Where blocks and stretches begin
//! depends on positions alone, so that a query's result depends neither on what is computed beside it nor on who computes
//! the stretches.
#![expect(unsafe_code, reason = "kernels read and write through pointers that the graph made")]
#![expect(clippy::needless_range_loop, reason = "indexes rows of arrays side by side")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one reason holds for a whole kernel")]

use core::mem::MaybeUninit;

use super::simd::{LANES, Simd, exp};

/// Positions of a page, and of a block.
pub(crate) const PAGE: usize = 32;
/// Positions of a stretch.
pub(crate) const STRETCH: usize = 512;
/// Queries that a unit of work has at most.
pub(crate) const QUERIES_MAX: usize = 12;
/// Elements of the largest head.
pub(crate) const HEAD_MAX: usize = 512;

/// What one head's queries look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    /// Pages of the lane, by position.
    pub(crate) pages: &'a [*mut u16],
    /// Where in a page this layer's and head's keys begin: `[head_dim, 32]`; and its values: `[32, head_dim]`.
    pub(crate) keys: usize,
    pub(crate) values: usize,
    pub(crate) head_dim: usize,
    /// Scores become `cap * tanh(score / cap)`; 0 = they stay.
    pub(crate) softcap: f32,
}

/// One query: scaled already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) q: *const f32,
    pub(crate) out: *mut f32,
    /// The positions it sees: from, and up to.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Softmaxes of some queries that are not divided yet.
#[repr(C, align(64))]
struct Running<const R: usize> {
    max: [f32; R],
    sum: [f32; R],
    out: [Row; R],
}

/// A head's elements, of which the first `head_dim` are written before they are read.
type Row = [MaybeUninit<f32>; HEAD_MAX];

impl<const R: usize> Running<R> {
    #[inline(always)]
    fn new() -> Running<R> {
        let out = [[MaybeUninit::uninit(); HEAD_MAX]; R];
        Running { max: [f32::NEG_INFINITY; R], sum: [0.0; R], out }
    }
}

/// All stretches of `R` queries, each query's result divided and written.
#[inline(always)]
pub(crate) unsafe fn attend<S: Simd, const R: usize>(sight: &Sight<'_>, queries: &[Query; R]) {
    let from = queries.iter().map(|query| query.from).min().unwrap_or(0);
    let to = queries.iter().map(|query| query.to).max().unwrap_or(0);
    let dim = sight.head_dim;
    let (mut total, mut part) = (Running::<R>::new(), Running::<R>::new());
    for stretch in from / STRETCH..to.div_ceil(STRETCH) {
        let begin = (stretch * STRETCH).max(from / PAGE * PAGE);
        let end = ((stretch + 1) * STRETCH).min(to);
        // SAFETY: the caller's promises.
        unsafe {
            self::stretch::<S, R>(sight, queries, begin..end, &mut part);
            for r in 0..R {
                merge::<S, R>(&mut total, &part, r, dim);
            }
        }
    }
    for (r, query) in queries.iter().enumerate() {
        let factor = 1.0 / total.sum[r];
        for at in (0..dim).step_by(LANES) {
            // SAFETY: the caller's room for a head.
            unsafe {
                let y = S::mul(S::load(total.out[r].as_ptr().cast::<f32>().add(at)), S::splat(factor));
                S::store(query.out.add(at), y);
            }
        }
    }
}

/// Adds a stretch to what came before it.
#[inline(always)]
unsafe fn merge<S: Simd, const R: usize>(total: &mut Running<R>, part: &Running<R>, r: usize, dim: usize) {
    if part.max[r] == f32::NEG_INFINITY {
        return;
    }
    let first = total.max[r] == f32::NEG_INFINITY;
    let max = if part.max[r] > total.max[r] { part.max[r] } else { total.max[r] };
    let mut factors = [0.0_f32; LANES];
    (factors[0], factors[1]) = (total.max[r] - max, part.max[r] - max);
    // SAFETY: arrays of sixteen floats; heads are multiples of sixteen.
    unsafe {
        S::store(factors.as_mut_ptr(), exp::<S>(S::load(factors.as_ptr())));
        let (before, now) = (factors[0], factors[1]);
        total.sum[r] = total.sum[r] * before + part.sum[r] * now;
        for at in (0..dim).step_by(LANES) {
            let to = total.out[r].as_mut_ptr().cast::<f32>().add(at);
            let new = S::mul(S::load(part.out[r].as_ptr().cast::<f32>().add(at)), S::splat(now));
            S::store(to, if first { new } else { S::fma(S::load(to), S::splat(before), new) });
        }
    }
    total.max[r] = max;
}

/// One stretch, block by block.
#[inline(always)]
unsafe fn stretch<S: Simd, const R: usize>(
    sight: &Sight<'_>,
    queries: &[Query; R],
    positions: core::ops::Range<usize>,
    state: &mut Running<R>,
) {
    let dim = sight.head_dim;
    state.max = [f32::NEG_INFINITY; R];
    // SAFETY: the caller's pages hold these positions.
    unsafe {
        let mut sums = [S::zero(); R];
        for out in &mut state.out {
            (0..dim)
                .step_by(LANES)
                .for_each(|at| S::store(out.as_mut_ptr().cast::<f32>().add(at), S::zero()));
        }
        let mut block = positions.start / PAGE * PAGE;
        while block < positions.end {
            let page = sight.pages[block / PAGE];
            // Pages are apart from each other, so that the machine does not fetch the next ones by itself.
            let later = sight.pages.get(block / PAGE + 2).map_or(page, |page| *page).cast_const();
            let mut scores = [[0.0_f32; PAGE]; R];
            score::<S, R>(sight, page, later, queries, &mut scores);
            // What each query's earlier part is multiplied with.
            let mut falls = [0.0_f32; LANES];
            for r in 0..R {
                let query = &queries[r];
                if query.from > block || query.to < block + PAGE {
                    hide(&mut scores[r], query.from.saturating_sub(block), query.to.saturating_sub(block));
                }
                let at = scores[r].as_ptr();
                let largest = S::max_across(S::max(S::load(at), S::load(at.add(LANES))));
                let max = if largest > state.max[r] { largest } else { state.max[r] };
                falls[r] = if max == f32::NEG_INFINITY { 0.0 } else { state.max[r] - max };
                state.max[r] = max;
            }
            S::store(falls.as_mut_ptr(), exp::<S>(S::load(falls.as_ptr())));
            for r in 0..R {
                let at = scores[r].as_mut_ptr();
                // Nothing seen yet: anything but infinity, so that no difference of infinities comes up.
                let max = if state.max[r] == f32::NEG_INFINITY { 0.0 } else { state.max[r] };
                let (a, b) = (S::load(at), S::load(at.add(LANES)));
                let max = S::splat(max);
                let (a, b) = (exp::<S>(S::sub(a, max)), exp::<S>(S::sub(b, max)));
                S::store(at, a);
                S::store(at.add(LANES), b);
                sums[r] = S::fma(sums[r], S::splat(falls[r]), S::add(a, b));
            }
            let seen = (positions.end - block).min(PAGE);
            let values = page.add(sight.values).cast_const();
            for line in (0..PAGE * dim).step_by(32) {
                S::soon(later.wrapping_add(sight.values + line));
            }
            gather::<S, R>(values, dim, seen, &scores, &falls, &mut state.out);
            block += PAGE;
        }
        for r in 0..R {
            state.sum[r] = S::sum_across(sums[r]);
        }
    }
}

fn hide(scores: &mut [f32; PAGE], from: usize, to: usize) {
    for (at, score) in scores.iter_mut().enumerate() {
        if at < from || at >= to {
            *score = f32::NEG_INFINITY;
        }
    }
}

/// Scores of a block's 32 positions.
#[inline(always)]
unsafe fn score<S: Simd, const R: usize>(
    sight: &Sight<'_>,
    page: *mut u16,
    later: *const u16,
    queries: &[Query; R],
    scores: &mut [[f32; PAGE]; R],
) {
    // SAFETY: the caller's page holds the keys.
    unsafe {
        let keys = page.add(sight.keys).cast_const();
        let mut sums = [[S::zero(); 2]; R];
        for d in 0..sight.head_dim {
            let at = keys.add(d * PAGE);
            S::soon(later.wrapping_add(sight.keys + d * PAGE));
            let (a, b) = (S::load_f16(at), S::load_f16(at.add(LANES)));
            for r in 0..R {
                let q = S::splat(*queries[r].q.add(d));
                sums[r][0] = S::fma(a, q, sums[r][0]);
                sums[r][1] = S::fma(b, q, sums[r][1]);
            }
        }
        for r in 0..R {
            for half in 0..2 {
                let mut score = sums[r][half];
                if sight.softcap > 0.0 {
                    score = softcap::<S>(score, sight.softcap);
                }
                S::store(scores[r].as_mut_ptr().add(half * LANES), score);
            }
        }
    }
}

/// `cap * tanh(x / cap)`.
#[inline(always)]
pub(crate) unsafe fn softcap<S: Simd>(x: S::F, cap: f32) -> S::F {
    // SAFETY: the caller has the instruction set.
    unsafe {
        // tanh z = 1 - 2 / (exp(2z) + 1)
        let e = exp::<S>(S::mul(x, S::splat(2.0 / cap)));
        let t = S::sub(S::splat(1.0), S::div(S::splat(2.0), S::add(e, S::splat(1.0))));
        S::mul(t, S::splat(cap))
    }
}

/// Adds a block's values, weighted.
#[inline(always)]
unsafe fn gather<S: Simd, const R: usize>(
    values: *const u16,
    dim: usize,
    seen: usize,
    weights: &[[f32; PAGE]; R],
    falls: &[f32; LANES],
    out: &mut [Row; R],
) {
    // SAFETY: the caller's page holds the values.
    unsafe {
        let mut d = 0;
        while d + 2 * LANES <= dim {
            let mut sums = [[S::zero(); 2]; R];
            for r in 0..R {
                let at = out[r].as_ptr().cast::<f32>().add(d);
                let fall = S::splat(falls[r]);
                sums[r] = [S::mul(S::load(at), fall), S::mul(S::load(at.add(LANES)), fall)];
            }
            for position in 0..seen {
                let at = values.add(position * dim + d);
                let (a, b) = (S::load_f16(at), S::load_f16(at.add(LANES)));
                for r in 0..R {
                    let weight = S::splat(weights[r][position]);
                    sums[r][0] = S::fma(a, weight, sums[r][0]);
                    sums[r][1] = S::fma(b, weight, sums[r][1]);
                }
            }
            for r in 0..R {
                let at = out[r].as_mut_ptr().cast::<f32>().add(d);
                S::store(at, sums[r][0]);
                S::store(at.add(LANES), sums[r][1]);
            }
            d += 2 * LANES;
        }
        if d < dim {
            for r in 0..R {
                let at = out[r].as_mut_ptr().cast::<f32>().add(d);
                let mut sum = S::mul(S::load(at), S::splat(falls[r]));
                for position in 0..seen {
                    let weight = S::splat(weights[r][position]);
                    sum = S::fma(S::load_f16(values.add(position * dim + d)), weight, sum);
                }
                S::store(at, sum);
            }
        }
    }
}

//! The heads of a layer: queries and keys are normed and turned, keys and values go into pages, and queries attend.
#![expect(unsafe_code, reason = "kernels read and write through pointers that the graph made")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one reason holds for a whole kernel")]

use core::ops::Range;

use super::attention::{PAGE, QUERIES_MAX, Query, Sight, attend};
use super::ops::{Norm, rotate};
use super::simd::{LANES, Simd};

/// Tokens of one lane in a step, at positions one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Row of the first token.
    pub(crate) row: usize,
    pub(crate) tokens: usize,
    /// Position of the first token.
    pub(crate) position: usize,
    /// Pages of the lane, by position.
    pub(crate) pages: Vec<*mut u16>,
}

// SAFETY: addresses of pages, which the lane holds; positions are shared out.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

/// Some tokens of a run whose queries are computed together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) run: usize,
    /// Number in the run.
    pub(crate) first: usize,
    pub(crate) tokens: usize,
}

/// One layer's heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads<'a> {
    pub(crate) runs: &'a [Run],
    pub(crate) pieces: &'a [Piece],
    /// `[tokens, stride]`: queries, then keys, then values.
    pub(crate) qkv: *mut f32,
    pub(crate) stride: usize,
    /// `[tokens, out_stride]`.
    pub(crate) out: *mut f32,
    pub(crate) out_stride: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) layer: usize,
    pub(crate) norms: Option<(Norm, Norm)>,
    /// Cosines and sines, `[positions, half]` each; half = 0: nothing is turned.
    pub(crate) cos: *const f32,
    pub(crate) sin: *const f32,
    pub(crate) half: usize,
    /// Of queries.
    pub(crate) scale: f32,
    pub(crate) softcap: f32,
    /// Positions that a query sees, its own among them; 0 = all before it.
    pub(crate) window: usize,
    /// Whether a query sees what comes behind it in its run.
    pub(crate) both_ways: bool,
}

// SAFETY: addresses; tokens and heads are shared out to threads, and so is what they write.
unsafe impl Send for Heads<'_> {}
// SAFETY: as above.
unsafe impl Sync for Heads<'_> {}

/// Half-precision elements of a page.
pub(crate) fn page_elements(layers: usize, kv_heads: usize, head_dim: usize) -> usize {
    layers * kv_heads * head_dim * PAGE * 2
}

/// The largest half; more would be infinite.
const HALF_MAX: f32 = 65504.0;

impl Heads<'_> {
    /// Tokens whose queries one unit of work takes.
    pub(crate) fn tokens_of_piece(heads: usize, kv_heads: usize) -> usize {
        (QUERIES_MAX / (heads / kv_heads)).max(1)
    }

    /// Units of work of [`Heads::attend`].
    pub(crate) fn units(&self) -> usize {
        self.pieces.len() * self.kv_heads
    }

    /// Where a head's keys begin in a page.
    fn keys(&self, head: usize) -> usize {
        (self.layer * self.kv_heads + head) * self.head_dim * PAGE * 2
    }

    /// Norms, turns and stores one head's key and value of a token, and prepares the queries that look at them.
    #[inline(always)]
    unsafe fn place_head<S: Simd>(&self, run: &Run, token: usize, head: usize) {
        let (dim, group) = (self.head_dim, self.heads / self.kv_heads);
        // SAFETY: the caller's token and head; its lane's page is written by nobody else at this position.
        unsafe {
            let row = self.qkv.add((run.row + token) * self.stride);
            let position = run.position + token;
            let turn = |x: *mut f32, norm: Option<&Norm>| {
                if let Some(norm) = norm {
                    norm.in_place::<S>(x);
                }
                if self.half > 0 {
                    let at = position * self.half;
                    rotate::<S>(x, self.half, self.cos.add(at), self.sin.add(at));
                }
            };
            for query in head * group..(head + 1) * group {
                let q = row.add(query * dim);
                turn(q, self.norms.as_ref().map(|(norm, _)| norm));
                for at in (0..dim).step_by(LANES) {
                    S::store(q.add(at), S::mul(S::load(q.add(at)), S::splat(self.scale)));
                }
            }
            let key = row.add((self.heads + head) * dim);
            turn(key, self.norms.as_ref().map(|(_, norm)| norm));
            let value = row.add((self.heads + self.kv_heads + head) * dim);
            let page = run.pages[position / PAGE].add(self.keys(head));
            let in_page = position % PAGE;
            let mut halves = [0_u16; LANES];
            for at in (0..dim).step_by(LANES) {
                S::store_f16(halves.as_mut_ptr(), bounded::<S>(key.add(at)));
                for (d, half) in halves.iter().enumerate() {
                    page.add((at + d) * PAGE + in_page).write(*half);
                }
                let to = page.add(dim * PAGE + in_page * dim + at);
                S::store_f16(to, bounded::<S>(value.add(at)));
            }
        }
    }

    /// Prepares all heads of some pieces.
    #[inline(always)]
    pub(crate) unsafe fn place<S: Simd>(&self, pieces: Range<usize>) {
        for piece in &self.pieces[pieces] {
            let run = &self.runs[piece.run];
            for token in piece.first..piece.first + piece.tokens {
                for head in 0..self.kv_heads {
                    // SAFETY: the caller's promises.
                    unsafe { self.place_head::<S>(run, token, head) };
                }
            }
        }
    }

    /// Computes some units: a piece's queries of one key head. With `place`, which is for runs of a single token, keys and
    /// values are stored first.
    #[inline(always)]
    pub(crate) unsafe fn attend<S: Simd>(&self, units: Range<usize>, place: bool) {
        for unit in units {
            let (piece, head) = (&self.pieces[unit / self.kv_heads], unit % self.kv_heads);
            let run = &self.runs[piece.run];
            // SAFETY: the caller's promises.
            unsafe {
                if place {
                    self.place_head::<S>(run, piece.first, head);
                }
                self.attend_piece::<S>(run, piece, head);
            }
        }
    }

    #[inline(always)]
    unsafe fn attend_piece<S: Simd>(&self, run: &Run, piece: &Piece, head: usize) {
        let (dim, group) = (self.head_dim, self.heads / self.kv_heads);
        let keys = self.keys(head);
        let sight = Sight {
            pages: &run.pages,
            keys,
            values: keys + dim * PAGE,
            head_dim: dim,
            softcap: self.softcap,
        };
        let nothing = Query { q: core::ptr::null(), out: core::ptr::null_mut(), from: 0, to: 0 };
        let (mut held, mut count) = ([nothing; QUERIES_MAX], 0);
        for token in piece.first..piece.first + piece.tokens {
            let position = run.position + token;
            let to = if self.both_ways { run.position + run.tokens } else { position + 1 };
            let from = if self.window == 0 { 0 } else { to.saturating_sub(self.window) };
            for query in head * group..(head + 1) * group {
                let row = run.row + token;
                // SAFETY: rows and heads of the caller's buffers.
                held[count] = unsafe {
                    Query {
                        q: self.qkv.add(row * self.stride + query * dim),
                        out: self.out.add(row * self.out_stride + query * dim),
                        from,
                        to,
                    }
                };
                count += 1;
                if count == QUERIES_MAX {
                    // SAFETY: as above.
                    unsafe { some::<S>(&sight, &held[..count]) };
                    count = 0;
                }
            }
        }
        // SAFETY: as above.
        unsafe { some::<S>(&sight, &held[..count]) };
    }
}

/// Elements that a half can hold: no infinity and no NaN gets into a page, where others would meet it.
#[inline(always)]
unsafe fn bounded<S: Simd>(at: *const f32) -> S::F {
    // SAFETY: the caller's pointer.
    unsafe { S::min(S::max(S::load(at), S::splat(-HALF_MAX)), S::splat(HALF_MAX)) }
}

/// Any number of queries, as many at a time as there are registers for.
#[inline(always)]
unsafe fn some<S: Simd>(sight: &Sight<'_>, mut queries: &[Query]) {
    while !queries.is_empty() {
        let count = queries.len().min(S::ROWS_MAX);
        // SAFETY: the caller's promises; the slices have the lengths that the arrays ask for.
        queries = unsafe {
            match count {
                12.. => taken::<S, 12>(sight, queries),
                8.. => taken::<S, 8>(sight, queries),
                6.. => taken::<S, 6>(sight, queries),
                4.. => taken::<S, 4>(sight, queries),
                3 => taken::<S, 3>(sight, queries),
                2 => taken::<S, 2>(sight, queries),
                _ => taken::<S, 1>(sight, queries),
            }
        };
    }
}

#[inline(always)]
unsafe fn taken<'a, S: Simd, const R: usize>(sight: &Sight<'_>, queries: &'a [Query]) -> &'a [Query] {
    if let Some((now, rest)) = queries.split_first_chunk::<R>() {
        // SAFETY: the caller's promises.
        unsafe { attend::<S, R>(sight, now) };
        return rest;
    }
    &[]
}

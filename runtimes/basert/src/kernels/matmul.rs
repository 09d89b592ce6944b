//! Matrices times activations: sixteen rows at a time against all tokens of a step.
//!
//! An element of a product is summed in one order whatever the number of tokens and whoever computes it: blocks of 32
//! columns of codes in order, or columns of plain weights in four chains.
#![expect(unsafe_code, reason = "kernels read and write through pointers that the graph made")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one reason holds for a whole kernel")]

use core::ops::Range;

use sf_base::{Activation, Layout};

use super::act::{ActView, TILE, Tile};
use super::ops::{Sink, activate};
use super::simd::{LANES, Simd};

/// Rows of a matrix that have one layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) layout: Layout,
    pub(crate) at: *const u8,
    /// Bytes of sixteen rows.
    pub(crate) group_bytes: usize,
    pub(crate) groups: usize,
    /// Of the matrix, where the part begins.
    pub(crate) first_group: usize,
    /// Columns, without padding.
    pub(crate) cols: usize,
}

/// What is multiplied with: in the form that the layout asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input {
    pub(crate) acts: ActView,
    /// `[tokens, stride]`.
    pub(crate) floats: *const f32,
    pub(crate) stride: usize,
    pub(crate) tokens: usize,
}

/// What becomes of the products.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    /// They are written: `[tokens, stride]`.
    Store { to: *mut f32, stride: usize },
    /// They are added to what is there.
    Add { to: *mut f32, stride: usize },
    /// Groups are pairs of gate and value: activated, multiplied, and put as an input of the next matrix.
    Gated { activation: Activation, sink: Sink },
    /// They are activated and put as an input of the next matrix.
    Activated { activation: Activation, sink: Sink },
}

/// One product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matmul {
    pub(crate) part: Part,
    pub(crate) input: Input,
    /// Added to each row's product, from the matrix' first row on; null = none.
    pub(crate) bias: *const f32,
    pub(crate) then: Then,
}

// SAFETY: addresses; rows are shared out to threads, and so is what they write.
unsafe impl Send for Matmul {}
// SAFETY: as above.
unsafe impl Sync for Matmul {}

impl Then {
    /// Groups that are computed by one thread, one after the other, as they make one block of the next matrix' input.
    fn groups_of_unit(&self) -> usize {
        match self {
            Then::Store { .. } | Then::Add { .. } => 1,
            Then::Activated { .. } => 2,
            Then::Gated { .. } => 4,
        }
    }
}

impl Matmul {
    /// Parts into which the work can be shared out.
    pub(crate) fn units(&self) -> usize {
        self.part.groups.div_ceil(self.then.groups_of_unit())
    }

    /// Computes some units.
    #[inline(always)]
    pub(crate) unsafe fn run<S: Simd>(&self, units: Range<usize>) {
        let step = self.then.groups_of_unit();
        for unit in units {
            let groups = unit * step..((unit + 1) * step).min(self.part.groups);
            for tile in 0..self.input.tokens.div_ceil(TILE) {
                // SAFETY: the caller's promises.
                unsafe {
                    match self.then {
                        Then::Store { .. } | Then::Add { .. } => self.written::<S>(groups.start, tile),
                        Then::Activated { activation, sink } => {
                            self.activated::<S>(groups.clone(), tile, activation, &sink);
                        }
                        Then::Gated { activation, sink } => {
                            self.gated::<S>(groups.clone(), tile, activation, &sink);
                        }
                    }
                }
            }
        }
    }

    fn height(&self, tile: usize) -> usize {
        (self.input.tokens - tile * TILE).min(TILE)
    }

    #[inline(always)]
    unsafe fn bias<S: Simd>(&self, group: usize) -> S::F {
        // SAFETY: a bias has as many elements as the matrix has rows, with padding.
        unsafe {
            match self.bias.is_null() {
                true => S::zero(),
                false => S::load(self.bias.add((self.part.first_group + group) * LANES)),
            }
        }
    }

    #[inline(always)]
    unsafe fn written<S: Simd>(&self, group: usize, tile: usize) {
        let mut out = Outs::new();
        // SAFETY: the caller's promises; rows have room for whole groups.
        unsafe {
            self.products::<S>(group, tile, &mut out);
            let bias = self.bias::<S>(group);
            let at = (self.part.first_group + group) * LANES;
            for token in 0..self.height(tile) {
                let y = S::add(S::load(out.0[token].as_ptr()), bias);
                let row = tile * TILE + token;
                match self.then {
                    Then::Store { to, stride } => S::store(to.add(row * stride + at), y),
                    Then::Add { to, stride } => {
                        let to = to.add(row * stride + at);
                        S::store(to, S::add(S::load(to), y));
                    }
                    Then::Gated { .. } | Then::Activated { .. } => {}
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn activated<S: Simd>(
        &self,
        groups: Range<usize>,
        tile: usize,
        activation: Activation,
        sink: &Sink,
    ) {
        let mut outs = [Outs::new(), Outs::new()];
        // SAFETY: the caller's promises.
        unsafe {
            for (out, group) in outs.iter_mut().zip(groups.clone()) {
                self.products::<S>(group, tile, out);
            }
            for token in 0..self.height(tile) {
                let mut values = [0.0_f32; 32];
                for (number, group) in groups.clone().enumerate() {
                    let y = S::add(S::load(outs[number].0[token].as_ptr()), self.bias::<S>(group));
                    S::store(values.as_mut_ptr().add(number * LANES), activate::<S>(y, activation));
                }
                let block = (self.part.first_group + groups.start) / 2;
                sink.put::<S>(tile * TILE + token, block, &values);
            }
        }
    }

    #[inline(always)]
    unsafe fn gated<S: Simd>(&self, groups: Range<usize>, tile: usize, activation: Activation, sink: &Sink) {
        let mut outs = [Outs::new(), Outs::new(), Outs::new(), Outs::new()];
        // SAFETY: the caller's promises.
        unsafe {
            for (out, group) in outs.iter_mut().zip(groups.clone()) {
                self.products::<S>(group, tile, out);
            }
            for token in 0..self.height(tile) {
                let mut values = [0.0_f32; 32];
                for pair in 0..groups.len() / 2 {
                    let of = |number: usize| {
                        let group = groups.start + number;
                        S::add(S::load(outs[number].0[token].as_ptr()), self.bias::<S>(group))
                    };
                    let gate = activate::<S>(of(2 * pair), activation);
                    S::store(values.as_mut_ptr().add(pair * LANES), S::mul(gate, of(2 * pair + 1)));
                }
                let block = (self.part.first_group + groups.start) / 4;
                sink.put::<S>(tile * TILE + token, block, &values);
            }
        }
    }

    /// The products of sixteen rows with a tile's tokens.
    #[inline(always)]
    unsafe fn products<S: Simd>(&self, group: usize, tile: usize, out: &mut Outs) {
        let part = &self.part;
        let (height, blocks) = (self.height(tile), part.cols.div_ceil(32));
        let mut first = 0;
        while first < height {
            let tokens = match height - first {
                16.. => 16,
                8.. => 8,
                4.. => 4,
                2.. => 2,
                _ => 1,
            };
            // SAFETY: the group is the matrix', the tokens are the tile's.
            unsafe {
                let w = part.at.add(group * part.group_bytes);
                let to = out.0[first].as_mut_ptr();
                let fetch = tile == 0 && first == 0;
                let x = Tile { at: self.input.acts.tile(tile), height, first, fetch };
                let floats = self.input.floats.wrapping_add((tile * TILE + first) * self.input.stride);
                match tokens {
                    16 => some::<S, 16>(part, w, blocks, x, (floats, self.input.stride), to),
                    8 => some::<S, 8>(part, w, blocks, x, (floats, self.input.stride), to),
                    4 => some::<S, 4>(part, w, blocks, x, (floats, self.input.stride), to),
                    2 => some::<S, 2>(part, w, blocks, x, (floats, self.input.stride), to),
                    _ => some::<S, 1>(part, w, blocks, x, (floats, self.input.stride), to),
                }
            }
            first += tokens;
        }
    }
}

/// Sixteen rows' products with up to sixteen tokens.
#[repr(align(64))]
struct Outs([[f32; LANES]; TILE]);

impl Outs {
    #[inline(always)]
    fn new() -> Outs {
        Outs([[0.0; LANES]; TILE])
    }
}

/// Products with `N` tokens, in the form of the layout.
#[inline(always)]
unsafe fn some<S: Simd, const N: usize>(
    part: &Part,
    w: *const u8,
    blocks: usize,
    x: Tile,
    floats: (*const f32, usize),
    out: *mut f32,
) {
    // SAFETY: the caller's promises.
    unsafe {
        match part.layout {
            Layout::Q4m => S::q4m::<N>(w, blocks, x, out),
            Layout::Q8 => S::q8::<N>(w, blocks, x, out),
            Layout::Q8m => S::q8m::<N>(w, blocks, x, out),
            Layout::F16 => {
                plain::<S, N>(part.cols, |k| S::load_f16(w.cast::<u16>().add(k * LANES)), floats, out);
            }
            Layout::Bf16 => {
                plain::<S, N>(part.cols, |k| S::load_bf16(w.cast::<u16>().add(k * LANES)), floats, out);
            }
            Layout::F32Group | Layout::F32 => {
                plain::<S, N>(part.cols, |k| S::load(w.cast::<f32>().add(k * LANES)), floats, out);
            }
        }
    }
}

/// Products with plain weights, four tokens at a time.
#[inline(always)]
unsafe fn plain<S: Simd, const N: usize>(
    cols: usize,
    weights: impl Fn(usize) -> S::F,
    (floats, stride): (*const f32, usize),
    out: *mut f32,
) {
    // SAFETY: the caller's promises.
    unsafe {
        match N {
            1 => chains::<S, 1>(cols, weights, (floats, stride), out),
            2 => chains::<S, 2>(cols, weights, (floats, stride), out),
            _ => {
                for first in (0..N).step_by(4) {
                    let floats = (floats.wrapping_add(first * stride), stride);
                    chains::<S, 4>(cols, &weights, floats, out.add(first * LANES));
                }
            }
        }
    }
}

/// Products with plain weights: column `k` goes into chain `k % 4`.
#[inline(always)]
unsafe fn chains<S: Simd, const N: usize>(
    cols: usize,
    weights: impl Fn(usize) -> S::F,
    (floats, stride): (*const f32, usize),
    out: *mut f32,
) {
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = [[S::zero(); 4]; N];
        let whole = cols / 4 * 4;
        for k in (0..whole).step_by(4) {
            for chain in 0..4 {
                let w = weights(k + chain);
                for (token, sums) in sums.iter_mut().enumerate() {
                    let x = S::splat(*floats.add(token * stride + k + chain));
                    sums[chain] = S::fma(w, x, sums[chain]);
                }
            }
        }
        for k in whole..cols {
            let w = weights(k);
            for (token, sums) in sums.iter_mut().enumerate() {
                sums[k - whole] = S::fma(w, S::splat(*floats.add(token * stride + k)), sums[k - whole]);
            }
        }
        for (token, [a, b, c, d]) in sums.into_iter().enumerate() {
            S::store(out.add(token * LANES), S::add(S::add(a, b), S::add(c, d)));
        }
    }
}

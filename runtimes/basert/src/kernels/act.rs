//! Activations as kernels read them: sixteen tokens to a tile, in blocks of 32 columns as bytes with a scale.
//!
//! A block of a tile of `h` tokens holds `h` times 32 signed bytes, then `h` scales, `h` sums of the bytes times the scale,
//! and `h` sums of the bytes, padded to 64 bytes. A value is its byte times its scale; the largest of a block is 127.
#![expect(unsafe_code, reason = "tiles are written by several threads at once, each its own part")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one reason holds for a whole kernel")]

use super::simd::Simd;

/// Columns of a block.
pub(crate) const BLOCK: usize = 32;
/// Tokens of a full tile.
pub(crate) const TILE: usize = 16;

/// Bytes of a block of a tile of `height` tokens.
#[inline(always)]
pub(crate) const fn block_bytes(height: usize) -> usize {
    (height * 44).next_multiple_of(64)
}

/// Some tokens of a tile, from `first` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    pub(crate) at: *const u8,
    pub(crate) height: usize,
    pub(crate) first: usize,
    /// Weights are read for the first time in a step: those that come later are asked for.
    pub(crate) fetch: bool,
}

/// One block of a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block(Tile);

impl Tile {
    /// Block `number`.
    #[inline(always)]
    pub(crate) unsafe fn block(self, number: usize) -> Block {
        // SAFETY: the caller's tile has the block.
        Block(Tile { at: unsafe { self.at.add(number * block_bytes(self.height)) }, ..self })
    }
}

impl Block {
    /// The bytes of a token.
    #[inline(always)]
    pub(crate) unsafe fn codes(self, token: usize) -> *const i8 {
        // SAFETY: inside the block; the same holds below.
        unsafe { self.0.at.add((self.0.first + token) * BLOCK).cast() }
    }

    #[inline(always)]
    pub(crate) unsafe fn scale(self, token: usize) -> *const f32 {
        // SAFETY: as above; floats begin at a multiple of four bytes.
        unsafe { self.0.at.add(self.0.height * 32 + (self.0.first + token) * 4).cast() }
    }

    /// The sum of a token's values.
    #[inline(always)]
    pub(crate) unsafe fn sum(self, token: usize) -> *const f32 {
        // SAFETY: as above.
        unsafe { self.0.at.add(self.0.height * 36 + (self.0.first + token) * 4).cast() }
    }

    /// The sum of a token's bytes.
    #[inline(always)]
    pub(crate) unsafe fn codes_sum(self, token: usize) -> *const i32 {
        // SAFETY: as above.
        unsafe { self.0.at.add(self.0.height * 40 + (self.0.first + token) * 4).cast() }
    }
}

#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Line([u8; 64]);

/// Quantized activations of the tokens of a step.
#[derive(Debug, Default)]
pub(crate) struct Acts {
    memory: Vec<Line>,
    tokens: usize,
    blocks: usize,
}

impl Acts {
    /// Makes room for `tokens` of `blocks` blocks; what was there is lost.
    pub(crate) fn shape(&mut self, tokens: usize, blocks: usize) {
        let full = tokens / TILE * block_bytes(TILE);
        let rest = match tokens % TILE {
            0 => 0,
            height => block_bytes(height),
        };
        let lines = (full + rest) * blocks / 64;
        if self.memory.len() < lines {
            self.memory.resize(lines, Line([0; 64]));
        }
        (self.tokens, self.blocks) = (tokens, blocks);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory.len() * 64
    }

    /// A view that several threads may write to.
    pub(crate) fn view(&mut self) -> ActView {
        ActView { at: self.memory.as_mut_ptr().cast(), tokens: self.tokens, blocks: self.blocks }
    }
}

/// Activations while kernels write and read them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActView {
    at: *mut u8,
    pub(crate) tokens: usize,
    pub(crate) blocks: usize,
}

// SAFETY: an address with sizes; who writes which block is decided by the graph, block by block.
unsafe impl Send for ActView {}
// SAFETY: as above.
unsafe impl Sync for ActView {}

impl ActView {
    /// Tokens of a tile.
    #[inline(always)]
    pub(crate) fn height(self, tile: usize) -> usize {
        (self.tokens - tile * TILE).min(TILE)
    }

    #[inline(always)]
    pub(crate) fn tile(self, tile: usize) -> *mut u8 {
        self.at.wrapping_add(tile * self.blocks * block_bytes(TILE))
    }

    /// Writes one block of 32 floats of a token.
    ///
    /// # Safety
    /// The instruction set; `from` has 32 floats; nobody else writes or reads this token's block meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn write<S: Simd>(self, token: usize, block: usize, from: *const f32) {
        let (tile, in_tile) = (token / TILE, token % TILE);
        let height = self.height(tile);
        // SAFETY: the caller's promises; the block is inside of the view's memory.
        unsafe {
            let to = Tile { at: self.tile(tile), height, first: 0, fetch: false }.block(block);
            let (a, b) = (S::load(from), S::load(from.add(16)));
            let largest = S::max_across(S::max(S::abs(a), S::abs(b)));
            let (scale, factor) = if largest > 0.0 { (largest / 127.0, 127.0 / largest) } else { (0.0, 0.0) };
            let (scale, factor) = if factor.is_finite() { (scale, factor) } else { (0.0, 0.0) };
            let codes = to.codes(in_tile).cast_mut();
            let factor = S::splat(factor);
            let (a, b) = (S::round(S::mul(a, factor)), S::round(S::mul(b, factor)));
            S::store_i8(codes, a);
            S::store_i8(codes.add(16), b);
            // Sums of integers this small are exact.
            let sum = S::sum_across(S::add(a, b));
            to.scale(in_tile).cast_mut().write(scale);
            to.sum(in_tile).cast_mut().write(scale * sum);
            to.codes_sum(in_tile).cast_mut().write(sum as i32);
        }
    }
}

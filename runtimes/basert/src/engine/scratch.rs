//! Buffers of a step, kept for the next.

use crate::kernels::act::Acts;

#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Line([f32; 16]);

/// Floats on whole cache lines; zero until they are written.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<Line>);

impl Buffer {
    /// Room for `floats`, and where it is. What was there stays.
    pub(crate) fn room(&mut self, floats: usize) -> *mut f32 {
        let lines = floats.div_ceil(16);
        if self.0.len() < lines {
            self.0.resize(lines, Line([0.0; 16]));
        }
        self.0.as_mut_ptr().cast()
    }

    /// Gives room back that a step much larger than most has taken.
    fn shrink(&mut self, floats: usize) {
        let lines = floats.div_ceil(16);
        if self.0.len() > lines {
            self.0.truncate(lines);
            self.0.shrink_to_fit();
        }
    }

    fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Line>()
    }
}

/// All buffers.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Hidden states.
    pub(crate) x: Buffer,
    /// Inputs of matrices that take floats.
    pub(crate) input: Buffer,
    pub(crate) qkv: Buffer,
    pub(crate) attended: Buffer,
    /// What norms behind a part read.
    pub(crate) part: Buffer,
    /// Inputs of the second feed-forward matrix that take floats.
    pub(crate) inner: Buffer,
    pub(crate) logits: Buffer,
    pub(crate) acts: Acts,
    pub(crate) inner_acts: Acts,
}

impl Scratch {
    pub(crate) fn bytes(&self) -> u64 {
        let buffers =
            [&self.x, &self.input, &self.qkv, &self.attended, &self.part, &self.inner, &self.logits];
        let acts = self.acts.bytes() + self.inner_acts.bytes();
        (buffers.into_iter().map(Buffer::bytes).sum::<usize>() + acts) as u64
    }

    /// Gives logits back beyond `floats`: a step that wanted a row for each token of a long prompt is rare.
    pub(crate) fn trim_logits(&mut self, floats: usize) {
        self.logits.shrink(floats);
    }
}

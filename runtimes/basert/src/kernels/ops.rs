//! Norms, rotations, activations and look-ups: what is done to a token's vector between the matrices.
#![expect(unsafe_code, reason = "kernels read and write through pointers that the graph made")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one reason holds for a whole kernel")]

use sf_base::Activation;

use super::act::ActView;
use super::simd::{LANES, Simd, exp};

/// Where a vector per token goes: as quantized activations, as floats, or both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sink {
    pub(crate) acts: Option<ActView>,
    /// `[tokens, stride]`; null = not wanted.
    pub(crate) floats: *mut f32,
    pub(crate) stride: usize,
}

// SAFETY: addresses; the graph shares out who writes where.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

impl Sink {
    /// Puts 32 columns of a token.
    #[inline(always)]
    pub(crate) unsafe fn put<S: Simd>(&self, token: usize, block: usize, values: &[f32; 32]) {
        // SAFETY: the caller's token and block are its own.
        unsafe {
            if let Some(acts) = self.acts {
                acts.write::<S>(token, block, values.as_ptr());
            }
            if !self.floats.is_null() {
                let to = self.floats.add(token * self.stride + block * 32);
                S::store(to, S::load(values.as_ptr()));
                S::store(to.add(LANES), S::load(values.as_ptr().add(LANES)));
            }
        }
    }

    /// Puts a whole vector of `blocks` times 32 floats.
    #[inline(always)]
    pub(crate) unsafe fn put_all<S: Simd>(&self, token: usize, blocks: usize, from: *const f32) {
        for block in 0..blocks {
            // SAFETY: the caller's vector has the blocks.
            unsafe { self.put::<S>(token, block, &*from.add(block * 32).cast::<[f32; 32]>()) };
        }
    }
}

/// A norm's parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    /// Padded with zeros to a multiple of 32.
    pub(crate) weight: *const f32,
    /// Null = none.
    pub(crate) bias: *const f32,
    /// Elements, without padding.
    pub(crate) len: usize,
    pub(crate) eps: f32,
    /// Whether the mean is taken off (layer norm) or not (RMS norm).
    pub(crate) centred: bool,
}

// SAFETY: addresses of weights, which nobody writes to.
unsafe impl Send for Norm {}
// SAFETY: as above.
unsafe impl Sync for Norm {}

/// The sum of `f` over the vectors of a padded row, in four chains.
#[inline(always)]
unsafe fn sum<S: Simd>(x: *const f32, padded: usize, f: impl Fn(S::F, S::F) -> S::F) -> f32 {
    // SAFETY: the caller's row is padded.
    unsafe {
        let mut chains = [S::zero(); 4];
        for (number, at) in (0..padded).step_by(LANES).enumerate() {
            chains[number % 4] = f(S::load(x.add(at)), chains[number % 4]);
        }
        S::sum_across(S::add(S::add(chains[0], chains[1]), S::add(chains[2], chains[3])))
    }
}

impl Norm {
    fn padded(&self) -> usize {
        self.len.next_multiple_of(32)
    }

    /// Factor, and what is taken off before, of a row.
    #[inline(always)]
    unsafe fn scale<S: Simd>(&self, x: *const f32) -> (f32, f32) {
        // SAFETY: the caller's row is padded with zeros.
        unsafe {
            let len = self.len as f32;
            let mean =
                if self.centred { sum::<S>(x, self.padded(), |x, acc| S::add(x, acc)) / len } else { 0.0 };
            let squares = sum::<S>(x, self.padded(), |x, acc| {
                let x = S::sub(x, S::splat(mean));
                S::fma(x, x, acc)
            });
            // Padding counted the mean's square.
            let squares = (-(mean * mean)).mul_add((self.padded() - self.len) as f32, squares);
            (1.0 / (squares / len + self.eps).sqrt(), mean)
        }
    }

    /// Sixteen normed elements at `at`.
    #[inline(always)]
    unsafe fn at<S: Simd>(&self, x: *const f32, at: usize, (scale, mean): (f32, f32)) -> S::F {
        // SAFETY: as above.
        unsafe {
            let centred = S::sub(S::load(x.add(at)), S::splat(mean));
            let y = S::mul(S::mul(centred, S::splat(scale)), S::load(self.weight.add(at)));
            if self.bias.is_null() { y } else { S::add(y, S::load(self.bias.add(at))) }
        }
    }

    /// The normed row, in 32 columns at a time.
    #[inline(always)]
    pub(crate) unsafe fn to<S: Simd>(&self, x: *const f32, token: usize, sink: &Sink) {
        // SAFETY: as above.
        unsafe {
            let scale = self.scale::<S>(x);
            for block in 0..self.padded() / 32 {
                let mut values = [0.0_f32; 32];
                S::store(values.as_mut_ptr(), self.at::<S>(x, block * 32, scale));
                S::store(values.as_mut_ptr().add(LANES), self.at::<S>(x, block * 32 + LANES, scale));
                sink.put::<S>(token, block, &values);
            }
        }
    }

    /// Adds the normed row to another.
    #[inline(always)]
    pub(crate) unsafe fn add_to<S: Simd>(&self, x: *const f32, to: *mut f32) {
        // SAFETY: as above.
        unsafe {
            let scale = self.scale::<S>(x);
            for at in (0..self.padded()).step_by(LANES) {
                S::store(to.add(at), S::add(S::load(to.add(at)), self.at::<S>(x, at, scale)));
            }
        }
    }

    /// Norms a head of `len` elements, a multiple of 16, where it stands.
    #[inline(always)]
    pub(crate) unsafe fn in_place<S: Simd>(&self, x: *mut f32) {
        // SAFETY: as above; a head has no padding.
        unsafe {
            let squares = sum::<S>(x, self.len, |x, acc| S::fma(x, x, acc));
            let scale = 1.0 / (squares / self.len as f32 + self.eps).sqrt();
            for at in (0..self.len).step_by(LANES) {
                S::store(x.add(at), self.at::<S>(x, at, (scale, 0.0)));
            }
        }
    }
}

/// Turns the first `2 * half` elements of a head by a position's angles: element `i` with `i + half`.
#[inline(always)]
pub(crate) unsafe fn rotate<S: Simd>(x: *mut f32, half: usize, cos: *const f32, sin: *const f32) {
    // SAFETY: the caller's head and tables.
    unsafe {
        let mut at = 0;
        while at + LANES <= half {
            let (c, s) = (S::load(cos.add(at)), S::load(sin.add(at)));
            let (a, b) = (S::load(x.add(at)), S::load(x.add(half + at)));
            S::store(x.add(at), S::fma(a, c, S::sub(S::zero(), S::mul(b, s))));
            S::store(x.add(half + at), S::fma(b, c, S::mul(a, s)));
            at += LANES;
        }
        for i in at..half {
            let (c, s) = (*cos.add(i), *sin.add(i));
            let (a, b) = (*x.add(i), *x.add(half + i));
            *x.add(i) = a.mul_add(c, 0.0 - b * s);
            *x.add(half + i) = b.mul_add(c, a * s);
        }
    }
}

/// The activation of a feed-forward.
#[inline(always)]
pub(crate) unsafe fn activate<S: Simd>(x: S::F, activation: Activation) -> S::F {
    // SAFETY: the caller has the instruction set.
    unsafe {
        match activation {
            Activation::Silu => sigmoid_times::<S>(x, x),
            Activation::GeluTanh => {
                // x/2 (1 + tanh z) is x times the logistic function of 2z.
                let cube = S::mul(S::mul(x, x), x);
                let z = S::fma(cube, S::splat(0.044_715), x);
                sigmoid_times::<S>(x, S::mul(z, S::splat(1.595_769_2)))
            }
            Activation::Gelu => {
                let half = S::mul(x, S::splat(0.5));
                S::fma(half, erf::<S>(S::mul(x, S::splat(core::f32::consts::FRAC_1_SQRT_2))), half)
            }
        }
    }
}

/// `x / (1 + exp(-z))`.
#[inline(always)]
unsafe fn sigmoid_times<S: Simd>(x: S::F, z: S::F) -> S::F {
    // SAFETY: the caller has the instruction set.
    unsafe { S::div(x, S::add(S::splat(1.0), exp::<S>(S::sub(S::zero(), z)))) }
}

/// The error function to 2e-7 (Abramowitz and Stegun, 7.1.26).
#[inline(always)]
unsafe fn erf<S: Simd>(x: S::F) -> S::F {
    const TERMS: [f32; 5] = [1.061_405_4, -1.453_152_1, 1.421_413_8, -0.284_496_74, 0.254_829_6];
    // SAFETY: the caller has the instruction set.
    unsafe {
        let magnitude = S::abs(x);
        let t = S::div(S::splat(1.0), S::fma(magnitude, S::splat(0.327_591_1), S::splat(1.0)));
        let mut p = S::splat(TERMS[0]);
        for term in &TERMS[1..] {
            p = S::fma(p, t, S::splat(*term));
        }
        let falling = exp::<S>(S::sub(S::zero(), S::mul(magnitude, magnitude)));
        let y = S::sub(S::splat(1.0), S::mul(S::mul(p, t), falling));
        // The sign of x: x over its magnitude, and 0 at 0.
        S::mul(y, S::div(x, S::max(magnitude, S::splat(f32::MIN_POSITIVE))))
    }
}

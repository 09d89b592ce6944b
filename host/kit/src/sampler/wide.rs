//! Passes over a whole row of logits: largest values, weights, sums of weights. Written so that the compiler makes vectors
//! of them, once for every processor of the architecture and once for those with AVX2.
//!
//! Both give the same bits: every operation is of one value, sums have a fixed shape, and nothing is fused. Loops, not
//! chains of iterators: a closure that is not inlined is compiled for every processor only.
#![expect(unsafe_code, reason = "calls what was compiled for AVX2 once the processor is known to have it")]

/// Values whose largest one is kept by [`maxima`].
pub(crate) const CHUNK: usize = 128;
/// Tokens whose weights are summed as one by [`sums`].
pub(crate) const BLOCK: usize = 1024;
/// Independent partial results of a reduction.
const LANES: usize = 16;
/// Ranks that [`ranks`] tells apart.
pub(crate) const RANKS: usize = 2048;
/// Ranks in one power of two.
const RANKS_PER_OCTAVE: f32 = 16.0;

/// Adding it leaves the rounded value in the low bits of the mantissa.
const ROUND: f32 = 12_582_912.0;

/// Compiles a function twice and calls the faster one that this processor runs.
macro_rules! wide {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $kind:ty),*) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        pub(crate) fn $name($($arg: $kind),*) $(-> $ret)? {
            #[inline(always)]
            fn plain($($arg: $kind),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $kind),*) $(-> $ret)? {
                    plain($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has AVX2, which is all that the function asks for.
                    return unsafe { avx2($($arg),*) };
                }
            }
            plain($($arg),*)
        }
    };
}

/// From a logit to its weight, relative to the largest logit's, which is 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// The largest logit; finite.
    max: f32,
    /// `log2(e) / temperature`.
    slope: f32,
    /// Logits below it weigh nothing.
    floor: f32,
}

impl Scale {
    /// `temperature` is above 0.
    pub(crate) fn new(max: f32, temperature: f32, floor: f32) -> Scale {
        // Finite, so that the largest logit's weight is 1 at every temperature.
        let steepest = f32::MAX / RANKS_PER_OCTAVE;
        Scale { max, slope: (std::f32::consts::LOG2_E / temperature).min(steepest), floor }
    }

    /// The same with a floor that is not below `least`.
    pub(crate) fn with_floor(self, least: f32) -> Scale {
        Scale { floor: self.floor.max(least), ..self }
    }

    /// `e^((logit - max) / temperature)`; 0 below the floor, below 2^-126 and for NaN.
    #[inline(always)]
    pub(crate) fn weight(self, logit: f32) -> f32 {
        let weight = exp2_neg((logit - self.max) * self.slope);
        if logit >= self.floor { weight } else { 0.0 }
    }

    /// How far a logit is below the largest, in steps that are the same for equal logits and never smaller for smaller
    /// ones; below [`RANKS`].
    #[inline(always)]
    fn rank(self, logit: f32) -> u32 {
        let steps = (self.max - logit) * (self.slope * RANKS_PER_OCTAVE);
        // Written so that a NaN gets the last rank.
        let most = (RANKS - 1) as f32;
        let steps = if steps < most { steps } else { most };
        (steps + ROUND).to_bits() & (RANKS as u32 - 1)
    }
}

/// `2^x` for `x <= 0`, relative error below 3e-7; 0 below -126 and for NaN.
///
/// Our own, so that it becomes vector code and gives the same bits on every machine.
#[inline(always)]
fn exp2_neg(x: f32) -> f32 {
    /// The polynomial of degree 5 with the smallest relative error on [-0.5, 0.5] of those that are exact at 0 with their
    /// slope.
    const TERMS: [f32; 5] =
        [0.001_330_060_9, 0.009_669_693, 0.055_505_585, 0.240_222_83, std::f32::consts::LN_2];
    let shifted = x + ROUND;
    let part = x - (shifted - ROUND);
    let mut sum = TERMS[0];
    for term in &TERMS[1..] {
        sum = sum * part + term;
    }
    sum = sum * part + 1.0;
    // 2^n by its exponent bits; n is at least -126 where the result is used.
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    if x > -126.0 { sum * scale } else { 0.0 }
}

/// The largest value; NaN counts for nothing, an empty or all-NaN row gives negative infinity.
#[inline(always)]
fn largest(row: &[f32]) -> f32 {
    let mut best = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = row.as_chunks::<LANES>();
    for chunk in whole {
        for (best, value) in best.iter_mut().zip(chunk) {
            // Written so that a NaN compares false and loses.
            *best = if *value > *best { *value } else { *best };
        }
    }
    let mut all = f32::NEG_INFINITY;
    for value in best.iter().chain(rest) {
        all = if *value > all { *value } else { all };
    }
    all
}

/// The sum of some weights, at most a block of them, in 64 bits where it matters.
#[inline(always)]
fn total(values: &[f32], scale: Scale) -> f64 {
    let mut sum = 0.0;
    for part in values.chunks(8 * LANES) {
        let mut lanes = [0.0_f32; LANES];
        let (whole, rest) = part.as_chunks::<LANES>();
        for chunk in whole {
            for (lane, value) in lanes.iter_mut().zip(chunk) {
                *lane += scale.weight(*value);
            }
        }
        for lane in lanes {
            sum += f64::from(lane);
        }
        for value in rest {
            sum += f64::from(scale.weight(*value));
        }
    }
    sum
}

wide! {
    /// The largest value of a row; see [`maxima`] for NaN.
    fn max_of(row: &[f32]) -> f32 {
        largest(row)
    }
}

wide! {
    /// The largest value of each [`CHUNK`]; NaN counts for nothing, a chunk of them gives negative infinity.
    fn maxima(row: &[f32], out: &mut Vec<f32>) {
        out.clear();
        out.reserve(row.len().div_ceil(CHUNK));
        for chunk in row.chunks(CHUNK) {
            out.push(largest(chunk));
        }
    }
}

wide! {
    /// The sum of the weights of each [`BLOCK`], appended to `out`.
    fn sums(row: &[f32], scale: Scale, out: &mut Vec<f64>) {
        for block in row.chunks(BLOCK) {
            out.push(total(block, scale));
        }
    }
}

wide! {
    /// The weight of every value.
    fn weigh(row: &[f32], scale: Scale, out: &mut Vec<f32>) {
        out.resize(row.len(), 0.0);
        for (out, value) in out.iter_mut().zip(row) {
            *out = scale.weight(*value);
        }
    }
}

wide! {
    /// The rank of every value.
    fn ranks(row: &[f32], scale: Scale, out: &mut Vec<u32>) {
        out.resize(row.len(), 0);
        for (out, value) in out.iter_mut().zip(row) {
            *out = scale.rank(*value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_power_is_the_power() {
        for step in 0..1_260_000 {
            let x = -(step as f32) / 10_000.0;
            let exact = f64::from(x).exp2();
            let error = (f64::from(exp2_neg(x)) - exact).abs() / exact;
            assert!(error < 3e-7, "{x}: {error}");
        }
        let edges = [0.0, -0.0, -127.0, f32::MIN, f32::NEG_INFINITY, f32::NAN];
        assert_eq!(edges.map(exp2_neg), [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn the_likeliest_weighs_one_at_any_temperature_and_the_forbidden_nothing() {
        for temperature in [f32::from_bits(1), f32::MIN_POSITIVE, 0.5, 1.0, 1e30, f32::MAX] {
            let scale = Scale::new(3.0, temperature, f32::NEG_INFINITY);
            assert_eq!(scale.weight(3.0), 1.0, "{temperature}");
            assert_eq!((scale.weight(f32::NAN), scale.rank(f32::NAN)), (0.0, RANKS as u32 - 1));
            assert_eq!(scale.rank(3.0), 0);
        }
        let scale = Scale::new(3.0, 1.0, 2.0);
        assert_eq!((scale.weight(1.99), scale.weight(f32::NEG_INFINITY)), (0.0, 0.0));
        assert!((scale.weight(2.0) - 0.367_879_44).abs() < 1e-7);
    }

    #[test]
    fn ranks_never_fall_as_logits_do() {
        let scale = Scale::new(5.0, 1.0, f32::NEG_INFINITY);
        let mut last = 0;
        for step in 0..200_000 {
            let rank = scale.rank(5.0 - step as f32 / 1000.0);
            assert!(rank >= last && (rank as usize) < RANKS);
            last = rank;
        }
        assert_eq!(last as usize, RANKS - 1);
    }

    #[test]
    fn both_compilations_give_the_same_bits() {
        let row: Vec<f32> =
            (0..3000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 20) as f32 / 300.0).collect();
        let scale = Scale::new(max_of(&row), 0.7, 1.0);
        let (mut wide, mut blocks) = (Vec::new(), Vec::new());
        weigh(&row, scale, &mut wide);
        let plain: Vec<f32> = row.iter().map(|value| scale.weight(*value)).collect();
        assert!(wide == plain);
        sums(&row, scale, &mut blocks);
        let plain: Vec<f64> = row.chunks(BLOCK).map(|block| total(block, scale)).collect();
        assert_eq!((blocks, max_of(&row)), (plain, largest(&row)));
    }
}

//! Chooses codes, scales and minima for elements that have none.

use sf_base::{from_f16, to_f16};

use super::coding::{BLOCK, Coded};

const FOUR_BITS_MAX: f32 = 15.0;
const EIGHT_BITS_MAX: f32 = 127.0;
/// Parts of a block's range that are cut off at either end to try fifteen steps on the rest: for the sake of the elements
/// between. A finer grid gains less than a hundredth of the error.
const CUTS: [f32; 3] = [0.0, 0.035, 0.07];
/// Lines that are laid through the codes of the best one, each through those of the one before.
const LAST_LINES: usize = 2;
/// Most that rounding to half precision moves a value of size one, and one near zero.
const HALF: f32 = 1.0 / 2048.0;
const HALF_LEAST: f32 = 1.0 / (1_u64 << 25) as f32;

/// A step and the value of code zero, as halves hold them.
#[derive(Clone, Copy)]
struct Line {
    step: f32,
    zero: f32,
}

impl Line {
    fn new(step: f32, zero: f32) -> Line {
        Line { step: from_f16(to_f16(step)), zero: from_f16(to_f16(zero)) }
    }

    /// The nearest code of each element, and what they are away: the sum of squares, and the most.
    fn codes(self, block: &[f32], codes: &mut [f32; BLOCK]) -> (f32, f32) {
        let inverse = if self.step > 0.0 { 1.0 / self.step } else { 0.0 };
        let (mut sum, mut most) = (0.0_f32, 0.0_f32);
        for (code, value) in codes.iter_mut().zip(block) {
            *code = ((value - self.zero) * inverse).round_ties_even().clamp(0.0, FOUR_BITS_MAX);
            let away = (self.step.mul_add(*code, self.zero) - value).abs();
            sum += away * away;
            most = most.max(away);
        }
        (sum, most)
    }

    /// The line that is nearest to elements with these codes.
    fn through(block: &[f32], codes: &[f32; BLOCK]) -> Option<Line> {
        let count = block.len() as f32;
        let (mut c, mut cc, mut v, mut cv) = (0.0_f32, 0.0_f32, 0.0_f32, 0.0_f32);
        for (code, value) in codes.iter().zip(block) {
            c += code;
            cc += code * code;
            v += value;
            cv += code * value;
        }
        let spread = count * cc - c * c;
        let step = (count * cv - c * v) / spread;
        (spread > 0.0 && step > 0.0).then(|| Line::new(step, (v - step * c) / count))
    }
}

fn ends(block: &[f32]) -> (f32, f32) {
    block
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(least, most), &value| (least.min(value), most.max(value)))
}

/// Four bits for up to 32 elements: the range in fifteen steps, or whatever line through the codes of a part of it has the
/// smallest sum of squares, so long as no element is farther away than the bound.
pub(super) fn four_bits(block: &[f32], out: &mut Coded) {
    let (least, most) = ends(block);
    let bound = four_bits_bound(block);
    let mut best = Line::new((most - least) / FOUR_BITS_MAX, least);
    let mut codes = [0.0; BLOCK];
    let (mut best_sum, _) = best.codes(block, &mut codes);
    let mut consider = |best: &mut Line, line: Option<Line>| {
        let Some(line) = line else { return };
        let (sum, away) = line.codes(block, &mut [0.0; BLOCK]);
        if sum < best_sum && away <= bound {
            (*best, best_sum) = (line, sum);
        }
    };
    let range = most - least;
    for (below, above) in CUTS.into_iter().flat_map(|below| CUTS.map(|above| (below, above))) {
        let step = range * (1.0 - below - above) / FOUR_BITS_MAX;
        Line { step, zero: least + below * range }.codes(block, &mut codes);
        // The line that is nearest to the elements with these codes.
        consider(&mut best, Line::through(block, &codes));
    }
    for _ in 0..LAST_LINES {
        best.codes(block, &mut codes);
        consider(&mut best, Line::through(block, &codes));
    }
    best.codes(block, &mut codes);
    out.push(&codes.map(|code| code as u8)[..block.len()], best.step, best.zero);
}

/// A step of the whole range, and what rounding the step and the minimum adds.
pub(super) fn four_bits_bound(block: &[f32]) -> f32 {
    let (least, most) = ends(block);
    let reach = least.abs().max(most.abs());
    (most - least) / FOUR_BITS_MAX + 4.0 * reach * HALF + 16.0 * HALF_LEAST
}

/// Eight bits for up to 32 elements: the largest becomes 127. As unsigned codes they count from -128 on.
pub(super) fn eight_bits(block: &[f32], unsigned: bool, out: &mut Coded) {
    let (least, most) = ends(block);
    let step = from_f16(to_f16(least.abs().max(most.abs()) / EIGHT_BITS_MAX));
    let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
    let zero = if unsigned { 128 } else { 0 };
    let code = |value: &f32| {
        let code = (value * inverse).round_ties_even().clamp(-EIGHT_BITS_MAX, EIGHT_BITS_MAX);
        (code as i8).cast_unsigned().wrapping_add(zero)
    };
    let codes: [u8; BLOCK] = std::array::from_fn(|at| block.get(at).map_or(0, code));
    out.push(&codes[..block.len()], step, if unsigned { -128.0 * step } else { 0.0 });
}

/// Half a step, and what rounding the step adds.
pub(super) fn eight_bits_bound(block: &[f32]) -> f32 {
    let (least, most) = ends(block);
    let reach = least.abs().max(most.abs());
    0.5 * reach / EIGHT_BITS_MAX + 2.0 * reach * HALF + 128.0 * HALF_LEAST
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the codes are worth.
    fn values(coded: &Coded, signed: bool) -> Vec<f32> {
        let (step, zero) = (from_f16(coded.scales[0]), from_f16(coded.minima[0]));
        let code = |code: &u8| if signed { f32::from(code.cast_signed()) } else { f32::from(*code) };
        coded.codes.iter().map(|byte| step.mul_add(code(byte), zero)).collect()
    }

    fn squares(block: &[f32], values: &[f32]) -> f64 {
        block.iter().zip(values).map(|(want, got)| f64::from(want - got).powi(2)).sum()
    }

    /// Elements of any size that weights have, some of them equal.
    fn blocks() -> impl Strategy<Value = Vec<f32>> {
        let element = prop_oneof![4 => -1.0_f32..1.0, 1 => Just(0.0_f32), 1 => -8.0_f32..8.0];
        (-24_i32..12, prop::collection::vec(element, 1..=BLOCK))
            .prop_map(|(power, block)| block.into_iter().map(|value| value * 2_f32.powi(power)).collect())
    }

    proptest! {
        #[test]
        fn no_element_is_farther_away_than_the_bound(block in blocks()) {
            let mut four = Coded::default();
            four_bits(&block, &mut four);
            for (want, got) in block.iter().zip(values(&four, false)) {
                prop_assert!((want - got).abs() <= four_bits_bound(&block), "{want} {got}");
            }
            for unsigned in [false, true] {
                let mut eight = Coded::default();
                eight_bits(&block, unsigned, &mut eight);
                for (want, got) in block.iter().zip(values(&eight, !unsigned)) {
                    prop_assert!((want - got).abs() <= eight_bits_bound(&block), "{want} {got}");
                }
            }
        }

        #[test]
        fn four_bits_are_no_worse_than_fifteen_steps_from_end_to_end(block in blocks()) {
            let mut four = Coded::default();
            four_bits(&block, &mut four);
            let (least, most) = ends(&block);
            let line = Line::new((most - least) / FOUR_BITS_MAX, least);
            let mut codes = [0.0; BLOCK];
            line.codes(&block, &mut codes);
            let plain: Vec<f32> = codes.iter().map(|code| line.step.mul_add(*code, line.zero)).collect();
            let (fitted, plain) = (squares(&block, &values(&four, false)), squares(&block, &plain));
            prop_assert!(fitted <= plain * 1.0001, "{fitted} {plain}");
        }
    }

    #[test]
    fn weights_lose_a_fifth_less_than_with_steps_from_end_to_end() {
        // Sums of four even numbers are spread nearly as weights are.
        let mut state = 1_u32;
        let mut even = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        let (mut fitted, mut plain) = (0.0, 0.0);
        for _ in 0..500 {
            let block: [f32; BLOCK] = std::array::from_fn(|_| (0..4).map(|_| even()).sum());
            let mut four = Coded::default();
            four_bits(&block, &mut four);
            fitted += squares(&block, &values(&four, false));
            let (least, most) = ends(&block);
            let line = Line::new((most - least) / FOUR_BITS_MAX, least);
            plain += f64::from(line.codes(&block, &mut [0.0; BLOCK]).0);
        }
        assert!(fitted < 0.82 * plain, "{fitted} {plain}");
    }
}

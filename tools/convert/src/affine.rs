//! MLX's affine form, and how MLX chooses scales, biases and codes: the results are equal, bit by bit.
//!
//! In the affine form the elements of a group share a scale and a bias: `scale * code + bias`.

use crate::codes::pack;
use crate::kinds::Plain;

/// Smallest step between two codes.
const STEP_MIN: f32 = 1e-7;

/// Width of codes and size of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Affine {
    bits: u32,
    group: u32,
}

/// Quantized elements, as they stand in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Codes in words of 32 bits, little-endian.
    pub words: Vec<u8>,
    /// A float for each group.
    pub scales: Vec<u8>,
    /// A float for each group.
    pub biases: Vec<u8>,
}

/// How the elements of a group are spread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    /// The scale before it is made to hit the bias.
    pub(crate) step: f32,
    scale: f32,
    bias: f32,
    /// The largest that a code and its bias amount to.
    pub(crate) reach: f32,
}

impl Affine {
    /// Widths of codes that MLX knows, bits.
    pub const BITS: [u32; 6] = [2, 3, 4, 5, 6, 8];
    /// Sizes of groups that MLX knows, elements.
    pub const GROUPS: [u32; 3] = [32, 64, 128];

    /// `None` = MLX has no such form.
    pub fn new(bits: u32, group: u32) -> Option<Affine> {
        (Affine::BITS.contains(&bits) && Affine::GROUPS.contains(&group)).then_some(Affine { bits, group })
    }

    pub(crate) const fn of_32(bits: u32) -> Affine {
        Affine { bits, group: 32 }
    }

    /// Bits of a code.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Elements of a group.
    pub fn group(self) -> u32 {
        self.group
    }

    fn code_max(self) -> f32 {
        ((1_u32 << self.bits) - 1) as f32
    }

    /// Quantizes whole groups and appends them; scales and biases become `plain`. Elements are of that type, and finite.
    pub fn quantize(self, elements: &[f32], plain: Plain, out: &mut Packed) {
        let mut codes = [0; 128];
        for group in elements.chunks_exact(self.group as usize) {
            let Spread { scale, bias, .. } = self.spread(group);
            for (code, element) in codes.iter_mut().zip(group) {
                *code = ((element - bias) / scale).round_ties_even().clamp(0.0, self.code_max()) as u8;
            }
            pack(&codes[..group.len()], self.bits, &mut out.words);
            plain.put(scale, &mut out.scales);
            plain.put(bias, &mut out.biases);
        }
    }

    /// The end of the range that is farther from zero becomes the bias, exactly, and zero a whole number of steps from it.
    pub(crate) fn spread(self, group: &[f32]) -> Spread {
        let least = group.iter().copied().fold(f32::INFINITY, f32::min);
        let most = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let step = ((most - least) / self.code_max()).max(STEP_MIN);
        let (edge, sign) = if least.abs() > most.abs() { (least, 1.0) } else { (most, -1.0) };
        let steps = (edge / (sign * step)).round_ties_even();
        let (scale, bias) = if steps == 0.0 { (sign * step, 0.0) } else { (edge / steps, edge) };
        Spread { step, scale, bias, reach: bias.abs() + self.code_max() * scale.abs() }
    }
}

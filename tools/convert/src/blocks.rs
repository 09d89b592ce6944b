//! The blocks of GGUF's types: what their elements are worth, and which of them MLX's affine form holds exactly.
//!
//! In the affine form 32 elements share a scale and a bias: `scale * code + bias`. Sizes and bit positions are those of
//! ggml's block structures.

use sf_artifact::gguf::TensorType;

use crate::affine::Affine;
use crate::kinds::{Plain, brain, half};

/// Elements of a group of the affine form that blocks become.
const GROUP: usize = 32;

/// What IQ4_NL's codes are worth, in scales.
const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// What MLX holds of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// The elements themselves.
    Plain(Plain),
    /// Its codes; scales and biases are exact as halves.
    Halves(Affine),
    /// The same, where a scale is a product and needs 32 bits.
    Floats(Affine),
    /// Nothing but what its elements are worth.
    Not,
}

impl Held {
    /// Elements of a group of blocks.
    pub(crate) const GROUP: usize = GROUP;
}

/// 32 elements: codes, a scale and a bias.
pub(crate) struct Group {
    pub(crate) codes: [u8; GROUP],
    pub(crate) scale: f32,
    pub(crate) bias: f32,
}

/// What MLX holds of a type; `None` = it is not converted.
pub(crate) fn held(kind: TensorType) -> Option<Held> {
    Some(match kind.name {
        "F32" => Held::Plain(Plain::F32),
        "F16" => Held::Plain(Plain::F16),
        "BF16" => Held::Plain(Plain::Bf16),
        "Q4_0" | "Q4_1" => Held::Halves(Affine::of_32(4)),
        "Q5_0" | "Q5_1" => Held::Halves(Affine::of_32(5)),
        // The sixteen values of IQ4_NL's codes are whole numbers of eight bits.
        "Q8_0" | "IQ4_NL" => Held::Halves(Affine::of_32(8)),
        "Q4_K" => Held::Floats(Affine::of_32(4)),
        "Q5_K" => Held::Floats(Affine::of_32(5)),
        "Q2_K" | "Q3_K" | "Q6_K" => Held::Not,
        _ => return None,
    })
}

/// The groups of a row of an affine type.
pub(crate) fn groups(kind: TensorType, row: &[u8], mut each: impl FnMut(Group)) {
    for block in row.chunks_exact(kind.block_bytes as usize) {
        match kind.name {
            "Q4_0" => each(low_nibbles(&block[2..], |codes| {
                let scale = half_at(block, 0);
                Group { codes, scale, bias: -8.0 * scale }
            })),
            "Q4_1" => each(low_nibbles(&block[4..], |codes| Group {
                codes,
                scale: half_at(block, 0),
                bias: half_at(block, 2),
            })),
            "Q5_0" => each(fifth_bits(&block[2..], |codes| {
                let scale = half_at(block, 0);
                Group { codes, scale, bias: -16.0 * scale }
            })),
            "Q5_1" => each(fifth_bits(&block[4..], |codes| Group {
                codes,
                scale: half_at(block, 0),
                bias: half_at(block, 2),
            })),
            "Q8_0" => {
                let scale = half_at(block, 0);
                let codes = std::array::from_fn(|at| block[2 + at].wrapping_add(128));
                each(Group { codes, scale, bias: -128.0 * scale });
            }
            "IQ4_NL" => each(low_nibbles(&block[2..], |codes| {
                let scale = half_at(block, 0);
                let codes = codes.map(|code| VALUES[usize::from(code)].cast_unsigned().wrapping_add(128));
                Group { codes, scale, bias: -128.0 * scale }
            })),
            "Q4_K" | "Q5_K" => super_block(kind.name == "Q5_K", block, &mut each),
            other => unreachable!("{other} is no affine type"),
        }
    }
}

/// The elements of a row, whatever its type.
pub(crate) fn elements(kind: TensorType, row: &[u8], out: &mut Vec<f32>) {
    out.clear();
    match kind.name {
        "F32" => out.extend(row.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes))),
        "F16" => out.extend(row.as_chunks().0.iter().map(|bytes| half(u16::from_le_bytes(*bytes)))),
        "BF16" => out.extend(row.as_chunks().0.iter().map(|bytes| brain(u16::from_le_bytes(*bytes)))),
        "Q2_K" => row.chunks_exact(kind.block_bytes as usize).for_each(|block| two_bits(block, out)),
        "Q3_K" => row.chunks_exact(kind.block_bytes as usize).for_each(|block| three_bits(block, out)),
        "Q6_K" => row.chunks_exact(kind.block_bytes as usize).for_each(|block| six_bits(block, out)),
        _ => groups(kind, row, |group| {
            out.extend(group.codes.iter().map(|code| group.scale * f32::from(*code) + group.bias));
        }),
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    half(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Sixteen bytes: element i and element i + 16 in a byte.
fn low_nibbles(bytes: &[u8], make: impl FnOnce([u8; GROUP]) -> Group) -> Group {
    make(std::array::from_fn(|at| if at < 16 { bytes[at] & 15 } else { bytes[at - 16] >> 4 }))
}

/// The fifth bit of each element in four bytes before its nibbles.
fn fifth_bits(bytes: &[u8], make: impl FnOnce([u8; GROUP]) -> Group) -> Group {
    let high = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    low_nibbles(&bytes[4..], |low| make(std::array::from_fn(|at| low[at] | (((high >> at) & 1) as u8) << 4)))
}

/// 256 elements in eight groups, whose scales and minimums have six bits each.
fn super_block(fifth: bool, block: &[u8], each: &mut impl FnMut(Group)) {
    let (factor, factor_min) = (half_at(block, 0), half_at(block, 2));
    let packed = &block[4..16];
    let (high, low) = if fifth { (&block[16..48], &block[48..176]) } else { (&block[..0], &block[16..144]) };
    for number in 0..8 {
        let (scale, min) = match number {
            0..4 => (packed[number] & 63, packed[number + 4] & 63),
            _ => (
                (packed[number + 4] & 15) | ((packed[number - 4] >> 6) << 4),
                (packed[number + 4] >> 4) | ((packed[number] >> 6) << 4),
            ),
        };
        let nibbles = &low[number / 2 * 32..][..32];
        let codes = std::array::from_fn(|at| {
            let nibble = if number % 2 == 0 { nibbles[at] & 15 } else { nibbles[at] >> 4 };
            match fifth {
                true => nibble | ((high[at] >> number) & 1) << 4,
                false => nibble,
            }
        });
        each(Group { codes, scale: factor * f32::from(scale), bias: -factor_min * f32::from(min) });
    }
}

/// Where an element's pair of bits is: its byte, how far to shift, which 32 of 256 it belongs to, and its place in them.
fn pair_of_bits(at: usize) -> (usize, usize, usize, usize) {
    let (part, quarter, lane) = (at / 128, at % 128 / 32, at % 32);
    (part * 32 + lane, 2 * quarter, part * 4 + quarter, lane)
}

/// 256 elements in sixteen groups of sixteen, whose scales and minimums have four bits each.
fn two_bits(block: &[u8], out: &mut Vec<f32>) {
    let (scales, pairs) = (&block[..16], &block[16..80]);
    let (factor, factor_min) = (half_at(block, 80), half_at(block, 82));
    for at in 0..256 {
        let (byte, shift, ..) = pair_of_bits(at);
        let (scale, min) = (scales[at / 16] & 15, scales[at / 16] >> 4);
        let code = (pairs[byte] >> shift) & 3;
        out.push(factor * f32::from(scale) * f32::from(code) - factor_min * f32::from(min));
    }
}

/// 256 elements in sixteen groups of sixteen, whose scales have six bits; a third bit of each stands apart.
fn three_bits(block: &[u8], out: &mut Vec<f32>) {
    let (thirds, pairs, packed) = (&block[..32], &block[32..96], &block[96..108]);
    let factor = half_at(block, 108);
    for at in 0..256 {
        let (byte, shift, bit, lane) = pair_of_bits(at);
        let group = at / 16;
        let low = if group < 8 { packed[group] & 15 } else { packed[group - 8] >> 4 };
        let high = (packed[8 + group % 4] >> (2 * (group / 4))) & 3;
        let scale = i16::from(low | high << 4) - 32;
        let third = (thirds[lane] >> bit) & 1;
        let code = i16::from((pairs[byte] >> shift) & 3 | third << 2) - 4;
        out.push(factor * f32::from(scale) * f32::from(code));
    }
}

/// 256 elements in sixteen groups of sixteen: MLX has no group so small.
fn six_bits(block: &[u8], out: &mut Vec<f32>) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let factor = half_at(block, 208);
    for at in 0..256 {
        let (part, in_part) = (at / 128, at % 128);
        let (quarter, lane) = (in_part / 32, in_part % 32);
        let nibbles = low[part * 64 + (quarter % 2) * 32 + lane];
        let nibble = if quarter < 2 { nibbles & 15 } else { nibbles >> 4 };
        let two = (high[part * 32 + lane] >> (2 * quarter)) & 3;
        let code = i32::from(nibble | two << 4) - 32;
        let scale = scales[at / 16].cast_signed();
        out.push(factor * f32::from(scale) * code as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn kind(name: &'static str, block: u64, block_bytes: u64) -> TensorType {
        TensorType { id: 0, name, block, block_bytes }
    }

    /// Bytes that differ, with scales that are sensible halves.
    fn block(bytes: usize, halves: &[usize]) -> Vec<u8> {
        let mut block: Vec<u8> = (0..bytes).map(|at| (at * 37 + 11) as u8).collect();
        for (number, at) in halves.iter().enumerate() {
            block[*at..at + 2].copy_from_slice(&(0x2c00_u16 + 0x155 * number as u16).to_le_bytes());
        }
        block
    }

    #[test]
    fn elements_are_what_ggml_says_they_are() {
        let check = |kind: TensorType, halves: &[usize], element: &dyn Fn(&[u8], usize) -> f32| {
            let block = block(kind.block_bytes as usize, halves);
            let mut out = Vec::new();
            elements(kind, &block, &mut out);
            assert_eq!(out.len() as u64, kind.block);
            for (at, value) in out.iter().enumerate() {
                let expect = element(&block, at);
                assert!(
                    (value - expect).abs() <= expect.abs() * 1e-6,
                    "{} {at}: {value} {expect}",
                    kind.name
                );
            }
        };
        let nibble =
            |bytes: &[u8], at: usize| f32::from(if at < 16 { bytes[at] & 15 } else { bytes[at - 16] >> 4 });
        check(kind("Q4_0", 32, 18), &[0], &|b, at| half_at(b, 0) * (nibble(&b[2..], at) - 8.0));
        check(kind("Q4_1", 32, 20), &[0, 2], &|b, at| half_at(b, 0) * nibble(&b[4..], at) + half_at(b, 2));
        let fifth = |bytes: &[u8], at: usize| f32::from((bytes[at / 8] >> (at % 8)) & 1) * 16.0;
        check(kind("Q5_0", 32, 22), &[0], &|b, at| {
            half_at(b, 0) * (nibble(&b[6..], at) + fifth(&b[2..], at) - 16.0)
        });
        check(kind("Q5_1", 32, 24), &[0, 2], &|b, at| {
            half_at(b, 0) * (nibble(&b[8..], at) + fifth(&b[4..], at)) + half_at(b, 2)
        });
        check(kind("Q8_0", 32, 34), &[0], &|b, at| half_at(b, 0) * f32::from(b[2 + at].cast_signed()));
    }

    #[test]
    fn what_has_no_form_is_not_converted() {
        assert_eq!(held(kind("IQ2_XXS", 256, 66)), None);
        assert_eq!(held(kind("Q6_K", 256, 210)), Some(Held::Not));
    }
}

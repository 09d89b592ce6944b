//! How rows of the source become rows of a layout, and how far that may move an element.

use sf_artifact::gguf::TensorType;
use sf_base::{Layout, from_f16, to_f16};

use super::fit;
use crate::blocks::{Held, groups, held};
use crate::kinds::Plain;

/// Columns of a block of codes.
pub(super) const BLOCK: usize = 32;

/// How elements get into a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// The source's codes, scales and minima.
    Codes,
    /// The same with scales and minima rounded to halves.
    RoundedScales,
    /// New codes for the elements.
    Quantized,
    /// Elements, to the nearest of their type.
    Floats,
}

/// Rows of codes, each padded to whole blocks.
#[derive(Debug, Default)]
pub(super) struct Coded {
    pub(super) codes: Vec<u8>,
    pub(super) scales: Vec<u16>,
    pub(super) minima: Vec<u16>,
}

impl Coded {
    pub(super) fn clear(&mut self) {
        self.codes.clear();
        self.scales.clear();
        self.minima.clear();
    }

    pub(super) fn push(&mut self, codes: &[u8], scale: f32, minimum: f32) {
        self.codes.extend(codes);
        self.codes.resize(self.codes.len().next_multiple_of(BLOCK), 0);
        self.scales.push(to_f16(scale));
        self.minima.push(to_f16(minimum));
    }

    /// Whether every scale and minimum is a number.
    pub(super) fn is_finite(&self) -> bool {
        self.scales.iter().chain(&self.minima).all(|half| from_f16(*half).is_finite())
    }
}

/// The layout that keeps the most of a type.
pub(super) fn native(kind: TensorType) -> Layout {
    match kind.name {
        "Q4_0" | "Q4_1" | "Q4_K" => Layout::Q4m,
        "Q5_1" | "Q5_K" => Layout::Q8m,
        "F16" => Layout::F16,
        "BF16" => Layout::Bf16,
        "F32" => Layout::F32Group,
        _ => Layout::Q8,
    }
}

/// The smallest layout that loses nothing that one of two keeps.
pub(super) fn join(a: Layout, b: Layout) -> Layout {
    match (a, b) {
        (a, b) if a == b => a,
        (a, b) if a.is_coded() && b.is_coded() => Layout::Q8m,
        _ => Layout::F32Group,
    }
}

pub(super) fn way(kind: TensorType, layout: Layout) -> Way {
    if !layout.is_coded() {
        return Way::Floats;
    }
    let own = native(kind);
    let with_codes = matches!(held(kind), Some(Held::Halves(_) | Held::Floats(_)));
    match with_codes && (own == layout || layout == Layout::Q8m) {
        true if matches!(held(kind), Some(Held::Floats(_))) => Way::RoundedScales,
        true => Way::Codes,
        false => Way::Quantized,
    }
}

/// Appends a row's codes as they are in the source.
pub(super) fn recode(kind: TensorType, layout: Layout, row: &[u8], out: &mut Coded) {
    // What the source's codes count from, as signed ones.
    let zero = match kind.name {
        _ if layout != Layout::Q8 => 0,
        "Q5_0" => 16,
        _ => 128,
    };
    groups(kind, row, |group| {
        let codes = group.codes.map(|code| code.wrapping_sub(zero));
        out.push(&codes, group.scale, group.bias);
    });
}

/// Appends new codes for a row's elements.
pub(super) fn quantize(layout: Layout, elements: &[f32], out: &mut Coded) {
    for block in elements.chunks(BLOCK) {
        match layout {
            Layout::Q4m => fit::four_bits(block, out),
            _ => fit::eight_bits(block, layout == Layout::Q8m, out),
        }
    }
}

/// Most that each of a row's elements may be moved, block by block or one by one.
pub(super) fn bounds(
    (kind, layout, way): (TensorType, Layout, Way),
    row: &[u8],
    elements: &[f32],
    out: &mut Vec<f32>,
) {
    out.clear();
    match way {
        Way::Codes => out.resize(elements.len(), 0.0),
        Way::RoundedScales => groups(kind, row, |group| {
            let most = group.codes.iter().copied().max().unwrap_or(0);
            let code = f32::from(most);
            let moved = code * Plain::F16.rounding(group.scale) + Plain::F16.rounding(group.bias);
            // The sum is rounded once more.
            let sum = (code * group.scale).abs() + group.bias.abs();
            out.resize(out.len() + BLOCK, moved + sum * 2.0 * f32::EPSILON);
        }),
        Way::Quantized => {
            for block in elements.chunks(BLOCK) {
                let bound = match layout {
                    Layout::Q4m => fit::four_bits_bound(block),
                    _ => fit::eight_bits_bound(block),
                };
                out.resize(out.len() + block.len(), bound);
            }
        }
        Way::Floats => {
            let plain = match layout {
                Layout::F16 => Plain::F16,
                Layout::Bf16 => Plain::Bf16,
                _ => Plain::F32,
            };
            let holds = Plain::named(kind.name).is_some_and(|from| plain.holds(from));
            out.extend(elements.iter().map(|value| if holds { 0.0 } else { plain.rounding(*value) }));
        }
    }
    out.truncate(elements.len());
}

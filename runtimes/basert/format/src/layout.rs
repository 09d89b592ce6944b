//! How weights lie: sixteen rows side by side, in blocks of columns, as kernels read them from front to back.
//!
//! All layouts but `f32` hold a matrix in groups of sixteen rows, the last one filled up with zeros. Those of codes hold a
//! group in blocks of 32 columns, the last one filled up as well.

use crate::half::{from_f16, to_f16};

/// Rows of a group.
pub const GROUP: usize = 16;
/// Columns of a block of codes.
const BLOCK: usize = 32;

/// A layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// `q4m.16x32`: codes of four bits, and of each row a scale and a minimum. 320 bytes a block.
    Q4m,
    /// `q8.16x32`: signed codes of eight bits and of each row a scale. 544 bytes a block.
    Q8,
    /// `q8m.16x32`: unsigned codes of eight bits, and of each row a scale and a minimum. 576 bytes a block.
    Q8m,
    /// `f16.16`: halves, sixteen rows of a column side by side.
    F16,
    /// `bf16.16`: brain floats in the same way.
    Bf16,
    /// `f32.16`: floats in the same way.
    F32Group,
    /// `f32`: floats row by row, without any padding: vectors.
    F32,
}

impl Layout {
    /// All of them.
    pub const ALL: [Layout; 7] =
        [Layout::Q4m, Layout::Q8, Layout::Q8m, Layout::F16, Layout::Bf16, Layout::F32Group, Layout::F32];

    /// As the header spells it.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Q4m => "q4m.16x32",
            Layout::Q8 => "q8.16x32",
            Layout::Q8m => "q8m.16x32",
            Layout::F16 => "f16.16",
            Layout::Bf16 => "bf16.16",
            Layout::F32Group => "f32.16",
            Layout::F32 => "f32",
        }
    }

    /// The layout of that name.
    pub fn named(name: &str) -> Option<Layout> {
        Layout::ALL.into_iter().find(|layout| layout.name() == name)
    }

    /// Whether a group is blocks of codes.
    pub fn is_coded(self) -> bool {
        self.block_bytes().is_some()
    }

    /// Bytes of a block of 16 rows and 32 columns of codes.
    pub fn block_bytes(self) -> Option<usize> {
        match self {
            Layout::Q4m => Some(320),
            Layout::Q8 => Some(544),
            Layout::Q8m => Some(576),
            _ => None,
        }
    }

    /// Bytes of a matrix; it saturates.
    pub fn bytes(self, rows: u32, cols: u32) -> u64 {
        let (groups, cols) = (u64::from(rows.div_ceil(GROUP as u32)), u64::from(cols));
        let one = match self {
            Layout::F32 => return u64::from(rows).saturating_mul(cols).saturating_mul(4),
            Layout::F16 | Layout::Bf16 => cols * 32,
            Layout::F32Group => cols * 64,
            Layout::Q4m | Layout::Q8 | Layout::Q8m => {
                cols.div_ceil(BLOCK as u64) * self.block_bytes().unwrap_or(0) as u64
            }
        };
        groups.saturating_mul(one)
    }

    /// Appends a block of codes: of sixteen rows 32 codes, a scale and a minimum as halves. Codes of [`Layout::Q8`] are the
    /// bytes of signed ones, and its minima are left out.
    ///
    /// # Panics
    /// Of a layout without codes.
    pub fn pack_codes(
        self,
        codes: &[[u8; BLOCK]; GROUP],
        scales: &[u16; GROUP],
        minima: &[u16; GROUP],
        out: &mut Vec<u8>,
    ) {
        match self {
            Layout::Q4m => {
                for at in 0..256 {
                    let (plane, row, j) = (at / 64, at / 4 % GROUP, at % 4);
                    let (low, high) = (codes[row][8 * plane + j], codes[row][8 * plane + 4 + j]);
                    out.push(low & 15 | high << 4);
                }
            }
            Layout::Q8 | Layout::Q8m => {
                out.extend((0..512).map(|at| codes[at / 4 % GROUP][at / 64 * 4 + at % 4]));
            }
            _ => panic!("{} has no codes", self.name()),
        }
        out.extend(scales.iter().flat_map(|half| half.to_le_bytes()));
        if self != Layout::Q8 {
            out.extend(minima.iter().flat_map(|half| half.to_le_bytes()));
        }
    }

    /// Appends a group of sixteen rows of plain weights, `[16, cols]`, rounded to the nearest.
    ///
    /// # Panics
    /// Of a layout with codes, or if there are not sixteen rows.
    pub fn pack_floats(self, rows: &[f32], cols: usize, out: &mut Vec<u8>) {
        assert_eq!(rows.len(), GROUP * cols, "sixteen rows");
        for col in 0..cols {
            for row in 0..GROUP {
                let value = rows[row * cols + col];
                match self {
                    Layout::F16 => out.extend(to_f16(value).to_le_bytes()),
                    Layout::Bf16 => out.extend(to_bf16(value).to_le_bytes()),
                    Layout::F32Group => out.extend(value.to_le_bytes()),
                    _ => panic!("{} is not made of groups of floats", self.name()),
                }
            }
        }
    }

    /// What the elements of a group of sixteen rows are worth, `[16, cols]`. `bytes` is the group, whole.
    ///
    /// # Panics
    /// If there are fewer bytes, or of [`Layout::F32`], which has no groups.
    pub fn unpack_group(self, bytes: &[u8], cols: usize, out: &mut Vec<f32>) {
        out.clear();
        for row in 0..GROUP {
            out.extend((0..cols).map(|col| self.element(bytes, row, col)));
        }
    }

    /// What one element of a group is worth. `bytes` is the group, whole.
    ///
    /// # Panics
    /// As [`Layout::unpack_group`].
    #[inline]
    pub fn element(self, bytes: &[u8], row: usize, col: usize) -> f32 {
        let half = |at: usize| from_f16(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let (block, k) = (col / BLOCK, col % BLOCK);
        let code = |size: usize| bytes[block * size + k / 4 * 64 + row * 4 + k % 4];
        match self {
            Layout::Q4m => {
                let start = block * 320;
                let byte = bytes[start + k / 8 * 64 + row * 4 + k % 4];
                let code = if k % 8 < 4 { byte & 15 } else { byte >> 4 };
                half(start + 256 + row * 2).mul_add(f32::from(code), half(start + 288 + row * 2))
            }
            Layout::Q8 => half(block * 544 + 512 + row * 2) * f32::from(code(544).cast_signed()),
            Layout::Q8m => {
                let start = block * 576;
                half(start + 512 + row * 2).mul_add(f32::from(code(576)), half(start + 544 + row * 2))
            }
            Layout::F16 => half((col * GROUP + row) * 2),
            Layout::Bf16 => {
                let at = (col * GROUP + row) * 2;
                f32::from_bits(u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]])) << 16)
            }
            Layout::F32Group => {
                let at = (col * GROUP + row) * 4;
                f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
            }
            Layout::F32 => panic!("f32 has no groups"),
        }
    }
}

/// To a brain float, to the nearest, ties to even.
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_sizes_count_padding() {
        for layout in Layout::ALL {
            assert_eq!(Layout::named(layout.name()), Some(layout));
        }
        assert_eq!(Layout::named("q4m"), None);
        let check =
            |layout: Layout, rows, cols, bytes| assert_eq!(layout.bytes(rows, cols), bytes, "{layout:?}");
        check(Layout::Q4m, 17, 33, 2 * 2 * 320);
        check(Layout::Q8, 16, 32, 544);
        check(Layout::Q8m, 1, 1, 576);
        check(Layout::F16, 16, 3, 96);
        check(Layout::F32Group, 17, 1, 128);
        check(Layout::F32, 2, 3, 24);
        check(Layout::F32, u32::MAX, u32::MAX, u64::MAX);
    }

    #[test]
    fn codes_come_back_from_their_planes() {
        let codes: [[u8; BLOCK]; GROUP] =
            core::array::from_fn(|row| core::array::from_fn(|k| (row * 37 + k * 11) as u8));
        let scales: [u16; GROUP] = core::array::from_fn(|row| to_f16(0.25 + row as f32));
        let minima: [u16; GROUP] = core::array::from_fn(|row| to_f16(-1.5 * row as f32));
        for (layout, worth) in [
            (Layout::Q4m, (|code, d, m| d * f32::from(code & 15) + m) as fn(u8, f32, f32) -> f32),
            (Layout::Q8, |code, d, _| d * f32::from(code.cast_signed())),
            (Layout::Q8m, |code, d, m| d * f32::from(code) + m),
        ] {
            let (mut bytes, mut out) = (Vec::new(), Vec::new());
            layout.pack_codes(&codes, &scales, &minima, &mut bytes);
            assert_eq!(Some(bytes.len()), layout.block_bytes());
            layout.unpack_group(&bytes, BLOCK, &mut out);
            for (at, value) in out.iter().enumerate() {
                let (row, k) = (at / BLOCK, at % BLOCK);
                let expect = worth(codes[row][k], from_f16(scales[row]), from_f16(minima[row]));
                assert_eq!(*value, expect, "{layout:?} {row} {k}");
            }
        }
    }

    #[test]
    fn floats_come_back_rounded() {
        let rows: Vec<f32> = (0..GROUP * 3).map(|at| 1.0 + at as f32 / 4096.0).collect();
        for (layout, part) in [(Layout::F16, 1e-3_f32), (Layout::Bf16, 8e-3), (Layout::F32Group, 0.0)] {
            let (mut bytes, mut out) = (Vec::new(), Vec::new());
            layout.pack_floats(&rows, 3, &mut bytes);
            assert_eq!(bytes.len() as u64, layout.bytes(16, 3));
            layout.unpack_group(&bytes, 3, &mut out);
            rows.iter().zip(&out).for_each(|(a, b)| assert!((a - b).abs() <= part, "{layout:?}: {a} {b}"));
        }
    }
}

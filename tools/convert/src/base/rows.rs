//! Sixteen rows at a time: what a group of a bundle's tensor is made of, and its bytes.

use sf_base::{GROUP, Layout};

use super::coding::{BLOCK, Coded, Way, quantize, recode};
use super::plan::{Item, Plan};
use crate::error::ConvertError;
use crate::plan::Entry;
use crate::write::{Rows, Source};

/// Elements of a batch of groups.
const BATCH_ELEMENTS: u64 = 1 << 20;

/// Reads an item's rows and makes its bytes.
pub(super) struct Groups<'a> {
    plan: &'a Plan,
    item: &'a Item,
    /// Of each piece.
    rows: Vec<Rows<'a>>,
    coded: Coded,
    floats: Vec<f32>,
}

/// A row of the source.
pub(super) struct Row<'a> {
    /// Of the item.
    pub(super) piece: usize,
    /// The tensor that the piece is.
    pub(super) entry: &'a Entry,
    pub(super) bytes: &'a [u8],
    pub(super) elements: &'a [f32],
}

impl<'a> Groups<'a> {
    pub(super) fn new(source: &'a Source, plan: &'a Plan, item: &'a Item) -> Groups<'a> {
        let rows = item.pieces.iter().map(|piece| source.rows(&plan.entries[piece.entry])).collect();
        Groups { plan, item, rows, coded: Coded::default(), floats: Vec::new() }
    }

    /// How many there are; a tensor of plain rows has one for each of them.
    pub(super) fn count(&self) -> u64 {
        match self.item.layout {
            Layout::F32 => self.item.pieces.iter().map(|piece| piece.rows).sum(),
            _ => u64::from(self.item.rows).div_ceil(GROUP as u64),
        }
    }

    /// Rows of the source in group `number`.
    pub(super) fn range(&self, number: u64) -> std::ops::Range<u64> {
        match self.item.layout {
            Layout::F32 => number..number + 1,
            _ => {
                let first = number * GROUP as u64;
                first..(first + GROUP as u64).min(self.item.rows.into())
            }
        }
    }

    /// Groups that are worth a thread of their own.
    pub(super) fn batch(&self) -> u64 {
        let rows = if self.item.layout == Layout::F32 { 1 } else { GROUP as u64 };
        (BATCH_ELEMENTS / (rows * u64::from(self.item.cols))).max(1)
    }

    /// Where group `number` begins in the item; behind the last one, where that ends.
    pub(super) fn offset(&self, number: u64) -> u64 {
        if self.item.layout != Layout::F32 {
            return number * self.item.layout.bytes(GROUP as u32, self.item.cols);
        }
        let (mut left, mut at) = (number, 0);
        for (piece, place) in self.item.pieces.iter().enumerate() {
            let rows = left.min(place.rows);
            at += rows * self.entry(piece).cols * 4;
            left -= rows;
        }
        at
    }

    pub(super) fn entry(&self, piece: usize) -> &'a Entry {
        &self.plan.entries[self.item.pieces[piece].entry]
    }

    /// A row of the source.
    pub(super) fn row(&mut self, row: u64) -> Result<Row<'_>, ConvertError> {
        let (piece, at) = self.item.place(row);
        let entry = self.entry(piece);
        let (bytes, elements) = self.rows[piece].both(at)?;
        Ok(Row { piece, entry, bytes, elements })
    }

    /// Appends the bytes of group `number`, and gives how many of the source were read for it.
    pub(super) fn pack(&mut self, number: u64, out: &mut Vec<u8>) -> Result<u64, ConvertError> {
        let (layout, mut read) = (self.item.layout, 0);
        self.coded.clear();
        self.floats.clear();
        for row in self.range(number) {
            let (piece, at) = self.item.place(row);
            let entry = self.entry(piece);
            read += entry.origin.row_bytes;
            let (kind, rows) = (entry.origin.kind, &mut self.rows[piece]);
            match self.item.pieces[piece].way {
                Way::Codes | Way::RoundedScales => recode(kind, layout, rows.bytes(at)?, &mut self.coded),
                Way::Quantized => {
                    let elements = rows.elements(at)?;
                    refuse(entry, at, elements, f32::MAX)?;
                    quantize(layout, elements, &mut self.coded);
                }
                Way::Floats => {
                    let elements = rows.elements(at)?;
                    let most = if layout == Layout::F16 { 65519.0 } else { f32::MAX };
                    refuse(entry, at, elements, most)?;
                    self.floats.extend(elements);
                }
            }
        }
        if !self.coded.is_finite() {
            let entry = self.entry(self.item.place(self.range(number).start).0);
            let why = "has a scale that is no number or has no place in half precision";
            return Err(ConvertError::tensor(&entry.name, why));
        }
        match layout {
            Layout::F32 => out.extend(self.floats.iter().flat_map(|value| value.to_le_bytes())),
            Layout::Q4m | Layout::Q8 | Layout::Q8m => self.codes(out),
            _ => {
                let cols = self.item.cols as usize;
                self.floats.resize(GROUP * cols, 0.0);
                layout.pack_floats(&self.floats, cols, out);
            }
        }
        Ok(read)
    }

    fn codes(&mut self, out: &mut Vec<u8>) {
        let blocks = (self.item.cols as usize).div_ceil(BLOCK);
        self.coded.codes.resize(GROUP * blocks * BLOCK, 0);
        self.coded.scales.resize(GROUP * blocks, 0);
        self.coded.minima.resize(GROUP * blocks, 0);
        let Coded { codes, scales, minima } = &self.coded;
        let codes = codes.as_chunks::<BLOCK>().0;
        for block in 0..blocks {
            let at = |row: usize| row * blocks + block;
            self.item.layout.pack_codes(
                &std::array::from_fn(|row| codes[at(row)]),
                &std::array::from_fn(|row| scales[at(row)]),
                &std::array::from_fn(|row| minima[at(row)]),
                out,
            );
        }
    }
}

/// Elements must be numbers, and not larger than what they are stored as can be.
fn refuse(entry: &Entry, row: u64, elements: &[f32], most: f32) -> Result<(), ConvertError> {
    let Some(value) = elements.iter().find(|value| !value.is_finite() || value.abs() > most) else {
        return Ok(());
    };
    let why = match value.is_finite() {
        true => format!("row {row} has {value:e}, which f16 has not; bf16 has, and --profile keep keeps it"),
        false => format!("row {row} has {value}, which is no weight"),
    };
    Err(ConvertError::tensor(&entry.name, why))
}

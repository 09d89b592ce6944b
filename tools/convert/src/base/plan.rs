//! What each tensor of a bundle is made of, and how it is stored: decided before anything is written.

use std::collections::BTreeMap;

use sf_base::{GROUP, Layout};

use super::Profile;
use super::coding::{Way, join, native, way};
use super::wanted::{Use, Wanted};
use crate::error::ConvertError;
use crate::plan::Entry;

/// How the embedding and the head are stored where four bits are asked for: errors in them are seen at once.
const TABLE_OF_Q4: Layout = Layout::Q8;

/// Some rows, or elements, from a tensor of the source.
#[derive(Debug)]
pub(super) struct Piece {
    /// Index into [`Plan::entries`].
    pub(super) entry: usize,
    pub(super) rows: u64,
    pub(super) way: Way,
}

/// A tensor of the bundle.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) row: u32,
    pub(super) rows: u32,
    pub(super) cols: u32,
    pub(super) layout: Layout,
    pub(super) pieces: Vec<Piece>,
    alternating: bool,
}

/// All of them, in the order in which they are written.
pub(super) struct Plan {
    pub(super) entries: Vec<Entry>,
    pub(super) items: Vec<Item>,
}

impl Item {
    /// Which piece a row comes from, and the row of its tensor.
    pub(super) fn place(&self, row: u64) -> (usize, u64) {
        let group = GROUP as u64;
        if self.alternating {
            let (turn, at) = (row / group, row % group);
            return ((turn % 2) as usize, turn / 2 * group + at);
        }
        let mut row = row;
        for (number, piece) in self.pieces.iter().enumerate() {
            if row < piece.rows {
                return (number, row);
            }
            row -= piece.rows;
        }
        unreachable!("an item has as many rows as its pieces")
    }

    pub(super) fn bytes(&self) -> u64 {
        self.layout.bytes(self.rows, self.cols)
    }
}

impl Plan {
    /// Finds what is wanted among the source's tensors, which are all used up by it.
    pub(super) fn new(
        entries: Vec<Entry>,
        wanted: &[Wanted],
        profile: Profile,
    ) -> Result<Plan, ConvertError> {
        let by_name = entries.iter().enumerate().map(|(number, entry)| (entry.name.as_str(), number));
        let by_name: BTreeMap<&str, usize> = by_name.collect();
        let mut used = vec![false; entries.len()];
        let mut items = Vec::new();
        for wanted in wanted {
            let found: Vec<_> = wanted.from.iter().map(|(name, _)| by_name.get(name.as_str())).collect();
            if wanted.optional && found.iter().all(Option::is_none) {
                continue;
            }
            let mut own = Vec::new();
            for (number, (place, (name, _))) in found.into_iter().zip(&wanted.from).enumerate() {
                let &place = place.ok_or_else(|| ConvertError::tensor(name, "is missing"))?;
                let (entry, shape) = (&entries[place], wanted.shape(number));
                if (entry.rows, entry.cols) != shape {
                    let (rows, cols) = shape;
                    let why =
                        format!("has {} x {} elements, expected are {rows} x {cols}", entry.rows, entry.cols);
                    return Err(ConvertError::tensor(name, why));
                }
                used[place] = true;
                own.push(place);
            }
            self::items(&entries, wanted, &own, profile, &mut items)?;
        }
        match used.iter().position(|used| !used) {
            Some(unused) => {
                Err(ConvertError::tensor(&entries[unused].name, "is no part of such a model here"))
            }
            None => Ok(Plan { entries, items }),
        }
    }

    /// Bytes of the source that are read.
    pub(super) fn source_bytes(&self) -> u64 {
        self.entries.iter().map(Entry::source_bytes).sum()
    }
}

/// Appends the tensors that one matrix becomes: one, or several where its rows are stored differently.
fn items(
    entries: &[Entry],
    wanted: &Wanted,
    own: &[usize],
    profile: Profile,
    out: &mut Vec<Item>,
) -> Result<(), ConvertError> {
    let mut layouts: Vec<Layout> =
        own.iter().map(|&entry| layout(&entries[entry], wanted.purpose, profile)).collect();
    let rows_of = |number: usize| wanted.shape(number).0;
    let group = GROUP as u64;
    let split = !wanted.alternating && (0..own.len()).all(|number| rows_of(number).is_multiple_of(group));
    if !split && let Some(joined) = layouts.iter().copied().reduce(join) {
        layouts.fill(joined);
    }
    if wanted.alternating && !rows_of(0).is_multiple_of(group) {
        let why = format!("has {} rows; gates are packed in sixteens", rows_of(0));
        return Err(ConvertError::tensor(&wanted.from[0].0, why));
    }
    let vector = wanted.purpose == Use::Vector;
    let first = out.len();
    let mut row = 0_u64;
    for (number, (&entry, layout)) in own.iter().zip(layouts).enumerate() {
        let rows = rows_of(number);
        let piece = Piece { entry, rows, way: way(entries[entry].origin.kind, layout) };
        let size = |rows: u64| u32::try_from(rows).expect("it is a sum of sizes that were checked");
        match out[first..].last_mut().filter(|item| item.layout == layout) {
            Some(item) => {
                item.pieces.push(piece);
                item.rows = if vector { 1 } else { item.rows + size(rows) };
            }
            None => out.push(Item {
                name: wanted.name.clone(),
                row: size(row),
                rows: size(rows),
                cols: wanted.cols,
                layout,
                pieces: vec![piece],
                alternating: wanted.alternating,
            }),
        }
        row += rows;
    }
    Ok(())
}

fn layout(entry: &Entry, purpose: Use, profile: Profile) -> Layout {
    if matches!(purpose, Use::Rows | Use::Vector) {
        return Layout::F32;
    }
    let kind = entry.origin.kind;
    let own = native(kind);
    // Whether the source has codes that stay.
    let kept = own.is_coded() && way(kind, own) != Way::Quantized;
    match profile {
        Profile::Keep => own,
        Profile::F16 => Layout::F16,
        Profile::Q8 if kept => own,
        Profile::Q8 => Layout::Q8,
        // What is quantized is not quantized a second time: that costs more than it saves (13 % of perplexity for the
        // eight and six bits of a small model's Q4_K_M).
        Profile::Q4 if own.is_coded() => own,
        Profile::Q4 if purpose == Use::Table => TABLE_OF_Q4,
        Profile::Q4 => Layout::Q4m,
    }
}

//! Reads a bundle again and compares each tensor with the source, element by element.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use sf_base::{BaseError, Bundle, Header, Layout, Sum};

use super::coding::{Way, bounds};
use super::parallel::in_order;
use super::plan::{Item, Plan};
use super::report::Share;
use super::rows::{Groups, Row};
use crate::error::ConvertError;
use crate::plan::Entry;
use crate::watch::Watch;
use crate::write::Source;

/// Compares everything and says, for each way in which elements got there, how far they are.
pub(super) fn check(
    path: &Path,
    expected: &Header,
    (source, plan, slots): (&Source, &Plan, &[(String, Vec<u8>)]),
    watch: &mut Watch<'_>,
) -> Result<Vec<Share>, ConvertError> {
    let broken = |error: BaseError| ConvertError::unusable(&error);
    let file = File::open(path).map_err(ConvertError::io(path))?;
    let bundle = Bundle::read(&file).map_err(broken)?;
    if bundle.header != *expected {
        return Err(ConvertError::unusable("its header is not the one that was written"));
    }
    for (id, bytes) in slots {
        if bundle.slot(&file, id).map_err(broken)?.as_ref() != Some(bytes) {
            return Err(ConvertError::unusable(format!("its {id} is not what was written")));
        }
    }
    let mut shares = BTreeMap::<String, Share>::new();
    for (item, tensor) in plan.items.iter().zip(&bundle.header.tensors) {
        let groups = Groups::new(source, plan, item);
        let mut own = vec![Share::default(); item.pieces.len()];
        let mut sum = Sum::new();
        let look = |range: Range<u64>| {
            let mut groups = Groups::new(source, plan, item);
            let (first, end) = (groups.offset(range.start), groups.offset(range.end));
            let mut bytes = vec![0; (end - first) as usize];
            file.read_exact_at(&mut bytes, tensor.offset + first).map_err(ConvertError::io(path))?;
            Batch::compare(&mut groups, item, range, bytes)
        };
        in_order(groups.count(), groups.batch(), look, |batch| {
            sum.add(&batch.bytes);
            own.iter_mut().zip(&batch.shares).for_each(|(all, share)| all.add(share));
            watch.step(batch.read)
        })?;
        if sum.words() != tensor.checksum {
            let why = "its bytes have another checksum than the header says".to_owned();
            return Err(ConvertError::Check { tensor: tensor.name.clone(), why });
        }
        let rows: u64 = item.pieces.iter().map(|piece| piece.rows).sum();
        for (mut share, piece) in own.into_iter().zip(&item.pieces) {
            share.tensors = 1;
            share.bytes = item.bytes() * piece.rows / rows;
            shares.entry(words(&plan.entries[piece.entry], item, piece.way)).or_default().add(&share);
        }
    }
    let named = shares.into_iter().map(|(what, share)| Share { what, ..share });
    Ok(named.collect())
}

/// Some groups that were compared.
struct Batch {
    /// In the bundle.
    bytes: Vec<u8>,
    /// Of each piece of the item.
    shares: Vec<Share>,
    /// Bytes of the source.
    read: u64,
}

impl Batch {
    fn compare(
        groups: &mut Groups<'_>,
        item: &Item,
        range: Range<u64>,
        bytes: Vec<u8>,
    ) -> Result<Batch, ConvertError> {
        let start = groups.offset(range.start);
        let mut batch = Batch { bytes, shares: vec![Share::default(); item.pieces.len()], read: 0 };
        let (mut values, mut allowed) = (Vec::new(), Vec::new());
        for number in range {
            let [first, end] = [number, number + 1].map(|number| (groups.offset(number) - start) as usize);
            let packed = &batch.bytes[first..end];
            match item.layout {
                Layout::F32 => {
                    values.clear();
                    values.extend(packed.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
                }
                layout => layout.unpack_group(packed, item.cols as usize, &mut values),
            }
            let rows = groups.range(number);
            for row in rows.clone() {
                let Row { piece, entry, bytes, elements: want } = groups.row(row)?;
                let got = &values[(row - rows.start) as usize * want.len()..][..want.len()];
                bounds((entry.origin.kind, item.layout, item.pieces[piece].way), bytes, want, &mut allowed);
                compare(entry, row, (want, got, &allowed), &mut batch.shares[piece])?;
                batch.read += entry.origin.row_bytes;
            }
        }
        Ok(batch)
    }
}

fn compare(
    entry: &Entry,
    row: u64,
    (want, got, allowed): (&[f32], &[f32], &[f32]),
    share: &mut Share,
) -> Result<(), ConvertError> {
    let (mut most, mut far, mut squares, mut errors) = (0_f32, 0_f32, 0_f64, 0_f64);
    for (at, ((want, got), allowed)) in want.iter().zip(got).zip(allowed).enumerate() {
        let away = (want - got).abs();
        if away.is_nan() || away > *allowed {
            let why = format!("element {at} of row {row} is {got:e} and not {want:e}");
            return Err(ConvertError::Check { tensor: entry.name.clone(), why });
        }
        (most, far) = (most.max(want.abs()), far.max(away));
        squares += f64::from(*want).powi(2);
        errors += f64::from(away).powi(2);
    }
    share.elements += want.len() as u64;
    share.error_max = share.error_max.max(if most > 0.0 { far / most } else { far });
    share.squares += squares;
    share.errors += errors;
    Ok(())
}

/// In words, what was done to a tensor.
fn words(entry: &Entry, item: &Item, way: Way) -> String {
    let (from, to) = (entry.origin.kind.name, item.layout.name());
    match way {
        Way::Codes => format!("{from} as {to}, its codes"),
        Way::RoundedScales => format!("{from} as {to}, its codes, scales rounded"),
        Way::Quantized => format!("{from} quantized to {to}"),
        Way::Floats => format!("{from} as {to}"),
    }
}

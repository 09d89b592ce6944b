//! Writes a bundle: the tensors, of which sixteen rows are in memory, and then what stands before them.

use std::fs::File;
use std::io::{BufWriter, Seek as _, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use sf_base::{
    DATA_ALIGN, Header, ITEM_ALIGN, PROLOGUE_BYTES, Slot, Sum, Tensor, align, canonical, prologue,
};

use super::parallel::in_order;
use super::plan::Plan;
use super::rows::Groups;
use crate::error::ConvertError;
use crate::watch::Watch;
use crate::write::Source;

/// The place of every part of a bundle.
pub(super) struct Laid {
    pub(super) header: Header,
    pub(super) data_offset: u64,
    pub(super) file_bytes: u64,
}

/// A checksum that is not known yet has the length of every other one.
fn unknown() -> String {
    "0".repeat(32)
}

fn json(header: &Header) -> String {
    canonical(&serde_json::to_value(header).expect("a header can be written"))
}

/// Gives every slot and tensor its place; checksums of tensors are still to come.
pub(super) fn lay(mut header: Header, slots: &[(String, Vec<u8>)], plan: &Plan) -> Laid {
    let slot = |(id, bytes): &(String, Vec<u8>)| {
        let mut sum = Sum::new();
        sum.add(bytes);
        Slot { id: id.clone(), required: false, offset: 0, bytes: bytes.len() as u64, checksum: sum.words() }
    };
    header.slots = slots.iter().map(slot).collect();
    let items = plan.items.iter().map(|item| Tensor {
        name: item.name.clone(),
        row: item.row,
        rows: item.rows,
        cols: item.cols,
        layout: item.layout,
        offset: 0,
        bytes: item.bytes(),
        checksum: unknown(),
    });
    header.tensors = items.collect();
    // Larger offsets have more digits, which may push what follows: again, until the header has room.
    let mut begins = 0;
    loop {
        let mut at = begins;
        for slot in &mut header.slots {
            slot.offset = align(at, ITEM_ALIGN);
            at = slot.offset + slot.bytes;
        }
        let data_offset = align(at, DATA_ALIGN);
        at = data_offset;
        for tensor in &mut header.tensors {
            tensor.offset = align(at, ITEM_ALIGN);
            at = tensor.offset + tensor.bytes;
        }
        let needs = PROLOGUE_BYTES + json(&header).len() as u64;
        if needs <= begins {
            return Laid { header, data_offset, file_bytes: at };
        }
        begins = align(needs, ITEM_ALIGN);
    }
}

/// A file that is written from front to back.
struct Out<'a> {
    path: &'a Path,
    file: BufWriter<File>,
    at: u64,
}

impl Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ConvertError> {
        self.at += bytes.len() as u64;
        self.file.write_all(bytes).map_err(ConvertError::io(self.path))
    }

    /// Zeros up to a byte.
    fn pad(&mut self, to: u64) -> Result<(), ConvertError> {
        std::io::copy(&mut std::io::Read::take(std::io::repeat(0), to - self.at), &mut self.file)
            .map_err(ConvertError::io(self.path))?;
        self.at = to;
        Ok(())
    }
}

/// Writes all of it.
pub(super) fn write(
    (path, file): (&Path, File),
    mut laid: Laid,
    (source, plan, slots): (&Source, &Plan, &[(String, Vec<u8>)]),
    watch: &mut Watch<'_>,
) -> Result<Header, ConvertError> {
    let mut out = Out { path, file: BufWriter::with_capacity(1 << 20, file), at: laid.data_offset };
    out.file.seek(SeekFrom::Start(out.at)).map_err(ConvertError::io(path))?;
    for (item, tensor) in plan.items.iter().zip(&mut laid.header.tensors) {
        out.pad(tensor.offset)?;
        let groups = Groups::new(source, plan, item);
        let mut sum = Sum::new();
        let pack = |range: Range<u64>| {
            let mut groups = Groups::new(source, plan, item);
            let (mut bytes, mut read) = (Vec::new(), 0);
            for number in range {
                read += groups.pack(number, &mut bytes)?;
            }
            Ok((bytes, read))
        };
        in_order(groups.count(), groups.batch(), pack, |(bytes, read)| {
            sum.add(&bytes);
            out.write(&bytes)?;
            watch.step(read)
        })?;
        tensor.checksum = sum.words();
    }
    out.file.seek(SeekFrom::Start(0)).map_err(ConvertError::io(path))?;
    out.at = 0;
    let header = json(&laid.header);
    out.write(&prologue(header.as_bytes(), laid.data_offset, laid.file_bytes))?;
    out.write(header.as_bytes())?;
    for ((_, bytes), slot) in slots.iter().zip(&laid.header.slots) {
        out.pad(slot.offset)?;
        out.write(bytes)?;
    }
    out.pad(laid.data_offset)?;
    let file = out.file.into_inner().map_err(|error| ConvertError::io(path)(error.into_error()))?;
    file.sync_all().map_err(ConvertError::io(path))?;
    Ok(laid.header)
}

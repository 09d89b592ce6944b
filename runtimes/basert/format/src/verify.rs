//! Reads all of a bundle and compares it with what its header says.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use crate::bundle::{Bundle, PROLOGUE_BYTES, Prologue};
use crate::error::BaseError;
use crate::header::Sum;

/// Bytes read at once.
const PIECE: u64 = 1 << 20;

/// A stretch of the file.
struct Stretch<'a> {
    offset: u64,
    bytes: u64,
    /// The field and checksum of a slot or tensor; none in what lies between two of them.
    item: Option<(String, &'a str)>,
}

impl Bundle {
    /// Reads the file from the header to its end: checksums of slots and tensors must be right, and gaps zero. `progress` is
    /// told how many bytes of the file are done, and says whether to go on; `false` = it said no.
    ///
    /// # Errors
    /// The first slot, tensor or byte that is not what was written.
    pub fn verify(&self, mut file: &File, progress: &mut dyn FnMut(u64) -> bool) -> Result<bool, BaseError> {
        self.verify_in(&mut file, progress)
    }

    pub(crate) fn verify_in(
        &self,
        from: &mut (impl Read + Seek),
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool, BaseError> {
        from.seek(SeekFrom::Start(0))?;
        let mut start = [0; PROLOGUE_BYTES as usize];
        from.read_exact(&mut start)?;
        let prologue = Prologue::parse(&start, self.file_bytes)?;
        let mut at = PROLOGUE_BYTES + prologue.header_bytes;
        from.seek(SeekFrom::Start(at))?;
        let mut piece = Vec::new();
        for stretch in self.stretches(at) {
            let mut sum = Sum::new();
            let end = stretch.offset + stretch.bytes;
            while at < end {
                piece.clear();
                from.take((end - at).min(PIECE)).read_to_end(&mut piece)?;
                if piece.is_empty() {
                    let field = stretch.item.map_or_else(|| "file".to_owned(), |(field, _)| field);
                    return Err(BaseError::Truncated { field, needs: end, file_bytes: at });
                }
                match stretch.item {
                    Some(_) => sum.add(&piece),
                    None => check_zeros(at, &piece)?,
                }
                at += piece.len() as u64;
                if !progress(at) {
                    return Ok(false);
                }
            }
            if let Some((field, expected)) = stretch.item
                && sum.words() != expected
            {
                return Err(BaseError::Sum { field, found: sum.words(), expected: expected.to_owned() });
            }
        }
        Ok(true)
    }

    /// All items in the order of the file, and the gaps between them.
    fn stretches(&self, from: u64) -> Vec<Stretch<'_>> {
        let slots = self.header.slots.iter().map(|slot| {
            let item = Some((format!("slot {}", slot.id), slot.checksum.as_str()));
            Stretch { offset: slot.offset, bytes: slot.bytes, item }
        });
        let tensors = self.header.tensors.iter().enumerate().map(|(number, tensor)| {
            let item = Some((format!("tensors[{number}] ({})", tensor.name), tensor.checksum.as_str()));
            Stretch { offset: tensor.offset, bytes: tensor.bytes, item }
        });
        let mut items: Vec<Stretch<'_>> = slots.chain(tensors).collect();
        items.sort_by_key(|item| (item.offset, item.bytes));
        let mut all = Vec::with_capacity(2 * items.len() + 1);
        let mut at = from;
        for item in items {
            all.push(Stretch { offset: at, bytes: item.offset.saturating_sub(at), item: None });
            at = item.offset + item.bytes;
            all.push(item);
        }
        all.push(Stretch { offset: at, bytes: self.file_bytes.saturating_sub(at), item: None });
        all
    }
}

fn check_zeros(start: u64, bytes: &[u8]) -> Result<(), BaseError> {
    match bytes.iter().position(|byte| *byte != 0) {
        Some(at) => {
            let field = format!("byte {}", start + at as u64);
            Err(BaseError::range(field, bytes[at].into(), "bytes between slots and tensors are 0"))
        }
        None => Ok(()),
    }
}

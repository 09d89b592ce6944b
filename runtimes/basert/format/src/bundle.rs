//! Reads a bundle's prologue and header; nothing is believed before it was compared with the file's size.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::canonical::canonical;
use crate::error::BaseError;
use crate::header::{DATA_ALIGN, Header, ITEM_ALIGN, SLOTS, Slot, Sum, Tensor};
use crate::layout::GROUP;
use crate::shape;

/// Bytes before the header.
pub const PROLOGUE_BYTES: u64 = 64;
const MAGIC: [u8; 4] = *b"BASE";
const VERSION: u32 = 1;
/// Most bytes of a header; a model of a thousand layers has a hundredth of it.
const HEADER_BYTES_MAX: u64 = 64 << 20;
const TENSORS_MAX: usize = 1 << 20;
const SLOTS_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 256;
/// Most bytes of a slot: no text is longer.
const SLOT_BYTES_MAX: u64 = 512 << 20;

/// A bundle whose header is read and checked.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// What it says.
    pub header: Header,
    /// Size of the whole file.
    pub file_bytes: u64,
    /// Where tensors begin.
    pub data_offset: u64,
}

/// The next multiple of a power of two; saturates at the last one.
pub fn align(offset: u64, to: u64) -> u64 {
    offset.checked_next_multiple_of(to).unwrap_or(u64::MAX - (to - 1))
}

/// The first bytes of a file with this header, in its canonical form.
pub fn prologue(header: &[u8], data_offset: u64, file_bytes: u64) -> [u8; PROLOGUE_BYTES as usize] {
    let mut bytes = [0; PROLOGUE_BYTES as usize];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
    for (at, number) in [(8, header.len() as u64), (16, data_offset), (24, file_bytes), (32, xxh3_64(header))]
    {
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// The numbers of a prologue.
pub(crate) struct Prologue {
    pub(crate) header_bytes: u64,
    data_offset: u64,
    sum: u64,
}

impl Prologue {
    pub(crate) fn parse(
        bytes: &[u8; PROLOGUE_BYTES as usize],
        file_bytes: u64,
    ) -> Result<Prologue, BaseError> {
        let magic = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if magic != MAGIC {
            return Err(BaseError::Magic { found: magic });
        }
        let version = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if version != VERSION {
            return Err(BaseError::Version { found: version, known: VERSION });
        }
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let (header_bytes, data_offset, said, sum) = (number(8), number(16), number(24), number(32));
        if said != file_bytes {
            return Err(match said > file_bytes {
                true => BaseError::Truncated { field: "file".to_owned(), needs: said, file_bytes },
                false => BaseError::range("prologue.file_bytes", said, format!("the file has {file_bytes}")),
            });
        }
        if header_bytes > HEADER_BYTES_MAX {
            let rule = format!("at most {HEADER_BYTES_MAX} are read");
            return Err(BaseError::range("prologue.header_bytes", header_bytes, rule));
        }
        let needs = PROLOGUE_BYTES + header_bytes;
        if needs > file_bytes {
            return Err(BaseError::Truncated { field: "header".to_owned(), needs, file_bytes });
        }
        if data_offset < needs || data_offset > file_bytes || !data_offset.is_multiple_of(DATA_ALIGN) {
            let rule = format!("allowed are multiples of {DATA_ALIGN} from {needs} to {file_bytes}");
            return Err(BaseError::range("prologue.data_offset", data_offset, rule));
        }
        if let Some(at) = bytes[40..].iter().position(|byte| *byte != 0) {
            let field = format!("prologue[{}]", 40 + at);
            return Err(BaseError::range(field, bytes[40 + at].into(), "reserved bytes are 0"));
        }
        Ok(Prologue { header_bytes, data_offset, sum })
    }
}

impl Bundle {
    /// Reads the header of an open file, wherever its cursor is.
    ///
    /// # Errors
    /// What is wrong with it, by field.
    pub fn read(mut file: &File) -> Result<Bundle, BaseError> {
        let file_bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(0))?;
        Bundle::parse(&mut file, file_bytes)
    }

    /// Reads the header off the start of a file of so many bytes.
    ///
    /// # Errors
    /// As [`Bundle::read`].
    pub fn parse(from: &mut impl Read, file_bytes: u64) -> Result<Bundle, BaseError> {
        let mut start = Vec::new();
        from.take(PROLOGUE_BYTES).read_to_end(&mut start)?;
        let Ok(start) = <[u8; PROLOGUE_BYTES as usize]>::try_from(&start[..]) else {
            return match start.first_chunk() {
                Some(magic) if *magic != MAGIC => Err(BaseError::Magic { found: *magic }),
                _ => Err(BaseError::Truncated {
                    field: "prologue".to_owned(),
                    needs: PROLOGUE_BYTES,
                    file_bytes: start.len() as u64,
                }),
            };
        };
        let prologue = Prologue::parse(&start, file_bytes)?;
        let mut text = Vec::new();
        from.take(prologue.header_bytes).read_to_end(&mut text)?;
        if text.len() as u64 != prologue.header_bytes {
            let needs = PROLOGUE_BYTES + prologue.header_bytes;
            return Err(BaseError::Truncated { field: "header".to_owned(), needs, file_bytes });
        }
        let sum = xxh3_64(&text);
        if sum != prologue.sum {
            return Err(BaseError::HeaderSum { found: sum, expected: prologue.sum });
        }
        let header = header(&text)?;
        let bundle = Bundle { header, file_bytes, data_offset: prologue.data_offset };
        bundle.check(PROLOGUE_BYTES + prologue.header_bytes)?;
        Ok(bundle)
    }

    /// Reads a slot and compares it with its checksum; `None` = there is none of that name.
    ///
    /// # Errors
    /// What could not be read, or is not what was written.
    pub fn slot(&self, mut file: &File, id: &str) -> Result<Option<Vec<u8>>, BaseError> {
        self.slot_in(&mut file, id)
    }

    pub(crate) fn slot_in(
        &self,
        file: &mut (impl Read + Seek),
        id: &str,
    ) -> Result<Option<Vec<u8>>, BaseError> {
        let Some(slot) = self.header.slots.iter().find(|slot| slot.id == id) else { return Ok(None) };
        file.seek(SeekFrom::Start(slot.offset))?;
        let mut bytes = Vec::new();
        file.take(slot.bytes).read_to_end(&mut bytes)?;
        let mut sum = Sum::new();
        sum.add(&bytes);
        if sum.words() != slot.checksum {
            let field = format!("slot {id}");
            return Err(BaseError::Sum { field, found: sum.words(), expected: slot.checksum.clone() });
        }
        Ok(Some(bytes))
    }

    fn check(&self, header_end: u64) -> Result<(), BaseError> {
        self.header.architecture.check()?;
        let (tensors, slots) = (&self.header.tensors, &self.header.slots);
        for (field, count, most) in
            [("tensors", tensors.len(), TENSORS_MAX), ("slots", slots.len(), SLOTS_MAX)]
        {
            if count > most {
                return Err(BaseError::range(field, count as u64, format!("at most {most} are read")));
            }
        }
        let mut places = Vec::new();
        let mut names = HashSet::new();
        let mut matrices = HashMap::new();
        for (number, slot) in slots.iter().enumerate() {
            let field = format!("slots[{number}]");
            check_slot(&field, slot)?;
            if !names.insert(slot.id.as_str()) {
                return Err(BaseError::value(format!("{field}.id"), &slot.id, "it comes twice"));
            }
            self.check_place(&field, slot.offset, slot.bytes, (header_end, self.data_offset))?;
            places.push((slot.offset, slot.bytes, field));
        }
        for (number, tensor) in tensors.iter().enumerate() {
            let field = format!("tensors[{number}]");
            check_name(&format!("{field}.name"), &tensor.name)?;
            check_sum(&field, &tensor.checksum)?;
            if tensor.rows == 0 || tensor.cols == 0 || tensor.row.checked_add(tensor.rows).is_none() {
                let value = format!("{} + {} rows of {}", tensor.row, tensor.rows, tensor.cols);
                return Err(BaseError::value(field, value, "it is empty, or too long"));
            }
            check_part(&field, tensor, matrices.insert(&tensor.name, tensor))?;
            let bytes = tensor.layout.bytes(tensor.rows, tensor.cols);
            if bytes != tensor.bytes {
                let rule =
                    format!("{} x {} as {} are {bytes}", tensor.rows, tensor.cols, tensor.layout.name());
                return Err(BaseError::range(format!("{field}.bytes"), tensor.bytes, rule));
            }
            self.check_place(&field, tensor.offset, tensor.bytes, (self.data_offset, self.file_bytes))?;
            places.push((tensor.offset, tensor.bytes, field));
        }
        if let Some(first) = tensors.iter().map(|tensor| tensor.offset).min()
            && first != self.data_offset
        {
            let rule = format!("the first tensor begins at {first}");
            return Err(BaseError::range("prologue.data_offset", self.data_offset, rule));
        }
        places.sort();
        for pair in places.windows(2) {
            if pair[0].0 + pair[0].1 > pair[1].0 {
                let rule = format!("it begins inside of {}", pair[0].2);
                return Err(BaseError::range(format!("{}.offset", pair[1].2), pair[1].0, rule));
            }
        }
        Ok(())
    }

    fn check_place(&self, field: &str, offset: u64, bytes: u64, within: (u64, u64)) -> Result<(), BaseError> {
        let needs = offset.saturating_add(bytes);
        if needs > self.file_bytes {
            return Err(BaseError::Truncated { field: field.to_owned(), needs, file_bytes: self.file_bytes });
        }
        if offset < within.0 || needs > within.1 || !offset.is_multiple_of(ITEM_ALIGN) {
            let rule = format!(
                "its {bytes} bytes begin at a multiple of {ITEM_ALIGN} from {} and end by {}",
                within.0, within.1
            );
            return Err(BaseError::range(format!("{field}.offset"), offset, rule));
        }
        Ok(())
    }
}

fn header(text: &[u8]) -> Result<Header, BaseError> {
    let json = |error: serde_json::Error| BaseError::Header { reason: error.to_string() };
    let value: Value = serde_json::from_slice(text).map_err(json)?;
    let one = canonical(&value);
    if one.as_bytes() != text {
        let same = one.bytes().zip(text).take_while(|(a, b)| a == *b).count();
        return Err(BaseError::Canonical { at: same });
    }
    if let Some(field) = must(&value) {
        return Err(BaseError::Must { field });
    }
    shape::header(value)
}

/// A field that has to be understood: its name says so, and this version knows none.
fn must(value: &Value) -> Option<String> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| match key.starts_with("must_") {
            true => Some(key.clone()),
            false => must(value),
        }),
        Value::Array(items) => items.iter().find_map(must),
        _ => None,
    }
}

fn check_slot(field: &str, slot: &Slot) -> Result<(), BaseError> {
    check_name(&format!("{field}.id"), &slot.id)?;
    if slot.required && !SLOTS.contains(&slot.id.as_str()) {
        return Err(BaseError::Must { field: format!("slot {}", slot.id) });
    }
    if slot.bytes > SLOT_BYTES_MAX {
        let rule = format!("at most {SLOT_BYTES_MAX} are read");
        return Err(BaseError::range(format!("{field}.bytes"), slot.bytes, rule));
    }
    check_sum(field, &slot.checksum)
}

/// Parts of a matrix follow each other, in whole groups but for the last one.
fn check_part(field: &str, tensor: &Tensor, before: Option<&Tensor>) -> Result<(), BaseError> {
    let Some(before) = before else {
        return match tensor.row {
            0 => Ok(()),
            row => Err(BaseError::range(format!("{field}.row"), row.into(), "a first part begins at row 0")),
        };
    };
    let (name, end) = (&tensor.name, before.row + before.rows);
    if tensor.row != end || !(end as usize).is_multiple_of(GROUP) {
        let rule = match (end as usize).is_multiple_of(GROUP) {
            true => format!("the part of {name} before it ends at row {end}"),
            false => format!("the part of {name} before it ends at row {end}, no multiple of {GROUP}"),
        };
        return Err(BaseError::range(format!("{field}.row"), tensor.row.into(), rule));
    }
    if tensor.cols != before.cols {
        let rule = format!("the part of {name} before it has {}", before.cols);
        return Err(BaseError::range(format!("{field}.cols"), tensor.cols.into(), rule));
    }
    Ok(())
}

fn check_name(field: &str, name: &str) -> Result<(), BaseError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let rule = format!("names have 1 to {NAME_BYTES_MAX} bytes, none of them a control character");
        return Err(BaseError::value(field, format!("{name:?}"), rule));
    }
    Ok(())
}

fn check_sum(field: &str, sum: &str) -> Result<(), BaseError> {
    if sum.len() != 32 || !sum.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        let rule = "a checksum has 32 hexadecimal digits";
        return Err(BaseError::value(format!("{field}.checksum"), format!("{sum:?}"), rule));
    }
    Ok(())
}

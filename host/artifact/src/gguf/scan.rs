//! Walks a GGUF header and checks every rule of the format; allocates no more than the bytes already at hand justify.
//!
//! It keeps ranges, not copies, so a hostile count, length or offset costs a comparison, and it reads on only for bytes
//! that the file has and the limit allows.

use std::io::Read;
use std::ops::Range;

use super::types::{TensorType, ValueType};
use crate::error::ArtifactError;

/// Most bytes of a header. The largest known vocabulary with merges takes 17 MB.
pub const HEADER_BYTES_MAX: u64 = 32 << 20;
/// Most key-value pairs; real files have about fifty.
pub const KEYS_MAX: u64 = 1 << 16;
/// Most tensors; the largest known models have a few thousand.
pub const TENSORS_MAX: u64 = 1 << 16;
/// Most bytes of a key, by the format.
pub const KEY_BYTES_MAX: u64 = 65_535;
/// Most bytes of a tensor's name. The format says 64; a little slack costs nothing.
pub const NAME_BYTES_MAX: u64 = 1024;
/// Most dimensions of a tensor.
pub const DIMENSIONS_MAX: u32 = 4;
/// Largest alignment, bytes.
pub const ALIGNMENT_MAX: u64 = 1 << 20;
/// Alignment of a file that names none, bytes.
const ALIGNMENT_DEFAULT: u64 = 32;

/// Least bytes of a key-value pair: key length, one byte of key, tag, one byte of value.
const PAIR_BYTES_MIN: u64 = 8 + 1 + 4 + 1;
/// Least bytes of a tensor's entry: name length, one byte of name, dimension count, type, offset.
const TENSOR_BYTES_MIN: u64 = 8 + 1 + 4 + 4 + 8;

/// Bytes that are read at once; a small header costs one read.
const READ_BYTES: u64 = 1 << 20;

/// Most characters of a name in a message.
const NAME_SHOWN_MAX: usize = 80;

/// Why a walk ended early.
pub(super) enum Stop {
    /// The file cannot be read.
    Io(std::io::Error),
    /// The header breaks a rule.
    Bad(ArtifactError),
}

impl From<ArtifactError> for Stop {
    fn from(error: ArtifactError) -> Self {
        Stop::Bad(error)
    }
}

/// A value as it lies in the file.
pub(super) enum Raw {
    /// Anything of fixed size: its type and little-endian bits.
    Scalar(ValueType, u64),
    /// UTF-8, checked.
    Text(Range<usize>),
    /// Elements, checked; never arrays.
    Array { kind: ValueType, count: usize, bytes: Range<usize> },
}

/// A tensor as it lies in the file.
pub(super) struct RawTensor {
    pub name: Range<usize>,
    pub kind: TensorType,
    pub dims: [u64; DIMENSIONS_MAX as usize],
    pub offset: u64,
    pub bytes: u64,
    /// Where the offset field stands.
    offset_at: u64,
}

/// A header that keeps every rule.
pub(super) struct Scan {
    pub version: u32,
    pub alignment: u64,
    pub data_offset: u64,
    /// Its bytes, to the last tensor's entry.
    pub header: Vec<u8>,
    pub entries: Vec<(Range<usize>, Raw)>,
    pub tensors: Vec<RawTensor>,
}

struct Cursor<R> {
    reader: R,
    /// What was read so far, from the start of the file.
    bytes: Vec<u8>,
    file_bytes: u64,
    pos: usize,
}

impl<R: Read> Cursor<R> {
    fn left(&self) -> u64 {
        self.file_bytes.saturating_sub(self.pos as u64)
    }

    fn take(&mut self, count: u64, what: &str) -> Result<Range<usize>, Stop> {
        let offset = self.pos as u64;
        let needs = offset.saturating_add(count);
        if needs > self.bytes.len() as u64 {
            self.read_on(offset, needs, what)?;
        }
        let start = std::mem::replace(&mut self.pos, needs as usize);
        Ok(start..self.pos)
    }

    #[cold]
    fn read_on(&mut self, offset: u64, needs: u64, what: &str) -> Result<(), Stop> {
        let truncated =
            |file_bytes| ArtifactError::Truncated { what: what.to_owned(), offset, needs, file_bytes };
        if needs > self.file_bytes {
            return Err(truncated(self.file_bytes).into());
        }
        if needs > HEADER_BYTES_MAX {
            return Err(ArtifactError::HeaderSize { offset, needs, limit: HEADER_BYTES_MAX }.into());
        }
        let have = self.bytes.len() as u64;
        let until = needs.max(have + READ_BYTES).min(self.file_bytes).min(HEADER_BYTES_MAX);
        self.reader.by_ref().take(until - have).read_to_end(&mut self.bytes).map_err(Stop::Io)?;
        // The file may have shrunk under our hands.
        let have = self.bytes.len() as u64;
        if have < needs { Err(truncated(have).into()) } else { Ok(()) }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Stop> {
        let range = self.take(N as u64, what)?;
        Ok(self.bytes[range].try_into().expect("take returns as many bytes as asked for"))
    }

    fn u32(&mut self, what: &str) -> Result<u32, Stop> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, Stop> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count of things that take at least `each` bytes.
    fn count(&mut self, what: &'static str, each: u64, most: u64) -> Result<u64, Stop> {
        let offset = self.pos as u64;
        let value = self.u64(what)?;
        let limit = most.min(self.left() / each);
        if value > limit {
            return Err(ArtifactError::Count { what, offset, value, limit }.into());
        }
        Ok(value)
    }

    /// A length and that many bytes of UTF-8.
    fn text(&mut self, what: &'static str) -> Result<Range<usize>, Stop> {
        let length = self.u64(what)?;
        self.utf8(length, what)
    }

    /// As [`Cursor::text`], of 1 to `limit` bytes.
    fn short_text(&mut self, what: &'static str, limit: u64) -> Result<Range<usize>, Stop> {
        let offset = self.pos as u64;
        let value = self.u64(what)?;
        if value == 0 || value > limit {
            return Err(ArtifactError::Length { what, offset, value, limit }.into());
        }
        self.utf8(value, what)
    }

    fn utf8(&mut self, length: u64, what: &'static str) -> Result<Range<usize>, Stop> {
        let range = self.take(length, what)?;
        match std::str::from_utf8(&self.bytes[range.clone()]) {
            Ok(_) => Ok(range),
            Err(fault) => {
                let offset = range.start as u64;
                Err(ArtifactError::Utf8 { what, offset, valid: fault.valid_up_to() }.into())
            }
        }
    }

    /// A name for a message, cut short: the file may give it 64 KB.
    fn str(&self, range: &Range<usize>) -> String {
        let name = String::from_utf8_lossy(&self.bytes[range.clone()]);
        match name.char_indices().nth(NAME_SHOWN_MAX) {
            Some((end, _)) => format!("{}…", &name[..end]),
            None => name.into_owned(),
        }
    }
}

/// A name that came before; found by sorting, because copies in a set would double the memory.
fn repeated<'a>(bytes: &[u8], names: impl Iterator<Item = &'a Range<usize>>) -> Option<Range<usize>> {
    let mut names: Vec<&Range<usize>> = names.collect();
    names.sort_unstable_by_key(|name| (&bytes[(*name).clone()], name.start));
    let twins = names.windows(2).filter(|pair| bytes[pair[0].clone()] == bytes[pair[1].clone()]);
    twins.map(|pair| pair[1].clone()).min_by_key(|name| name.start)
}

/// Reads the header at the start of a file of `file_bytes`.
pub(super) fn scan(reader: impl Read, file_bytes: u64) -> Result<Scan, Stop> {
    let mut cursor = Cursor { reader, bytes: Vec::new(), file_bytes, pos: 0 };
    let version = preamble(&mut cursor)?;
    let tensor_count = cursor.count("tensor count", TENSOR_BYTES_MIN, TENSORS_MAX)?;
    let key_count = cursor.count("key count", PAIR_BYTES_MIN, KEYS_MAX)?;

    let mut entries = Vec::new();
    for _ in 0..key_count {
        let key = cursor.short_text("key", KEY_BYTES_MAX)?;
        let value = value(&mut cursor, &key)?;
        entries.push((key, value));
    }
    if let Some(again) = repeated(&cursor.bytes, entries.iter().map(|(key, _)| key)) {
        return Err(
            ArtifactError::DuplicateKey { key: cursor.str(&again), offset: again.start as u64 }.into()
        );
    }
    let alignment = alignment(&cursor.bytes, &entries)?;

    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        tensors.push(tensor(&mut cursor)?);
    }
    if let Some(again) = repeated(&cursor.bytes, tensors.iter().map(|tensor| &tensor.name)) {
        let (name, offset) = (cursor.str(&again), again.start as u64);
        return Err(ArtifactError::DuplicateTensor { name, offset }.into());
    }
    let data_offset = (cursor.pos as u64).next_multiple_of(alignment);
    for tensor in &tensors {
        placed(&cursor, tensor, alignment, data_offset)?;
    }
    let mut header = cursor.bytes;
    header.truncate(cursor.pos);
    header.shrink_to_fit();
    Ok(Scan { version, alignment, data_offset, header, entries, tensors })
}

fn preamble(cursor: &mut Cursor<impl Read>) -> Result<u32, Stop> {
    let magic: [u8; 4] = cursor.array("the magic")?;
    if &magic != b"GGUF" {
        return Err(ArtifactError::Magic { value: magic }.into());
    }
    let version = cursor.u32("the version")?;
    // A real version is small: low half empty means that the bytes are the other way round.
    if version != 0 && version & 0xffff == 0 {
        return Err(ArtifactError::BigEndian { value: version }.into());
    }
    // Version 1 counted with 4 bytes and was withdrawn within weeks.
    if !(2..=3).contains(&version) {
        return Err(ArtifactError::Version { value: version }.into());
    }
    Ok(version)
}

fn value_type(cursor: &mut Cursor<impl Read>, key: &Range<usize>) -> Result<ValueType, Stop> {
    let offset = cursor.pos as u64;
    let tag = cursor.u32("a value type")?;
    match ValueType::from_tag(tag) {
        Some(kind) => Ok(kind),
        None => Err(ArtifactError::ValueType { key: cursor.str(key), offset, value: tag }.into()),
    }
}

fn value(cursor: &mut Cursor<impl Read>, key: &Range<usize>) -> Result<Raw, Stop> {
    match value_type(cursor, key)? {
        ValueType::String => cursor.text("a string value").map(Raw::Text),
        ValueType::Array => array(cursor, key),
        kind => {
            let range = cursor.take(kind.bytes_min(), "a value")?;
            if kind == ValueType::Bool {
                check_bools(cursor, key, range.clone())?;
            }
            let mut bits = [0; 8];
            bits[..range.len()].copy_from_slice(&cursor.bytes[range]);
            Ok(Raw::Scalar(kind, u64::from_le_bytes(bits)))
        }
    }
}

fn array(cursor: &mut Cursor<impl Read>, key: &Range<usize>) -> Result<Raw, Stop> {
    let offset = cursor.pos as u64;
    let kind = value_type(cursor, key)?;
    if kind == ValueType::Array {
        return Err(ArtifactError::Nesting { key: cursor.str(key), offset }.into());
    }
    let count = cursor.count("array length", kind.bytes_min(), HEADER_BYTES_MAX)?;
    let start = cursor.pos;
    if kind == ValueType::String {
        for _ in 0..count {
            cursor.text("a string of an array")?;
        }
    } else {
        cursor.take(count * kind.bytes_min(), "an array")?;
    }
    if kind == ValueType::Bool {
        check_bools(cursor, key, start..cursor.pos)?;
    }
    Ok(Raw::Array { kind, count: count as usize, bytes: start..cursor.pos })
}

fn check_bools(cursor: &Cursor<impl Read>, key: &Range<usize>, range: Range<usize>) -> Result<(), Stop> {
    let start = range.start;
    match cursor.bytes[range].iter().position(|&byte| byte > 1) {
        None => Ok(()),
        Some(at) => {
            let value = cursor.bytes[start + at];
            let offset = (start + at) as u64;
            Err(ArtifactError::Bool { key: cursor.str(key), offset, value }.into())
        }
    }
}

fn alignment(bytes: &[u8], entries: &[(Range<usize>, Raw)]) -> Result<u64, Stop> {
    let key = "general.alignment";
    let Some((_, raw)) = entries.iter().find(|(name, _)| &bytes[name.clone()] == key.as_bytes()) else {
        return Ok(ALIGNMENT_DEFAULT);
    };
    let found = match raw {
        Raw::Scalar(ValueType::U32, value) if value.is_power_of_two() && *value <= ALIGNMENT_MAX => {
            return Ok(*value);
        }
        Raw::Scalar(ValueType::U32, value) => {
            return Err(ArtifactError::Alignment { value: *value, limit: ALIGNMENT_MAX }.into());
        }
        Raw::Scalar(kind, _) => kind.name(),
        Raw::Text(_) => ValueType::String.name(),
        Raw::Array { .. } => ValueType::Array.name(),
    };
    Err(ArtifactError::KeyType { key: key.to_owned(), expected: "u32", found }.into())
}

fn tensor(cursor: &mut Cursor<impl Read>) -> Result<RawTensor, Stop> {
    let start = cursor.pos as u64;
    let name = cursor.short_text("tensor name", NAME_BYTES_MAX)?;
    let offset = cursor.pos as u64;
    let dimensions = cursor.u32("a dimension count")?;
    if dimensions > DIMENSIONS_MAX {
        let (value, limit) = (u64::from(dimensions), u64::from(DIMENSIONS_MAX));
        let name = cursor.str(&name);
        return Err(ArtifactError::Dimensions { name, offset, what: "dimensions", value, limit }.into());
    }
    let mut dims = [1; DIMENSIONS_MAX as usize];
    for dim in dims.iter_mut().take(dimensions as usize) {
        *dim = cursor.u64("a dimension")?;
    }
    let type_at = cursor.pos as u64;
    let id = cursor.u32("a tensor type")?;
    let Some(kind) = TensorType::from_id(id) else {
        return Err(ArtifactError::TensorType { name: cursor.str(&name), offset: type_at, value: id }.into());
    };
    let limit = i64::MAX as u64;
    // An empty dimension does not excuse the others, hence `max(1)`.
    let counted = dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim.max(1)));
    let bytes = counted.filter(|&elements| elements <= limit).and_then(|_| {
        let elements = dims.iter().product::<u64>();
        (elements / kind.block).checked_mul(kind.block_bytes).filter(|&bytes| bytes <= limit)
    });
    let Some(bytes) = bytes else {
        let value = dims.iter().fold(1_u64, |product, &dim| product.saturating_mul(dim.max(1)));
        let name = cursor.str(&name);
        return Err(ArtifactError::Dimensions { name, offset, what: "elements", value, limit }.into());
    };
    if !dims[0].is_multiple_of(kind.block) {
        let (name, value, limit) = (cursor.str(&name), dims[0], kind.block);
        return Err(ArtifactError::TensorBlock { name, offset: start, kind: kind.name, value, limit }.into());
    }
    let offset_at = cursor.pos as u64;
    let offset = cursor.u64("a tensor offset")?;
    Ok(RawTensor { name, kind, dims, offset, bytes, offset_at })
}

fn placed(
    cursor: &Cursor<impl Read>,
    tensor: &RawTensor,
    alignment: u64,
    data_offset: u64,
) -> Result<(), Stop> {
    if !tensor.offset.is_multiple_of(alignment) {
        let (name, offset, value) = (cursor.str(&tensor.name), tensor.offset_at, tensor.offset);
        return Err(ArtifactError::TensorOffset { name, offset, value, limit: alignment }.into());
    }
    let offset = data_offset.saturating_add(tensor.offset);
    let needs = offset.saturating_add(tensor.bytes);
    if needs > cursor.file_bytes {
        let what = format!("the data of tensor {:?}", cursor.str(&tensor.name));
        return Err(ArtifactError::Truncated { what, offset, needs, file_bytes: cursor.file_bytes }.into());
    }
    Ok(())
}

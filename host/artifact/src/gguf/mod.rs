//! One GGUF file's header: keys, tensors, where the data starts. Never the data itself.

mod scan;
mod types;
mod value;

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

pub use scan::{
    ALIGNMENT_MAX, DIMENSIONS_MAX, HEADER_BYTES_MAX, KEY_BYTES_MAX, KEYS_MAX, NAME_BYTES_MAX, TENSORS_MAX,
};
pub use types::{TensorType, ValueType};
pub use value::{Array, Strings, Value};

use crate::error::ArtifactError;
use scan::{Raw, Scan, Stop, scan};

/// A checked header. Immutable; arrays share its bytes.
#[derive(Clone, Debug)]
pub struct Gguf {
    version: u32,
    alignment: u64,
    data_offset: u64,
    header_bytes: u64,
    entries: BTreeMap<Box<str>, Value>,
    tensors: Vec<TensorInfo>,
}

/// One tensor's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Unique in the file.
    pub name: String,
    /// Type of its elements.
    pub kind: TensorType,
    /// Elements per dimension, fastest first; unused ones are 1.
    pub dims: [u64; DIMENSIONS_MAX as usize],
    /// First byte, counted from [`Gguf::data_offset`].
    pub offset: u64,
    /// Bytes of its data.
    pub bytes: u64,
}

impl Gguf {
    /// Reads and checks the header of a file.
    ///
    /// # Errors
    /// [`ArtifactError::Unreadable`], or the first rule that the header breaks. Takes under 50 MB whatever the file says.
    pub fn open(path: &Path) -> Result<Gguf, ArtifactError> {
        let unreadable = |source| ArtifactError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let file_bytes = file.metadata().map_err(unreadable)?.len();
        match scan(file, file_bytes) {
            Ok(scan) => Ok(Gguf::build(scan)),
            Err(Stop::Bad(error)) => Err(error),
            Err(Stop::Io(source)) => Err(unreadable(source)),
        }
    }

    /// Checks a header that lies in memory. `bytes` are the first bytes of a file of `file_len` bytes (at least as many).
    ///
    /// # Errors
    /// The first rule that the header breaks; a header that goes on after `bytes` counts as truncated.
    pub fn parse(bytes: &[u8], file_len: u64) -> Result<Gguf, ArtifactError> {
        match scan(bytes, file_len) {
            Ok(scan) => Ok(Gguf::build(scan)),
            Err(Stop::Bad(error)) => Err(error),
            Err(Stop::Io(_)) => unreachable!("memory can always be read"),
        }
    }

    fn build(scan: Scan) -> Gguf {
        let header = Arc::new(scan.header);
        let text = |range: std::ops::Range<usize>| {
            std::str::from_utf8(&header[range]).expect("the scan checked keys, names and strings")
        };
        let entries = scan.entries.into_iter().map(|(key, raw)| {
            let value = match raw {
                Raw::Scalar(kind, bits) => Value::from_bits(kind, bits),
                Raw::Text(range) => Value::String(text(range).into()),
                Raw::Array { kind, count, bytes } => {
                    Value::Array(Array { header: Arc::clone(&header), kind, count, range: bytes })
                }
            };
            (text(key).into(), value)
        });
        let tensors = scan.tensors.into_iter().map(|raw| TensorInfo {
            name: text(raw.name).to_owned(),
            kind: raw.kind,
            dims: raw.dims,
            offset: raw.offset,
            bytes: raw.bytes,
        });
        Gguf {
            version: scan.version,
            alignment: scan.alignment,
            data_offset: scan.data_offset,
            header_bytes: header.len() as u64,
            entries: entries.collect(),
            tensors: tensors.collect(),
        }
    }

    /// Version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of the data, bytes; a power of two.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// First byte of the data section.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Bytes of the header before padding.
    pub fn header_bytes(&self) -> u64 {
        self.header_bytes
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// All keys with their values, in the order of the keys.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (&**key, value))
    }

    /// Feeds the keys that `keep` names, and their values, to a hasher: equal entries give equal hashes.
    pub fn hash_entries(&self, keep: impl Fn(&str) -> bool, state: &mut impl Hasher) {
        for (key, value) in self.entries().filter(|(key, _)| keep(key)) {
            key.hash(state);
            value.kind().name().hash(state);
            match value {
                Value::Array(array) => (array.kind().name(), array.bytes()).hash(state),
                Value::String(text) => text.hash(state),
                // Numbers: what their type's values are told apart by.
                number => format!("{number:?}").hash(state),
            }
        }
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// `general.file_type` in words; without one, the type that most bytes have; `none` without tensors.
    pub fn quantization(&self) -> &'static str {
        let named = self.get("general.file_type").and_then(Value::as_u64).and_then(types::file_type_name);
        named.unwrap_or_else(|| {
            let mut bytes = BTreeMap::<&'static str, u64>::new();
            for tensor in &self.tensors {
                let sum = bytes.entry(tensor.kind.name).or_default();
                *sum = sum.saturating_add(tensor.bytes);
            }
            bytes.into_iter().max_by_key(|&(_, bytes)| bytes).map_or("none", |(name, _)| name)
        })
    }
}

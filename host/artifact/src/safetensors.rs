//! Headers of safetensors files, every number compared with the file's length before it is believed.
//!
//! Eight bytes with the length of a JSON object, the object, and behind it the tensors' bytes without a gap
//! (<https://github.com/huggingface/safetensors#format>).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

/// Most bytes of a header; one with a hundred thousand tensors has a tenth of it.
const HEADER_BYTES_MAX: u64 = 100 << 20;

/// Types of the format whose elements are whole bytes, and how many.
const TYPES: [(&str, u64); 17] = [
    ("BF16", 2),
    ("BOOL", 1),
    ("C64", 8),
    ("F16", 2),
    ("F32", 4),
    ("F64", 8),
    ("F8_E4M3", 1),
    ("F8_E5M2", 1),
    ("F8_E8M0", 1),
    ("I16", 2),
    ("I32", 4),
    ("I64", 8),
    ("I8", 1),
    ("U16", 2),
    ("U32", 4),
    ("U64", 8),
    ("U8", 1),
];

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Type of its elements, as the format spells it.
    pub dtype: &'static str,
    /// Sizes, the slowest first.
    pub shape: Vec<u64>,
    /// From the start of the file.
    pub offset: u64,
    /// Length of its data.
    pub bytes: u64,
}

/// What a file's header says.
#[derive(Clone, Debug, PartialEq)]
pub struct Safetensors {
    /// By their place in the file.
    pub tensors: Vec<Tensor>,
    /// What its writer left beside them.
    pub metadata: Map<String, Value>,
}

/// Why a header is not taken.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum SafetensorsError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It contradicts itself or its file.
    #[error("{0}")]
    Damage(String),
    #[error("tensor {tensor}: elements of {dtype} are unknown")]
    Dtype { tensor: String, dtype: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object of dtype, shape and data_offsets")]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Safetensors {
    /// Reads a file's header.
    ///
    /// # Errors
    /// What cannot be read, or the first thing in it that does not hold.
    pub fn open(path: &Path) -> Result<Safetensors, SafetensorsError> {
        let file = File::open(path)?;
        let total = file.metadata()?.len();
        Safetensors::read(file, total)
    }

    /// Reads the header at the start of a file of `total` bytes.
    ///
    /// # Errors
    /// As [`Safetensors::open`].
    pub fn read(mut file: impl Read, total: u64) -> Result<Safetensors, SafetensorsError> {
        let mut prefix = Vec::new();
        file.by_ref().take(8).read_to_end(&mut prefix)?;
        let prefix = <[u8; 8]>::try_from(prefix)
            .map_err(|_| damage(format!("it has {total} bytes, such a file has at least 8")))?;
        let length = u64::from_le_bytes(prefix);
        if length > total.saturating_sub(8) || length > HEADER_BYTES_MAX {
            return Err(damage(format!("its header would have {length} bytes, the file has {total}")));
        }
        let mut text = Vec::new();
        file.take(length).read_to_end(&mut text)?;
        parse(&text, 8 + length, total)
    }
}

fn damage(why: String) -> SafetensorsError {
    SafetensorsError::Damage(why)
}

/// `data` is where the header ends, `total` where the file does.
fn parse(text: &[u8], data: u64, total: u64) -> Result<Safetensors, SafetensorsError> {
    let entries: Map<String, Value> = serde_json::from_slice(text)
        .map_err(|error| damage(format!("its header is no JSON object: {error}")))?;
    let (mut tensors, mut metadata) = (Vec::with_capacity(entries.len()), Map::new());
    for (name, entry) in entries {
        match entry {
            Value::Object(facts) if name == "__metadata__" => metadata = facts,
            entry => tensors.push(tensor(&name, entry, data, total)?),
        }
    }
    tensors.sort_by_key(|tensor| (tensor.offset, tensor.bytes));
    // Every byte behind the header belongs to exactly one tensor.
    let (mut at, mut before) = (data, "the header");
    for tensor in &tensors {
        if tensor.offset < at {
            return Err(damage(format!("tensors {before} and {} share bytes", tensor.name)));
        }
        if tensor.offset > at {
            let gap = tensor.offset - at;
            return Err(damage(format!("between {before} and {} lie {gap} bytes of no tensor", tensor.name)));
        }
        (at, before) = (tensor.offset + tensor.bytes, &tensor.name);
    }
    match at == total {
        true => Ok(Safetensors { tensors, metadata }),
        false => Err(damage(format!("its tensors end at byte {at}, the file at {total}"))),
    }
}

fn tensor(name: &str, entry: Value, data: u64, total: u64) -> Result<Tensor, SafetensorsError> {
    let broken = |why: String| damage(format!("tensor {name}: {why}"));
    let Entry { dtype, shape, data_offsets: (begin, end) } =
        serde_json::from_value(entry).map_err(|error| broken(error.to_string()))?;
    let known = TYPES.iter().find(|(known, _)| *known == dtype);
    let &(dtype, element) =
        known.ok_or_else(|| SafetensorsError::Dtype { tensor: name.to_owned(), dtype: dtype.clone() })?;
    let bytes = shape.iter().try_fold(element, |bytes, size| bytes.checked_mul(*size));
    let bytes = bytes.ok_or_else(|| broken("its shape has more than 2^64 bytes".to_owned()))?;
    if end.checked_sub(begin) != Some(bytes) {
        return Err(broken(format!("data_offsets are {begin} to {end}, its shape has {bytes} bytes")));
    }
    if data.checked_add(end).is_none_or(|end| end > total) {
        let has = total - data;
        return Err(broken(format!("its data ends at byte {end}, the file has {has} bytes of data")));
    }
    Ok(Tensor { name: name.to_owned(), dtype, shape, offset: data + begin, bytes })
}

/// Reads bytes as a file, and looks at what came out: for the fuzzer and the tests that replay what it found.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    if let Ok(header) = Safetensors::read(bytes, bytes.len() as u64) {
        let first = header.tensors.first().map_or(bytes.len() as u64, |tensor| tensor.offset);
        let end = header.tensors.iter().fold(first, |at, tensor| {
            assert_eq!(tensor.offset, at, "one behind the other");
            at + tensor.bytes
        });
        assert_eq!(end, bytes.len() as u64, "up to the file's end");
    }
}

#[cfg(test)]
mod tests {
    use super::fuzz;
    use proptest::prelude::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
    }

    const GOOD: &str = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}}"#;

    proptest! {
        #[test]
        fn any_bytes_give_a_header_or_an_error(
            text in proptest::collection::vec(any::<u8>(), 0..300), data in 0_usize..100,
        ) {
            fuzz(&file(&String::from_utf8_lossy(&text), data));
            fuzz(&text);
        }

        #[test]
        fn a_damaged_header_never_reaches_outside_of_the_file(at in 0_usize..180, byte in any::<u8>()) {
            let mut bytes = file(GOOD, 32);
            assert_eq!(super::Safetensors::read(&bytes[..], bytes.len() as u64).unwrap().tensors.len(), 2);
            bytes[at % (GOOD.len() + 8)] = byte;
            fuzz(&bytes);
        }
    }
}

//! Headers of safetensors files: read with every number compared with the file's length, and written.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::ConvertError;

/// Most bytes of a header; one with a hundred thousand tensors has a tenth of it.
const HEADER_BYTES_MAX: u64 = 100 << 20;
/// Who wrote a file, in its metadata.
const WRITER: (&str, &str) = ("written_by", "superfluid convert");

/// Types that are converted, and the bytes of an element.
const TYPES: [(&str, u64); 6] = [("F32", 4), ("F16", 2), ("BF16", 2), ("U32", 4), ("I32", 4), ("U8", 1)];

/// A tensor of a file.
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: &'static str,
    pub(crate) shape: Vec<u64>,
    /// From the start of the file.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What a header says.
pub(crate) struct Header {
    /// By their place in the file.
    pub(crate) tensors: Vec<Tensor>,
    /// A conversion wrote the file.
    pub(crate) ours: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object of dtype, shape and data_offsets")]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Why a header is not taken.
enum Fault {
    /// It contradicts itself or its file.
    Damage(String),
    /// A tensor is of a type that is not converted.
    Type { tensor: String, why: String },
}

impl From<String> for Fault {
    fn from(why: String) -> Fault {
        Fault::Damage(why)
    }
}

/// Bytes of an element of a type that is converted.
pub(crate) fn element_bytes(dtype: &str) -> Option<u64> {
    TYPES.iter().find(|(name, _)| *name == dtype).map(|(_, bytes)| *bytes)
}

impl Header {
    pub(crate) fn read(path: &Path) -> Result<Header, ConvertError> {
        let mut file = File::open(path).map_err(ConvertError::io(path))?;
        let total = file.metadata().map_err(ConvertError::io(path))?.len();
        let mut prefix = Vec::new();
        file.by_ref().take(8).read_to_end(&mut prefix).map_err(ConvertError::io(path))?;
        let broken = |why: String| ConvertError::Safetensors { path: path.to_owned(), why };
        let prefix = <[u8; 8]>::try_from(prefix)
            .map_err(|_| broken(format!("it has {total} bytes, such a file has at least 8")))?;
        let length = u64::from_le_bytes(prefix);
        if length > total.saturating_sub(8) || length > HEADER_BYTES_MAX {
            return Err(broken(format!("its header would have {length} bytes, the file has {total}")));
        }
        let mut text = Vec::new();
        file.take(length).read_to_end(&mut text).map_err(ConvertError::io(path))?;
        Header::parse(&text, 8 + length, total).map_err(|fault| match fault {
            Fault::Damage(why) => broken(why),
            Fault::Type { tensor, why } => ConvertError::Tensor { tensor, why },
        })
    }

    /// `data` is where the header ends, `total` where the file does.
    fn parse(text: &[u8], data: u64, total: u64) -> Result<Header, Fault> {
        let entries: Map<String, Value> =
            serde_json::from_slice(text).map_err(|error| format!("its header is no JSON object: {error}"))?;
        let (mut tensors, mut ours) = (Vec::with_capacity(entries.len()), false);
        for (name, entry) in entries {
            if name == "__metadata__" {
                ours = entry.get(WRITER.0).is_some_and(|writer| writer == WRITER.1);
                continue;
            }
            tensors.push(tensor(&name, entry, data, total)?);
        }
        tensors.sort_by_key(|tensor| (tensor.offset, tensor.bytes));
        // Every byte behind the header belongs to exactly one tensor.
        let (mut at, mut before) = (data, "the header");
        for tensor in &tensors {
            if tensor.offset < at {
                return Err(format!("tensors {before} and {} share bytes", tensor.name).into());
            }
            if tensor.offset > at {
                let gap = tensor.offset - at;
                let why = format!("between {before} and {} lie {gap} bytes of no tensor", tensor.name);
                return Err(why.into());
            }
            (at, before) = (tensor.offset + tensor.bytes, &tensor.name);
        }
        match at == total {
            true => Ok(Header { tensors, ours }),
            false => Err(format!("its tensors end at byte {at}, the file at {total}").into()),
        }
    }

    /// The text of a header, padded so that tensors begin at a multiple of eight bytes; `tensors` are name, type, shape, bytes.
    pub(crate) fn text(tensors: impl Iterator<Item = (String, &'static str, Vec<u64>, u64)>) -> String {
        let (mut entries, mut at) = (Map::new(), 0);
        entries.insert("__metadata__".to_owned(), json!({"format": "mlx", WRITER.0: WRITER.1}));
        for (name, dtype, shape, bytes) in tensors {
            let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [at, at + bytes]});
            entries.insert(name, entry);
            at += bytes;
        }
        let mut text = Value::Object(entries).to_string();
        text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
        text
    }
}

fn tensor(name: &str, entry: Value, data: u64, total: u64) -> Result<Tensor, Fault> {
    let damage = |why: String| Fault::Damage(format!("tensor {name}: {why}"));
    let Entry { dtype, shape, data_offsets: (begin, end) } =
        serde_json::from_value(entry).map_err(|error| damage(error.to_string()))?;
    let known = TYPES.iter().find(|(known, _)| *known == dtype);
    let &(dtype, element) = known.ok_or_else(|| {
        let known: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
        let why = format!("elements of {dtype} are not converted, these are: {}", known.join(", "));
        Fault::Type { tensor: name.to_owned(), why }
    })?;
    let bytes = shape.iter().try_fold(element, |bytes, size| bytes.checked_mul(*size));
    let bytes = bytes.ok_or_else(|| damage("its shape has more than 2^64 bytes".to_owned()))?;
    if end.checked_sub(begin) != Some(bytes) {
        return Err(damage(format!("data_offsets are {begin} to {end}, its shape has {bytes} bytes")));
    }
    if data.checked_add(end).is_none_or(|end| end > total) {
        let has = total - data;
        return Err(damage(format!("its data ends at byte {end}, the file has {has} bytes of data")));
    }
    Ok(Tensor { name: name.to_owned(), dtype, shape, offset: data + begin, bytes })
}

#[cfg(test)]
mod tests {
    use super::Header;
    use proptest::prelude::*;

    /// Whatever a header says, its tensors lie one behind the other from its end to the file's.
    fn check(text: &[u8], data: u64, total: u64) {
        if let Ok(header) = Header::parse(text, data, total) {
            let end = header.tensors.iter().fold(data, |at, tensor| {
                assert_eq!(tensor.offset, at);
                at + tensor.bytes
            });
            assert_eq!(end, total);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_header_or_an_error(text in proptest::collection::vec(any::<u8>(), 0..300), more in 0_u64..100) {
            check(&text, 100, 100 + more);
        }

        #[test]
        fn a_damaged_header_never_reaches_outside_of_the_file(at in 0_usize..170, byte in any::<u8>()) {
            let shapes = [("a", "F32", vec![2, 3], 24), ("b", "BF16", vec![4], 8), ("c", "U8", vec![], 1)];
            let shapes = shapes.map(|(name, dtype, shape, bytes)| (name.to_owned(), dtype, shape, bytes));
            let mut text = Header::text(shapes.into_iter()).into_bytes();
            assert!(Header::parse(&text, 208, 208 + 33).is_ok_and(|header| header.ours && header.tensors.len() == 3));
            text[at] = byte;
            check(&text, 208, 208 + 33);
        }
    }
}

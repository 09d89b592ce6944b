//! What the converter takes of a safetensors file's header, and the header that it writes.

use std::path::Path;

use serde_json::{Map, Value, json};
use sf_artifact::safetensors::Tensor;
use sf_artifact::{Safetensors, SafetensorsError};

use crate::error::ConvertError;

/// Who wrote a file, in its metadata.
const WRITER: (&str, &str) = ("written_by", "superfluid convert");

/// Types that are converted, and the bytes of an element.
const TYPES: [(&str, u64); 6] = [("F32", 4), ("F16", 2), ("BF16", 2), ("U32", 4), ("I32", 4), ("U8", 1)];

/// Bytes of an element of a type that is converted.
pub(crate) fn element_bytes(dtype: &str) -> Option<u64> {
    TYPES.iter().find(|(name, _)| *name == dtype).map(|(_, bytes)| *bytes)
}

/// The tensors of a file, all of types that are converted.
pub(crate) fn tensors(path: &Path) -> Result<Vec<Tensor>, ConvertError> {
    let not_converted = |tensor: &str, dtype: &str| {
        let known: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
        let why = format!("elements of {dtype} are not converted, these are: {}", known.join(", "));
        ConvertError::tensor(tensor, why)
    };
    let tensors = match Safetensors::open(path) {
        Ok(header) => header.tensors,
        Err(SafetensorsError::Io(error)) => return Err(ConvertError::io(path)(error)),
        Err(SafetensorsError::Damage(why)) => {
            return Err(ConvertError::Safetensors { path: path.to_owned(), why });
        }
        Err(SafetensorsError::Dtype { tensor, dtype }) => return Err(not_converted(&tensor, &dtype)),
    };
    match tensors.iter().find(|tensor| element_bytes(tensor.dtype).is_none()) {
        Some(tensor) => Err(not_converted(&tensor.name, tensor.dtype)),
        None => Ok(tensors),
    }
}

/// Whether a conversion wrote the file.
pub(crate) fn is_ours(path: &Path) -> bool {
    let header = Safetensors::open(path);
    header.is_ok_and(|header| header.metadata.get(WRITER.0).is_some_and(|writer| writer == WRITER.1))
}

/// The text of a header, padded so that tensors begin at a multiple of eight bytes; `tensors` are name, type, shape, bytes.
pub(crate) fn header(tensors: impl Iterator<Item = (String, &'static str, Vec<u64>, u64)>) -> String {
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

//! Counts a model's parameters from its headers.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::gguf::{Gguf, TensorInfo};

/// Most bytes of the header of a safetensors file; real ones have some hundred kilobytes.
const HEADER_BYTES_MAX: u64 = 16 << 20;

/// Of all files of a GGUF model; the first is open.
pub(crate) fn of_gguf(first: &Gguf, files: &[PathBuf]) -> Option<u64> {
    let mut sum = elements(first.tensors());
    for file in files.get(1..)? {
        sum = sum.saturating_add(elements(Gguf::open(file).ok()?.tensors()));
    }
    Some(sum).filter(|&sum| sum > 0)
}

fn elements(tensors: &[TensorInfo]) -> u64 {
    let count = |tensor: &TensorInfo| tensor.dims.iter().copied().fold(1, u64::saturating_mul);
    tensors.iter().map(count).fold(0, u64::saturating_add)
}

/// Of all files of a safetensors model; `None` when one holds integers: then several weights share a number.
pub(crate) fn of_safetensors(files: &[PathBuf]) -> Option<u64> {
    files.iter().try_fold(0_u64, |sum, file| Some(sum.saturating_add(in_safetensors(file)?)))
}

fn in_safetensors(path: &Path) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = Some(u64::from_le_bytes(length)).filter(|&length| length <= HEADER_BYTES_MAX)?;
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header).ok()?;
    let header: Map<String, Value> = serde_json::from_slice(&header).ok()?;
    let tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
    tensors
        .map(|(_, tensor)| in_tensor(tensor))
        .try_fold(0, |sum: u64, count| Some(sum.saturating_add(count?)))
}

fn in_tensor(tensor: &Value) -> Option<u64> {
    let dtype = tensor.get("dtype")?.as_str()?;
    if !dtype.starts_with(['F', 'B']) || dtype == "BOOL" {
        return None;
    }
    let shape = tensor.get("shape")?.as_array()?;
    shape.iter().try_fold(1, |product: u64, size| Some(product.saturating_mul(size.as_u64()?)))
}

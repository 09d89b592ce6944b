//! Counts a model's parameters from its headers.

use std::path::{Path, PathBuf};

use crate::Safetensors;
use crate::gguf::{Gguf, TensorInfo};

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
    let header = Safetensors::open(path).ok()?;
    header.tensors.iter().try_fold(0_u64, |sum, tensor| {
        let is_float = tensor.dtype.starts_with(['F', 'B']) && tensor.dtype != "BOOL";
        let count = tensor.shape.iter().copied().fold(1, u64::saturating_mul);
        is_float.then(|| sum.saturating_add(count))
    })
}

//! Writes the safetensors file: its header from the plan, and then tensor by tensor, row by row.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde_json::{Map, Value, json};
use sf_artifact::Gguf;
use sf_artifact::gguf::TensorInfo;

use crate::Progress;
use crate::blocks::{elements, groups};
use crate::error::ConvertError;
use crate::plan::{Entry, Plan};

/// Writes the whole file and gives its length.
pub(crate) fn write(
    source: &Path,
    gguf: &Gguf,
    plan: &Plan,
    to: &Path,
    progress: Progress<'_>,
) -> Result<u64, ConvertError> {
    let from = File::open(source).map_err(ConvertError::io(source))?;
    let out = File::create(to).map_err(ConvertError::io(to))?;
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let header = header(plan);
    let mut bytes = 8 + header.len() as u64;
    out.write_all(&(header.len() as u64).to_le_bytes()).map_err(ConvertError::io(to))?;
    out.write_all(header.as_bytes()).map_err(ConvertError::io(to))?;
    let (mut done, total) = (0, gguf.tensors().iter().map(|tensor| tensor.bytes).sum());
    for entry in &plan.entries {
        let tensor = &gguf.tensors()[entry.source];
        for part in parts(entry, tensor, &read(&from, gguf, tensor).map_err(ConvertError::io(source))?) {
            out.write_all(&part).map_err(ConvertError::io(to))?;
            bytes += part.len() as u64;
        }
        done += tensor.bytes;
        progress(done, total);
    }
    let file = out.into_inner().map_err(|error| ConvertError::io(to)(error.into_error()))?;
    file.sync_all().map_err(ConvertError::io(to))?;
    Ok(bytes)
}

fn header(plan: &Plan) -> String {
    let (mut entries, mut at) = (Map::new(), 0);
    entries.insert("__metadata__".to_owned(), json!({"format": "mlx"}));
    for output in plan.entries.iter().flat_map(Entry::outputs) {
        let offsets = [at, at + output.bytes];
        let entry = json!({"dtype": output.dtype, "shape": output.shape, "data_offsets": offsets});
        entries.insert(output.name, entry);
        at += output.bytes;
    }
    let mut header = Value::Object(entries).to_string();
    // Tensors then begin at a multiple of eight bytes.
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    header
}

/// The bytes of a tensor of the source.
pub(crate) fn read(from: &File, gguf: &Gguf, tensor: &TensorInfo) -> std::io::Result<Vec<u8>> {
    let count = usize::try_from(tensor.bytes).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
    let mut bytes = vec![0; count];
    from.read_exact_at(&mut bytes, gguf.data_offset() + tensor.offset)?;
    Ok(bytes)
}

/// The row of the source that becomes row `row`: pairs that stand side by side come to stand half a head apart.
pub(crate) fn source_row(entry: &Entry, row: u64) -> u64 {
    let Some(heads) = entry.named.interleaved else { return row };
    let size = entry.rows / heads;
    let (head, at) = (row / size, row % size);
    head * size + (at % (size / 2)) * 2 + at / (size / 2)
}

/// The bytes of each output.
fn parts(entry: &Entry, tensor: &TensorInfo, bytes: &[u8]) -> Vec<Vec<u8>> {
    let row_bytes = bytes.len() / entry.rows as usize;
    let row = |row: u64| &bytes[source_row(entry, row) as usize * row_bytes..][..row_bytes];
    let Some(bits) = entry.bits() else {
        let (mut out, mut values) = (Vec::with_capacity(bytes.len()), Vec::new());
        for number in 0..entry.rows {
            elements(tensor.kind, row(number), &mut values);
            values.iter().for_each(|value| entry.plain.put(value - entry.named.offset, &mut out));
        }
        return vec![out];
    };
    let (mut codes, mut scales, mut biases) = (Vec::with_capacity(bytes.len()), Vec::new(), Vec::new());
    for number in 0..entry.rows {
        groups(tensor.kind, row(number), |group| {
            pack(&group.codes, bits, &mut codes);
            entry.plain.put(group.scale, &mut scales);
            entry.plain.put(group.bias, &mut biases);
        });
    }
    vec![codes, scales, biases]
}

/// Eight codes are `bits` bytes, lowest bits first.
fn pack(codes: &[u8], bits: u32, out: &mut Vec<u8>) {
    for eight in codes.chunks_exact(8) {
        let word = eight.iter().rev().fold(0_u64, |word, code| word << bits | u64::from(*code));
        out.extend(&word.to_le_bytes()[..bits as usize]);
    }
}

/// The opposite of what is packed: the codes of a row.
pub(crate) fn unpack(bytes: &[u8], bits: u32) -> impl Iterator<Item = u8> {
    bytes.chunks_exact(bits as usize).flat_map(move |chunk| {
        let word = chunk.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        (0..8).map(move |at| ((word >> (at * bits)) & ((1 << bits) - 1)) as u8)
    })
}

#[cfg(test)]
mod tests {
    use super::{pack, unpack};

    #[test]
    fn codes_of_any_width_go_there_and_back() {
        for bits in [2, 3, 4, 5, 6, 8] {
            let codes: Vec<u8> = (0..64_u32).map(|at| ((at * 29 + 7) % (1 << bits)) as u8).collect();
            let mut packed = Vec::new();
            pack(&codes, bits, &mut packed);
            assert_eq!(packed.len(), 8 * bits as usize);
            assert_eq!(unpack(&packed, bits).collect::<Vec<u8>>(), codes);
        }
    }
}

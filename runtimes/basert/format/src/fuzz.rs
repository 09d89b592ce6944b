//! What the fuzz target `base` runs.

use std::io::Cursor;

use crate::bundle::{Bundle, PROLOGUE_BYTES, align, prologue};
use crate::canonical::canonical;
use crate::header::DATA_ALIGN;
use crate::layout::{GROUP, Layout};

/// More data than an input has.
const TENSOR_BYTES_MAX: u64 = 1 << 16;

/// Reads a bundle and all that is in it. An input that begins with a brace is a header and, behind a zero byte, what lies at
/// the data offset: mutations would never find a header's checksum. Any other is a file as it is.
pub fn fuzz(input: &[u8]) {
    let file = match input.first() {
        Some(b'{') => match file(input) {
            Some(file) => file,
            None => return,
        },
        _ => input.to_vec(),
    };
    let Ok(bundle) = Bundle::parse(&mut &file[..], file.len() as u64) else { return };
    let mut file = Cursor::new(file);
    for slot in &bundle.header.slots {
        if let Ok(found) = bundle.slot_in(&mut file, &slot.id) {
            assert_eq!(found.map(|bytes| bytes.len() as u64), Some(slot.bytes), "the slot is there");
        }
    }
    let size = bundle.file_bytes;
    let whole = bundle.verify_in(&mut file, &mut |done| {
        assert!(done <= size, "{done} of {size} bytes");
        true
    });
    drop(whole);
    for tensor in &bundle.header.tensors {
        if tensor.layout == Layout::F32 || tensor.bytes > TENSOR_BYTES_MAX {
            continue;
        }
        let bytes = &file.get_ref()[tensor.offset as usize..][..tensor.bytes as usize];
        let groups = (tensor.rows as usize).div_ceil(GROUP);
        let mut values = Vec::new();
        for group in bytes.chunks(bytes.len() / groups) {
            tensor.layout.unpack_group(group, tensor.cols as usize, &mut values);
            assert_eq!(values.len(), GROUP * tensor.cols as usize, "sixteen rows");
        }
    }
}

/// The file of a header that is brought into its form.
fn file(input: &[u8]) -> Option<Vec<u8>> {
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let data = input.get(end + 1..).unwrap_or_default();
    let header = canonical(&serde_json::from_slice(&input[..end]).ok()?);
    let data_offset = align(PROLOGUE_BYTES + header.len() as u64, DATA_ALIGN);
    let bytes = data_offset + data.len() as u64;
    let mut file = prologue(header.as_bytes(), data_offset, bytes).to_vec();
    file.extend(header.as_bytes());
    file.resize(data_offset as usize, 0);
    file.extend(data);
    Some(file)
}

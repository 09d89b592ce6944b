//! Names what a saved state depends on: the model's files, the cache's precision and layout, and this build.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sf_abi_sdk::{Code, Fault};
use xxhash_rust::xxh3::Xxh3;

use crate::describe;
use crate::header::{Header, Span};
use crate::params::Params;

/// Bytes that are read at the middle of each tensor.
const SAMPLE_BYTES: u64 = 4096;
/// Bytes read at once of the header.
const CHUNK_BYTES: u64 = 1 << 20;

/// The words for a model. Files are not read whole: their length, their header, and a page of every tensor tell two of
/// them apart, also where a fine-tune left most of the weights alone.
pub(crate) fn of(headers: &[Header], paths: &[&Path], params: &Params) -> Result<String, Fault> {
    let mut files = Xxh3::new();
    for (header, path) in headers.iter().zip(paths) {
        add(&mut files, header, path).map_err(|error| {
            Fault::new(Code::Format, format!("{}: {error}", path.display())).field("paths")
        })?;
    }
    Ok(format!(
        "files {:032x}, kv {} {}, attention {}, whole windows {}, {}",
        files.digest128(),
        params.type_k.name,
        params.type_v.name,
        params.flash.name(),
        params.swa_full,
        describe::system_info(),
    ))
}

fn add(sum: &mut Xxh3, header: &Header, path: &Path) -> std::io::Result<()> {
    let file = File::open(path)?;
    sum.update(&file.metadata()?.len().to_le_bytes());
    let mut buffer = Vec::new();
    let mut read = |from: u64, count: u64| {
        buffer.resize(usize::try_from(count.min(CHUNK_BYTES)).expect("at most a chunk"), 0);
        file.read_exact_at(&mut buffer, from)?;
        sum.update(&buffer);
        std::io::Result::Ok(())
    };
    let data = header.data_offset();
    for from in (0..data).step_by(CHUNK_BYTES as usize) {
        read(from, data - from)?;
    }
    for Span { offset, bytes } in header.tensor_spans() {
        let count = bytes.min(SAMPLE_BYTES);
        read(data + offset + (bytes - count) / 2, count)?;
    }
    Ok(())
}

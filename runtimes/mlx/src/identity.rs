//! Names what a saved lane depends on: the model's files, the shape of its keys and values, and the kernels.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt;

use sf_abi_sdk::{Code, Fault};
use xxhash_rust::xxh3::Xxh3;

use crate::Checked;

/// Bytes that are read at the middle of each tensor.
const SAMPLE_BYTES: u64 = 4096;

/// The words for a model. Files are not read whole: `config.json`, their lengths and headers, and a page of every tensor tell
/// two of them apart, also where a fine-tune left most of the weights alone.
pub(crate) fn of(checked: &Checked, kernels: &str) -> Result<String, Fault> {
    let mut sum = Xxh3::new();
    sum.update(checked.files.config.as_bytes());
    for (number, shard) in checked.files.shards.iter().enumerate() {
        let mut add = || -> std::io::Result<()> {
            let file = File::open(&shard.path)?;
            sum.update(&shard.bytes.to_le_bytes());
            let mut buffer = Vec::new();
            (&file).take(shard.data).read_to_end(&mut buffer)?;
            sum.update(&buffer);
            let here = checked.files.tensors.values().filter(|place| place.shard == number);
            for tensor in here.map(|place| &place.tensor) {
                let count = tensor.bytes.min(SAMPLE_BYTES);
                buffer.resize(usize::try_from(count).expect("at most a page"), 0);
                file.read_exact_at(&mut buffer, tensor.offset + (tensor.bytes - count) / 2)?;
                sum.update(&buffer);
            }
            Ok(())
        };
        add().map_err(|error| {
            Fault::new(Code::Format, format!("{}: {error}", shard.path.display())).field("paths")
        })?;
    }
    Ok(format!("files {:032x}, kv f32, kernels {kernels}", sum.digest128()))
}

//! Reads a model's weights into MLX's memory, tensor by tensor, and tells the host how far it is.

use std::fs::File;
use std::os::unix::fs::FileExt;

use sf_abi_sdk::{Code, Fault, OpenRequest};

use super::array::{Array, Weights};
use super::forward::{Block, Network};
use super::sys;
use super::thread::Confined;
use crate::Checked;
use crate::files::{Place, Shard};
use crate::layout::{Layer, Matrix};
use crate::params::Params;
use crate::safetensors::Dtype;

/// Parts of a network as they come in.
struct Parts {
    blocks: Vec<Block>,
}

/// Loads everything; the host is told after each layer, and may abort there.
pub(super) fn load(
    checked: &Checked,
    params: &Params,
    request: &OpenRequest<'_>,
) -> Result<Confined<Network>, Fault> {
    let reader = &Reader::new(&checked.files.shards, checked.config.architecture.norm_offset);
    let cache = (params.cache_mb as usize) << 20;
    let gpu = params.device.is_gpu();
    let mut parts = Confined::make(move || {
        sys::start(cache, gpu)?;
        Ok(Parts { blocks: Vec::new() })
    })?;
    let layers = &checked.layout.layers;
    for (number, layer) in layers.iter().enumerate() {
        if request.control().aborted() {
            return Err(Fault::new(Code::Cancelled, "the load was aborted"));
        }
        parts.with(|parts| {
            parts.blocks.push(reader.block(layer)?);
            Ok(())
        })?;
        request.progress((number + 1) as f32 / (layers.len() + 1) as f32);
    }
    let layout = &checked.layout;
    let network = parts.map(|parts| {
        Ok(Network {
            config: checked.config.clone(),
            threads: params.threads,
            embedding: reader.matrix(&layout.embedding)?,
            blocks: parts.blocks,
            norm: reader.norm(&layout.norm)?,
            head: layout.head.as_ref().map(|head| reader.matrix(head)).transpose()?,
            rows: None,
        })
    })?;
    request.progress(1.0);
    Ok(network)
}

/// Reads tensors out of a model's files.
pub(super) struct Reader<'a> {
    shards: &'a [Shard],
    /// Norm weights are stored as their distance from one.
    offset: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(shards: &'a [Shard], offset: bool) -> Reader<'a> {
        Reader { shards, offset }
    }

    fn block(&self, layer: &Layer) -> Result<Block, Fault> {
        let all = |matrices: &[Matrix]| -> Result<Vec<Weights>, Fault> {
            matrices.iter().map(|matrix| self.matrix(matrix)).collect()
        };
        let norm_if = |place: &Option<Place>| place.as_ref().map(|place| self.norm(place)).transpose();
        Ok(Block {
            norm: self.norm(&layer.norm)?,
            qkv: all(&layer.qkv)?,
            head_norms: match &layer.head_norms {
                Some((q, k)) => Some((self.norm(q)?, self.norm(k)?)),
                None => None,
            },
            output: [self.matrix(&layer.output)?],
            norm_behind: norm_if(&layer.norm_behind)?,
            ffn_norm: self.norm(&layer.ffn_norm)?,
            gate_up: all(&layer.gate_up)?,
            down: [self.matrix(&layer.down)?],
            ffn_norm_behind: norm_if(&layer.ffn_norm_behind)?,
        })
    }

    pub(super) fn matrix(&self, matrix: &Matrix) -> Result<Weights, Fault> {
        let (bits, group, blocks) = match &matrix.blocks {
            Some((blocks, scales, biases)) => {
                (blocks.bits, blocks.group, Some((self.stored(scales)?, self.stored(biases)?)))
            }
            None => (0, 0, None),
        };
        Ok(Weights {
            weight: self.stored(&matrix.weight)?,
            blocks,
            bias: matrix.bias.as_ref().map(|bias| self.vector(bias, 0.0)).transpose()?,
            bits,
            group,
            rows: matrix.rows,
            cols: matrix.cols,
        })
    }

    /// A matrix's tensor, its elements as they are stored.
    fn stored(&self, place: &Place) -> Result<Array, Fault> {
        let tensor = &place.tensor;
        let dtype = match tensor.dtype {
            Dtype::F32 => sys::F32,
            Dtype::F16 => sys::F16,
            Dtype::Bf16 => sys::BF16,
            Dtype::U32 => sys::U32,
            other => {
                let words = format!("{} is no type of a weight", other.name());
                return Err(Fault::new(Code::Internal, words));
            }
        };
        let rows =
            Array::filled(&tensor.shape, dtype, tensor.bytes, |mut room| self.read(place, room.bytes()))?;
        rows.side_by_side()
    }

    pub(super) fn norm(&self, place: &Place) -> Result<Array, Fault> {
        self.vector(place, if self.offset { 1.0 } else { 0.0 })
    }

    /// A vector as floats, plus `more`.
    fn vector(&self, place: &Place, more: f32) -> Result<Array, Fault> {
        let mut bytes = vec![0; usize::try_from(place.tensor.bytes).expect("a vector is small")];
        self.read(place, &mut bytes)?;
        let floats: Vec<f32> = match place.tensor.dtype {
            Dtype::F16 => {
                bytes.chunks_exact(2).map(|pair| half(u16::from_le_bytes([pair[0], pair[1]]))).collect()
            }
            Dtype::Bf16 => bytes
                .chunks_exact(2)
                .map(|pair| f32::from_bits(u32::from(u16::from_le_bytes([pair[0], pair[1]])) << 16))
                .collect(),
            _ => bytes
                .chunks_exact(4)
                .map(|four| f32::from_le_bytes(four.try_into().expect("four bytes")))
                .collect(),
        };
        let floats: Vec<f32> = floats.into_iter().map(|value| value + more).collect();
        Array::floats(&place.tensor.shape, &floats)
    }

    fn read(&self, place: &Place, out: &mut [u8]) -> Result<(), Fault> {
        let path = &self.shards[place.shard].path;
        let read = File::open(path).and_then(|file| file.read_exact_at(out, place.tensor.offset));
        read.map_err(|error| Fault::new(Code::Format, format!("{}: {error}", path.display())).field("paths"))
    }
}

/// A float of 16 bits: the exponent is rebased by a multiplication, which also makes subnormals right.
fn half(bits: u16) -> f32 {
    let magnitude = match bits & 0x7c00 {
        0x7c00 => f32::from_bits((u32::from(bits & 0x7fff) << 13) | 0x7f80_0000),
        _ => f32::from_bits(u32::from(bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::half;

    #[test]
    fn half_floats_are_read_exactly() {
        for (bits, expect) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0400, 6.103_515_6e-5),
            (0x0001, 5.960_464_5e-8),
            (0x7c00, f32::INFINITY),
        ] {
            assert_eq!(half(bits), expect, "{bits:#x}");
        }
        assert!(half(0x7e00).is_nan());
        assert!(half(0x8000).is_sign_negative());
    }
}

//! A model's layers, read from a bundle by its one description.

use std::fs::File;

use sf_base::{Arch, Bundle, Norms};

use super::rope::Angles;
use super::scratch::Scratch;
use super::weights::{Finder, Matrix, Memory};
use crate::error::ModelError;
use crate::kernels::Kernels;
use crate::kernels::attention::HEAD_MAX;
use crate::kernels::ops::Norm;
use crate::params::Params;
use crate::pool::Pool;

/// A norm's weights, padded.
#[derive(Debug)]
pub(super) struct NormWeights {
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    len: usize,
    eps: f32,
    centred: bool,
}

impl NormWeights {
    pub(super) fn kernel(&self) -> Norm {
        Norm {
            weight: self.weight.as_ptr(),
            bias: self.bias.as_ref().map_or(core::ptr::null(), |bias| bias.as_ptr()),
            len: self.len,
            eps: self.eps,
            centred: self.centred,
        }
    }
}

/// A matrix with what is added to its products.
#[derive(Debug)]
pub(super) struct Linear {
    pub(super) matrix: Matrix,
    bias: Option<Vec<f32>>,
}

impl Linear {
    pub(super) fn bias(&self) -> *const f32 {
        self.bias.as_ref().map_or(core::ptr::null(), |bias| bias.as_ptr())
    }
}

/// One layer.
#[derive(Debug)]
pub(super) struct LayerWeights {
    /// Before attention, or behind it where norms are behind.
    pub(super) attn_norm: NormWeights,
    pub(super) qkv: Linear,
    pub(super) qk_norms: Option<(NormWeights, NormWeights)>,
    pub(super) o: Linear,
    pub(super) attn_post_norm: Option<NormWeights>,
    pub(super) ffn_norm: NormWeights,
    /// Gate and value, or the only first matrix.
    pub(super) up: Linear,
    pub(super) down: Linear,
    pub(super) ffn_post_norm: Option<NormWeights>,
}

/// What an encoder adds to its embeddings.
#[derive(Debug)]
pub(super) struct Entrance {
    pub(super) norm: NormWeights,
    /// `[positions, hidden]`, padded.
    pub(super) positions: Option<Vec<f32>>,
    /// Of the first type, padded.
    pub(super) token_type: Option<Vec<f32>>,
}

/// A model that can compute.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) arch: Arch,
    pub(super) layers: Vec<LayerWeights>,
    pub(super) embed: Matrix,
    pub(super) head: Option<Linear>,
    pub(super) final_norm: Option<NormWeights>,
    pub(super) entrance: Option<Entrance>,
    pub(super) angles: Vec<Angles>,
    pub(super) kernels: &'static Kernels,
    pub(super) pool: Pool,
    pub(super) scratch: Scratch,
    /// What the matrices are in.
    memory: Memory,
}

const KNOWN: &str = "heads of 16 to 512 elements in sixteens, and up to 12 queries to a key at a time";

impl Network {
    pub(crate) fn open(file: &File, bundle: &Bundle, params: &Params) -> Result<Network, ModelError> {
        let arch = bundle.header.architecture.clone();
        computable(&arch)?;
        let memory = Memory::of(file, bundle, params.placement, params.threads as usize)?;
        let found = Finder { bundle, memory: &memory };
        let shelf = Shelf { found: &found, arch: &arch };
        let layers = (0..arch.layers.len()).map(|layer| shelf.layer(layer)).collect::<Result<_, _>>()?;
        let embed = found.matrix("embed", arch.vocab, arch.hidden)?;
        let decoder = arch.kind == sf_base::Kind::Decoder;
        let head = match decoder && !arch.tied {
            true => Some(shelf.linear("head", arch.vocab, arch.hidden)?),
            false => None,
        };
        let final_norm = if decoder { Some(shelf.norm("final_norm", arch.hidden)?) } else { None };
        let entrance = if decoder { None } else { Some(shelf.entrance()?) };
        let angles = arch.ropes.iter().map(Angles::new).collect();
        let pool = Pool::new(params.threads as usize).map_err(ModelError::Read)?;
        let kernels = params.kernels;
        let scratch = Scratch::default();
        Ok(Network {
            layers,
            embed,
            head,
            final_norm,
            entrance,
            angles,
            kernels,
            pool,
            scratch,
            memory,
            arch,
        })
    }

    pub(crate) fn weight_bytes(&self) -> u64 {
        self.memory.len()
    }

    /// Of those, pages of the file.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        if self.memory.mapped { self.memory.len() } else { 0 }
    }

    /// Buffers and tables.
    pub(crate) fn compute_bytes(&self) -> u64 {
        self.scratch.bytes() + self.angles.iter().map(|angles| angles.bytes() as u64).sum::<u64>()
    }

    /// Half-precision elements of a page of the cache.
    pub(crate) fn page_elements(&self) -> usize {
        page_elements(&self.arch)
    }

    pub(crate) fn kernels_name(&self) -> &'static str {
        self.kernels.name
    }
}

/// Half-precision elements of a page of the cache.
pub(crate) fn page_elements(arch: &Arch) -> usize {
    crate::kernels::heads::page_elements(arch.layers.len(), arch.kv_heads as usize, arch.head_dim as usize)
}

/// What the kernels cannot do is refused by name.
fn computable(arch: &Arch) -> Result<(), ModelError> {
    let dim = arch.head_dim as usize;
    let turned = arch.ropes.iter().map(|rope| rope.inv_freq.len() * 2).max().unwrap_or(0);
    let refused = |what: String| Err(ModelError::Unsupported { what, known: KNOWN });
    if dim == 0 || !dim.is_multiple_of(16) || dim > HEAD_MAX || turned > dim {
        return refused(format!("heads of {dim} elements, of which {turned} are turned"));
    }
    if arch.kv_heads == 0 || !arch.heads.is_multiple_of(arch.kv_heads) {
        return refused(format!("{} heads of queries to {} of keys", arch.heads, arch.kv_heads));
    }
    if arch.gated && !arch.ffn.is_multiple_of(16) {
        return refused(format!("a gated feed-forward of {} columns", arch.ffn));
    }
    Ok(())
}

/// Takes weights off a bundle by the architecture's sizes.
struct Shelf<'a> {
    found: &'a Finder<'a>,
    arch: &'a Arch,
}

impl Shelf<'_> {
    fn norm(&self, name: &str, len: u32) -> Result<NormWeights, ModelError> {
        let bias = format!("{name}_bias");
        Ok(NormWeights {
            weight: self.found.vector(name, len)?,
            bias: if self.found.has(&bias) { Some(self.found.vector(&bias, len)?) } else { None },
            len: len as usize,
            eps: self.arch.norm_eps as f32,
            centred: self.arch.norm == sf_base::Norm::Layer,
        })
    }

    fn linear(&self, name: &str, rows: u32, cols: u32) -> Result<Linear, ModelError> {
        let matrix = self.found.matrix(name, rows, cols)?;
        let bias = format!("{name}_bias");
        let bias = if self.found.has(&bias) { Some(self.found.vector(&bias, rows)?) } else { None };
        Ok(Linear { matrix, bias })
    }

    fn layer(&self, layer: usize) -> Result<LayerWeights, ModelError> {
        let arch = self.arch;
        let name = |part: &str| format!("layers.{layer}.{part}");
        let heads = arch.heads + 2 * arch.kv_heads;
        let around = arch.norms == Norms::Around;
        let post = |part: &str| around.then(|| self.norm(&name(part), arch.hidden)).transpose();
        let up = match arch.gated {
            true => self.linear(&name("gate_up"), 2 * arch.ffn, arch.hidden)?,
            false => self.linear(&name("up"), arch.ffn, arch.hidden)?,
        };
        let qk_norms = match arch.qk_norm {
            true => {
                let of = |part: &str| self.norm(&name(part), arch.head_dim);
                Some((of("q_norm")?, of("k_norm")?))
            }
            false => None,
        };
        Ok(LayerWeights {
            attn_norm: self.norm(&name("attn_norm"), arch.hidden)?,
            qkv: self.linear(&name("qkv"), heads * arch.head_dim, arch.hidden)?,
            qk_norms,
            o: self.linear(&name("o"), arch.hidden, arch.heads * arch.head_dim)?,
            attn_post_norm: post("attn_post_norm")?,
            ffn_norm: self.norm(&name("ffn_norm"), arch.hidden)?,
            up,
            down: self.linear(&name("down"), arch.hidden, arch.ffn)?,
            ffn_post_norm: post("ffn_post_norm")?,
        })
    }

    fn entrance(&self) -> Result<Entrance, ModelError> {
        let arch = self.arch;
        let some = |wanted: bool, name: &str, rows: u32| {
            wanted.then(|| self.found.rows(name, rows, arch.hidden)).transpose()
        };
        Ok(Entrance {
            norm: self.norm("embed_norm", arch.hidden)?,
            positions: some(arch.positions > 0, "positions", arch.positions)?,
            token_type: some(arch.token_types > 0, "token_types", arch.token_types)?,
        })
    }
}

//! Which tensors a model is made of, found in its files and compared with what `config.json` says about their sizes.

use std::collections::BTreeSet;

use crate::config::Config;
use crate::error::ModelError;
use crate::files::{Files, Place};
use crate::quantization::{Blocks, Quantization};
use crate::safetensors::Dtype;

/// A matrix that a row vector is multiplied with, `[rows, cols]`.
#[derive(Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Its name without `.weight`.
    pub name: String,
    /// Elements of a result.
    pub rows: u32,
    /// Elements of a row vector.
    pub cols: u32,
    /// The elements, plain or packed into words.
    pub weight: Place,
    /// Scales, biases and how they are to be read, when it is quantized.
    pub blocks: Option<(Blocks, Place, Place)>,
    /// Added to each result.
    pub bias: Option<Place>,
}

/// The tensors of one layer.
#[derive(Debug, PartialEq, Eq)]
pub struct Layer {
    /// Before attention.
    pub norm: Place,
    /// Q, K and V, in one matrix or three.
    pub qkv: Vec<Matrix>,
    /// Of the queries' and the keys' heads.
    pub head_norms: Option<(Place, Place)>,
    /// Attention's output.
    pub output: Matrix,
    /// Behind attention.
    pub norm_behind: Option<Place>,
    /// Before the feed-forward.
    pub ffn_norm: Place,
    /// Gate and up, in one matrix or two.
    pub gate_up: Vec<Matrix>,
    /// Back to the hidden size.
    pub down: Matrix,
    /// Behind the feed-forward.
    pub ffn_norm_behind: Option<Place>,
}

/// All tensors of a model.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// A row per token.
    pub embedding: Matrix,
    /// In order.
    pub layers: Vec<Layer>,
    /// Before the logits.
    pub norm: Place,
    /// Hidden state to logits; `None` = the embedding.
    pub head: Option<Matrix>,
    /// Tensors of the files that belong to none of it.
    pub unused: Vec<String>,
}

impl Layout {
    /// Finds every tensor.
    ///
    /// # Errors
    /// The first one that is missing, or has a type or shape that does not fit.
    pub fn find(config: &Config, files: &Files) -> Result<Layout, ModelError> {
        let mut finder = Finder::new(&config.quantization, files);
        let embedding = finder.matrix("model.embed_tokens", config.vocab, config.hidden, false)?;
        let layers =
            (0..config.layers).map(|number| finder.layer(config, number)).collect::<Result<_, _>>()?;
        let norm = finder.vector("model.norm.weight", config.hidden)?;
        let head = match config.tied {
            true => None,
            false => Some(finder.matrix("lm_head", config.vocab, config.hidden, false)?),
        };
        let is_unused = |name: &&String| !finder.used.contains(*name) && !expected_beside(name, config);
        let unused = files.tensors.keys().filter(is_unused).cloned().collect();
        Ok(Layout { embedding, layers, norm, head, unused })
    }

    /// Every matrix.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        self.layers
            .iter()
            .flat_map(|layer| {
                layer.qkv.iter().chain([&layer.output]).chain(&layer.gate_up).chain([&layer.down])
            })
            .chain([&self.embedding])
            .chain(&self.head)
    }

    /// Elements of all matrices and norms.
    pub fn parameters(&self, config: &Config) -> u64 {
        let matrices = self.matrices().map(|matrix| u64::from(matrix.rows) * u64::from(matrix.cols));
        let norms = 2 + 2 * u64::from(config.architecture.norms_behind);
        let head_norms = 2 * u64::from(config.head_dim) * u64::from(config.architecture.head_norms);
        let per_layer = norms * u64::from(config.hidden) + head_norms;
        matrices.sum::<u64>() + u64::from(config.layers) * per_layer + u64::from(config.hidden)
    }
}

/// Tensors that some files carry although nothing is computed with them.
fn expected_beside(name: &str, config: &Config) -> bool {
    name.ends_with("rotary_emb.inv_freq") || (config.tied && name.starts_with("lm_head."))
}

/// Finds tensors by name, and notes which it has found.
pub(crate) struct Finder<'a> {
    quantization: &'a Quantization,
    files: &'a Files,
    used: BTreeSet<String>,
}

impl<'a> Finder<'a> {
    pub(crate) fn new(quantization: &'a Quantization, files: &'a Files) -> Finder<'a> {
        Finder { quantization, files, used: BTreeSet::new() }
    }

    /// Whether the files hold a tensor of this name.
    pub(crate) fn holds(&self, name: &str) -> bool {
        self.files.tensors.contains_key(name)
    }

    fn layer(&mut self, config: &Config, number: u32) -> Result<Layer, ModelError> {
        let architecture = config.architecture;
        let at = |part: &str| format!("model.layers.{number}.{part}");
        let norm =
            |finder: &mut Self, part: &str| finder.vector(&at(&format!("{part}.weight")), config.hidden);
        let (queries, pairs) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let qkv: &[(&str, u32)] = match architecture.fused {
            true => &[("qkv_proj", queries + 2 * pairs)],
            false => &[("q_proj", queries), ("k_proj", pairs), ("v_proj", pairs)],
        };
        let gate_up: &[(&str, u32)] = match architecture.fused {
            true => &[("gate_up_proj", 2 * config.ffn)],
            false => &[("gate_proj", config.ffn), ("up_proj", config.ffn)],
        };
        let head_norms = match architecture.head_norms {
            true => Some((
                self.vector(&at("self_attn.q_norm.weight"), config.head_dim)?,
                self.vector(&at("self_attn.k_norm.weight"), config.head_dim)?,
            )),
            false => None,
        };
        let (behind, before_ffn) = match architecture.norms_behind {
            true => (Some("post_attention_layernorm"), "pre_feedforward_layernorm"),
            false => (None, "post_attention_layernorm"),
        };
        let ffn_behind = behind.map(|_| "post_feedforward_layernorm");
        Ok(Layer {
            norm: norm(self, "input_layernorm")?,
            qkv: qkv
                .iter()
                .map(|(name, rows)| {
                    self.matrix(&at(&format!("self_attn.{name}")), *rows, config.hidden, config.qkv_bias)
                })
                .collect::<Result<_, _>>()?,
            head_norms,
            output: self.matrix(&at("self_attn.o_proj"), config.hidden, queries, config.output_bias)?,
            norm_behind: behind.map(|part| norm(self, part)).transpose()?,
            ffn_norm: norm(self, before_ffn)?,
            gate_up: gate_up
                .iter()
                .map(|(name, rows)| {
                    self.matrix(&at(&format!("mlp.{name}")), *rows, config.hidden, config.mlp_bias)
                })
                .collect::<Result<_, _>>()?,
            down: self.matrix(&at("mlp.down_proj"), config.hidden, config.ffn, config.mlp_bias)?,
            ffn_norm_behind: ffn_behind.map(|part| norm(self, part)).transpose()?,
        })
    }

    fn place(&mut self, name: &str) -> Result<Place, ModelError> {
        let place = self.files.tensors.get(name).ok_or_else(|| ModelError::tensor(name, "is missing"))?;
        self.used.insert(name.to_owned());
        Ok(place.clone())
    }

    pub(crate) fn vector(&mut self, name: &str, len: u32) -> Result<Place, ModelError> {
        let place = self.place(name)?;
        check_float(name, &place)?;
        check_shape(name, &place, &[len])?;
        Ok(place)
    }

    pub(crate) fn matrix(
        &mut self,
        name: &str,
        rows: u32,
        cols: u32,
        bias: bool,
    ) -> Result<Matrix, ModelError> {
        let weight_name = format!("{name}.weight");
        let weight = self.place(&weight_name)?;
        let scales_name = format!("{name}.scales");
        let blocks = match self.files.tensors.contains_key(&scales_name) {
            true => Some(self.blocks(name, rows, cols, &weight)?),
            false => {
                check_float(&weight_name, &weight)?;
                check_shape(&weight_name, &weight, &[rows, cols])?;
                None
            }
        };
        let bias = match bias {
            true => Some(self.vector(&format!("{name}.bias"), rows)?),
            false => None,
        };
        Ok(Matrix { name: name.to_owned(), rows, cols, weight, blocks, bias })
    }

    fn blocks(
        &mut self,
        name: &str,
        rows: u32,
        cols: u32,
        weight: &Place,
    ) -> Result<(Blocks, Place, Place), ModelError> {
        let weight_name = format!("{name}.weight");
        let blocks = self.quantization.of(name).ok_or_else(|| {
            ModelError::tensor(
                &format!("{name}.scales"),
                "is there, and config.json does not say how it is quantized",
            )
        })?;
        if !cols.is_multiple_of(blocks.group) {
            let why = format!("its rows of {cols} elements are no whole groups of {}", blocks.group);
            return Err(ModelError::tensor(&weight_name, why));
        }
        if weight.tensor.dtype != Dtype::U32 {
            let why = format!("is {}, quantized elements are packed into U32", weight.tensor.dtype.name());
            return Err(ModelError::tensor(&weight_name, why));
        }
        // A group has at least 32 elements, so its bits are whole words.
        check_shape(&weight_name, weight, &[rows, cols / 32 * blocks.bits])?;
        let mut of_groups = |suffix: &str| {
            let name = format!("{name}.{suffix}");
            let place = self.place(&name)?;
            check_float(&name, &place)?;
            check_shape(&name, &place, &[rows, cols / blocks.group])?;
            Ok(place)
        };
        let (scales, biases) = (of_groups("scales")?, of_groups("biases")?);
        if scales.tensor.dtype != biases.tensor.dtype {
            let why =
                format!("are {}, the scales are {}", biases.tensor.dtype.name(), scales.tensor.dtype.name());
            return Err(ModelError::tensor(&format!("{name}.biases"), why));
        }
        Ok((blocks, scales, biases))
    }
}

fn check_float(name: &str, place: &Place) -> Result<(), ModelError> {
    match place.tensor.dtype.is_float() {
        true => Ok(()),
        false => {
            Err(ModelError::tensor(name, format!("is {}, not F32, F16 or BF16", place.tensor.dtype.name())))
        }
    }
}

fn check_shape(name: &str, place: &Place, want: &[u32]) -> Result<(), ModelError> {
    if place.tensor.shape == want {
        return Ok(());
    }
    Err(ModelError::tensor(
        name,
        format!("has shape {:?}, config.json asks for {want:?}", place.tensor.shape),
    ))
}

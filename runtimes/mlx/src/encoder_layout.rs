//! Which tensors an encoder is made of, found in its files and compared with what `config.json` says about their sizes.

use crate::encoder::EncoderConfig;
use crate::error::ModelError;
use crate::files::{Files, Place};
use crate::layout::{Finder, Matrix};

/// Weight and bias of a norm.
#[derive(Debug, PartialEq, Eq)]
pub struct Norm {
    /// Multiplied with.
    pub weight: Place,
    /// Added.
    pub bias: Place,
}

/// The tensors of one layer.
#[derive(Debug, PartialEq, Eq)]
pub struct EncoderLayer {
    /// Q, K and V.
    pub qkv: Vec<Matrix>,
    /// Attention's output.
    pub output: Matrix,
    /// Behind attention.
    pub norm: Norm,
    /// To the inner size.
    pub up: Matrix,
    /// Back to the hidden size.
    pub down: Matrix,
    /// Behind the feed-forward.
    pub ffn_norm: Norm,
}

/// All tensors of an encoder.
#[derive(Debug, PartialEq, Eq)]
pub struct EncoderLayout {
    /// A row per token.
    pub words: Matrix,
    /// A row per position.
    pub positions: Matrix,
    /// A row per kind of segment.
    pub types: Matrix,
    /// Behind their sum.
    pub norm: Norm,
    /// In order.
    pub layers: Vec<EncoderLayer>,
}

impl EncoderLayout {
    /// Finds every tensor, with or without the family's prefix. What else the files hold (a pooler, a head) is not computed.
    ///
    /// # Errors
    /// The first one that is missing, or has a type or shape that does not fit.
    pub fn find(config: &EncoderConfig, files: &Files) -> Result<EncoderLayout, ModelError> {
        let words = "embeddings.word_embeddings";
        let prefixed = files.tensors.contains_key(&format!("{}{words}.weight", config.family.prefix));
        let prefix = if prefixed { config.family.prefix } else { "" };
        let mut finder = Finder::new(&config.quantization, files);
        let hidden = config.hidden;
        let mut table = |part: &str, rows: u32| {
            finder.matrix(&format!("{prefix}embeddings.{part}_embeddings"), rows, hidden, false)
        };
        let (words, positions, types) = (
            table("word", config.vocab)?,
            table("position", config.positions)?,
            table("token_type", config.types)?,
        );
        let norm = norm(&mut finder, &format!("{prefix}embeddings.LayerNorm"), hidden)?;
        let layers = (0..config.layers)
            .map(|number| layer(&mut finder, config, &format!("{prefix}encoder.layer.{number}")))
            .collect::<Result<_, _>>()?;
        Ok(EncoderLayout { words, positions, types, norm, layers })
    }

    /// Every matrix.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        self.layers
            .iter()
            .flat_map(|layer| layer.qkv.iter().chain([&layer.output, &layer.up, &layer.down]))
            .chain([&self.words, &self.positions, &self.types])
    }

    /// Elements of all matrices, biases and norms.
    pub fn parameters(&self, config: &EncoderConfig) -> u64 {
        let matrices = self.matrices().map(|matrix| {
            let elements = u64::from(matrix.rows) * u64::from(matrix.cols);
            elements + if matrix.bias.is_some() { u64::from(matrix.rows) } else { 0 }
        });
        let norms = (1 + 2 * u64::from(config.layers)) * 2 * u64::from(config.hidden);
        matrices.sum::<u64>() + norms
    }
}

fn layer(finder: &mut Finder<'_>, config: &EncoderConfig, at: &str) -> Result<EncoderLayer, ModelError> {
    let (hidden, ffn) = (config.hidden, config.ffn);
    let mut matrix =
        |part: &str, rows: u32, cols: u32| finder.matrix(&format!("{at}.{part}"), rows, cols, true);
    let qkv = ["query", "key", "value"]
        .into_iter()
        .map(|part| matrix(&format!("attention.self.{part}"), hidden, hidden))
        .collect::<Result<_, _>>()?;
    let output = matrix("attention.output.dense", hidden, hidden)?;
    let (up, down) = (matrix("intermediate.dense", ffn, hidden)?, matrix("output.dense", hidden, ffn)?);
    Ok(EncoderLayer {
        qkv,
        output,
        norm: norm(finder, &format!("{at}.attention.output.LayerNorm"), hidden)?,
        up,
        down,
        ffn_norm: norm(finder, &format!("{at}.output.LayerNorm"), hidden)?,
    })
}

/// The oldest files call weight and bias gamma and beta.
fn norm(finder: &mut Finder<'_>, name: &str, len: u32) -> Result<Norm, ModelError> {
    let (weight, bias) = match finder.holds(&format!("{name}.gamma")) {
        true => ("gamma", "beta"),
        false => ("weight", "bias"),
    };
    Ok(Norm {
        weight: finder.vector(&format!("{name}.{weight}"), len)?,
        bias: finder.vector(&format!("{name}.{bias}"), len)?,
    })
}

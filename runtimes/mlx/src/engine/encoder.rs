//! An open encoder: texts through all layers as one ragged batch, then one vector for each.

use sf_abi_sdk::{
    Code, EmbedPlan, Fault, Lane, Model, ModelDescription, OpenRequest, Plan, Pooled, Shape, Stats,
    StepWriter,
};

use super::array::{Array, Weights, attend_texts, linear};
use super::sys;
use super::thread::Confined;
use super::weights::Reader;
use crate::encoder::{EncoderConfig, Pooling};
use crate::encoder_layout::{EncoderLayer, Norm};
use crate::params::Params;
use crate::{CheckedEncoder, describe, estimate};

/// A norm's weight and bias.
#[derive(Debug)]
struct NormWeights(Array, Array);

/// One layer's weights; see `encoder_layout::EncoderLayer`.
#[derive(Debug)]
struct Block {
    qkv: Vec<Weights>,
    output: [Weights; 1],
    norm: NormWeights,
    up: [Weights; 1],
    down: [Weights; 1],
    ffn_norm: NormWeights,
}

/// An encoder's weights.
#[derive(Debug)]
struct Encoder {
    config: EncoderConfig,
    threads: u32,
    words: Weights,
    positions: Weights,
    types: Weights,
    norm: NormWeights,
    blocks: Vec<Block>,
}

/// What is asked of a call.
struct Asked<'a> {
    tokens: &'a [u32],
    lengths: &'a [u32],
    pooled: Pooled,
}

impl Encoder {
    /// Computes the vectors; looks between two layers whether the host gave up.
    fn run(&self, asked: &Asked<'_>, out: &mut [f32], aborted: impl Fn() -> bool) -> Result<(), Fault> {
        let (config, eps) = (&self.config, self.config.norm_eps);
        let mut hidden = self.embedded(asked)?.layer_norm(&self.norm.0, &self.norm.1, eps)?;
        let scale = 1.0 / (config.hidden as f32 / config.heads as f32).sqrt();
        for block in &self.blocks {
            if aborted() {
                return Err(Fault::new(Code::Cancelled, "the call was aborted"));
            }
            let qkv = linear(&hidden, &block.qkv, self.threads)?;
            let mixed = attend_texts(&qkv, asked.lengths, config.heads, scale, self.threads)?;
            let output = linear(&mixed, &block.output, self.threads)?;
            let between = hidden.add(&output)?.layer_norm(&block.norm.0, &block.norm.1, eps)?;
            let inner =
                linear(&between, &block.up, self.threads)?.activate(config.activation, self.threads)?;
            let down = linear(&inner, &block.down, self.threads)?;
            hidden = between.add(&down)?.layer_norm(&block.ffn_norm.0, &block.ffn_norm.1, eps)?;
            hidden.eval()?;
        }
        pool(hidden.values()?, asked, out);
        Ok(())
    }

    /// Words, positions and the first kind of segment, added.
    fn embedded(&self, asked: &Asked<'_>) -> Result<Array, Fault> {
        let first = self.config.first_position;
        let positions: Vec<u32> = asked.lengths.iter().flat_map(|length| first..first + length).collect();
        let words = self.words.embed(asked.tokens, 1.0)?;
        let sum = words.add(&self.positions.embed(&positions, 1.0)?)?;
        sum.add(&self.types.embed(&vec![0; asked.tokens.len()], 1.0)?)
    }
}

/// One vector per text out of the rows of its tokens.
fn pool(rows: &[f32], asked: &Asked<'_>, out: &mut [f32]) {
    let dims = out.len() / asked.lengths.len();
    let mut row = 0;
    for (&length, to) in asked.lengths.iter().zip(out.chunks_exact_mut(dims)) {
        let end = row + length as usize * dims;
        asked.pooled.vector(&rows[row..end], dims, to);
        row = end;
    }
}

/// An encoder behind the SDK's trait.
#[derive(Debug)]
pub struct EncoderModel {
    encoder: Confined<Encoder>,
    config: EncoderConfig,
    params: Params,
    weight_bytes: u64,
    description: ModelDescription,
}

impl EncoderModel {
    pub(super) fn open(
        checked: CheckedEncoder,
        params: Params,
        request: &OpenRequest<'_>,
    ) -> Result<EncoderModel, Fault> {
        let description = describe::described_encoder(&checked, &params);
        Ok(EncoderModel {
            encoder: load(&checked, &params, request)?,
            weight_bytes: checked.files.bytes(),
            config: checked.config,
            params,
            description,
        })
    }
}

/// Loads everything; the host is told after each layer, and may abort there.
fn load(
    checked: &CheckedEncoder,
    params: &Params,
    request: &OpenRequest<'_>,
) -> Result<Confined<Encoder>, Fault> {
    let reader = &Reader::new(&checked.files.shards, false);
    let (layout, cache) = (&checked.layout, (params.cache_mb as usize) << 20);
    let gpu = params.device.is_gpu();
    let mut encoder = Confined::make(move || {
        sys::start(cache, gpu)?;
        Ok(Encoder {
            config: checked.config.clone(),
            threads: params.threads,
            words: reader.matrix(&layout.words)?,
            positions: reader.matrix(&layout.positions)?,
            types: reader.matrix(&layout.types)?,
            norm: norm(reader, &layout.norm)?,
            blocks: Vec::new(),
        })
    })?;
    for (number, layer) in layout.layers.iter().enumerate() {
        if request.control().aborted() {
            return Err(Fault::new(Code::Cancelled, "the load was aborted"));
        }
        encoder.with(|encoder| {
            encoder.blocks.push(block(reader, layer)?);
            Ok(())
        })?;
        request.progress((number + 1) as f32 / layout.layers.len() as f32);
    }
    Ok(encoder)
}

fn block(reader: &Reader<'_>, layer: &EncoderLayer) -> Result<Block, Fault> {
    Ok(Block {
        qkv: layer.qkv.iter().map(|matrix| reader.matrix(matrix)).collect::<Result<_, _>>()?,
        output: [reader.matrix(&layer.output)?],
        norm: norm(reader, &layer.norm)?,
        up: [reader.matrix(&layer.up)?],
        down: [reader.matrix(&layer.down)?],
        ffn_norm: norm(reader, &layer.ffn_norm)?,
    })
}

fn norm(reader: &Reader<'_>, norm: &Norm) -> Result<NormWeights, Fault> {
    Ok(NormWeights(reader.norm(&norm.weight)?, reader.norm(&norm.bias)?))
}

impl Model for EncoderModel {
    fn shape(&self) -> Shape {
        let lane_tokens_max = self.params.ctx_max(self.config.tokens_max);
        Shape { vocab: self.config.vocab, lanes_max: self.params.lanes_max, lane_tokens_max }
    }

    fn describe(&self) -> ModelDescription {
        self.description.clone()
    }

    fn stats(&self) -> Stats {
        Stats {
            bytes_weights: self.weight_bytes,
            bytes_compute: estimate::encoder_bytes(&self.config, self.config.tokens_max),
            ..Stats::default()
        }
    }

    fn has_lanes(&self) -> bool {
        false
    }

    fn lane_truncate(&mut self, _: Lane, _: u32, _: u32) -> Result<u32, Fault> {
        Err(Fault::new(Code::Unsupported, describe::NO_TEXT))
    }

    fn step(&mut self, _: &Plan<'_>, _: &mut StepWriter<'_>) -> Result<(), Fault> {
        Err(Fault::new(Code::Unsupported, describe::NO_TEXT))
    }

    fn embed(&mut self, plan: &EmbedPlan<'_>, out: &mut [f32]) -> Result<(), Fault> {
        let own = match self.config.pooling {
            Pooling::Mean => sf_abi_sdk::Pooling::Mean,
            Pooling::First => sf_abi_sdk::Pooling::First,
            Pooling::Last => sf_abi_sdk::Pooling::Last,
        };
        let pooled = plan.pooled(own, self.config.normalized);
        let asked = Asked { tokens: plan.tokens(), lengths: plan.lengths(), pooled };
        let control = plan.control();
        self.encoder.with(|encoder| encoder.run(&asked, out, || control.aborted()))
    }
}

//! One forward pass of a ragged batch as MLX's graph: the same parts for every architecture, in the order of its row.

use std::ptr::null;

use sf_abi_sdk::{Code, Fault, StepWriter};

use super::PAGE_ROWS;
use super::array::{Array, Weights, attend, keep, linear};
use super::sys::{RawAttention, RawRun};
use crate::config::Config;

/// A step of fewer tokens is one graph; a longer one is evaluated layer by layer, so that it can be aborted in between.
const WHOLE_TOKENS_MAX: usize = 32;

/// One layer's weights; see `layout::Layer`.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) norm: Array,
    pub(super) qkv: Vec<Weights>,
    pub(super) head_norms: Option<(Array, Array)>,
    pub(super) output: [Weights; 1],
    pub(super) norm_behind: Option<Array>,
    pub(super) ffn_norm: Array,
    pub(super) gate_up: Vec<Weights>,
    pub(super) down: [Weights; 1],
    pub(super) ffn_norm_behind: Option<Array>,
}

/// A model's weights and the rows of its last step.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) config: Config,
    pub(super) threads: u32,
    pub(super) embedding: Weights,
    pub(super) blocks: Vec<Block>,
    pub(super) norm: Array,
    pub(super) head: Option<Weights>,
    pub(super) rows: Option<Array>,
}

/// A run of one lane.
#[derive(Debug)]
pub(super) struct StepRun {
    /// Of its first token in the step.
    pub(super) row: u32,
    pub(super) rows: u32,
    /// Position of its first token.
    pub(super) first: u32,
    /// Of the lane, with room for the run.
    pub(super) pages: Vec<*mut f32>,
}

/// What a step computes.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) tokens: Vec<u32>,
    pub(super) runs: Vec<StepRun>,
    /// Rows that want logits.
    pub(super) rows: Vec<u32>,
}

/// Where the logits are: they stay until the network's next step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    at: *const f32,
}

/// Sines and cosines of a step's positions, for layers without and with a window.
struct Turns {
    whole: Array,
    window: Option<Array>,
}

/// New keys and values that are not in their pages yet; the attentions' runs are those of the step.
struct Fresh(Vec<(RawAttention, Array)>);

impl Fresh {
    fn keep(&mut self) -> Result<(), Fault> {
        self.0.drain(..).try_for_each(|(attention, kv)| keep(&attention, &kv))
    }
}

impl Network {
    /// Runs a step and evaluates it. Pages behind a lane's length may be written to when it fails.
    pub(super) fn run(&mut self, step: &Step, aborted: impl Fn() -> bool) -> Result<Option<Rows>, Fault> {
        // The rows of the last step have served.
        self.rows = None;
        let turns = self.turns(step)?;
        let raw: Vec<RawRun> = step.runs.iter().map(StepRun::raw).collect();
        let factor = match self.config.architecture.embedding_scaled {
            true => (self.config.hidden as f32).sqrt(),
            false => 1.0,
        };
        let mut hidden = self.embedding.embed(&step.tokens, factor)?;
        let piecewise = step.tokens.len() > WHOLE_TOKENS_MAX;
        let mut fresh = Fresh(Vec::new());
        for number in 0..self.blocks.len() {
            if piecewise && aborted() {
                return Err(Fault::new(Code::Cancelled, "the step was aborted"));
            }
            let last = number + 1 == self.blocks.len();
            let attention = self.attention(number, &hidden, &turns, &raw, &mut fresh)?;
            let (attention, before) = match last {
                // Nobody asks for the rest: its keys and values are all that stays.
                true if step.rows.is_empty() => {
                    attention.eval()?;
                    fresh.keep()?;
                    return Ok(None);
                }
                true => (attention.select(&step.rows)?, hidden.select(&step.rows)?),
                false => (attention, hidden),
            };
            hidden = self.behind_attention(number, &attention, &before)?;
            if piecewise {
                hidden.eval()?;
                fresh.keep()?;
            }
        }
        let normed = hidden.norm(&self.norm, self.config.norm_eps)?;
        let head = std::slice::from_ref(self.head.as_ref().unwrap_or(&self.embedding));
        let mut logits = linear(&normed, head, self.threads)?;
        if let Some(cap) = self.config.logit_softcap {
            logits = logits.squash(cap)?;
        }
        logits.eval()?;
        fresh.keep()?;
        let (at, _) = logits.elements()?;
        self.rows = Some(logits);
        Ok(Some(Rows { at }))
    }

    fn turns(&self, step: &Step) -> Result<Turns, Fault> {
        let table = |rope: &crate::rope::Rope| {
            let mut table = Vec::with_capacity(step.tokens.len() * rope.turned() as usize);
            for run in &step.runs {
                (run.first..run.first + run.rows).for_each(|position| rope.push(position, &mut table));
            }
            Array::floats(&[step.tokens.len() as u32, rope.turned()], &table)
        };
        let config = &self.config;
        let window = (config.rope_window != config.rope).then(|| table(&config.rope_window)).transpose()?;
        Ok(Turns { whole: table(&config.rope)?, window })
    }

    fn attention(
        &self,
        number: usize,
        hidden: &Array,
        turns: &Turns,
        runs: &[RawRun],
        fresh: &mut Fresh,
    ) -> Result<Array, Fault> {
        let (block, config) = (&self.blocks[number], &self.config);
        let qkv = linear(&hidden.norm(&block.norm, config.norm_eps)?, &block.qkv, self.threads)?;
        let window = config.windows[number];
        let turns = window.and(turns.window.as_ref()).unwrap_or(&turns.whole);
        let (q_norm, k_norm) =
            block.head_norms.as_ref().map_or((null(), null()), |(q, k)| (q.raw(), k.raw()));
        let raw = RawAttention {
            qkv: qkv.raw(),
            turns: turns.raw(),
            q_norm,
            k_norm,
            runs: runs.as_ptr(),
            layer_at: number as i64 * i64::from(PAGE_ROWS) * i64::from(config.kv_width()),
            run_count: i32::try_from(runs.len()).expect("fewer than 2^31 lanes"),
            heads: config.heads.cast_signed(),
            kv_heads: config.kv_heads.cast_signed(),
            head_dim: config.head_dim.cast_signed(),
            page_rows: PAGE_ROWS.cast_signed(),
            window: window.map_or(0, |window| i32::try_from(window).unwrap_or(0)),
            scale: config.score_scale,
            softcap: config.score_softcap.unwrap_or(0.0),
            norm_eps: config.norm_eps,
            threads: self.threads.cast_signed(),
        };
        let (attended, kv) = attend(&raw)?;
        fresh.0.extend(kv.map(|kv| (raw, kv)));
        Ok(attended)
    }

    /// Attention's output and the feed-forward, each added to what came before.
    fn behind_attention(&self, number: usize, attention: &Array, before: &Array) -> Result<Array, Fault> {
        let (block, eps) = (&self.blocks[number], self.config.norm_eps);
        let norm_if = |value: Array, norm: &Option<Array>| match norm {
            Some(norm) => value.norm(norm, eps),
            None => Ok(value),
        };
        let output = norm_if(linear(attention, &block.output, self.threads)?, &block.norm_behind)?;
        let hidden = before.add(&output)?;
        let gate_up = linear(&hidden.norm(&block.ffn_norm, eps)?, &block.gate_up, self.threads)?;
        let gated = gate_up.gate(self.config.activation, self.threads)?;
        let down = norm_if(linear(&gated, &block.down, self.threads)?, &block.ffn_norm_behind)?;
        hidden.add(&down)
    }
}

impl StepRun {
    fn raw(&self) -> RawRun {
        RawRun {
            row: self.row.cast_signed(),
            rows: self.rows.cast_signed(),
            first: self.first.cast_signed(),
            page_count: i32::try_from(self.pages.len()).expect("a lane has fewer than 2^31 pages"),
            pages: self.pages.as_ptr(),
        }
    }
}

mod handed {
    //! Rows and pages that are handed between MLX's thread and the caller's.
    #![expect(unsafe_code, reason = "pointers change threads")]

    use super::{Rows, Step, StepWriter};

    // SAFETY: the pages belong to lanes of the model whose step this is; the caller waits while it runs.
    unsafe impl Sync for Step {}
    // SAFETY: points to memory that stays as it is until the network's next step.
    unsafe impl Send for Rows {}

    impl Rows {
        /// Tells the host where the rows are.
        pub(crate) fn hand_over(self, out: &mut StepWriter<'_>, vocab: usize) {
            // SAFETY: one row for each that was wanted, in order; the array is kept by the network until its next step or
            // its end, and evaluated arrays do not change.
            unsafe { out.rows_at(self.at, vocab * size_of::<f32>()) };
        }
    }
}

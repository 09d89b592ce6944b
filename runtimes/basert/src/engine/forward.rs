//! A step through all layers: what is computed from what, in which order, and shared out how.
#![expect(unsafe_code, reason = "hands addresses of buffers and weights to kernels")]

use sf_base::{Activation, Norms};

use super::network::{LayerWeights, Linear, Network, NormWeights};
use super::weights::Matrix;
use crate::kernels::act::ActView;
use crate::kernels::heads::{Heads, Piece, Run};
use crate::kernels::matmul::{Input, Matmul, Then};
use crate::kernels::ops::Sink;
use crate::kernels::{Kernels, Rows};
use crate::pool::Pool;

/// Rows below which work on rows is not worth sharing out.
const ROWS_ALONE: usize = 4;

/// Tokens of a step, with the rows that are wanted of it.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) tokens: Vec<u32>,
    pub(crate) runs: Vec<Run>,
    /// Rows whose logits are wanted, rising.
    pub(crate) rows: Vec<usize>,
}

/// Someone asked for an end in the middle of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aborted;

/// Columns with padding.
pub(super) fn padded(columns: u32) -> usize {
    (columns as usize).next_multiple_of(32)
}

/// The buffers of a step, as addresses.
#[derive(Clone, Copy)]
struct Place {
    tokens: usize,
    hidden: usize,
    x: *mut f32,
    input: *mut f32,
    acts: ActView,
    qkv: *mut f32,
    qkv_stride: usize,
    attended: *mut f32,
    attended_stride: usize,
    part: *mut f32,
    inner: *mut f32,
    inner_stride: usize,
    inner_acts: ActView,
}

// SAFETY: addresses of buffers that the network holds; kernels share out what they write.
unsafe impl Sync for Place {}

/// What runs kernels: their table and the threads.
struct Crew<'a> {
    kernels: &'static Kernels,
    pool: &'a mut Pool,
}

impl Crew<'_> {
    fn matmul(&mut self, linear: &Linear, input: Input, then: Then) {
        for part in &linear.matrix.parts {
            let task = Matmul { part: *part, input, bias: linear.bias(), then };
            let kernels = self.kernels;
            self.pool.run(task.units(), 1, &|units| {
                // SAFETY: the network's buffers have room for the step, and units write rows of their own.
                unsafe { kernels.matmul(&task, units) };
            });
        }
    }

    fn rows(&mut self, rows: usize, job: &(dyn Fn(core::ops::Range<usize>) + Sync)) {
        if rows < ROWS_ALONE { job(0..rows) } else { self.pool.run(rows, 1, job) }
    }

    fn norm(&mut self, norm: &NormWeights, from: Floats, tokens: usize, sink: Sink) {
        let (kernels, norm) = (self.kernels, norm.kernel());
        self.rows(tokens, &move |rows| {
            // SAFETY: rows of the network's buffers, padded; each row is written by one thread.
            unsafe { kernels.norm(&norm, from.rows(rows), &sink) };
        });
    }

    fn norm_add(&mut self, norm: &NormWeights, from: Floats, tokens: usize, to: *mut f32) {
        let (kernels, norm) = (self.kernels, norm.kernel());
        let to = Floats { at: to, stride: from.stride };
        self.rows(tokens, &move |rows| {
            // SAFETY: as above.
            unsafe { kernels.norm_add(&norm, from.rows(rows), to.row(0)) };
        });
    }

    fn put(&mut self, from: Floats, tokens: usize, blocks: usize, sink: Sink) {
        let kernels = self.kernels;
        self.rows(tokens, &move |rows| {
            // SAFETY: as above.
            unsafe { kernels.put(from.rows(rows), blocks, &sink) };
        });
    }

    fn attend(&mut self, heads: &Heads<'_>) {
        let kernels = self.kernels;
        let alone = heads.runs.iter().all(|run| run.tokens == 1);
        if !alone {
            self.pool.run(heads.pieces.len(), 1, &|pieces| {
                // SAFETY: pages were reserved for these positions; pieces have rows and positions of their own.
                unsafe { kernels.place(heads, pieces) };
            });
        }
        self.pool.run(heads.units(), 1, &|units| {
            // SAFETY: as above; with single tokens, what a unit looks at beside its own was stored in earlier steps.
            unsafe { kernels.attend(heads, units, alone) };
        });
    }
}

/// `[rows, stride]` floats.
#[derive(Clone, Copy)]
struct Floats {
    at: *mut f32,
    stride: usize,
}

impl Floats {
    /// Where a row begins. Kernels' closures hold the whole of this, not the bare address in it.
    fn row(self, row: usize) -> *mut f32 {
        self.at.wrapping_add(row * self.stride)
    }

    fn rows(self, rows: core::ops::Range<usize>) -> Rows {
        Rows { at: self.at, stride: self.stride, rows }
    }
}

// SAFETY: an address; rows are shared out.
unsafe impl Send for Floats {}
// SAFETY: as above.
unsafe impl Sync for Floats {}

impl Place {
    /// An input of a matrix, in the forms that its parts take.
    fn sink(&self, matrix: &Matrix) -> Sink {
        Sink {
            acts: matrix.takes_codes().then_some(self.acts),
            floats: if matrix.takes_floats() { self.input } else { core::ptr::null_mut() },
            stride: self.hidden,
        }
    }

    fn input(&self, stride: usize) -> Input {
        Input { acts: self.acts, floats: self.input, stride, tokens: self.tokens }
    }

    fn x(&self) -> Floats {
        Floats { at: self.x, stride: self.hidden }
    }

    fn part(&self) -> Floats {
        Floats { at: self.part, stride: self.hidden }
    }
}

impl Network {
    /// Buffers for a step of `tokens`.
    fn place(&mut self, tokens: usize) -> Place {
        let arch = &self.arch;
        let hidden = padded(arch.hidden);
        let qkv_stride = padded((arch.heads + 2 * arch.kv_heads) * arch.head_dim);
        let attended_stride = padded(arch.heads * arch.head_dim);
        let inner_stride = padded(arch.ffn);
        let scratch = &mut self.scratch;
        scratch.acts.shape(tokens, hidden.max(attended_stride) / 32);
        scratch.inner_acts.shape(tokens, inner_stride / 32);
        Place {
            tokens,
            hidden,
            x: scratch.x.room(tokens * hidden),
            input: scratch.input.room(tokens * hidden.max(attended_stride)),
            acts: scratch.acts.view(),
            qkv: scratch.qkv.room(tokens * qkv_stride),
            qkv_stride,
            attended: scratch.attended.room(tokens * attended_stride),
            attended_stride,
            part: scratch.part.room(tokens * hidden),
            inner: scratch.inner.room(tokens * inner_stride),
            inner_stride,
            inner_acts: scratch.inner_acts.view(),
        }
    }

    /// Hidden states behind all layers, at `[tokens, stride]`.
    pub(super) fn hidden(
        &mut self,
        step: &Step,
        aborted: &dyn Fn() -> bool,
    ) -> Result<(*mut f32, usize), Aborted> {
        let mut place = self.place(step.tokens.len());
        self.embed(step, &place);
        let reach = step.runs.iter().map(|run| run.position + run.tokens).max().unwrap_or(0);
        self.angles.iter_mut().for_each(|angles| angles.reach(reach));
        let pieces = pieces(&step.runs, self.arch.heads as usize, self.arch.kv_heads as usize);
        for layer in 0..self.layers.len() {
            if aborted() {
                return Err(Aborted);
            }
            self.layer(layer, &mut place, step, &pieces);
        }
        Ok((place.x, place.hidden))
    }

    fn embed(&mut self, step: &Step, place: &Place) {
        let (embed, scale, width) =
            (&self.embed, self.arch.embedding_scale as f32, self.arch.hidden as usize);
        let x = place.x();
        let mut crew = Crew { kernels: self.kernels, pool: &mut self.pool };
        crew.rows(step.tokens.len(), &|rows| {
            for row in rows {
                // SAFETY: the step's row of the network's buffer, which one thread has.
                let to = unsafe { core::slice::from_raw_parts_mut(x.row(row), place.hidden) };
                to[width..].fill(0.0);
                embed.row(step.tokens[row] as usize, &mut to[..width]);
                if scale != 1.0 {
                    to[..width].iter_mut().for_each(|value| *value *= scale);
                }
            }
        });
        let Some(entrance) = &self.entrance else { return };
        for run in &step.runs {
            for token in 0..run.tokens {
                let row = run.row + token;
                // SAFETY: as above; nobody else runs.
                let to = unsafe { core::slice::from_raw_parts_mut(x.row(row), place.hidden) };
                let mut add =
                    |from: &[f32]| to.iter_mut().zip(from).for_each(|(value, other)| *value += other);
                if let Some(positions) = &entrance.positions {
                    let position = run.position + token + self.arch.first_position as usize;
                    add(&positions[position * place.hidden..][..place.hidden]);
                }
                if let Some(kind) = &entrance.token_type {
                    add(&kind[..place.hidden]);
                }
            }
        }
        let sink = Sink { acts: None, floats: place.x, stride: place.hidden };
        crew.norm(&entrance.norm, x, step.tokens.len(), sink);
    }

    fn layer(&mut self, number: usize, place: &mut Place, step: &Step, pieces: &[Piece]) {
        let layer = &self.layers[number];
        let mut crew = Crew { kernels: self.kernels, pool: &mut self.pool };
        let tokens = place.tokens;
        let behind = self.arch.norms == Norms::Behind;
        place.acts.blocks = place.hidden / 32;
        let sink = place.sink(&layer.qkv.matrix);
        match behind {
            true => crew.put(place.x(), tokens, place.hidden / 32, sink),
            false => crew.norm(&layer.attn_norm, place.x(), tokens, sink),
        }
        let then = Then::Store { to: place.qkv, stride: place.qkv_stride };
        crew.matmul(&layer.qkv, place.input(place.hidden), then);
        let sight = &self.arch.layers[number];
        let angles = sight.rope.and_then(|rope| self.angles.get(rope as usize));
        let (cos, sin) = angles.map_or((core::ptr::null(), core::ptr::null()), |angles| angles.tables());
        crew.attend(&Heads {
            runs: &step.runs,
            pieces,
            qkv: place.qkv,
            stride: place.qkv_stride,
            out: place.attended,
            out_stride: place.attended_stride,
            heads: self.arch.heads as usize,
            kv_heads: self.arch.kv_heads as usize,
            head_dim: self.arch.head_dim as usize,
            layer: number,
            norms: layer.qk_norms.as_ref().map(|(q, k)| (q.kernel(), k.kernel())),
            cos,
            sin,
            half: angles.map_or(0, |angles| angles.half()),
            scale: self.arch.attention_scale as f32,
            softcap: self.arch.attention_softcap.unwrap_or(0.0) as f32,
            window: sight.window.unwrap_or(0) as usize,
            both_ways: self.arch.kind == sf_base::Kind::Encoder,
        });
        place.acts.blocks = place.attended_stride / 32;
        let sink = Sink { stride: place.attended_stride, ..place.sink(&layer.o.matrix) };
        let attended = Floats { at: place.attended, stride: place.attended_stride };
        crew.put(attended, tokens, place.attended_stride / 32, sink);
        let input = place.input(place.attended_stride);
        close(
            &mut crew,
            place,
            &layer.o,
            input,
            layer.attn_post_norm.as_ref(),
            behind.then_some(&layer.attn_norm),
        );
        feed_forward(&mut crew, place, layer, self.arch.activation, self.arch.gated, behind);
    }

    /// Logits of the wanted rows, at `[rows, stride]`.
    pub(crate) fn logits(
        &mut self,
        step: &Step,
        aborted: &dyn Fn() -> bool,
    ) -> Result<(*const f32, usize), Aborted> {
        let (x, hidden) = self.hidden(step, aborted)?;
        let rows = step.rows.len();
        let head = self.head.as_ref().map_or(&self.embed, |head| &head.matrix);
        let stride = head.padded();
        let Some(norm) = &self.final_norm else { return Ok((core::ptr::null(), 0)) };
        let scratch = &mut self.scratch;
        scratch.acts.shape(rows, hidden / 32);
        let acts = scratch.acts.view();
        let input = scratch.input.room(rows * hidden);
        scratch.trim_logits(rows.max(16) * stride);
        let logits = scratch.logits.room(rows * stride);
        let sink = Sink {
            acts: head.takes_codes().then_some(acts),
            floats: if head.takes_floats() { input } else { core::ptr::null_mut() },
            stride: hidden,
        };
        let kernel = norm.kernel();
        // Wanted rows move to the front; a row never moves over one that is still to come.
        for (to, from) in step.rows.iter().enumerate() {
            // SAFETY: rows of the step; `to <= from`, and rows do not overlap.
            unsafe { core::ptr::copy(x.wrapping_add(from * hidden), x.wrapping_add(to * hidden), hidden) };
        }
        let mut crew = Crew { kernels: self.kernels, pool: &mut self.pool };
        let kernels = self.kernels;
        let from = Floats { at: x, stride: hidden };
        crew.rows(rows, &|rows| {
            // SAFETY: as in `Crew::norm`.
            unsafe { kernels.norm(&kernel, from.rows(rows), &sink) };
        });
        let input = Input { acts, floats: input, stride: hidden, tokens: rows };
        let then = Then::Store { to: logits, stride };
        for part in &head.parts {
            let bias = self.head.as_ref().map_or(core::ptr::null(), Linear::bias);
            let task = Matmul { part: *part, input, bias, then };
            crew.pool.run(task.units(), 1, &|units| {
                // SAFETY: as in `Crew::matmul`.
                unsafe { kernels.matmul(&task, units) };
            });
        }
        if let Some(cap) = self.arch.logit_softcap {
            let logits = Floats { at: logits, stride };
            crew.rows(rows, &|rows| {
                for row in rows {
                    // SAFETY: a row of the buffer, whose stride is a multiple of sixteen.
                    unsafe { kernels.softcap(logits.row(row), stride, cap as f32) };
                }
            });
        }
        Ok((logits, stride))
    }
}

/// The matrix that ends a part of a layer: its products are added to the hidden state, normed before or after if asked.
fn close(
    crew: &mut Crew<'_>,
    place: &Place,
    linear: &Linear,
    input: Input,
    before: Option<&NormWeights>,
    after: Option<&NormWeights>,
) {
    match before {
        None => crew.matmul(linear, input, Then::Add { to: place.x, stride: place.hidden }),
        Some(norm) => {
            crew.matmul(linear, input, Then::Store { to: place.part, stride: place.hidden });
            crew.norm_add(norm, place.part(), place.tokens, place.x);
        }
    }
    if let Some(norm) = after {
        let sink = Sink { acts: None, floats: place.x, stride: place.hidden };
        crew.norm(norm, place.x(), place.tokens, sink);
    }
}

fn feed_forward(
    crew: &mut Crew<'_>,
    place: &mut Place,
    layer: &LayerWeights,
    activation: Activation,
    gated: bool,
    behind: bool,
) {
    place.acts.blocks = place.hidden / 32;
    let sink = place.sink(&layer.up.matrix);
    match behind {
        true => crew.put(place.x(), place.tokens, place.hidden / 32, sink),
        false => crew.norm(&layer.ffn_norm, place.x(), place.tokens, sink),
    }
    let down = &layer.down.matrix;
    let inner = Sink {
        acts: down.takes_codes().then_some(place.inner_acts),
        floats: if down.takes_floats() { place.inner } else { core::ptr::null_mut() },
        stride: place.inner_stride,
    };
    let then = match gated {
        true => Then::Gated { activation, sink: inner },
        false => Then::Activated { activation, sink: inner },
    };
    crew.matmul(&layer.up, place.input(place.hidden), then);
    let input = Input {
        acts: place.inner_acts,
        floats: place.inner,
        stride: place.inner_stride,
        tokens: place.tokens,
    };
    let after = behind.then_some(&layer.ffn_norm);
    close(crew, place, &layer.down, input, layer.ffn_post_norm.as_ref(), after);
}

/// Cuts runs into pieces whose queries fit one unit of work.
fn pieces(runs: &[Run], heads: usize, kv_heads: usize) -> Vec<Piece> {
    let most = Heads::tokens_of_piece(heads, kv_heads);
    let mut pieces = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        for first in (0..run.tokens).step_by(most) {
            pieces.push(Piece { run: number, first, tokens: most.min(run.tokens - first) });
        }
    }
    pieces
}

//! An encoder behind the SDK's trait: texts through all layers as one ragged batch, then one vector for each.
#![expect(unsafe_code, reason = "reads the network's hidden states")]

use sf_abi_sdk::{
    Code, EmbedPlan, Fault, Lane, LanePages, Model, ModelDescription, Pages, Plan, Pooling, Shape, Stats,
    StepWriter,
};
use sf_base::PoolingKind;

use super::PAGE_ROWS;
use super::forward::Step;
use super::network::Network;
use crate::describe::NO_TEXT;
use crate::kernels::heads::Run;
use crate::params::Params;

/// An open encoder.
#[derive(Debug)]
pub struct EncoderModel {
    network: Network,
    params: Params,
    /// Keys and values while a call lasts.
    pages: Pages<u16>,
    description: ModelDescription,
}

impl EncoderModel {
    pub(super) fn new(network: Network, params: Params, description: ModelDescription) -> EncoderModel {
        // The SDK bounds what a call holds.
        let pages = Pages::new(network.page_elements(), PAGE_ROWS, u64::from(u32::MAX), 0);
        EncoderModel { network, params, pages, description }
    }
}

impl Model for EncoderModel {
    fn shape(&self) -> Shape {
        let arch = &self.network.arch;
        Shape {
            vocab: arch.vocab,
            lanes_max: self.params.lanes_max,
            lane_tokens_max: self.params.ctx_max(arch.context),
        }
    }

    fn describe(&self) -> ModelDescription {
        self.description.clone()
    }

    fn stats(&self) -> Stats {
        Stats {
            bytes_weights: self.network.weight_bytes(),
            bytes_mapped: self.network.mapped_bytes(),
            bytes_kv: self.pages.bytes(),
            bytes_compute: self.network.compute_bytes(),
            ..Stats::default()
        }
    }

    fn has_lanes(&self) -> bool {
        false
    }

    fn lane_truncate(&mut self, _: Lane, _: u32, _: u32) -> Result<u32, Fault> {
        Err(Fault::new(Code::Unsupported, NO_TEXT))
    }

    fn step(&mut self, _: &Plan<'_>, _: &mut StepWriter<'_>) -> Result<(), Fault> {
        Err(Fault::new(Code::Unsupported, NO_TEXT))
    }

    fn embed(&mut self, plan: &EmbedPlan<'_>, out: &mut [f32]) -> Result<(), Fault> {
        let arch = &self.network.arch;
        let Some(own) = &arch.pooling else {
            return Err(Fault::new(Code::Unsupported, "this encoder's bundle says nothing of pooling"));
        };
        let kind = match own.kind {
            PoolingKind::Mean => Pooling::Mean,
            PoolingKind::First => Pooling::First,
            PoolingKind::Last => Pooling::Last,
        };
        let pooled = plan.pooled(kind, own.normalize);
        let width = arch.hidden as usize;
        let mut held: Vec<LanePages<u16>> = Vec::new();
        let mut step = Step { tokens: plan.tokens().to_vec(), ..Step::default() };
        let mut row = 0;
        for &length in plan.lengths() {
            let mut pages = LanePages::default();
            pages.reserve(&mut self.pages, length);
            let tokens = length as usize;
            step.runs.push(Run { row, tokens, position: 0, pages: pages.addresses() });
            row += tokens;
            held.push(pages);
        }
        let control = plan.control();
        let hidden = self.network.hidden(&step, &|| control.aborted());
        for mut pages in held {
            pages.cut(&mut self.pages, 0);
        }
        let (x, stride) = hidden.map_err(|_| Fault::new(Code::Cancelled, "the call was aborted"))?;
        for (run, to) in step.runs.iter().zip(out.chunks_exact_mut(width)) {
            // SAFETY: the run's rows of the network's buffer, which nobody writes to now.
            let rows =
                unsafe { core::slice::from_raw_parts(x.wrapping_add(run.row * stride), run.tokens * stride) };
            pooled.vector(rows, stride, to);
        }
        Ok(())
    }
}

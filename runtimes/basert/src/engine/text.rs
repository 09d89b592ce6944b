//! A model that makes text behind the SDK's trait: lanes in pages, steps through the network.
#![expect(unsafe_code, reason = "rows stay in the network's own buffer")]

use sf_abi_sdk::{
    Code, Fault, Lane, Level, Model, ModelDescription, PagedLanes, Plan, Shape, Stats, StepWriter,
};

use sf_base::Arch;

use super::PAGE_ROWS;
use super::forward::Step;
use super::network::Network;
use crate::kernels::heads::Run;
use crate::params::Params;
use crate::{estimate, log};

/// A model with its lanes.
#[derive(Debug)]
pub struct TextModel {
    network: Network,
    params: Params,
    lanes: PagedLanes<u16>,
    description: ModelDescription,
    identity: String,
}

impl TextModel {
    pub(super) fn new(
        network: Network,
        params: Params,
        description: ModelDescription,
        identity: String,
    ) -> TextModel {
        let trained = network.arch.context;
        let ctx_max = params.ctx_max(trained);
        if trained > 0 && ctx_max > trained {
            let words = format!("a window of {ctx_max} positions, the model was trained for {trained}");
            log(Level::Warn, &words);
        }
        log(Level::Info, &format!("{} kernels, {} threads", network.kernels_name(), params.threads));
        TextModel {
            lanes: PagedLanes::new(
                network.page_elements(),
                PAGE_ROWS,
                params.kv_cells(trained),
                params.lanes_max,
            ),
            network,
            params,
            description,
            identity,
        }
    }

    fn step_of(&self, plan: &Plan<'_>) -> Step {
        let mut step = Step::default();
        for feed in plan.feeds() {
            let row = step.tokens.len();
            step.tokens.extend(plan.tokens(feed));
            step.rows.extend(feed.rows().map(|wanted| row + wanted.in_run));
            step.runs.push(Run {
                row,
                tokens: feed.len(),
                position: feed.pos0() as usize,
                pages: self.lanes.lane(feed.lane()).addresses(),
            });
        }
        step
    }

    fn kv_bytes(&self) -> u64 {
        estimate::kv_bytes(&self.network.arch)
    }
}

impl Model for TextModel {
    const FORK: bool = true;

    fn shape(&self) -> Shape {
        Shape {
            vocab: self.network.arch.vocab,
            lanes_max: self.params.lanes_max,
            lane_tokens_max: self.params.ctx_max(self.network.arch.context),
        }
    }

    fn describe(&self) -> ModelDescription {
        self.description.clone()
    }

    fn stats(&self) -> Stats {
        let cells = self.params.kv_cells(self.network.arch.context);
        Stats {
            bytes_weights: self.network.weight_bytes(),
            bytes_mapped: self.network.mapped_bytes(),
            bytes_kv: self.lanes.bytes(),
            bytes_compute: self.network.compute_bytes(),
            device_free: 0,
            kv_cells_total: cells,
            kv_cells_used: self.lanes.positions().min(cells),
        }
    }

    fn lane_create(&mut self, lane: Lane) -> Result<(), Fault> {
        self.lanes.truncate(lane, 0);
        Ok(())
    }

    fn lane_free(&mut self, lane: Lane) {
        self.lanes.truncate(lane, 0);
    }

    fn lane_truncate(&mut self, lane: Lane, _len: u32, want: u32) -> Result<u32, Fault> {
        self.lanes.truncate(lane, want);
        Ok(want)
    }

    fn fork(&mut self, parent: Lane, upto: u32, child: Lane) -> Result<(), Fault> {
        self.lanes.fork(parent, upto, child);
        Ok(())
    }

    fn exports(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn export_size(&mut self, _lane: Lane, upto: u32) -> Result<u64, Fault> {
        Ok(u64::from(upto) * self.kv_bytes())
    }

    fn export(&mut self, lane: Lane, upto: u32, out: &mut [u8]) -> Result<(), Fault> {
        let pages = self.lanes.lane(lane);
        let size = self.kv_bytes() as usize;
        for (position, to) in out.chunks_exact_mut(size).take(upto as usize).enumerate() {
            let page = pages.page(position / PAGE_ROWS as usize);
            for (to, at) in to.chunks_exact_mut(2).zip(elements(&self.network.arch, position)) {
                to.copy_from_slice(&page[at].to_le_bytes());
            }
        }
        Ok(())
    }

    fn import(&mut self, lane: Lane, len: u32, state: &[u8]) -> Result<(), Fault> {
        let (network, size) = (&self.network, self.kv_bytes());
        self.lanes.import(lane, len, (state, size), |pages| {
            for (position, from) in state.chunks_exact(size as usize).enumerate() {
                let page = pages.page_mut(position / PAGE_ROWS as usize);
                for (from, at) in from.chunks_exact(2).zip(elements(&network.arch, position)) {
                    page[at] = finite(u16::from_le_bytes([from[0], from[1]]));
                }
            }
        })
    }

    fn step(&mut self, plan: &Plan<'_>, out: &mut StepWriter<'_>) -> Result<(), Fault> {
        if plan.feeds().is_empty() {
            return Ok(());
        }
        self.lanes.reserve(plan)?;
        let step = self.step_of(plan);
        let control = plan.control();
        let Ok((rows, stride)) = self.network.logits(&step, &|| control.aborted()) else {
            self.lanes.give_up(plan);
            return Err(Fault::new(Code::Cancelled, "the step was aborted"));
        };
        self.lanes.advance(plan);
        if !step.rows.is_empty() {
            // SAFETY: the network's buffer stays as it is until its next step.
            unsafe { out.rows_at(rows, stride * size_of::<f32>()) };
        }
        Ok(())
    }
}

/// What a page may hold: no infinity and no NaN.
fn finite(half: u16) -> u16 {
    if half & 0x7c00 == 0x7c00 { half & 0x8000 } else { half }
}

/// Where a position's elements are in its page: for each layer and head, keys at a stride of a page's positions and
/// values side by side.
fn elements(arch: &Arch, position: usize) -> impl Iterator<Item = usize> + use<> {
    let (heads, dim) = (arch.layers.len() * arch.kv_heads as usize, arch.head_dim as usize);
    let rows = PAGE_ROWS as usize;
    let row = position % rows;
    (0..heads).flat_map(move |head| {
        let keys = head * dim * rows * 2;
        let values = keys + dim * rows + row * dim;
        (0..dim).map(move |d| keys + d * rows + row).chain(values..values + dim)
    })
}

//! A model that makes text behind the SDK's trait: lanes in pages, steps through the network.
#![expect(unsafe_code, reason = "rows stay in the network's own buffer")]

use sf_abi_sdk::{
    Code, Fault, Lane, LanePages, Level, Model, ModelDescription, Pages, Plan, Shape, Stats, StepWriter,
};

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
    pages: Pages<u16>,
    /// By slot.
    lanes: Vec<LanePages<u16>>,
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
            pages: Pages::new(network.page_elements(), PAGE_ROWS, params.kv_cells(trained), params.lanes_max),
            lanes: (0..params.lanes_max).map(|_| LanePages::default()).collect(),
            network,
            params,
            description,
            identity,
        }
    }

    /// Takes the pages that a step writes to, for all lanes or for none.
    fn reserve(&mut self, plan: &Plan<'_>) -> Result<(), Fault> {
        let len = |feed: &sf_abi_sdk::Feed| feed.pos0() + feed.len() as u32;
        let missing =
            plan.feeds().iter().map(|feed| self.lanes[feed.lane().slot()].missing(&self.pages, len(feed)));
        let (needed, left) = (missing.sum::<usize>(), self.pages.left());
        if needed > left {
            let words = format!("the step needs {needed} pages of {PAGE_ROWS} positions, {left} are left");
            return Err(Fault::new(Code::Capacity, words).field("kv.cells"));
        }
        for feed in plan.feeds() {
            self.lanes[feed.lane().slot()].reserve(&mut self.pages, len(feed));
        }
        Ok(())
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
                pages: self.lanes[feed.lane().slot()].addresses(),
            });
        }
        step
    }

    fn kv_bytes(&self) -> u64 {
        estimate::kv_bytes(&self.network.arch)
    }

    /// Where a position's elements are in its page: for each layer and head, keys at a stride of a page's positions and
    /// values side by side.
    fn elements(&self, position: usize) -> impl Iterator<Item = usize> + use<> {
        let arch = &self.network.arch;
        let (heads, dim) = (arch.layers.len() * arch.kv_heads as usize, arch.head_dim as usize);
        let rows = PAGE_ROWS as usize;
        let row = position % rows;
        (0..heads).flat_map(move |head| {
            let keys = head * dim * rows * 2;
            let values = keys + dim * rows + row * dim;
            (0..dim).map(move |d| keys + d * rows + row).chain(values..values + dim)
        })
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
            bytes_kv: self.pages.bytes(),
            bytes_compute: self.network.compute_bytes(),
            device_free: 0,
            kv_cells_total: cells,
            kv_cells_used: self.lanes.iter().map(|lane| u64::from(lane.len())).sum::<u64>().min(cells),
        }
    }

    fn lane_create(&mut self, lane: Lane) -> Result<(), Fault> {
        self.lanes[lane.slot()].cut(&mut self.pages, 0);
        Ok(())
    }

    fn lane_free(&mut self, lane: Lane) {
        self.lanes[lane.slot()].cut(&mut self.pages, 0);
    }

    fn lane_truncate(&mut self, lane: Lane, _len: u32, want: u32) -> Result<u32, Fault> {
        self.lanes[lane.slot()].cut(&mut self.pages, want);
        Ok(want)
    }

    fn fork(&mut self, parent: Lane, upto: u32, child: Lane) -> Result<(), Fault> {
        self.lanes[child.slot()] = self.lanes[parent.slot()].fork(&self.pages, upto);
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
        let pages = &self.lanes[lane.slot()];
        let size = self.kv_bytes() as usize;
        for (position, to) in out.chunks_exact_mut(size).take(upto as usize).enumerate() {
            let page = pages.page(position / PAGE_ROWS as usize);
            for (to, at) in to.chunks_exact_mut(2).zip(self.elements(position)) {
                to.copy_from_slice(&page[at].to_le_bytes());
            }
        }
        Ok(())
    }

    fn import(&mut self, lane: Lane, len: u32, state: &[u8]) -> Result<(), Fault> {
        let slot = lane.slot();
        let needed = self.lanes[slot].missing(&self.pages, len);
        if needed > self.pages.left() {
            let words = format!("no room for {len} saved positions: {} pages are left", self.pages.left());
            return Err(Fault::new(Code::Capacity, words).field("kv.cells"));
        }
        let size = self.kv_bytes();
        if state.len() as u64 != u64::from(len) * size {
            return Err(Fault::new(Code::Format, format!("{} bytes are not {len} positions", state.len())));
        }
        let mut pages = std::mem::take(&mut self.lanes[slot]);
        pages.reserve(&mut self.pages, len);
        for (position, from) in state.chunks_exact(size as usize).enumerate() {
            let page = pages.page_mut(position / PAGE_ROWS as usize);
            for (from, at) in from.chunks_exact(2).zip(self.elements(position)) {
                page[at] = finite(u16::from_le_bytes([from[0], from[1]]));
            }
        }
        pages.set_len(len);
        self.lanes[slot] = pages;
        Ok(())
    }

    fn step(&mut self, plan: &Plan<'_>, out: &mut StepWriter<'_>) -> Result<(), Fault> {
        if plan.feeds().is_empty() {
            return Ok(());
        }
        self.reserve(plan)?;
        let step = self.step_of(plan);
        let control = plan.control();
        let Ok((rows, stride)) = self.network.logits(&step, &|| control.aborted()) else {
            for feed in plan.feeds() {
                self.lanes[feed.lane().slot()].cut(&mut self.pages, feed.pos0());
            }
            return Err(Fault::new(Code::Cancelled, "the step was aborted"));
        };
        for feed in plan.feeds() {
            self.lanes[feed.lane().slot()].set_len(feed.pos0() + feed.len() as u32);
        }
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

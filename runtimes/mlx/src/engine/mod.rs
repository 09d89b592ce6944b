//! What computes: an open model on MLX, its lanes, and the calls of the SDK's trait.

mod array;
mod encoder;
mod forward;
mod open;
mod state;
mod sys;
mod thread;
mod weights;

use sf_abi_sdk::{
    Fault, Lane, Level, Model, ModelDescription, OpenRequest, PagedLanes, Plan, Shape, Stats, StepWriter,
};

use crate::config::Config;
use crate::params::Params;
use crate::{Checked, describe, estimate, identity, log};

pub(crate) use open::{OpenModel, open};
pub use sys::use_kernels;

use forward::{Network, Step, StepRun};
use thread::Confined;

/// Why this library cannot be used here; nothing, as its kernels are chosen at run time.
pub(crate) fn missing() -> Option<String> {
    None
}

/// MLX and the kernels this CPU runs, for people.
pub(crate) fn device_name() -> String {
    format!("CPU, MLX {}, {} kernels", sys::version(), sys::kernels())
}

/// A GPU that this build of MLX can use, for people.
pub(crate) fn gpu_name() -> Option<String> {
    sys::has_gpu().then(|| format!("GPU, MLX {}", sys::version()))
}

/// Positions of a page.
const PAGE_ROWS: u32 = 32;

/// Floats of a page: keys and values of its positions in all layers.
fn page_elements(config: &Config) -> usize {
    config.kv_width() as usize * config.layers as usize * PAGE_ROWS as usize
}

/// A model with its lanes.
#[derive(Debug)]
pub struct MlxModel {
    network: Confined<Network>,
    config: Config,
    params: Params,
    lanes: PagedLanes<f32>,
    weight_bytes: u64,
    description: ModelDescription,
    identity: String,
}

impl MlxModel {
    fn open(mut checked: Checked, params: Params, request: &OpenRequest<'_>) -> Result<MlxModel, Fault> {
        let trained = checked.config.ctx_trained;
        let ctx_max = params.ctx_max(trained);
        checked.config.extend_to(ctx_max);
        if trained > 0 && ctx_max > trained {
            let words = format!("a window of {ctx_max} positions, the model was trained for {trained}");
            log(Level::Warn, &words);
        }
        if let Some(first) = checked.layout.unused.first() {
            let count = checked.layout.unused.len();
            log(Level::Warn, &format!("{count} tensors are not used, {first} is the first of them"));
        }
        let network = weights::load(&checked, &params, request)?;
        Ok(MlxModel {
            network,
            lanes: PagedLanes::new(
                page_elements(&checked.config),
                PAGE_ROWS,
                params.kv_cells(trained),
                params.lanes_max,
            ),
            weight_bytes: checked.files.bytes(),
            description: describe::described(&checked, &params),
            identity: identity::of(&checked, &sys::kernels())?,
            config: checked.config,
            params,
        })
    }

    fn step_of(&self, plan: &Plan<'_>) -> Step {
        let mut step = Step::default();
        for feed in plan.feeds() {
            let row = step.tokens.len() as u32;
            step.tokens.extend(plan.tokens(feed));
            step.rows.extend(feed.rows().map(|wanted| row + wanted.in_run as u32));
            step.runs.push(StepRun {
                row,
                rows: feed.len() as u32,
                first: feed.pos0(),
                pages: self.lanes.lane(feed.lane()).addresses(),
            });
        }
        step
    }
}

impl Model for MlxModel {
    const FORK: bool = true;

    fn shape(&self) -> Shape {
        Shape {
            vocab: self.config.vocab,
            lanes_max: self.params.lanes_max,
            lane_tokens_max: self.params.ctx_max(self.config.ctx_trained),
        }
    }

    fn describe(&self) -> ModelDescription {
        self.description.clone()
    }

    fn stats(&self) -> Stats {
        let [active, _, cache] = sys::memory();
        Stats {
            bytes_weights: self.weight_bytes,
            bytes_mapped: 0,
            bytes_kv: self.lanes.bytes(),
            // Several models share MLX's allocator; what is not this one's weights is counted here.
            bytes_compute: (active + cache).saturating_sub(self.weight_bytes),
            device_free: 0,
            kv_cells_total: self.params.kv_cells(self.config.ctx_trained),
            kv_cells_used: self.lanes.positions().min(self.params.kv_cells(self.config.ctx_trained)),
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
        Ok(u64::from(upto) * estimate::kv_bytes(&self.config))
    }

    fn export(&mut self, lane: Lane, upto: u32, out: &mut [u8]) -> Result<(), Fault> {
        state::save(self.lanes.lane(lane), &self.config, upto, out);
        Ok(())
    }

    fn import(&mut self, lane: Lane, len: u32, state: &[u8]) -> Result<(), Fault> {
        let config = &self.config;
        let position = estimate::kv_bytes(config);
        self.lanes.import(lane, len, (state, position), |pages| state::restore(pages, config, len, state))
    }

    fn step(&mut self, plan: &Plan<'_>, out: &mut StepWriter<'_>) -> Result<(), Fault> {
        if plan.feeds().is_empty() {
            return Ok(());
        }
        self.lanes.reserve(plan)?;
        let step = self.step_of(plan);
        let control = plan.control();
        let done = self.network.with(|network| network.run(&step, || control.aborted()));
        let rows = match done {
            Ok(rows) => rows,
            Err(fault) => {
                self.lanes.give_up(plan);
                return Err(fault);
            }
        };
        self.lanes.advance(plan);
        if let Some(rows) = rows {
            rows.hand_over(out, self.config.vocab as usize);
        }
        Ok(())
    }
}

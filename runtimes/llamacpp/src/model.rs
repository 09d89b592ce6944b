//! An open model: its context, the lanes' lengths, and the calls of the SDK's trait.
#![expect(unsafe_code, reason = "asks llama.cpp what kind of model it is")]

use llama_cpp_sys_2 as sys;
use sf_abi_sdk::{
    Code, Fault, Lane, Level, Model, ModelDescription, OpenRequest, Plan, Shape, Stats, StepWriter,
};

use crate::context::Context;
use crate::describe;
use crate::estimate::Sizes;
use crate::header::Header;
use crate::identity;
use crate::lanes::{self, Memory};
use crate::log;
use crate::params::Params;
use crate::state::{self, Spare};
use crate::step::{self, Batch};
use crate::weights::Weights;

/// A model in a context.
#[derive(Debug)]
pub struct LlamaModel {
    context: Context,
    memory: Memory,
    params: Params,
    sizes: Sizes,
    batch: Batch,
    /// Positions per slot.
    lengths: Vec<u32>,
    compute_bytes: u64,
    description: ModelDescription,
    identity: String,
}

impl LlamaModel {
    pub(crate) fn open(request: &OpenRequest<'_>) -> Result<LlamaModel, Fault> {
        let params = Params::read(request.options())?;
        let header = Header::open(request.paths()[0])?;
        header.check_vocabulary()?;
        let mut headers = vec![header];
        for part in &request.paths()[1..] {
            headers.push(Header::open(part)?);
        }
        let header = &headers[0];
        let sizes = Sizes::new(header, &params);
        if params.kv_cells_wanted.is_some_and(|wanted| wanted != sizes.cells) {
            request.options().approximately("kv.cells");
        }
        let trained = header.ctx_trained();
        if trained > 0 && sizes.ctx_max > trained {
            log::line(
                Level::Warn,
                &format!("a window of {} positions, the model was trained for {trained}", sizes.ctx_max),
            );
        }
        let weights = Weights::load(request, &params)?;
        check_kind(&weights)?;
        let memory = Memory::of(&weights, params.swa_full);
        let context = Context::new(weights, &params, &sizes)?;
        if context.memory().is_null() {
            return Err(Fault::new(Code::Unsupported, "this model predicts no next token")
                .field("general.architecture"));
        }
        let compute_bytes = sizes.compute_bytes(header, params.lanes_max);
        let description = describe::describe(header, &context, memory, &params, &sizes);
        Ok(LlamaModel {
            context,
            memory,
            params,
            sizes,
            batch: Batch::default(),
            lengths: vec![0; params.lanes_max as usize],
            compute_bytes,
            description,
            identity: identity::of(&headers, request.paths(), &params)?,
        })
    }
}

impl LlamaModel {
    /// A lane with its length, and how much of it is meant.
    fn part(&self, lane: Lane, upto: u32) -> ((Lane, u32), (u32, Spare)) {
        ((lane, self.lengths[lane.slot()]), (upto, Spare::behind(self.params.lanes_max)))
    }
}

/// Models that llama.cpp loads but that do not fit lanes and rows.
fn check_kind(weights: &Weights) -> Result<(), Fault> {
    let model = weights.raw();
    // SAFETY: a live model, here and below.
    let encoder = unsafe { sys::llama_model_has_encoder(model) };
    // SAFETY: as above.
    let decoder = unsafe { sys::llama_model_has_decoder(model) };
    // SAFETY: as above.
    let diffusion = unsafe { sys::llama_model_is_diffusion(model) };
    let why = if encoder {
        "encoder-decoder models are not in this build yet"
    } else if !decoder {
        "this model has no decoder"
    } else if diffusion {
        "diffusion models are not in this build yet"
    } else if weights.vocab_len() == 0 {
        "this model has no vocabulary"
    } else {
        return Ok(());
    };
    Err(Fault::new(Code::Unsupported, why).field("general.architecture"))
}

impl Model for LlamaModel {
    const FORK: bool = true;

    fn shape(&self) -> Shape {
        Shape {
            vocab: self.context.weights().vocab_len(),
            lanes_max: self.params.lanes_max,
            lane_tokens_max: self.sizes.ctx_max,
        }
    }

    fn describe(&self) -> ModelDescription {
        self.description.clone()
    }

    fn stats(&self) -> Stats {
        let weights = self.context.weights().bytes();
        let cells = u64::from(self.context.cells());
        let held: u64 = self.lengths.iter().map(|&len| u64::from(len)).sum();
        Stats {
            bytes_weights: weights,
            bytes_mapped: if self.params.mmap { weights } else { 0 },
            bytes_kv: self.sizes.kv_bytes(),
            bytes_compute: self.compute_bytes,
            device_free: 0,
            kv_cells_total: cells,
            // Cells that forked lanes share count for each; the cache itself cannot hold more.
            kv_cells_used: held.min(cells),
        }
    }

    fn lane_create(&mut self, lane: Lane) -> Result<(), Fault> {
        self.lengths[lane.slot()] = 0;
        Ok(())
    }

    fn lane_free(&mut self, lane: Lane) {
        lanes::clear(&mut self.context, lane);
        self.lengths[lane.slot()] = 0;
    }

    fn lane_truncate(&mut self, lane: Lane, len: u32, want: u32) -> Result<u32, Fault> {
        let got = lanes::truncate(&mut self.context, self.memory, lane, len, want);
        self.lengths[lane.slot()] = got;
        Ok(got)
    }

    fn fork(&mut self, parent: Lane, upto: u32, child: Lane) -> Result<(), Fault> {
        let len = self.lengths[parent.slot()];
        lanes::fork(&mut self.context, self.memory, (parent, len), upto, child)?;
        self.lengths[child.slot()] = upto;
        Ok(())
    }

    fn exports(&self) -> bool {
        self.memory != Memory::State
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn export_size(&mut self, lane: Lane, upto: u32) -> Result<u64, Fault> {
        let (lane, part) = self.part(lane, upto);
        state::size(&mut self.context, self.memory, lane, part)
    }

    fn export(&mut self, lane: Lane, upto: u32, out: &mut [u8]) -> Result<(), Fault> {
        let (lane, part) = self.part(lane, upto);
        state::save(&mut self.context, self.memory, lane, part, out)
    }

    fn import(&mut self, lane: Lane, len: u32, state: &[u8]) -> Result<(), Fault> {
        state::restore(&mut self.context, lane, len, state)?;
        self.lengths[lane.slot()] = len;
        Ok(())
    }

    fn step(&mut self, plan: &Plan<'_>, out: &mut StepWriter<'_>) -> Result<(), Fault> {
        step::run(&mut self.context, self.memory, &mut self.batch, plan, out)?;
        for feed in plan.feeds() {
            self.lengths[feed.lane().slot()] = feed.pos0() + out.consumed_of(feed);
        }
        Ok(())
    }
}

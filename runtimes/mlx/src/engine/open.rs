//! What a directory opens as: a model that makes text, or an encoder.

use sf_abi_sdk::{
    EmbedPlan, Fault, Lane, Model, ModelDescription, OpenRequest, Plan, Shape, Stats, StepWriter,
};

use super::MlxModel;
use super::encoder::EncoderModel;
use crate::Found;
use crate::params::Params;

/// An open model of either kind.
#[derive(Debug)]
pub enum OpenModel {
    /// Makes text.
    Text(Box<MlxModel>),
    /// Makes vectors.
    Encoder(Box<EncoderModel>),
}

impl OpenModel {
    pub(crate) fn open(request: &OpenRequest<'_>) -> Result<OpenModel, Fault> {
        let params = Params::read(request.options(), request.devices())?;
        match Found::open(request.paths()[0])? {
            Found::Text(checked) => {
                MlxModel::open(*checked, params, request).map(|model| OpenModel::Text(Box::new(model)))
            }
            Found::Encoder(checked) => {
                EncoderModel::open(*checked, params, request).map(|model| OpenModel::Encoder(Box::new(model)))
            }
        }
    }
}

macro_rules! either {
    ($self:ident, $model:ident => $call:expr) => {
        match $self {
            OpenModel::Text($model) => $call,
            OpenModel::Encoder($model) => $call,
        }
    };
}

impl Model for OpenModel {
    const FORK: bool = true;

    fn shape(&self) -> Shape {
        either!(self, model => model.shape())
    }

    fn describe(&self) -> ModelDescription {
        either!(self, model => model.describe())
    }

    fn stats(&self) -> Stats {
        either!(self, model => model.stats())
    }

    fn has_lanes(&self) -> bool {
        either!(self, model => model.has_lanes())
    }

    fn lane_create(&mut self, lane: Lane) -> Result<(), Fault> {
        either!(self, model => model.lane_create(lane))
    }

    fn lane_free(&mut self, lane: Lane) {
        either!(self, model => model.lane_free(lane));
    }

    fn lane_truncate(&mut self, lane: Lane, len: u32, want: u32) -> Result<u32, Fault> {
        either!(self, model => model.lane_truncate(lane, len, want))
    }

    fn fork(&mut self, parent: Lane, upto: u32, child: Lane) -> Result<(), Fault> {
        either!(self, model => model.fork(parent, upto, child))
    }

    fn exports(&self) -> bool {
        either!(self, model => model.exports())
    }

    fn identity(&self) -> String {
        either!(self, model => model.identity())
    }

    fn export_size(&mut self, lane: Lane, upto: u32) -> Result<u64, Fault> {
        either!(self, model => model.export_size(lane, upto))
    }

    fn export(&mut self, lane: Lane, upto: u32, out: &mut [u8]) -> Result<(), Fault> {
        either!(self, model => model.export(lane, upto, out))
    }

    fn import(&mut self, lane: Lane, len: u32, state: &[u8]) -> Result<(), Fault> {
        either!(self, model => model.import(lane, len, state))
    }

    fn embed(&mut self, plan: &EmbedPlan<'_>, out: &mut [f32]) -> Result<(), Fault> {
        either!(self, model => model.embed(plan, out))
    }

    fn step(&mut self, plan: &Plan<'_>, out: &mut StepWriter<'_>) -> Result<(), Fault> {
        either!(self, model => model.step(plan, out))
    }
}

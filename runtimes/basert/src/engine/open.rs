//! What a bundle opens as: a model that makes text, or an encoder.

use sf_abi_sdk::{
    EmbedPlan, Fault, Lane, Model, ModelDescription, OpenRequest, Plan, Shape, Stats, StepWriter,
};
use sf_base::Kind;

use super::encoder::EncoderModel;
use super::network::Network;
use super::text::TextModel;
use crate::params::Params;
use crate::{Opened, describe, identity};

/// An open model of either kind.
#[derive(Debug)]
pub enum OpenModel {
    /// Makes text.
    Text(Box<TextModel>),
    /// Makes vectors.
    Encoder(Box<EncoderModel>),
}

impl OpenModel {
    pub(crate) fn open(request: &OpenRequest<'_>) -> Result<OpenModel, Fault> {
        let params = Params::read(request.options(), request.devices())?;
        let Opened { file, bundle } = Opened::open(request.paths()[0])?;
        let description = describe::described(&bundle, &params);
        let network = Network::open(&file, &bundle, &params)?;
        request.progress(1.0);
        Ok(match bundle.header.architecture.kind {
            Kind::Decoder => {
                let identity = identity::of(&bundle);
                OpenModel::Text(Box::new(TextModel::new(network, params, description, identity)))
            }
            Kind::Encoder => OpenModel::Encoder(Box::new(EncoderModel::new(network, params, description))),
        })
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

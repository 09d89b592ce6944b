//! A model that is one of two kinds: of text, or of vectors.

use sf_abi::descriptor::ModelDescription;

use crate::embed::EmbedPlan;
use crate::fault::Fault;
use crate::lanes::Lane;
use crate::plan::{Plan, StepWriter};
use crate::runtime::{Model, Shape, Stats};

/// What a file opens as, for runtimes that read both; every call goes to the one that it is.
#[derive(Debug)]
pub enum Either<T, V> {
    /// Makes text.
    Text(Box<T>),
    /// Makes vectors.
    Vectors(Box<V>),
}

macro_rules! either {
    ($self:ident, $model:ident => $call:expr) => {
        match $self {
            Either::Text($model) => $call,
            Either::Vectors($model) => $call,
        }
    };
}

impl<T: Model, V: Model> Model for Either<T, V> {
    const FORK: bool = T::FORK;

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

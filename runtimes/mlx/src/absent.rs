//! What stands for the engine in a build without MLX: every open is refused with the reason.

use sf_abi_sdk::{Code, Fault, Lane, Model, ModelDescription, OpenRequest, Plan, Shape, StepWriter};

const REASON: &str = "this library was built without MLX";

/// Never made.
#[derive(Debug)]
pub enum OpenModel {}

pub(crate) fn missing() -> Option<String> {
    Some(REASON.to_owned())
}

pub(crate) fn device_name() -> String {
    "none".to_owned()
}

pub(crate) fn gpu_name() -> Option<String> {
    None
}

pub(crate) fn open(request: &OpenRequest<'_>) -> Result<OpenModel, Fault> {
    // A wrong option or model is named first: it would be wrong with MLX too.
    crate::params::Params::read(request.options(), request.devices())?;
    let name = match crate::Found::open(request.paths()[0])? {
        crate::Found::Text(found) => found.config.architecture.model_type,
        crate::Found::Encoder(found) => found.config.family.model_type,
    };
    Err(Fault::new(Code::Unsupported, format!("{REASON}, {name} cannot be opened")))
}

impl Model for OpenModel {
    fn shape(&self) -> Shape {
        match *self {}
    }
    fn describe(&self) -> ModelDescription {
        match *self {}
    }
    fn lane_truncate(&mut self, _: Lane, _: u32, _: u32) -> Result<u32, Fault> {
        match *self {}
    }
    fn step(&mut self, _: &Plan<'_>, _: &mut StepWriter<'_>) -> Result<(), Fault> {
        match *self {}
    }
}

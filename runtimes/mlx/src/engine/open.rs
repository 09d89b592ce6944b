//! What a directory opens as: a model that makes text, or an encoder.

use sf_abi_sdk::{Either, Fault, OpenRequest};

use super::MlxModel;
use super::encoder::EncoderModel;
use crate::Found;
use crate::params::Params;

/// An open model of either kind.
pub(crate) type OpenModel = Either<MlxModel, EncoderModel>;

pub(crate) fn open(request: &OpenRequest<'_>) -> Result<OpenModel, Fault> {
    let params = Params::read(request.options(), request.devices())?;
    match Found::open(request.paths()[0])? {
        Found::Text(checked) => {
            MlxModel::open(*checked, params, request).map(|model| Either::Text(Box::new(model)))
        }
        Found::Encoder(checked) => {
            EncoderModel::open(*checked, params, request).map(|model| Either::Vectors(Box::new(model)))
        }
    }
}

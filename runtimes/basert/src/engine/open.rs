//! What a bundle opens as: a model that makes text, or an encoder.

use sf_abi_sdk::{Either, Fault, OpenRequest};
use sf_base::Kind;

use super::encoder::EncoderModel;
use super::network::Network;
use super::text::TextModel;
use crate::params::Params;
use crate::{Opened, describe, identity};

/// An open model of either kind.
pub(crate) type OpenModel = Either<TextModel, EncoderModel>;

pub(crate) fn open(request: &OpenRequest<'_>) -> Result<OpenModel, Fault> {
    let params = Params::read(request.options(), request.devices())?;
    let Opened { file, bundle } = Opened::open(request.paths()[0])?;
    let description = describe::described(&bundle, &params);
    let network = Network::open(&file, &bundle, &params)?;
    request.progress(1.0);
    Ok(match bundle.header.architecture.kind {
        Kind::Decoder => {
            let identity = identity::of(&bundle);
            Either::Text(Box::new(TextModel::new(network, params, description, identity)))
        }
        Kind::Encoder => Either::Vectors(Box::new(EncoderModel::new(network, params, description))),
    })
}

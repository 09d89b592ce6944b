//! Opens a model in this process: what both transports do, here or in the worker.

use std::sync::Arc;

use sf_abi::descriptor::ModelDescription;
use sf_core::{EngineOption, OptionValue};
use sf_kit::{Executor, KitError, Model, OpenRequest, Runtime};

use crate::error::EngineError;
use crate::link::{EngineStats, OpenSpec};

/// Wire key of the number of lanes.
const LANES_MAX: &str = "lanes.max";

/// Opens the model of `spec`. Every lane that will be used is asked for: fewer is a refusal, not a surprise.
pub(crate) fn open_model(runtime: &Runtime, spec: &OpenSpec) -> Result<Model, KitError> {
    let mut options = spec.options.clone();
    if !options.iter().any(|option| option.key == LANES_MAX) {
        let value = OptionValue::Int(spec.lanes_max.into());
        options.push(EngineOption { key: LANES_MAX.to_owned(), value, must: true });
    }
    runtime.open(&OpenRequest { models: spec.models.clone(), options, devices: Vec::new() })
}

/// The executor of an open model, with the words for grammars.
pub(crate) fn executor(model: Model, spec: &OpenSpec) -> Executor {
    let mut executor = Executor::new(model);
    if let Some(vocabulary) = &spec.vocabulary {
        executor.teach(Arc::clone(vocabulary));
    }
    executor
}

pub(crate) fn parse_description(json: &str) -> Result<ModelDescription, EngineError> {
    serde_json::from_str(json).map_err(|error| EngineError::Contract {
        call: "describe",
        reason: format!("not a description: {error}"),
    })
}

pub(crate) fn stats(executor: &Executor) -> Result<EngineStats, EngineError> {
    let stats = executor.stats()?;
    Ok(EngineStats {
        lanes_live: stats.lanes_live,
        steps: stats.steps,
        bytes: [stats.bytes_weights, stats.bytes_kv, stats.bytes_compute],
        kv_cells: [stats.kv_cells_total, stats.kv_cells_used],
    })
}

impl From<KitError> for EngineError {
    fn from(error: KitError) -> Self {
        match error {
            KitError::Refused { call, code, scope, message, field } => {
                EngineError::Refused { call, code, scope, message, field }
            }
            KitError::Contract { call, reason } => EngineError::Contract { call, reason },
            // The loader names the library; elsewhere it cannot come up.
            KitError::Version { reason } => EngineError::Load { library: String::new(), reason },
        }
    }
}

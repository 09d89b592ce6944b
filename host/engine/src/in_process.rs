//! The transport within the server's process: the runtime is called on the lane thread itself.

use sf_abi::descriptor::{Descriptor, Isolation};
use sf_core::{EmbedBatch, StepOut, StepPlan};
use sf_kit::Executor;

use crate::control::Control;
use crate::error::EngineError;
use crate::link::{EngineStats, Link, OpenSpec, Opened};
use crate::{loader, open};

/// Opens a model in this process. A crash of the runtime is then a crash of the server.
///
/// Sets the variables of `spec.env` for the whole process before a library is loaded for the first time; call it while
/// no foreign code on another thread reads the environment.
///
/// # Errors
/// [`EngineError::Load`] when the library cannot be loaded or must not be in-process; [`EngineError::Refused`] or
/// [`EngineError::Contract`] from its `init` or `open`.
pub fn open_in_process(spec: &OpenSpec) -> Result<Box<dyn Link>, EngineError> {
    log_to_tracing();
    let runtime = loader::load_with(&spec.library, &spec.env, None)?;
    let refuse = |reason: String| EngineError::Load { library: spec.library.display().to_string(), reason };
    let descriptor: Descriptor = serde_json::from_str(runtime.descriptor_json())
        .map_err(|error| refuse(format!("its descriptor is not one: {error}")))?;
    if descriptor.isolation == Isolation::Worker {
        return Err(refuse("it runs behind the worker only".to_owned()));
    }
    if descriptor.thread_affinity {
        return Err(refuse("it must stay on one thread, which only the worker can promise".to_owned()));
    }
    let model = open::open_model(&runtime, spec)?;
    let opened = Opened {
        description: model.description().clone(),
        interfaces: model.interfaces(),
        fork: model.can_fork(),
        stash: model.can_export(),
    };
    Ok(Box::new(InProcess { executor: open::executor(model, spec), opened, in_flight: false }))
}

/// What runtimes of this process log goes where the server's own lines go. The first call counts.
fn log_to_tracing() {
    sf_kit::host::set_log_level(crate::log_level());
    sf_kit::host::set_log(Box::new(|level, runtime, message| match level {
        sf_abi::SFR_LOG_ERROR => tracing::error!(runtime, "{message}"),
        sf_abi::SFR_LOG_WARN => tracing::warn!(runtime, "{message}"),
        sf_abi::SFR_LOG_INFO => tracing::info!(runtime, "{message}"),
        sf_abi::SFR_LOG_DEBUG => tracing::debug!(runtime, "{message}"),
        _ => tracing::trace!(runtime, "{message}"),
    }));
}

struct InProcess {
    executor: Executor,
    opened: Opened,
    in_flight: bool,
}

impl Link for InProcess {
    fn opened(&self) -> &Opened {
        &self.opened
    }

    fn begin(&mut self, plan: &StepPlan) -> Result<(), EngineError> {
        if self.in_flight {
            return Err(EngineError::misuse("begin", "a tick is running"));
        }
        let word = self.executor.model().page().yield_seq();
        self.executor.begin(plan, word)?;
        self.in_flight = true;
        Ok(())
    }

    fn next(&mut self, out: &mut StepOut) -> Result<(), EngineError> {
        if !std::mem::take(&mut self.in_flight) {
            return Err(EngineError::misuse("next", "no tick is running"));
        }
        self.executor.next(out)?;
        self.in_flight = !out.last;
        Ok(())
    }

    fn embed(&mut self, batch: &EmbedBatch, out: &mut Vec<f32>) -> Result<(), EngineError> {
        if self.in_flight {
            return Err(EngineError::misuse("embed", "a tick is running"));
        }
        self.executor.embed(batch, out)?;
        Ok(())
    }

    fn stats(&mut self) -> Result<EngineStats, EngineError> {
        if self.in_flight {
            return Err(EngineError::misuse("stats", "a tick is running"));
        }
        open::stats(&self.executor)
    }

    fn pid(&self) -> Option<u32> {
        None
    }

    fn control(&self) -> Option<Control> {
        Some(Control::local(self.executor.control()))
    }
}

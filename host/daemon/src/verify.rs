//! `superfluid runtimes verify`: runs the conformance kit and prints its report.

use std::process::ExitCode;

use sf_codec::{Codec, CodecOptions};
use sf_engine::WorkerExe;
use sf_settings::VerifySettings;
use sf_verify::VerifyOptions;

use crate::exit::Fatal;
use crate::prepare::model_id;
use crate::runtimes::print_json;
use crate::{print, selftest};

/// Exit code 0 only if every required check passed.
pub(crate) fn verify(settings: &VerifySettings) -> Result<ExitCode, Fatal> {
    if let Some(model) = &settings.model
        && let Ok(artifact) = sf_artifact::open(model)
        && let Ok(codec) = Codec::open(&artifact, CodecOptions::default())
    {
        // A runtime is not judged by its model's text: what is wrong with that is said beside the report.
        selftest::tell(&model_id(model), &codec.self_test());
    }
    let WorkerExe(exe) = WorkerExe::beside_current_exe().map_err(Fatal::failed)?;
    let options =
        VerifyOptions { model: settings.model.clone(), quick: settings.quick, ..VerifyOptions::default() };
    let report = sf_verify::verify(&exe, &settings.path, options);
    if settings.json {
        print_json(&report)?;
    } else {
        print(&report.to_string())?;
    }
    Ok(ExitCode::from(u8::try_from(report.exit_code()).unwrap_or(1)))
}

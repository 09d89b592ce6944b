//! `superfluid convert`, `pack` and `inspect`: hand the model to the converter, show how far it is, print what came out.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use indicatif::{ProgressBar, ProgressStyle};
use sf_convert::{Affine, ConvertError, Options, PackOptions, Plain, Profile, Progress};
use sf_settings::{ConvertSettings, InspectSettings, PackSettings};

use crate::bench::stop_on_signal;
use crate::exit::Fatal;
use crate::print;
use crate::runtimes::print_json;

/// Elements of a group, when nothing is said.
const GROUP: u32 = 64;

/// Ends of a run that did not succeed.
fn fatal(error: ConvertError) -> Fatal {
    match error.is_refusal() {
        true => Fatal::refused(error),
        false => Fatal::failed(error),
    }
}

pub(crate) fn convert(settings: &ConvertSettings) -> Result<ExitCode, Fatal> {
    let options = options(settings)?;
    let report = with_progress(|progress| {
        sf_convert::convert(&settings.source, &settings.directory, &options, progress)
    })?;
    match settings.json {
        true => print_json(&report.json())?,
        false => print(&report.to_string())?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn pack(settings: &PackSettings) -> Result<ExitCode, Fatal> {
    let profile = Profile::named(settings.profile).unwrap_or_default();
    let options = PackOptions { profile, force: settings.force };
    let to = settings.output.clone().unwrap_or_else(|| sf_convert::default_name(&settings.source, profile));
    let report = with_progress(|progress| sf_convert::pack(&settings.source, &to, &options, progress))?;
    match settings.json {
        true => print_json(&report.json())?,
        false => print(&report.to_string())?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn inspect(settings: &InspectSettings) -> Result<ExitCode, Fatal> {
    let found = with_progress(|progress| sf_convert::inspect(&settings.model, settings.verify, progress))?;
    match settings.json {
        true => print_json(&found.json(settings.tensors))?,
        false => print(&found.words(settings.tensors))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn options(settings: &ConvertSettings) -> Result<Options, Fatal> {
    let quantize = match (settings.bits, settings.group) {
        (None, Some(group)) => {
            let words = "has no meaning without --bits (convert.usage)";
            let hint = "--bits 4 quantizes to four bits";
            return Err(Fatal::refused(format!("--group {group} {words}\n  hint: {hint}")));
        }
        (bits, group) => bits.and_then(|bits| Affine::new(bits, group.unwrap_or(GROUP))),
    };
    let plain = settings.plain.and_then(Plain::named);
    Ok(Options { quantize, plain, force: settings.force, ..Options::default() })
}

/// Runs with a bar that shows how far it is, drawn on a terminal only, until it ends or is interrupted.
fn with_progress<T>(work: impl FnOnce(Progress<'_>) -> Result<T, ConvertError>) -> Result<T, Fatal> {
    let stop = stop_on_signal()?;
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {eta}");
    let bar = ProgressBar::new(0).with_style(style.expect("the template is a constant"));
    let done = work(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    done.map_err(fatal)
}

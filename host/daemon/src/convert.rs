//! `superfluid convert`: hands the model to the converter, shows how far it is, prints what came out.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use sf_convert::{Affine, ConvertError, Options, Plain, Report};
use sf_settings::ConvertSettings;

use crate::bench::stop_on_signal;
use crate::exit::Fatal;
use crate::print;
use crate::runtimes::print_json;

/// Elements of a group, when nothing is said.
const GROUP: u32 = 64;

pub(crate) fn convert(settings: &ConvertSettings) -> Result<ExitCode, Fatal> {
    let options = options(settings)?;
    let stop = stop_on_signal()?;
    let report = run(settings, &options, &stop).map_err(|error| match error.is_refusal() {
        true => Fatal::refused(error),
        false => Fatal::failed(error),
    })?;
    if settings.json {
        print_json(&report.json())?;
    } else {
        print(&report.to_string())?;
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

fn run(settings: &ConvertSettings, options: &Options, stop: &AtomicBool) -> Result<Report, ConvertError> {
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {eta}");
    // Drawn on a terminal only.
    let bar = ProgressBar::new(0).with_style(style.expect("the template is a constant"));
    let report = sf_convert::convert(&settings.source, &settings.directory, options, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    report
}

//! `sf-convert MODEL.gguf DIRECTORY [f32|f16|bf16]`: what `superfluid convert` will call, for now by itself.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks on its terminal")]

use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use sf_convert::{ConvertError, Options, Plain, Report, gguf_to_mlx};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (source, to, plain) = match args[..] {
        [source, to] => (source, to, Plain::default()),
        [source, to, "f32"] => (source, to, Plain::F32),
        [source, to, "f16"] => (source, to, Plain::F16),
        [source, to, "bf16"] => (source, to, Plain::Bf16),
        _ => {
            eprintln!("usage: sf-convert MODEL.gguf DIRECTORY [f32|f16|bf16]");
            return ExitCode::from(2);
        }
    };
    match convert(Path::new(source), Path::new(to), Options { plain }) {
        Ok(report) => {
            print(&report, to);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("sf-convert: {error}");
            ExitCode::FAILURE
        }
    }
}

fn convert(source: &Path, to: &Path, options: Options) -> Result<Report, ConvertError> {
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {eta}");
    let bar = ProgressBar::new(0).with_style(style.expect("the template is a constant"));
    let report = gguf_to_mlx(source, to, options, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    report
}

fn print(report: &Report, to: &str) {
    println!("{to}: {}, {} MiB", report.architecture, report.bytes >> 20);
    println!("{} tensors without loss", report.exact);
    for (kind, count) in &report.dequantized {
        println!("{count} tensors of {kind} written as plain floats");
    }
    let (elements, most) = (report.checked.elements, report.checked.rounding_max);
    println!(
        "read again: {elements} elements agree, rounding of plain floats at most {most:.1e} of a row's largest"
    );
}

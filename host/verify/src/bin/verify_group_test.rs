//! Runs one group as the worker would, so that this crate's tests need no worker.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = sf_verify::group_main(std::env::args_os().skip(1));
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

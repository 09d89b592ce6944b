//! The worker: one runtime, one process.
//!
//! Started by the server (`--serve`), by the catalog (`--probe`) and by the verifier (`verify-group`); never by hand.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let code = match args.split_first() {
        Some((first, rest)) if first == "verify-group" => verify_group(rest),
        _ => sf_engine::worker_main(&args),
    };
    // Codes are ours and small.
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// One group of the conformance kit, in this process because it may end it. It ends by a plain return: a library that
/// cannot bear the end of a process is to be found out here.
fn verify_group(args: &[OsString]) -> i32 {
    sf_verify::group_main(args.iter().cloned())
}

//! `superfluid`: reads the command line, wires the stages, ends with the right exit code.

mod bench;
mod chat;
mod convert;
mod exit;
mod find;
mod logs;
mod models;
mod prefixes;
mod prepare;
mod runtimes;
mod selftest;
mod serve;
mod verify;
mod window;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use sf_settings::{Invocation, RuntimeOptions, UsageError, parse};

use crate::exit::Fatal;
use crate::find::Runtimes;
use crate::prepare::Preparer;

/// One line to the person at the terminal, on stderr: stdout holds answers and tables only.
macro_rules! say {
    ($($arg:tt)*) => {{
        // A closed terminal is no reason to stop serving.
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($arg)*)));
    }};
}
pub(crate) use say;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let env = |name: &str| std::env::var(name).ok();
    let runtimes = Runtimes::discover(&sf_settings::explicit_runtimes(&args, &env));
    let options = runtimes.options();
    let invocation = match parse(&args, &env, &options) {
        Ok(invocation) => invocation,
        Err(error) => {
            say!("superfluid: {error}");
            return ExitCode::from(UsageError::EXIT_CODE);
        }
    };
    match run(invocation, runtimes, &options) {
        Ok(code) => code,
        Err(fatal) => {
            say!("superfluid: {fatal}");
            fatal.into()
        }
    }
}

fn run(invocation: Invocation, runtimes: Runtimes, options: &dyn RuntimeOptions) -> Result<ExitCode, Fatal> {
    match invocation {
        Invocation::Serve(settings) => {
            logs::init(&settings.logs, logs::SERVER)?;
            let preparer = Preparer::new(runtimes, &settings.engine, &settings.sampling, &settings.text)?
                .scheduling(&settings.scheduling);
            serve::serve(&settings, &preparer)?;
        }
        Invocation::Run(settings) => {
            logs::init(&settings.logs, logs::COMMAND)?;
            let preparer = Preparer::new(runtimes, &settings.engine, &settings.sampling, &settings.text)?;
            chat::run(&settings, &preparer)?;
        }
        Invocation::Runtimes(settings) => {
            logs::init(&settings.logs, logs::COMMAND)?;
            return runtimes::show(&settings, runtimes);
        }
        Invocation::Verify(settings) => {
            logs::init(&settings.logs, logs::COMMAND)?;
            return verify::verify(&settings);
        }
        Invocation::Models(settings) => {
            logs::init(&settings.logs, logs::COMMAND)?;
            return models::show(&settings, runtimes);
        }
        Invocation::Bench(settings) => return bench::bench(&settings),
        Invocation::Convert(settings) => return convert::convert(&settings),
        Invocation::Pack(settings) => return convert::pack(&settings),
        Invocation::Inspect(settings) => return convert::inspect(&settings),
        Invocation::Completions(shell) => print(&sf_settings::completions(shell, options))?,
        Invocation::Man => print(&sf_settings::manual())?,
        Invocation::Help(None) => print(&sf_settings::overview())?,
        Invocation::Help(Some(verb)) => print(&sf_settings::help(verb, options))?,
        Invocation::Version => print(concat!("superfluid ", env!("CARGO_PKG_VERSION"), "\n"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes to stdout; a closed pipe (`superfluid help | head`) is the reader's choice, not a failure.
fn print(text: &str) -> Result<(), Fatal> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Fatal::failed(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

//! Every verb and flag declared once; parsing, help, completions and the manual read the same table.
//!
//! Nothing here prints, ends the process or reads the environment by itself: the mains hand in arguments and a way to
//! look variables up, and get typed settings or a [`UsageError`] (always exit code [`UsageError::EXIT_CODE`]).
//!
//! Precedence: flag, then `SUPERFLUID_<NAME>`, then the default in the table.

mod bench;
mod build;
mod convert;
mod error;
mod flags;
mod help;
mod pack;
mod parse;
mod runtime_options;
mod scheduling;
mod settings;
mod shell;
mod table;
mod value;
mod verbs;

use std::ffi::OsString;

pub use bench::{BenchServer, BenchSettings};
pub use convert::ConvertSettings;
pub use error::{Problem, UsageError};
pub use flags::FLAGS;
pub use help::{help, overview};
pub use pack::{InspectSettings, PackSettings};
pub use runtime_options::{RuntimeFlag, RuntimeOption, RuntimeOptions, RuntimeValue};
pub use settings::{
    Dialect, EngineSettings, HttpSettings, Invocation, KvBits, ListenAddress, LogSettings, ModelsSettings,
    Placement, RunSettings, RuntimeChoice, RuntimeRef, RuntimesSettings, SamplingSettings,
    SchedulingSettings, Secret, ServeSettings, Shell, TextSettings, VerifySettings, Window,
};
pub use shell::{completions, manual};
pub use table::{Flag, Group, Kind, RetiredValue, Status};
pub use verbs::{VERBS, Verb, VerbRow};

/// Looks an environment variable up; `None` = not set. Empty counts as not set.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Turns a command line (without the program's name) into typed settings.
///
/// `options` are the options of the runtimes in the catalog; read them after [`explicit_runtimes`] told the catalog
/// which runtimes the command line names by path.
///
/// # Errors
/// Every refusal of the command line; the caller prints it and exits with [`UsageError::EXIT_CODE`].
pub fn parse(
    args: &[OsString],
    env: Env<'_>,
    options: &dyn RuntimeOptions,
) -> Result<Invocation, UsageError> {
    build::invocation(args, env, options)
}

/// The runtimes that `--runtime` or `SUPERFLUID_RUNTIME` name, found without judging anything else, so that a catalog
/// can be read before the flags of its runtimes are parsed.
pub fn explicit_runtimes(args: &[OsString], env: Env<'_>) -> Vec<RuntimeChoice> {
    let mut found = Vec::new();
    // A bench hands what stands after -- to the server that it starts.
    let split = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let ours = if args.first().is_some_and(|verb| verb == "bench") { split..args.len() } else { 0..split };
    let mut args = args[ours].iter().map(|arg| arg.to_string_lossy());
    while let Some(arg) = args.next() {
        let value = match arg.strip_prefix("--runtime") {
            Some("") => args.next().map(|value| value.into_owned()),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        found.extend(value.filter(|value| !value.is_empty()).map(|value| RuntimeChoice::read(&value)));
    }
    if found.is_empty() {
        let value = env("SUPERFLUID_RUNTIME").filter(|value| !value.is_empty());
        found.extend(value.map(|value| RuntimeChoice::read(&value)));
    }
    found
}

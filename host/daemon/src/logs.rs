//! Where log lines go and which ones.

use std::io::IsTerminal;

use sf_settings::LogSettings;
use tracing_subscriber::EnvFilter;

use crate::exit::Fatal;

/// Lines of a server: requests and what goes wrong.
pub(crate) const SERVER: u8 = 1;
/// Lines of a command that a person runs: what goes wrong.
pub(crate) const COMMAND: u8 = 0;

/// Sends log lines to stderr, at `base` plus one level for each `-v`. Never content, keys or prompts, whatever the
/// filter.
pub(crate) fn init(settings: &LogSettings, base: u8) -> Result<(), Fatal> {
    let default = match settings.verbosity.saturating_add(base) {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = match &settings.filter {
        Some(text) => EnvFilter::try_new(text)
            .map_err(|error| Fatal::refused(format!("--log-filter {text:?} is not a filter: {error}")))?,
        None => EnvFilter::new(default),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}

//! `superfluid runtimes`: the catalog as a table or JSON, and who reads a model.

use std::io::IsTerminal;
use std::process::ExitCode;

use sf_catalog::{Style, catalog_table, model_table};
use sf_settings::RuntimesSettings;

use crate::exit::Fatal;
use crate::find::Runtimes;
use crate::prepare::open_artifact;
use crate::print;

/// Columns when nothing tells the terminal's width.
const WIDTH: usize = 120;

/// Shows the catalog. With a model: exit code 4 when no runtime here reads it.
pub(crate) fn show(settings: &RuntimesSettings, mut runtimes: Runtimes) -> Result<ExitCode, Fatal> {
    runtimes.probe(settings.probe);
    let catalog = &runtimes.catalog;
    let Some(model) = &settings.model else {
        if settings.json {
            print_json(&catalog.report())?;
        } else {
            print(&catalog_table(catalog, style()))?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    let artifact = open_artifact(model.as_ref())?;
    if settings.json {
        print_json(&catalog.model_report(&artifact))?;
    } else {
        print(&model_table(catalog, &artifact, style()))?;
    }
    let read = catalog.readers(&artifact).iter().any(|(_, verdict)| verdict.is_ok());
    Ok(if read { ExitCode::SUCCESS } else { ExitCode::from(4) })
}

/// As the terminal at stdout is.
pub(crate) fn style() -> Style {
    let stdout = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout).ok();
    let width = size.map_or(WIDTH, |size| usize::from(size.ws_col)).max(40);
    Style { width, colour: stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none() }
}

/// Writes pretty JSON to stdout.
pub(crate) fn print_json<T: serde::Serialize>(value: &T) -> Result<(), Fatal> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Fatal::failed(format!("cannot write JSON: {error}")))?;
    print(&(text + "\n"))
}

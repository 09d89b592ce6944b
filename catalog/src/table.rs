//! The catalog as text for a terminal: a table where it fits, a list where it does not.

use std::fmt::Write as _;

use sf_abi::descriptor::{Capability, Format};

use crate::choose::ModelKind;
use crate::discover::Catalog;
use crate::entry::Entry;

/// How the text may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; anything below 40 counts as 40.
    pub width: usize,
    /// Whether ANSI colours are understood.
    pub colour: bool,
}

const WIDTH_MIN: usize = 40;
const HEADINGS: [&str; 7] = ["ID", "VERSION", "SOURCE", "READS", "DEVICES", "CAN", "STATE"];
const GAP: usize = 2;

impl Style {
    fn paint(self, text: &str, good: bool) -> String {
        match (self.colour, good) {
            (false, _) => text.to_owned(),
            (true, true) => format!("\x1b[32m{text}\x1b[0m"),
            (true, false) => format!("\x1b[31m{text}\x1b[0m"),
        }
    }

    fn columns(self) -> usize {
        self.width.max(WIDTH_MIN)
    }
}

/// `superfluid runtimes`.
pub fn catalog_table(catalog: &Catalog, style: Style) -> String {
    let entries = catalog.entries();
    if entries.is_empty() {
        return "no runtime is installed\n".into();
    }
    let rows: Vec<[String; 7]> = entries.iter().map(cells).collect();
    let mut widths = HEADINGS.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    if widths.iter().sum::<usize>() + GAP * (HEADINGS.len() - 1) > style.columns() {
        for (entry, row) in entries.iter().zip(&rows) {
            stacked(&mut out, entry, row, style);
        }
        return out;
    }
    line(&mut out, &HEADINGS.map(str::to_owned), &widths, |cell| cell.to_owned());
    for (entry, row) in entries.iter().zip(&rows) {
        line(&mut out, row, &widths, |state| style.paint(state, entry.usable().is_ok()));
        complaint(&mut out, entry, style);
    }
    out
}

fn line(out: &mut String, cells: &[String; 7], widths: &[usize; 7], state: impl Fn(&str) -> String) {
    let [front @ .., last] = cells;
    for (cell, width) in front.iter().zip(widths) {
        let _ = write!(out, "{cell:width$}{:GAP$}", "");
    }
    let _ = writeln!(out, "{}", state(last));
}

fn stacked(out: &mut String, entry: &Entry, row: &[String; 7], style: Style) {
    let [id, version, source, reads, devices, can, state] = row;
    let _ = writeln!(out, "{id} {version}  {}", style.paint(state, entry.usable().is_ok()));
    for (name, value) in [("from", source), ("reads", reads), ("devices", devices), ("can", can)] {
        if value != "-" {
            wrap(out, &format!("  {name:9}"), value, style.columns());
        }
    }
    complaint(out, entry, style);
}

/// Why an entry cannot be used, where, and what to do.
fn complaint(out: &mut String, entry: &Entry, style: Style) {
    let Err(reason) = entry.usable() else { return };
    wrap(out, "    ", &reason.to_string(), style.columns());
    wrap(out, "    found through ", &entry.origin.display().to_string(), style.columns());
    if let Some(hint) = reason.hint() {
        wrap(out, "    hint: ", &hint, style.columns());
    }
}

fn cells(entry: &Entry) -> [String; 7] {
    let descriptor = &entry.descriptor;
    let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let devices = entry.probe.iter().flat_map(|probe| &probe.devices).map(|device| device.id.as_str());
    [
        descriptor.id.clone(),
        descriptor.version.clone(),
        entry.source.name().into(),
        dash(descriptor.formats.iter().map(format_cell).collect::<Vec<_>>().join(", ")),
        dash(devices.collect::<Vec<_>>().join(", ")),
        dash(abilities(entry).join(", ")),
        if entry.usable().is_ok() { "usable".into() } else { "not usable".into() },
    ]
}

fn format_cell(format: &Format) -> String {
    let versions: Vec<String> = format.versions.iter().map(u32::to_string).collect();
    match versions.as_slice() {
        [] => format.format.clone(),
        versions => format!("{} v{}", format.format, versions.join("/")),
    }
}

/// Capabilities that decide what a runtime is good for, as section, name, word.
const KEY: &[(&str, &str, &str)] = &[
    ("workload", "chat", "chat"),
    ("workload", "completion", "completion"),
    ("workload", "embedding", "embed"),
    ("workload", "rerank", "rerank"),
    ("modalities", "vision", "vision"),
    ("modalities", "audio", "audio"),
    ("modalities", "whisper_transcribe", "transcribe"),
    ("kv", "fork", "fork"),
    ("kv", "export", "park"),
];

/// A condition is shown with an asterisk.
fn abilities(entry: &Entry) -> Vec<String> {
    let word = |(section, name, word): &(&str, &str, &str)| match entry
        .descriptor
        .capabilities
        .get(*section)?
        .get(*name)?
    {
        Capability::Yes(_) => Some((*word).to_owned()),
        Capability::When { .. } => Some(format!("{word}*")),
        Capability::No(_) => None,
    };
    KEY.iter().filter_map(word).collect()
}

/// `superfluid runtimes MODEL`.
pub fn model_table(catalog: &Catalog, model: impl Into<ModelKind>, style: Style) -> String {
    let model = model.into();
    let mut out = format!("{model}\n");
    let mut chosen = false;
    for (entry, verdict) in catalog.readers(model) {
        let word = match (&verdict, chosen) {
            (Ok(()), false) => "serves it",
            (Ok(()), true) => "reads it too",
            (Err(_), _) => "no",
        };
        chosen |= verdict.is_ok();
        let _ = writeln!(out, "  {}  {}", entry.title(), style.paint(word, verdict.is_ok()));
        if let Err(reason) = verdict {
            wrap(&mut out, "    ", &reason.to_string(), style.columns());
        }
    }
    if !chosen {
        out.push_str("no runtime here serves it\n");
    }
    out
}

/// Writes words up to `width` columns; later lines are indented as deep as the lead is long.
fn wrap(out: &mut String, lead: &str, text: &str, width: usize) {
    let indent = lead.chars().count();
    out.push_str(lead);
    let mut column = indent;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > width {
            let _ = write!(out, "\n{:indent$}", "");
            column = indent;
        }
        if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}

//! The catalog as text for a terminal.

use std::fmt::Write as _;

use sf_abi::descriptor::{Capability, Format};

use crate::choose::ModelKind;
use crate::discover::Catalog;
use crate::entry::Entry;
use crate::grid::{Row, Style, grid, wrap};

const HEADINGS: [(&str, &str); 7] = [
    ("ID", ""),
    ("VERSION", ""),
    ("SOURCE", "from"),
    ("READS", "reads"),
    ("DEVICES", "devices"),
    ("CAN", "can"),
    ("STATE", ""),
];

/// `superfluid runtimes`.
pub fn catalog_table(catalog: &Catalog, style: Style) -> String {
    let entries = catalog.entries();
    if entries.is_empty() {
        return "no runtime is installed\n".into();
    }
    let row = |entry: &Entry| Row {
        cells: cells(entry).into(),
        good: entry.usable().is_ok(),
        remarks: complaint(entry),
    };
    grid(&HEADINGS, &entries.iter().map(row).collect::<Vec<_>>(), style)
}

/// Why an entry cannot be used, where, and what to do.
fn complaint(entry: &Entry) -> Vec<(&'static str, String)> {
    let Err(reason) = entry.usable() else { return Vec::new() };
    let mut lines =
        vec![("    ", reason.to_string()), ("    found through ", entry.origin.display().to_string())];
    lines.extend(reason.hint().map(|hint| ("    hint: ", hint)));
    lines
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

//! The report for people.

use sf_catalog::{ReasonReport, Row, Style, grid};

use super::report::{ModelReport, Report};

const HEADINGS: [(&str, &str); 9] = [
    ("MODEL", ""),
    ("FORMAT", "format"),
    ("ARCHITECTURE", "arch"),
    ("PARAMETERS", "params"),
    ("SIZE", "size"),
    ("QUANTIZATION", "quant"),
    ("CONTEXT", "context"),
    ("RUNTIME", "runtime"),
    ("SELF-TEST", ""),
];

/// The models of each place under its path.
pub(super) fn table(report: &Report<'_>, style: Style) -> String {
    let mut out = String::new();
    for (at, place) in report.places.iter().enumerate().filter(|(_, place)| place.models > 0) {
        let rows: Vec<Row> = report.models.iter().filter(|model| model.place == at).map(row).collect();
        let gap = if out.is_empty() { "" } else { "\n" };
        out.push_str(&format!("{gap}{} ({})\n", place.path, place.what));
        out.push_str(&grid(&HEADINGS, &rows, style));
    }
    if out.is_empty() {
        let places: Vec<&str> = report.places.iter().map(|place| place.path.as_str()).collect();
        let places = if places.is_empty() { "nowhere".to_owned() } else { places.join(", ") };
        return format!("no models; looked in: {places}\n");
    }
    out
}

fn row(model: &ModelReport<'_>) -> Row {
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let format = match (model.format, model.format_version) {
        (Some(format), Some(version)) => Some(format!("{format} v{version}")),
        (format, _) => format.map(str::to_owned),
    };
    let (state, good) = match (&model.self_test, &model.error) {
        (_, Some(_)) => ("unreadable".to_owned(), false),
        (Some(test), None) if test.passed => ("passed".to_owned(), true),
        (Some(test), None) => (format!("{} failed", test.failures.len()), false),
        (None, None) => ("no text".to_owned(), false),
    };
    let runtime = model.runtime.unwrap_or("none");
    Row {
        cells: vec![
            model.id.to_owned(),
            dash(format),
            dash(model.architecture.map(str::to_owned)),
            dash(model.parameters.map(count)),
            dash(model.bytes.map(size)),
            dash(model.quantization.map(str::to_owned)),
            dash(model.context.map(|context| context.to_string())),
            dash(model.format.map(|_| runtime.to_owned())),
            state,
        ],
        good,
        remarks: remarks(model),
    }
}

/// Where it lies, how its text works, and what is wrong.
fn remarks(model: &ModelReport<'_>) -> Vec<(&'static str, String)> {
    let mut lines = vec![("    ", model.path.clone())];
    let mut say = |lead, reason: &ReasonReport| {
        lines.push((lead, reason.message.clone()));
        lines.extend(reason.hint.clone().map(|hint| ("      hint: ", hint)));
    };
    if let Some(error) = &model.error {
        say("    unreadable: ", error);
    }
    if let Some(error) = &model.text_error {
        say("    text: ", error);
    }
    if model.format.is_some() && model.runtime.is_none() {
        for verdict in &model.runtimes {
            let why = verdict.reason.as_ref().map_or("not the one that was named", |why| &why.message);
            lines.push(("    no runtime: ", format!("{} {}: {why}", verdict.id, verdict.version)));
        }
        if model.runtimes.is_empty() {
            lines.push(("    no runtime: ", "none is installed".to_owned()));
        }
    }
    lines.extend(model.text.map(|text| ("    text: ", text.to_owned())));
    for failure in model.self_test.iter().flat_map(|test| &test.failures) {
        let words = format!(
            "{} of {}: expected {}, found {}; {}",
            failure.check, failure.input, failure.expected, failure.found, failure.consequence
        );
        lines.push(("    failed: ", words));
        lines.push(("      hint: ", failure.hint.to_owned()));
    }
    lines
}

/// E.g. `134.5 M`.
fn count(parameters: u64) -> String {
    let units = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")];
    let parameters = parameters as f64;
    match units.iter().find(|(unit, _)| parameters >= *unit) {
        Some((unit, letter)) => format!("{:.1} {letter}", parameters / unit),
        None => format!("{parameters}"),
    }
}

/// E.g. `93.8 MiB`.
fn size(bytes: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let parameters = [7, 1_500, 134_515_008, 7_000_000_000].map(count);
        assert_eq!(parameters, ["7", "1.5 K", "134.5 M", "7.0 B"]);
        let sizes = [512, 98_362_432, 5 << 30].map(size);
        assert_eq!(sizes, ["512 B", "93.8 MiB", "5.0 GiB"]);
    }
}

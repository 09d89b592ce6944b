//! Prints what scenarios found and writes it as JSON.

use std::path::Path;

use serde::Serialize;

use super::{Played, Row, Serving, Verdict, short};
use crate::error::BenchError;

/// Width of the first column.
const WHAT: usize = 44;
/// Width of explanations.
const LINE: usize = 104;

/// One scenario, with an explanation under each row that has one.
pub(crate) fn print_scenario(played: &Played) {
    println!("\n{} ({:.0} s)", played.name, played.seconds);
    wrapped(played.about).iter().for_each(|line| println!("  {line}"));
    header();
    let mut why = "";
    for row in &played.found.rows {
        println!("  {}", line(row));
        if row.why != why && !row.why.is_empty() {
            println!("    {}", row.why);
        }
        why = &row.why;
    }
    for note in &played.found.notes {
        println!("  note: {note}");
    }
    if let Some(failure) = &played.failure {
        println!("  FAILED: {failure}");
    }
}

/// Every row of which something is asked, machine and count of verdicts.
pub(crate) fn print_summary(serving: &Serving) {
    println!(
        "\n{} on {}, {} CPUs, {} threads, {} rounds{}, load average before {:.2}, {:.0} s",
        serving.model,
        serving.cpu,
        serving.cpus,
        serving.threads,
        serving.rounds,
        if serving.quick { " (a smoke run: figures mean nothing)" } else { "" },
        serving.load_average_before,
        serving.seconds,
    );
    header();
    for played in &serving.scenarios {
        println!("{}", played.name);
        for row in played.found.rows.iter().filter(|row| row.verdict != Verdict::Info) {
            println!("  {}", line(row));
        }
        if let Some(failure) = &played.failure {
            println!("  FAILED: {}", failure.lines().next().unwrap_or_default());
        }
    }
    println!(
        "{} pass, {} fail, {} without a peer",
        serving.count(Verdict::Pass),
        serving.count(Verdict::Fail),
        serving.count(Verdict::Unknown),
    );
}

/// Lines of at most [`LINE`] characters, broken between words.
pub(crate) fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        match line.len() {
            0 => line.push_str(word),
            used if used + word.len() < LINE => line.extend([" ", word]),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn header() {
    println!("  {:<WHAT$}{:>12}{:>12}{:>8}  {:<16}verdict", "", "superfluid", "peer", "ratio", "target");
}

fn line(row: &Row) -> String {
    let name = if row.unit.is_empty() { row.what.clone() } else { format!("{}, {}", row.what, row.unit) };
    let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
    let ratio = row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x"));
    format!(
        "{name:<WHAT$}{:>12}{:>12}{ratio:>8}  {:<16}{}",
        short(row.ours),
        figure(row.peer),
        row.target.text(),
        row.verdict.word(),
    )
}

/// Writes figures to a file, when there is one to write to.
pub(crate) fn write_json<T: Serialize>(value: &T, path: Option<&Path>) -> Result<(), BenchError> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(value).expect("figures are plain numbers and text");
    std::fs::write(path, text + "\n").map_err(BenchError::io(format!("write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::Target;

    #[test]
    fn explanations_are_wrapped_between_words() {
        let text = "word ".repeat(50);
        let lines = wrapped(&text);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= LINE), "{lines:?}");
        assert_eq!(lines.join(" "), text.trim_end());
    }

    #[test]
    fn a_row_reads_from_left_to_right() {
        let row = Row::new("TTFT p50", "ms", vec![200.0], vec![400.0]).target(Target::ratio_at_most(0.6));
        let words: Vec<String> = line(&row).split_whitespace().map(str::to_owned).collect();
        assert_eq!(words, ["TTFT", "p50,", "ms", "200", "400", "0.50x", "<=", "0.6x", "pass"]);
        let alone = line(&Row::alone("lanes", "", vec![0.0]));
        assert_eq!(alone.split_whitespace().collect::<Vec<_>>(), ["lanes", "0", "-", "-"]);
    }
}

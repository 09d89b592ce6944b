//! Rows of cells as text for a terminal: a table where it fits, a list where it does not, with remarks under a row.

use std::fmt::Write as _;

/// How the text may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; anything below 40 counts as 40.
    pub width: usize,
    /// Whether ANSI colours are understood.
    pub colour: bool,
}

const WIDTH_MIN: usize = 40;
const GAP: usize = 2;

impl Style {
    pub(crate) fn paint(self, text: &str, good: bool) -> String {
        match (self.colour, good) {
            (false, _) => text.to_owned(),
            (true, true) => format!("\x1b[32m{text}\x1b[0m"),
            (true, false) => format!("\x1b[31m{text}\x1b[0m"),
        }
    }

    pub(crate) fn columns(self) -> usize {
        self.width.max(WIDTH_MIN)
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// One per heading; `-` for what there is not.
    pub cells: Vec<String>,
    /// Whether the last cell is good news.
    pub good: bool,
    /// What stands under the row: a lead, and words that are wrapped behind it.
    pub remarks: Vec<(&'static str, String)>,
}

/// Headings are pairs: of the table, and of the list, where an empty one puts its cell on the first line.
pub fn grid(headings: &[(&str, &str)], rows: &[Row], style: Style) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|(heading, _)| heading.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(&row.cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let is_table = widths.iter().sum::<usize>() + GAP * headings.len().saturating_sub(1) <= style.columns();
    let mut out = String::new();
    if is_table {
        let titles: Vec<String> = headings.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        line(&mut out, &titles, &widths, str::to_owned);
    }
    for row in rows {
        if is_table {
            line(&mut out, &row.cells, &widths, |last| style.paint(last, row.good));
        } else {
            stacked(&mut out, headings, row, style);
        }
        for (lead, words) in &row.remarks {
            wrap(&mut out, lead, words, style.columns());
        }
    }
    out
}

fn line(out: &mut String, cells: &[String], widths: &[usize], last: impl Fn(&str) -> String) {
    let Some((end, front)) = cells.split_last() else { return };
    for (cell, width) in front.iter().zip(widths) {
        let _ = write!(out, "{cell:width$}{:GAP$}", "");
    }
    let _ = writeln!(out, "{}", last(end));
}

fn stacked(out: &mut String, headings: &[(&str, &str)], row: &Row, style: Style) {
    let Some((last, front)) = row.cells.split_last() else { return };
    let named = front.iter().zip(headings);
    let first: Vec<&str> =
        named.clone().filter(|(_, (_, label))| label.is_empty()).map(|(cell, _)| cell.as_str()).collect();
    let _ = writeln!(out, "{}  {}", first.join(" "), style.paint(last, row.good));
    for (cell, (_, label)) in named.filter(|(cell, (_, label))| !label.is_empty() && *cell != "-") {
        wrap(out, &format!("  {label:9}"), cell, style.columns());
    }
}

/// Writes words up to `width` columns; later lines are indented as deep as the lead is long.
pub(crate) fn wrap(out: &mut String, lead: &str, text: &str, width: usize) {
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

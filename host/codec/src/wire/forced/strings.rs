//! Turns what a schema says of a string into a terminal of raw text: lengths, patterns and the common formats.

use serde_json::{Map, Value as Json};

use super::NotHeld;
use super::lark::ANY;
use super::values::Place;

const DATE: &str = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])";
const TIME: &str =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+\\-]([01][0-9]|2[0-3]):[0-5][0-9])";
const OCTET: &str = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const LABEL: &str = "[A-Za-z0-9]([A-Za-z0-9\\-]{0,40}[A-Za-z0-9])?";

/// The terminal of such strings, and whether it is any text.
pub(super) fn terminal(said: &Map<String, Json>, place: Place<'_>) -> Result<(String, bool), NotHeld> {
    let mut parts = Vec::new();
    let count = |key: &str| said.get(key).and_then(Json::as_u64);
    match (count("minLength").unwrap_or(0), count("maxLength")) {
        (0, None) => {}
        (least, None) => parts.push(format!("/(?s:.{{{least},}})/")),
        (_, Some(0)) => parts.push("/(a{0})/".to_owned()),
        (least, Some(most)) => parts.push(format!("/(?s:.{{{least},{most}}})/")),
    }
    if let Some(pattern) = said.get("pattern").and_then(Json::as_str) {
        parts.push(searched(pattern).ok_or_else(|| {
            let reason = "^ and $ beside | cannot be held where strings are written without quotes";
            place.fault("pattern", reason)
        })?);
    }
    if let Some(name) = said.get("format").and_then(Json::as_str) {
        let expression = format(name).ok_or_else(|| {
            place.fault("format", format!("{name:?} cannot be held where strings are written without quotes"))
        })?;
        parts.push(format!("/{expression}/"));
    }
    Ok(if parts.is_empty() { (ANY.to_owned(), true) } else { (parts.join(" & "), false) })
}

/// Expressions that match nothing but strings of a format; not all of them.
fn format(name: &str) -> Option<String> {
    Some(match name {
        "date" => DATE.to_owned(),
        "time" => TIME.to_owned(),
        "date-time" => format!("{DATE}T{TIME}"),
        "uuid" => "[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}".to_owned(),
        "ipv4" => format!("{OCTET}(\\.{OCTET}){{3}}"),
        "hostname" => format!("{LABEL}(\\.{LABEL}){{0,4}}"),
        "email" => {
            format!("[A-Za-z0-9_+\\-]{{1,40}}(\\.[A-Za-z0-9_+\\-]{{1,20}}){{0,2}}@{LABEL}(\\.{LABEL}){{1,3}}")
        }
        "uri" => {
            format!("[a-z][a-z0-9]{{1,9}}:\\/\\/{LABEL}(\\.{LABEL}){{0,4}}(\\/[A-Za-z0-9_.~\\-]*){{0,20}}")
        }
        _ => return None,
    })
}

/// A pattern of JSON Schema, which is searched for, as a terminal that matches the whole; `None` where its anchors belong
/// to alternatives.
fn searched(pattern: &str) -> Option<String> {
    let mut out = String::new();
    let (mut depth, mut in_class, mut apart) = (0_u32, false, false);
    let mut chars = pattern.chars().peekable();
    let (mut from_start, mut to_end, mut first) = (false, false, true);
    while let Some(c) = chars.next() {
        let last = chars.peek().is_none();
        match c {
            '\\' => match chars.next()? {
                'd' => out.push_str(if in_class { "0-9" } else { "[0-9]" }),
                'w' => out.push_str(if in_class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                '/' => out.push_str("\\/"),
                other => out.extend(['\\', other]),
            },
            '/' => out.push_str("\\/"),
            '\n' => out.push_str("\\n"),
            '[' if !in_class => {
                in_class = true;
                out.push(c);
            }
            ']' if in_class => {
                in_class = false;
                out.push(c);
            }
            '^' if !in_class && first => from_start = true,
            '$' if !in_class && last => to_end = true,
            '^' | '$' if !in_class => return None,
            _ => {
                if !in_class {
                    match c {
                        '(' => depth += 1,
                        ')' => depth = depth.checked_sub(1)?,
                        '|' if depth == 0 => apart = true,
                        _ => {}
                    }
                }
                out.push(c);
            }
        }
        first = false;
    }
    if apart && (from_start || to_end) {
        return None;
    }
    let lead = if from_start { "" } else { "(?s:.*)" };
    let tail = if to_end { "" } else { "(?s:.*)" };
    Some(format!("/{lead}({out}){tail}/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_searched_for_unless_it_has_anchors() {
        let check = |pattern: &str, expect: Option<&str>| {
            assert_eq!(searched(pattern).as_deref(), expect, "{pattern}");
        };
        check("^[ab]{2}$", Some("/([ab]{2})/"));
        check("a/b", Some("/(?s:.*)(a\\/b)(?s:.*)/"));
        check("^(a|b)\\d[\\w-]", Some("/((a|b)[0-9][0-9A-Za-z_-])(?s:.*)/"));
        check("a|b", Some("/(?s:.*)(a|b)(?s:.*)/"));
        check("^a|b$", None);
        check("(^a)", None);
        check("[$^]\\$", Some("/(?s:.*)([$^]\\$)(?s:.*)/"));
    }
}

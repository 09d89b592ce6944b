//! Writes the grammar of arguments whose parameters stand between tags: strings as raw text, other values as JSON.

use serde_json::json;
use sf_core::{Token, lark_text};

use super::NotHeld;
use super::arguments::{Callee, alternatives, named};
use super::lark::{ANY, Writer, except_for};
use super::values::{Place, Text, Values};
use super::written::Tags;
use super::{schema, strings};
use crate::wire::tagged::Tagged;
use crate::wire::window::{Mark, plain};

/// What no string may be where the parser would take it for another type: a number, a list, a word of JSON.
const A_WORD: &str = "/[A-Za-z_](?s:.*)/ & ~/\\s*([Tt]rue|[Ff]alse|null|None)\\s*/";

/// All parameters of a tool, in the order of its schema.
pub(super) fn tagged(
    writer: &mut Writer,
    callee: &Callee,
    tags: &Tags,
    form: &'static Tagged,
) -> Result<String, NotHeld> {
    let mut parts = Vec::new();
    for parameter in schema::parameters(callee.index, &callee.schema)? {
        let legible = |key: &str| {
            !key.is_empty() && key.len() < 256 && key.trim() == key && !key.contains(['<', '>', '"', '\n'])
        };
        named(&parameter, callee, legible)?;
        let place = Place::new(callee.index, &callee.schema, &parameter.at);
        let values = Values::of(&parameter.schema, place)?;
        let value = tag_value(writer, tags, form, &values, place)?;
        let key = format!("{} {}", writer.text(tags.key)?, lark_text(parameter.key));
        let part = writer.rule(&format!("{key} {value}"));
        parts.push(if parameter.required { part } else { format!("{part}?") });
    }
    Ok(if parts.is_empty() { "\"\"".to_owned() } else { parts.join(" ") })
}

/// How the values of one parameter are told apart.
struct Kinds {
    /// Whether the wire says which values are strings, so that none is taken for another.
    told: bool,
    /// Whether values other than strings can be written.
    others: bool,
    /// Whether only its look tells a string from them.
    mixed: bool,
}

impl Kinds {
    fn of(tags: &Tags, values: &Values) -> Kinds {
        let told = tags.string != tags.other;
        let others = told || !values.string_first;
        let any = !values.others.is_empty() || !values.truth.is_empty() || values.null;
        Kinds { told, others, mixed: !told && others && any }
    }
}

/// From behind a parameter's name to the next one's mark.
pub(super) fn tag_value(
    writer: &mut Writer,
    tags: &Tags,
    form: &'static Tagged,
    values: &Values,
    place: Place<'_>,
) -> Result<String, NotHeld> {
    let kinds = Kinds::of(tags, values);
    let behind = writer.text(tags.behind)?;
    let end = format!("{} {behind}", writer.text(tags.end)?);
    let (open_text, open_other) = (writer.text(tags.string)?, writer.text(tags.other)?);
    let mut ways = Vec::new();
    let mut texts = Vec::new();
    texts.extend(values.any.then(|| (ANY.to_owned(), true)));
    for text in &values.strings {
        match text {
            Text::Fixed(word) if ends(form).any(|mark| word.contains(mark.text)) => {
                return Err(place.fault("enum", format!("{word:?} holds a mark that ends a value")));
            }
            Text::Fixed(word) if kinds.mixed && !word.starts_with(char::is_alphabetic) => {}
            Text::Fixed(word) => ways.push(format!("{open_text} {} {end}", lark_text(word))),
            Text::Of(said, at) => {
                texts.push(strings::terminal(said, Place::new(place.tool, place.root, at))?);
            }
        }
    }
    for (inner, free) in texts {
        let value = if kinds.mixed {
            raw(writer, tags, form, (&format!("{inner} & {A_WORD}"), false))
        } else {
            raw(writer, tags, form, (&inner, free))
        };
        ways.push(format!("{open_text} {value} {behind}"));
    }
    let words = other_words(writer, &kinds, values, place);
    if !words.is_empty() {
        ways.push(format!("{open_other} ({}) {end}", words.join(" | ")));
    }
    if ways.is_empty() {
        return Err(place.fault("", "no value of it can be written in this model's calls"));
    }
    Ok(format!("({})", ways.join(" | ")))
}

/// Marks that end a value, or would.
fn ends(form: &'static Tagged) -> impl Iterator<Item = &'static Mark> {
    form.value_ends.iter().chain(form.value_stops)
}

/// A string up to its end. `free`: it is any text, so it may end in every way that the parser knows.
fn raw(writer: &mut Writer, tags: &Tags, form: &'static Tagged, (inner, free): (&str, bool)) -> String {
    let stops: Vec<&str> = ends(form).map(|mark| mark.text).collect();
    let mut bare = inner.to_owned();
    if !free && form.breaks_line {
        // A line break beside a mark is the mark's: where the mark is written without one, the text has none there.
        if !tags.string.ends_with('\n') {
            bare.push_str(r" & ~/\n(?s:.*)/");
        }
        if !tags.end.starts_with('\n') {
            bare.push_str(r" & ~/(?s:.*)\n/");
        }
    }
    let inner = bare.as_str();
    let token: Option<(&str, Token)> =
        form.value_ends.iter().find_map(|mark| Some((mark.text, writer.token(mark.text)?)));
    match token {
        // What stands before the token that ends the value is no part of it.
        Some((mark, token)) if !free => {
            let text = writer.terminal(&except_for(inner, &stops));
            let lead = tags.end.strip_suffix(mark).unwrap_or_default();
            let whole = writer.terminal(&format!("{text} {}", lark_text(lead)));
            format!("{whole} <[{token}]>")
        }
        _ if free => {
            let is_end = |stop: &str| form.value_ends.iter().any(|end| end.text == stop);
            let without: Vec<&str> = stops.iter().copied().filter(|stop| !is_end(stop)).collect();
            writer.until(inner, form.value_ends, &without)
        }
        _ => writer.until(inner, &[plain(tags.end)], &stops),
    }
}

/// Values that are no strings.
fn other_words(writer: &mut Writer, kinds: &Kinds, values: &Values, place: Place<'_>) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    if kinds.others {
        words.extend(values.truth.iter().map(|truth| format!("\"{truth}\"")));
    }
    words.extend(values.null.then(|| "\"null\"".to_owned()));
    if kinds.others && !values.others.is_empty() {
        words.push(alternatives(writer, &values.others, place));
    }
    if values.any && kinds.told {
        let no_string = ["integer", "number", "boolean", "null", "array", "object"];
        words.push(writer.json(json!({"type": no_string})));
    }
    words
}

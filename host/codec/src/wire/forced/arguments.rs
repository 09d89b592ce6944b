//! Writes the grammar of one tool's arguments in the style of its wire.

use serde_json::{Map, Value as Json, json};
use sf_core::lark_text;

use super::NotHeld;
use super::lark::Writer;
use super::schema::{self, Parameter};
use super::strings;
use super::tags::{tag_value, tagged};
use super::values::{Place, Text, Values};
use super::written::Style;
use crate::wire::sink::{in_name, starts_name};
use crate::wire::tagged::Tagged;
use crate::wire::window::plain;

/// A tool that is called.
pub(super) struct Callee {
    /// Its place among the tools of the request.
    pub(super) index: usize,
    pub(super) schema: Json,
    /// Whether its arguments keep to the schema; else they are any object.
    pub(super) held: bool,
}

/// Arguments of a tool. `form`: how the parser reads them where they stand between tags.
pub(super) fn of(
    writer: &mut Writer,
    callee: &Callee,
    style: Style,
    form: Option<&'static Tagged>,
) -> Result<String, NotHeld> {
    if !callee.held {
        return any_object(writer, style, form);
    }
    match (style, form) {
        (Style::Tags(tags), Some(form)) => tagged(writer, callee, &tags, form),
        (Style::Python, _) => {
            let parameters = schema::parameters(callee.index, &callee.schema)?;
            let mut members = Vec::new();
            for parameter in &parameters {
                named(parameter, callee, |key| key.starts_with(starts_name) && key.chars().all(in_name))?;
                let value = python(writer, callee, parameter);
                members.push((
                    format!("{} {value}", lark_text(&format!("{}=", parameter.key))),
                    parameter.required,
                ));
            }
            Ok(joined(writer, &members, ", "))
        }
        (Style::Gemma(mark), _) => match schema::parameters(callee.index, &callee.schema) {
            Ok(parameters) => gemma_members(writer, callee, &parameters, mark),
            // Its parser reads JSON as well.
            Err(_) => Ok(writer.json(schema::object(&callee.schema))),
        },
        _ => Ok(writer.json(schema::object(&callee.schema))),
    }
}

/// Arguments that no schema bounds.
fn any_object(writer: &mut Writer, style: Style, form: Option<&'static Tagged>) -> Result<String, NotHeld> {
    let name = "/[A-Za-z_][A-Za-z0-9_]{0,63}/";
    match (style, form) {
        (Style::Tags(tags), Some(form)) => {
            let place = Place::new(0, &Json::Null, "");
            let any = Values { any: true, ..Values::default() };
            let value = tag_value(writer, &tags, form, &any, place)?;
            let member = writer.rule(&format!("{} {name} {value}", writer.text(tags.key)?));
            Ok(format!("{member}*"))
        }
        (Style::Python, _) => {
            let value = writer.json(json!({}));
            let member = writer.rule(&format!("{name} \"=\" {value}"));
            Ok(format!("({member} (\", \" {member})*)?"))
        }
        _ => Ok(writer.json(json!({"type": "object"}))),
    }
}

/// Refuses a parameter whose name the parser would not read.
pub(super) fn named(
    parameter: &Parameter<'_>,
    callee: &Callee,
    fits: impl Fn(&str) -> bool,
) -> Result<(), NotHeld> {
    if fits(parameter.key) {
        return Ok(());
    }
    let reason = "this model's calls cannot spell such a name";
    Err(NotHeld::Schema { tool: callee.index, at: parameter.at.clone(), reason: reason.to_owned() })
}

/// Members in their order, those that are not required or not, with `between` between any two.
fn joined(writer: &mut Writer, members: &[(String, bool)], between: &str) -> String {
    // Behind a member, and where there was none yet.
    let (mut behind, mut first): (Option<String>, Option<String>) = (None, None);
    for (member, required) in members.iter().rev() {
        let tail = behind.as_deref().unwrap_or("");
        let or = |next: &Option<String>| match next {
            _ if *required => String::new(),
            Some(next) => format!(" | {next}"),
            None => " | \"\"".to_owned(),
        };
        let (or_first, or_behind) = (or(&first), or(&behind));
        let member = writer.rule(&format!("{member} {tail}"));
        first = Some(writer.rule(&format!("{member}{or_first}")));
        behind = Some(writer.rule(&format!("{} {member}{or_behind}", lark_text(between))));
    }
    first.unwrap_or_else(|| "\"\"".to_owned())
}

/// JSON that one of several schemas accepts.
pub(super) fn alternatives(writer: &mut Writer, schemas: &[Json], place: Place<'_>) -> String {
    let one = match schemas {
        [one] => one.clone(),
        several => json!({"anyOf": several}),
    };
    if writer.is_full() {
        return writer.json(json!({}));
    }
    writer.json(schema::apart(&one, place.root))
}

fn python(writer: &mut Writer, callee: &Callee, parameter: &Parameter<'_>) -> String {
    let place = Place::new(callee.index, &callee.schema, &parameter.at);
    let values = match Values::of(&parameter.schema, place) {
        Ok(values) if !values.any && !values.is_empty() => values,
        // Its parser reads JSON as well.
        _ => return alternatives(writer, std::slice::from_ref(&parameter.schema), place),
    };
    let mut ways: Vec<String> =
        values.truth.iter().map(|truth| if *truth { "\"True\"" } else { "\"False\"" }.to_owned()).collect();
    ways.extend(values.null.then(|| "\"None\"".to_owned()));
    let strings = values.strings.iter().map(|text| match text {
        Text::Fixed(word) => json!({"const": word}),
        Text::Of(said, _) => Json::Object(said.clone()),
    });
    let schemas: Vec<Json> = strings.chain(values.others.iter().cloned()).collect();
    if !schemas.is_empty() {
        ways.push(alternatives(writer, &schemas, place));
    }
    format!("({})", ways.join(" | "))
}

fn gemma_members(
    writer: &mut Writer,
    callee: &Callee,
    parameters: &[Parameter<'_>],
    mark: &'static str,
) -> Result<String, NotHeld> {
    let mut members = Vec::new();
    for parameter in parameters {
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_bare = !parameter.key.is_empty() && parameter.key.chars().all(bare);
        let key = if is_bare { parameter.key.to_owned() } else { json!(parameter.key).to_string() };
        let value = gemma_value(writer, callee, parameter, mark)?;
        members.push((format!("{} {value}", lark_text(&format!("{key}:"))), parameter.required));
    }
    let all = joined(writer, &members, ",");
    Ok(format!("\"{{\" {all} \"}}\""))
}

fn gemma_value(
    writer: &mut Writer,
    callee: &Callee,
    parameter: &Parameter<'_>,
    mark: &'static str,
) -> Result<String, NotHeld> {
    let place = Place::new(callee.index, &callee.schema, &parameter.at);
    let values = match Values::of(&parameter.schema, place) {
        Ok(values) if !values.any && !values.is_empty() => values,
        _ => return Ok(alternatives(writer, std::slice::from_ref(&parameter.schema), place)),
    };
    let quote = writer.text(mark)?;
    let mut ways: Vec<String> = values.truth.iter().map(|truth| format!("\"{truth}\"")).collect();
    ways.extend(values.null.then(|| "\"null\"".to_owned()));
    let mut schemas = values.others.clone();
    for text in &values.strings {
        match text {
            Text::Fixed(word) if word.contains(mark) => schemas.push(json!({"const": word})),
            Text::Fixed(word) => ways.push(format!("{quote} {} {quote}", lark_text(word))),
            Text::Of(said, _) if quoted(said) => schemas.push(Json::Object(said.clone())),
            Text::Of(said, at) => {
                let (inner, free) = strings::terminal(said, Place::new(place.tool, place.root, at))?;
                let without = if free { &[][..] } else { &[mark][..] };
                let value = writer.until(&inner, &[plain(mark)], without);
                ways.push(format!("{quote} {value}"));
            }
        }
    }
    if !schemas.is_empty() {
        ways.push(alternatives(writer, &schemas, place));
    }
    Ok(format!("({})", ways.join(" | ")))
}

/// Whether JSON's own strings say more of such strings than free text does.
fn quoted(said: &Map<String, Json>) -> bool {
    said.contains_key("pattern") || said.contains_key("format")
}

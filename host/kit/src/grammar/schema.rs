//! Compiles JSON schemas, and finds the part of one that cannot be compiled.

use llguidance::api::TopLevelGrammar;
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use serde_json::{Map, Value};

use super::{GrammarError, keywords, parse};

/// Whitespace between two tokens of JSON: nothing, a space, or one indented line. Small models fall into endless runs
/// where any amount is allowed.
const WHITESPACE: &str = r"( |\n[ \t]{0,16})?";
/// Parts that are tried one by one to find the one at fault.
const TRIES_MAX: usize = 64;
/// Keywords whose value is a schema.
const ONE: [&str; 3] = ["items", "additionalItems", "additionalProperties"];
/// Keywords whose value is an object of schemas.
const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// Keywords whose value is a list of schemas.
const LISTED: [&str; 5] = ["anyOf", "oneOf", "allOf", "prefixItems", "items"];
/// Where a root keeps what its references point to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// The automaton of a schema's JSON text.
pub(super) fn compile(factory: &ParserFactory, text: &str) -> Result<Matcher, GrammarError> {
    let schema: Value =
        serde_json::from_str(text).map_err(|error| GrammarError::NotASchema { why: error.to_string() })?;
    keywords::check(&schema)?;
    match &schema {
        Value::Bool(true) => attempt(factory, &Value::Object(Map::new())),
        Value::Object(_) => attempt(factory, &schema).map_err(|error| locate(factory, &schema, error)),
        other => Err(GrammarError::NotASchema { why: format!("it is {}, expected an object", kind(other)) }),
    }
}

fn attempt(factory: &ParserFactory, schema: &Value) -> Result<Matcher, GrammarError> {
    let mut schema = schema.clone();
    let options = JsonCompileOptions {
        whitespace_pattern: Some(WHITESPACE.to_owned()),
        ..JsonCompileOptions::default()
    };
    // Also takes the place of options that a client wrote into its schema.
    options.apply_to(&mut schema);
    parse(factory, "schema", TopLevelGrammar::from_json_schema(schema))
}

/// The error of the innermost part that is refused by itself, with its place.
fn locate(factory: &ParserFactory, root: &Value, error: GrammarError) -> GrammarError {
    let mut tries = TRIES_MAX;
    let (mut at, mut here, mut found) = (String::new(), root, error);
    'inwards: loop {
        for (step, part) in parts(here) {
            if tries == 0 || !part.is_object() {
                continue;
            }
            tries -= 1;
            if let Err(inner) = attempt(factory, &with_definitions(part, root)) {
                (at, here, found) = (at + &step, part, inner);
                continue 'inwards;
            }
        }
        break;
    }
    match found {
        GrammarError::Refused { what, reason, .. } => GrammarError::Refused { what, at, reason },
        other => other,
    }
}

/// The schemas inside of one, each with the step to it.
pub(super) fn parts(schema: &Value) -> Vec<(String, &Value)> {
    let mut parts = Vec::new();
    for key in ONE {
        parts.extend(schema.get(key).map(|part| (format!("/{key}"), part)));
    }
    for key in NAMED {
        let named = schema.get(key).and_then(Value::as_object).into_iter().flatten();
        parts.extend(named.map(|(name, part)| (format!("/{key}/{}", escaped(name)), part)));
    }
    for key in LISTED {
        let listed = schema.get(key).and_then(Value::as_array).into_iter().flatten();
        parts.extend(listed.enumerate().map(|(index, part)| (format!("/{key}/{index}"), part)));
    }
    parts
}

/// A part that can be compiled by itself, because what it refers to is with it.
fn with_definitions(part: &Value, root: &Value) -> Value {
    let mut part = part.clone();
    if let Value::Object(map) = &mut part {
        for key in DEFINITIONS {
            if let (Some(definitions), None) = (root.get(key), map.get(key)) {
                map.insert(key.to_owned(), definitions.clone());
            }
        }
    }
    part
}

/// A name as a step of a JSON pointer (RFC 6901).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "false, which nothing fits",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

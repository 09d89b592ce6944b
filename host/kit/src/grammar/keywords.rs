//! What becomes of each keyword of a JSON schema: it is held, it says nothing about values, it is refused, or it is passed
//! over and reported.

use std::collections::BTreeSet;

use serde_json::Value;
use sf_core::SCHEMA_HELD;

use super::GrammarError;
use super::schema::parts;

/// Keywords that are passed over and reported, for one schema.
const IGNORED_MAX: usize = 16;
/// Descriptions, and what is only looked at where something refers to it.
const SILENT: [&str; 16] = [
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "id",
    "readOnly",
    "title",
    "writeOnly",
];
/// Bounds that the automaton cannot hold, each with what says nearly the same.
const REFUSED: [(&str, &str); 17] = [
    ("$dynamicRef", "use $ref"),
    ("$recursiveRef", "use $ref"),
    ("contains", "use items"),
    ("contentSchema", "leave it out"),
    ("dependencies", "use anyOf with one object for each case"),
    ("dependentRequired", "use anyOf with one object for each case"),
    ("dependentSchemas", "use anyOf with one object for each case"),
    ("else", "use anyOf with one schema for each case"),
    ("if", "use anyOf with one schema for each case"),
    ("maxContains", "use items and maxItems"),
    ("minContains", "use items and minItems"),
    ("not", "use enum or anyOf with what is allowed"),
    ("propertyNames", "use patternProperties with additionalProperties: false"),
    ("then", "use anyOf with one schema for each case"),
    ("unevaluatedItems", "use items: false"),
    ("unevaluatedProperties", "use additionalProperties: false"),
    ("uniqueItems", "leave it out; items may repeat"),
];

/// The keywords of a schema that are passed over because they are none of JSON Schema's: where each stands (a JSON
/// pointer) and its name. Names that start with `x-` are nobody's.
///
/// # Errors
/// A keyword that is refused, or text that is no JSON.
pub fn ignored_keywords(schema: &str) -> Result<Vec<(String, String)>, GrammarError> {
    let bytes = schema.len();
    if bytes > sf_core::limits::GRAMMAR_BYTES_MAX {
        return Err(GrammarError::TooLong { bytes });
    }
    let schema: Value =
        serde_json::from_str(schema).map_err(|error| GrammarError::NotASchema { why: error.to_string() })?;
    check(&schema)
}

/// Longest place that is told to a client as it is, bytes.
const PLACE_BYTES_MAX: usize = 2048;

/// As [`ignored_keywords`], of a schema that was read.
pub(super) fn check(root: &Value) -> Result<Vec<(String, String)>, GrammarError> {
    let mut ignored = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut open: Vec<(String, &Value)> = vec![(String::new(), root)];
    while let Some((at, here)) = open.pop() {
        let Some(map) = here.as_object() else { continue };
        for (key, value) in map {
            if let Some((_, instead)) = REFUSED.iter().find(|(name, _)| name == key) {
                return Err(GrammarError::Keyword { at, keyword: key.clone(), instead });
            }
            let known = SCHEMA_HELD.contains(&&**key) || SILENT.contains(&&**key) || key.starts_with("x-");
            if !known && ignored.len() < IGNORED_MAX {
                ignored.push((if at.is_empty() { "/".to_owned() } else { at.clone() }, key.clone()));
            }
            let target = value.as_str().filter(|_| key == "$ref").and_then(|target| target.strip_prefix('#'));
            if let Some((target, part)) = target.and_then(|target| Some((target, root.pointer(target)?)))
                && seen.insert(target)
            {
                open.push((target.to_owned(), part));
            }
        }
        // Backwards, so that what stands first is looked at first.
        let inner = parts(here).into_iter().rev();
        let inner =
            inner.filter(|(step, _)| !step.starts_with("/$defs/") && !step.starts_with("/definitions/"));
        // A long name with many schemas below it is not written out for each of them.
        let at = &at[..at.floor_char_boundary(PLACE_BYTES_MAX)];
        open.extend(inner.map(|(step, part)| (format!("{at}{step}"), part)));
    }
    Ok(ignored)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_keyword_has_two_fates() {
        let mut all: Vec<&str> = SCHEMA_HELD.iter().chain(&SILENT).copied().collect();
        all.extend(REFUSED.iter().map(|(name, _)| *name));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), count), (60, 60));
    }

    #[test]
    fn a_keyword_is_found_wherever_a_schema_stands() {
        let check = |schema: Value, expect: Result<&[(&str, &str)], (&str, &str)>| {
            let got = check(&schema);
            let expect = expect
                .map(|list| list.iter().map(|(at, key)| ((*at).to_owned(), (*key).to_owned())).collect())
                .map_err(|(at, keyword)| (at.to_owned(), keyword.to_owned()));
            let got = got.map_err(|error| match error {
                GrammarError::Keyword { at, keyword, .. } => (at, keyword),
                other => panic!("{other}"),
            });
            assert_eq!(got, expect, "{schema}");
        };
        check(json!(true), Ok(&[]));
        check(json!({"nullable": true, "x-order": 1}), Ok(&[("/", "nullable")]));
        check(json!({"properties": {"a/b": {"items": {"not": {}}}}}), Err(("/properties/a~1b/items", "not")));
        check(json!({"properties": {"not": {"type": "null"}}}), Ok(&[]));
        check(json!({"anyOf": [{}, {"if": {}}]}), Err(("/anyOf/1", "if")));
        check(json!({"items": [{}, {"uniqueItems": true}]}), Err(("/items/1", "uniqueItems")));
        check(json!({"$defs": {"a": {"not": {}}}}), Ok(&[]));
        check(
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"example": 1, "$ref": "#"}}}),
            Ok(&[("/$defs/a", "example")]),
        );
        check(json!({"const": {"not": 1}, "enum": [{"not": 1}], "default": {"not": 1}}), Ok(&[]));
    }
}

//! Takes the schema of one parameter apart by what its values look like as text: strings, words, and the rest, which is JSON.

use serde_json::{Map, Value as Json, json};
use sf_core::SCHEMA_HELD;

use super::NotHeld;

/// Levels of references and alternatives that are followed.
const DEPTH_MAX: usize = 16;
/// Schemas that are looked at for one parameter.
const STEPS_MAX: u32 = 1000;
/// Keywords that bound values besides those that a grammar can hold; what has one is refused. Whatever else stands in a schema
/// describes it.
const REFUSED: [&str; 4] = ["contains", "if", "not", "uniqueItems"];
const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "null", "array", "object"];
const STRING_KEYWORDS: [&str; 4] = ["minLength", "maxLength", "pattern", "format"];

/// What the values of a schema may be.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    /// Nothing is said about them.
    pub(super) any: bool,
    /// Strings, in the order of the schema.
    pub(super) strings: Vec<Text>,
    /// Whether a string is the first alternative.
    pub(super) string_first: bool,
    pub(super) truth: Vec<bool>,
    pub(super) null: bool,
    /// Schemas of all others.
    pub(super) others: Vec<Json>,
    /// Schemas that were looked at: references may lead to the same ones again and again.
    pub(super) steps: u32,
}

/// One kind of strings.
#[derive(Clone, Debug)]
pub(super) enum Text {
    /// Exactly this one.
    Fixed(String),
    /// What a schema of type string says, and where it stands.
    Of(Map<String, Json>, String),
}

/// The place of a schema: its tool, the tool's whole schema, and the pointer to it.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) tool: usize,
    pub(super) root: &'a Json,
    pub(super) at: &'a str,
    depth: usize,
}

impl<'a> Place<'a> {
    pub(super) fn new(tool: usize, root: &'a Json, at: &'a str) -> Place<'a> {
        Place { tool, root, at, depth: 0 }
    }

    /// Why values here cannot be held.
    pub(super) fn fault(self, key: &str, reason: impl Into<String>) -> NotHeld {
        let at = if key.is_empty() { self.at.to_owned() } else { format!("{}/{key}", self.at) };
        NotHeld::Schema { tool: self.tool, at, reason: reason.into() }
    }
}

impl Values {
    /// Takes a schema apart.
    pub(super) fn of(schema: &Json, place: Place<'_>) -> Result<Values, NotHeld> {
        let mut values = Values::default();
        values.add(schema, place)?;
        Ok(values)
    }

    fn add(&mut self, schema: &Json, place: Place<'_>) -> Result<(), NotHeld> {
        let Some(map) = schema.as_object() else {
            self.any |= *schema == Json::Bool(true);
            return Ok(());
        };
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(place.fault("", format!("it has more than {STEPS_MAX} alternatives")));
        }
        if place.depth > DEPTH_MAX {
            return Err(place.fault("", "it is nested too deep"));
        }
        let said: Vec<&str> = bounds(map).collect();
        match said[..] {
            [] => self.any = true,
            ["$ref"] => {
                let target =
                    target(map, place.root).ok_or_else(|| place.fault("$ref", "it points nowhere"))?;
                self.add(target, Place { depth: place.depth + 1, ..place })?;
            }
            ["anyOf" | "oneOf"] | ["allOf"] => {
                let parts = map.get(said[0]).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
                if said[0] == "allOf" && parts.len() > 1 {
                    return self.whole(map, place, "allOf");
                }
                for (index, part) in parts.iter().enumerate() {
                    let at = format!("{}/{}/{index}", place.at, said[0]);
                    self.add(part, Place { at: &at, depth: place.depth + 1, ..place })?;
                }
            }
            _ if said.iter().all(|key| matches!(*key, "type" | "const" | "enum")) && said != ["type"] => {
                let listed = map.get("enum").and_then(Json::as_array).into_iter().flatten();
                let only = map.get("const");
                for value in listed.chain(only).filter(|value| has_type(map, value)) {
                    if only.is_none_or(|only| only == value) {
                        self.add_value(value);
                    }
                }
            }
            _ => match said.iter().find(applies) {
                Some(key) => self.whole(map, place, key)?,
                None => self.add_types(map, place)?,
            },
        }
        Ok(())
    }

    /// A schema whose parts all hold at once: JSON, if it allows no string.
    fn whole(&mut self, map: &Map<String, Json>, place: Place<'_>, key: &str) -> Result<(), NotHeld> {
        let types = types(map);
        if types.is_empty() || types.contains(&"string") {
            let reason = "beside other keywords, it cannot be held where strings are written without quotes";
            return Err(place.fault(key, reason));
        }
        self.others.push(Json::Object(map.clone()));
        Ok(())
    }

    fn add_value(&mut self, value: &Json) {
        match value {
            Json::String(text) => {
                self.string_first |= self.is_empty();
                self.strings.push(Text::Fixed(text.clone()));
            }
            Json::Bool(truth) => self.truth.push(*truth),
            Json::Null => self.null = true,
            other => self.others.push(json!({"const": other})),
        }
    }

    fn add_types(&mut self, map: &Map<String, Json>, place: Place<'_>) -> Result<(), NotHeld> {
        let named = types(map);
        let all = if named.is_empty() { TYPES.to_vec() } else { named };
        let mut rest = Vec::new();
        for kind in all {
            match kind {
                "string" => {
                    self.string_first |= self.is_empty() && rest.is_empty();
                    let mut said = Map::from_iter([("type".to_owned(), json!("string"))]);
                    let keyword = |key: &&str| map.get(*key).map(|value| ((*key).to_owned(), value.clone()));
                    said.extend(STRING_KEYWORDS.iter().filter_map(keyword));
                    self.strings.push(Text::Of(said, place.at.to_owned()));
                }
                "boolean" => self.truth.extend([true, false]),
                "null" => self.null = true,
                "integer" | "number" | "array" | "object" => rest.push(kind),
                other => return Err(place.fault("type", format!("{other:?} is no type"))),
            }
        }
        if !rest.is_empty() {
            let mut other = map.clone();
            STRING_KEYWORDS.iter().for_each(|key| drop(other.remove(*key)));
            other.insert("type".to_owned(), json!(rest));
            self.others.push(Json::Object(other));
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any && self.strings.is_empty() && self.truth.is_empty() && !self.null && self.others.is_empty()
    }
}

/// What a schema that only refers to another one refers to.
pub(super) fn target<'a>(map: &Map<String, Json>, root: &'a Json) -> Option<&'a Json> {
    root.pointer(map.get("$ref")?.as_str()?.strip_prefix('#')?)
}

/// The keywords of a schema that bound its values.
pub(super) fn bounds(map: &Map<String, Json>) -> impl Iterator<Item = &str> {
    map.keys().map(String::as_str).filter(|key| SCHEMA_HELD.contains(key) || REFUSED.contains(key))
}

fn applies(key: &&&str) -> bool {
    matches!(**key, "$ref" | "anyOf" | "oneOf" | "allOf" | "not" | "if" | "const" | "enum")
}

fn types(map: &Map<String, Json>) -> Vec<&str> {
    match map.get("type") {
        Some(Json::String(one)) => vec![one],
        Some(Json::Array(several)) => several.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    }
}

fn has_type(map: &Map<String, Json>, value: &Json) -> bool {
    let types = types(map);
    let is = |kind: &&str| match value {
        Json::Null => *kind == "null",
        Json::Bool(_) => *kind == "boolean",
        Json::String(_) => *kind == "string",
        Json::Array(_) => *kind == "array",
        Json::Object(_) => *kind == "object",
        Json::Number(number) => *kind == "number" || (*kind == "integer" && !number.is_f64()),
    };
    types.is_empty() || types.iter().any(is)
}

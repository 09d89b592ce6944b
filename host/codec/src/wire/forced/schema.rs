//! The schema of a tool's arguments as grammars need it: as one JSON object, or as a list of parameters.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::NotHeld;
use super::values::{Place, bounds, target};

/// A parameter of a tool.
pub(super) struct Parameter<'a> {
    pub(super) key: &'a str,
    pub(super) schema: Json,
    pub(super) required: bool,
    /// Pointer to it from the tool's schema.
    pub(super) at: String,
}

/// The schema, with what a call's arguments are anyway: an object.
pub(super) fn object(root: &Json) -> Json {
    let Some(map) = root.as_object() else { return json!({"type": "object"}) };
    let mut map = map.clone();
    // A reference with a neighbour cannot be followed in circles.
    if !map.contains_key("$ref") {
        map.insert("type".to_owned(), json!("object"));
    }
    Json::Object(map)
}

/// The parameters of a schema that lists them, in its order. Such an object holds no others.
pub(super) fn parameters(tool: usize, root: &Json) -> Result<Vec<Parameter<'_>>, NotHeld> {
    let (mut at, mut here) = (String::new(), root);
    while let Some(map) = here.as_object().filter(|map| bounds(map).eq(["$ref"])) {
        let place = Place::new(tool, root, &at);
        let next = target(map, root).filter(|next| !std::ptr::eq(*next, here));
        here = next.ok_or_else(|| place.fault("$ref", "it points nowhere"))?;
        if at.len() > 256 {
            return Err(place.fault("$ref", "it is nested too deep"));
        }
        at.push_str("/$ref");
    }
    let place = Place::new(tool, root, &at);
    let Some(map) = here.as_object() else { return Ok(Vec::new()) };
    let listing = ["type", "properties", "required", "additionalProperties", "patternProperties"];
    let counts = ["minProperties", "maxProperties"];
    if let Some(key) = bounds(map).find(|key| !listing.contains(key) && !counts.contains(key)) {
        return Err(place.fault(key, "parameters cannot be told apart by it in this model's calls"));
    }
    let known = map.get("properties").and_then(Json::as_object);
    let listed = map.get("required").and_then(Json::as_array).into_iter().flatten();
    let required: BTreeSet<&str> = listed.filter_map(Json::as_str).collect();
    let mut found: Vec<Parameter<'_>> = Vec::new();
    for (key, schema) in known.into_iter().flatten() {
        let at = format!("{at}/properties/{}", key.replace('~', "~0").replace('/', "~1"));
        let required = required.contains(key.as_str());
        if *schema != Json::Bool(false) {
            found.push(Parameter { key, schema: schema.clone(), required, at });
        }
    }
    for key in required.iter().copied().filter(|key| known.is_none_or(|known| !known.contains_key(*key))) {
        let other = map.get("additionalProperties").cloned().unwrap_or(Json::Bool(true));
        found.push(Parameter {
            key,
            schema: other,
            required: true,
            at: format!("{at}/additionalProperties"),
        });
    }
    let count = |key: &str| map.get(key).and_then(Json::as_u64);
    let needed = found.iter().filter(|parameter| parameter.required).count() as u64;
    if count("minProperties").is_some_and(|least| least > needed) {
        return Err(place.fault("minProperties", format!("{needed} parameters are required")));
    }
    if count("maxProperties").is_some_and(|most| most < found.len() as u64) {
        return Err(place.fault("maxProperties", format!("{} parameters are listed", found.len())));
    }
    Ok(found)
}

/// A part of a tool's schema that stands by itself: what it refers to is with it.
pub(super) fn apart(part: &Json, root: &Json) -> Json {
    let mut part = part.clone();
    if part == Json::Bool(true) {
        return json!({});
    }
    if !move_references(&mut part) {
        return part;
    }
    let mut root = root.clone();
    move_references(&mut root);
    if let Json::Object(map) = &mut part {
        map.insert("$defs".to_owned(), json!({"tool": root}));
    }
    part
}

/// Lets references point into the definition `tool`; says whether there were any.
fn move_references(schema: &mut Json) -> bool {
    match schema {
        Json::Object(map) => map.iter_mut().fold(false, |any, (key, value)| match value {
            // Anchors stay: they are refused by name.
            Json::String(target) if key == "$ref" && (target == "#" || target.starts_with("#/")) => {
                *target = format!("#/$defs/tool{}", target[1..].trim_end_matches('/'));
                true
            }
            _ if matches!(key.as_str(), "const" | "enum" | "default" | "examples") => any,
            // Names in here are no keywords.
            Json::Object(named)
                if matches!(key.as_str(), "properties" | "patternProperties" | "$defs" | "definitions") =>
            {
                named.values_mut().map(move_references).filter(|moved| *moved).count() > 0 || any
            }
            other => move_references(other) || any,
        }),
        Json::Array(items) => items.iter_mut().map(move_references).filter(|moved| *moved).count() > 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_part_refers_to_moves_with_it() {
        let root = json!({"properties": {"next": {"$ref": "#"}, "kind": {"$ref": "#/$defs/k"}},
            "$defs": {"k": {"const": {"$ref": "#"}}}});
        let part = apart(&json!({"items": [{"$ref": "#/$defs/k"}, {"$ref": "#"}]}), &root);
        assert_eq!(part["items"], json!([{"$ref": "#/$defs/tool/$defs/k"}, {"$ref": "#/$defs/tool"}]));
        let moved = &part["$defs"]["tool"];
        assert_eq!(moved["properties"]["next"], json!({"$ref": "#/$defs/tool"}));
        assert_eq!(moved["$defs"]["k"], json!({"const": {"$ref": "#"}}), "a value, not a reference");
        let alone = json!({"type": "integer"});
        assert_eq!(apart(&alone, &root), alone);
    }

    #[test]
    fn parameters_stand_in_the_order_of_the_schema() {
        let check = |root: Json, expect: Result<&[(&str, bool)], &str>| {
            let found = parameters(3, &root);
            let told: Result<Vec<(&str, bool)>, String> = match &found {
                Ok(all) => Ok(all.iter().map(|one| (one.key, one.required)).collect()),
                Err(NotHeld::Schema { tool: 3, at, .. }) => Err(at.clone()),
                Err(other) => panic!("{other}"),
            };
            assert_eq!(told, expect.map(<[_]>::to_vec).map_err(str::to_owned), "{root}");
        };
        check(json!(null), Ok(&[]));
        check(
            json!({"properties": {"b": {}, "a": {}}, "required": ["a", "c"]}),
            Ok(&[("b", false), ("a", true), ("c", true)]),
        );
        check(
            json!({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": true, "b": false}}}}),
            Ok(&[("a", false)]),
        );
        check(json!({"anyOf": [{}]}), Err("/anyOf"));
        check(json!({"$ref": "#"}), Err("/$ref"));
        check(json!({"properties": {"a": {}}, "minProperties": 1}), Err("/minProperties"));
        check(json!({"properties": {"a": {}, "b": {}}, "maxProperties": 1}), Err("/maxProperties"));
    }
}

//! Which types a tool's parameters may have, and how raw text becomes a value of one of them.

use serde_json::Value as Json;
use sf_core::Tool;

use super::json::{is_number, push_text, unquote};
use super::value::{self, Syntax};

/// Levels of references and alternatives that are followed in a schema.
const DEPTH_MAX: usize = 16;
/// Schemas that are looked at for one parameter: alternatives may refer to alternatives without end.
const STEPS_MAX: u32 = 1000;

/// A type of JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    String,
    Integer,
    Number,
    Boolean,
    Null,
    Array,
    Object,
}

/// Types in the order of the schema; none means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Types(Vec<Type>);

/// The schema of a tool is no JSON object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parameters of tool {tool:?} are not a JSON Schema object: {reason} (codec.tool_schema)")]
pub struct BadToolSchema {
    /// The tool.
    pub tool: String,
    /// What is wrong.
    pub reason: String,
}

/// A tool of the request: its name and what types its parameters may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSchema {
    name: String,
    parameters: Vec<(String, Types)>,
}

impl ToolSchema {
    /// Reads the parameters out of a tool's object.
    ///
    /// # Errors
    /// Parameters that are no schema.
    pub fn of(tool: &Tool) -> Result<ToolSchema, BadToolSchema> {
        ToolSchema::from_value(&tool.name, &super::plain::parameters(tool))
    }

    /// Reads the JSON Schema of a tool's parameters; empty text is a tool without parameters.
    pub fn from_json(name: &str, parameters: &str) -> Result<ToolSchema, BadToolSchema> {
        let bad = |reason: String| BadToolSchema { tool: name.to_owned(), reason };
        if parameters.trim().is_empty() {
            return Ok(ToolSchema { name: name.to_owned(), parameters: Vec::new() });
        }
        let schema: Json = serde_json::from_str(parameters).map_err(|fault| bad(fault.to_string()))?;
        ToolSchema::from_value(name, &schema)
    }

    fn from_value(name: &str, schema: &Json) -> Result<ToolSchema, BadToolSchema> {
        if !schema.is_object() && !schema.is_null() {
            return Err(BadToolSchema { tool: name.to_owned(), reason: "it is another type".to_owned() });
        }
        let properties = schema.get("properties").and_then(Json::as_object);
        let parameters = properties.into_iter().flatten().map(|(key, part)| {
            let mut types = Types::default();
            let known = types.collect(part, schema, 0, &mut STEPS_MAX.clone());
            (key.clone(), if known { types } else { Types::default() })
        });
        Ok(ToolSchema { name: name.to_owned(), parameters: parameters.collect() })
    }

    /// The tool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn types(&self, parameter: &str) -> Types {
        let found = self.parameters.iter().find(|(key, _)| key == parameter);
        found.map(|(_, types)| types.clone()).unwrap_or_default()
    }

    /// The name of the parameter at a position, in the order of the schema.
    pub(super) fn nth(&self, at: usize) -> Option<&str> {
        self.parameters.get(at).map(|(key, _)| &**key)
    }
}

impl Types {
    pub(super) fn string() -> Types {
        Types(vec![Type::String])
    }

    /// Adds the types of one schema; false if it allows any.
    fn collect(&mut self, schema: &Json, root: &Json, depth: usize, steps: &mut u32) -> bool {
        if depth > DEPTH_MAX || *steps == 0 {
            return false;
        }
        *steps -= 1;
        if let Some(pointer) = schema.get("$ref").and_then(Json::as_str) {
            let target = pointer.strip_prefix('#').and_then(|path| root.pointer(path));
            return target.is_some_and(|target| self.collect(target, root, depth + 1, steps));
        }
        if schema.get("nullable") == Some(&Json::Bool(true)) {
            self.add(Type::Null);
        }
        match schema.get("type") {
            Some(Json::String(name)) => return self.add_name(name),
            Some(Json::Array(names)) => {
                return names.iter().all(|name| name.as_str().is_some_and(|name| self.add_name(name)));
            }
            _ => {}
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(parts) = schema.get(key).and_then(Json::as_array) {
                return parts.iter().all(|part| self.collect(part, root, depth + 1, steps));
            }
        }
        if let Some(parts) = schema.get("allOf").and_then(Json::as_array) {
            // Each part must hold, so the first that names a type decides.
            return parts.iter().any(|part| self.collect(part, root, depth + 1, steps));
        }
        let listed = schema.get("enum").and_then(Json::as_array);
        let only = schema.get("const");
        if listed.is_none() && only.is_none() {
            return false;
        }
        listed.into_iter().flatten().chain(only).for_each(|value| self.add(Type::of(value)));
        true
    }

    fn add(&mut self, kind: Type) {
        if !self.0.contains(&kind) {
            self.0.push(kind);
        }
    }

    fn add_name(&mut self, name: &str) -> bool {
        let kind = match name.to_ascii_lowercase().as_str() {
            "string" | "str" => Type::String,
            "integer" | "int" => Type::Integer,
            "number" | "float" => Type::Number,
            "boolean" | "bool" => Type::Boolean,
            "null" => Type::Null,
            "array" | "list" => Type::Array,
            "object" | "dict" => Type::Object,
            _ => return false,
        };
        self.add(kind);
        true
    }

    /// Whether raw text is the value as it is, so that it may go out while it comes.
    pub(super) fn only_string(&self) -> bool {
        self.0 == [Type::String]
    }

    /// Whether a value may be any text: nothing is said, or a string stands first.
    pub(super) fn is_text(&self) -> bool {
        self.0.first().is_none_or(|first| *first == Type::String)
    }

    /// Whether a string is one of the types.
    pub(super) fn allow_string(&self) -> bool {
        self.0.is_empty() || self.0.contains(&Type::String)
    }

    /// The JSON that raw text stands for. What fits no type becomes what it looks like, or a string: it is never lost.
    pub(super) fn fit(&self, raw: &str) -> String {
        let literal = value::read(raw, Syntax::Json).or_else(|| value::read(raw, Syntax::Python));
        let is_null = literal.as_deref() == Some("null") && self.0.contains(&Type::Null);
        if is_null {
            return "null".to_owned();
        }
        for kind in &self.0 {
            if *kind == Type::String {
                return quote(raw);
            }
            if let Some(json) = literal.as_deref().filter(|json| kind.fits(json)) {
                return json.to_owned();
            }
        }
        match literal {
            Some(json) if !json.starts_with('"') => json,
            _ => quote(raw),
        }
    }

    /// A literal that has a type of its own, turned into a type of the schema where it has another.
    pub(super) fn coerce(&self, json: String) -> String {
        if self.0.is_empty() || self.0.iter().any(|kind| kind.fits(&json)) {
            return json;
        }
        if json.starts_with('"') {
            let fitted = unquote(&json).map(|raw| self.fit(&raw));
            return fitted.filter(|fitted| self.0.iter().any(|kind| kind.fits(fitted))).unwrap_or(json);
        }
        let scalar = !json.starts_with(['[', '{']) && json != "null";
        if scalar && self.allow_string() { quote(&json) } else { json }
    }
}

impl Type {
    fn of(value: &Json) -> Type {
        match value {
            Json::String(_) => Type::String,
            Json::Number(number) if number.is_f64() => Type::Number,
            Json::Number(_) => Type::Integer,
            Json::Bool(_) => Type::Boolean,
            Json::Null => Type::Null,
            Json::Array(_) => Type::Array,
            Json::Object(_) => Type::Object,
        }
    }

    /// Whether canonical JSON is of this type.
    fn fits(self, json: &str) -> bool {
        match self {
            Type::String => json.starts_with('"'),
            Type::Integer => is_number(json) && !json.contains(['.', 'e', 'E']),
            Type::Number => is_number(json),
            Type::Boolean => json == "true" || json == "false",
            Type::Null => json == "null",
            Type::Array => json.starts_with('['),
            Type::Object => json.starts_with('{'),
        }
    }
}

fn quote(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    push_text(text, &mut json);
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(schema: &str) -> Types {
        let parameters = format!(
            r##"{{"properties":{{"p":{schema}}},"$defs":{{"n":{{"type":"integer"}},"l":{{"$ref":"#/$defs/l"}}}}}}"##
        );
        ToolSchema::from_json("t", &parameters).expect("a schema").types("p")
    }

    #[test]
    fn raw_text_becomes_the_type_of_the_schema() {
        let check = |schema: &str, raw: &str, expect: &str| {
            assert_eq!(types(schema).fit(raw), expect, "{schema} {raw:?}");
        };
        check(r#"{"type":"string"}"#, "5", r#""5""#);
        check(r#"{"type":"string"}"#, "null", r#""null""#);
        check(r#"{"type":"string"}"#, " a\n", r#"" a\n""#);
        check(r#"{"type":"integer"}"#, " 5 ", "5");
        check(r#"{"type":"integer"}"#, "5.5", "5.5");
        check(r#"{"type":"integer"}"#, "five", r#""five""#);
        check(r#"{"type":"number"}"#, "1e3", "1e3");
        check(r#"{"type":"boolean"}"#, "True", "true");
        check(r#"{"type":"boolean"}"#, "yes", r#""yes""#);
        check(r#"{"type":"null"}"#, "None", "null");
        check(r#"{"type":"array"}"#, "['a', 1]", r#"["a",1]"#);
        check(r#"{"type":"object"}"#, "{ \"a\": 1 }", r#"{"a":1}"#);
        check(r#"{"type":["string","null"]}"#, "null", "null");
        check(r#"{"type":["integer","string"]}"#, "5", "5");
        check(r#"{"type":["string","integer"]}"#, "5", r#""5""#);
        check(r#"{"anyOf":[{"type":"integer"},{"type":"array"}]}"#, "[5]", "[5]");
        check(r#"{"type":"integer","nullable":true}"#, "null", "null");
        check(r##"{"$ref":"#/$defs/n"}"##, "7", "7");
        check(r##"{"$ref":"#/$defs/l"}"##, "7", "7");
        check(r##"{"$ref":"#/$defs/none"}"##, "x", r#""x""#);
        check(r#"{"allOf":[{"description":"d"},{"type":"string"}]}"#, "7", r#""7""#);
        check(r#"{"enum":["1","2"]}"#, "1", r#""1""#);
        check(r#"{"const":1}"#, "1", "1");
        check("{}", "7", "7");
        check("{}", "\"7\"", r#""\"7\"""#);
        check("{}", "a b", r#""a b""#);
    }

    #[test]
    fn a_literal_of_another_type_is_turned_where_that_is_certain() {
        let check = |schema: &str, json: &str, expect: &str| {
            assert_eq!(types(schema).coerce(json.to_owned()), expect, "{schema} {json}");
        };
        check(r#"{"type":"string"}"#, "12345", r#""12345""#);
        check(r#"{"type":"string"}"#, "null", "null");
        check(r#"{"type":"integer"}"#, r#""5""#, "5");
        check(r#"{"type":"integer"}"#, r#""five""#, r#""five""#);
        check(r#"{"type":"array"}"#, "{}", "{}");
        check("{}", "1", "1");
    }

    #[test]
    fn alternatives_without_end_come_to_one() {
        let again = vec![r##"{"$ref":"#/properties/p"}"##; 100].join(",");
        let schema = format!(r#"{{"properties":{{"p":{{"allOf":[{again}]}}}}}}"#);
        let tool = ToolSchema::from_json("t", &schema).expect("a schema");
        assert!(tool.types("p").allow_string());
    }

    #[test]
    fn what_is_no_schema_is_refused_with_the_tool_in_the_message() {
        for broken in ["[", "[]", "3"] {
            let refused = ToolSchema::from_json("weather", broken).expect_err("no object");
            assert!(refused.to_string().contains("\"weather\""), "{refused}");
        }
        assert_eq!(ToolSchema::from_json("t", " ").expect("none").nth(0), None);
    }
}

//! Turns values as clients gave them into those that schemas are read from.

use serde_json::{Number, Value};
use sf_core::{Json, Tool};

/// The JSON Schema of a tool's arguments as the tool's object has it; `null` where it has none.
pub(super) fn parameters(tool: &Tool) -> Value {
    let function = tool.json.get("function").unwrap_or(&tool.json);
    function.get("parameters").map_or(Value::Null, plain)
}

/// The same as JSON text; any object where it has none.
pub fn parameters_text(tool: &Tool) -> String {
    match parameters(tool) {
        Value::Null => r#"{"type":"object"}"#.to_owned(),
        given => given.to_string(),
    }
}

fn plain(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Integer(whole) => {
            // Beyond 64 bits it is a float, as it would have been read.
            let number = Number::from_i128(*whole).or_else(|| Number::from_f64(*whole as f64));
            number.map_or(Value::Null, Value::Number)
        }
        Json::Float(value) => Number::from_f64(*value).map_or(Value::Null, Value::Number),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(values) => Value::Array(values.iter().map(plain).collect()),
        Json::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), plain(value))).collect())
        }
    }
}

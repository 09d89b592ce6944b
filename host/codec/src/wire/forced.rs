//! Writes the grammar of an answer that must be tool calls, where the wire is one of plain marks around JSON.

use serde_json::{Map, Value as Json, json};
use sf_core::Tool;

use super::{Bare, Body, Calls, Shape, Wire};

impl Wire {
    /// A grammar, in llguidance's Lark, whose texts are calls of these tools with arguments that their schemas accept: one
    /// call, or any number of them. `None` where this wire's calls cannot be written as one: its marks are control tokens
    /// or its calls are no JSON.
    pub fn call_grammar(&self, tools: &[&Tool], several: bool) -> Option<String> {
        let Shape::Calls(calls) = &self.shape else { return None };
        let [Body::Object, ..] = calls.bodies else { return None };
        let call = around(calls)?;
        let start = if several && calls.bare == Bare::Never { "call (\"\\n\" call)*" } else { "call" };
        Some(format!("start: {start}\ncall: {call}\njson: %json {}\n", one_of(tools)))
    }
}

/// What stands around a call.
fn around(calls: &Calls) -> Option<String> {
    let quoted = |text: String| Json::String(text).to_string();
    match (calls.opens, calls.closes, calls.bare) {
        ([open, ..], [close, ..], _) if !open.token && !close.token => {
            let (open, close) = (quoted(format!("{}\n", open.text)), quoted(format!("\n{}", close.text)));
            Some(format!("{open} json {close}"))
        }
        (_, _, Bare::Of(_)) => Some("json".to_owned()),
        _ => None,
    }
}

/// The schema of a call of any of the tools. What a tool's schema refers to moves with it.
fn one_of(tools: &[&Tool]) -> Json {
    let mut definitions = Map::new();
    let mut calls = Vec::new();
    for (at, tool) in tools.iter().enumerate() {
        let home = format!("tool_{at}");
        let mut parameters = match super::plain::parameters(tool) {
            Json::Null => json!({"type": "object"}),
            given => given,
        };
        move_references(&mut parameters, &format!("#/$defs/{home}"));
        calls.push(json!({
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": {"$ref": format!("#/$defs/{home}")}},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        }));
        definitions.insert(home, parameters);
    }
    json!({"anyOf": calls, "$defs": definitions, "x-guidance": {"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "}})
}

fn move_references(schema: &mut Json, home: &str) {
    match schema {
        Json::Object(map) => {
            for (key, value) in map {
                match value {
                    // Anchors stay: they are refused by name.
                    Json::String(target) if key == "$ref" && (target == "#" || target.starts_with("#/")) => {
                        *target = format!("{home}{}", target[1..].trim_end_matches('/'));
                    }
                    _ if matches!(key.as_str(), "const" | "enum" | "default" | "examples") => {}
                    other => move_references(other, home),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| move_references(item, home)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wires_of_plain_marks_around_json_can_be_forced() {
        let text = |text: &str| sf_core::Json::from(text);
        let object = |members: Vec<(&str, sf_core::Json)>| {
            sf_core::Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        };
        let to = |target: &str| object(vec![("$ref", text(target))]);
        let properties = object(vec![("next", to("#")), ("kind", to("#/$defs/k"))]);
        let definitions = object(vec![("k", object(vec![("type", text("string"))]))]);
        let parameters =
            object(vec![("type", text("object")), ("properties", properties), ("$defs", definitions)]);
        let json =
            object(vec![("function", object(vec![("name", text("find")), ("parameters", parameters)]))]);
        let tool = Tool { name: "find".to_owned(), json };
        let tools = [&tool];
        let check = |name: &str, several: bool, start: Option<&str>| {
            let grammar = Wire::by_name(name).unwrap().call_grammar(&tools, several);
            assert_eq!(grammar.as_deref().and_then(|text| text.split("\njson").next()), start, "{name}");
            if let Some(text) = grammar {
                assert!(text.contains(r##""next":{"$ref":"#/$defs/tool_0"}"##), "{text}");
                assert!(text.contains(r##""kind":{"$ref":"#/$defs/tool_0/$defs/k"}"##), "{text}");
            }
        };
        let call = r#"call: "<tool_call>\n" json "\n</tool_call>""#;
        check("hermes", false, Some(&format!("start: call\n{call}")));
        check("hermes", true, Some(&format!("start: call (\"\\n\" call)*\n{call}")));
        check("llama3_json", true, Some("start: call\ncall: json"));
        check("qwen3_coder", false, None);
        check("harmony", false, None);
        check("think", false, None);
    }
}

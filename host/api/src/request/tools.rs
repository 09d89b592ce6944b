//! Reads tools and the calls of tools out of a chat request.

use serde_json::{Map, Value};
use sf_core::limits::TOOLS_MAX;
use sf_core::{Fault, FaultKind, Json, Tool, ToolCall, ToolChoice};

use crate::body::{self, Budget, clipped};
use crate::fields::{Fields, array, string, unknown_word, wrong_type};

/// What `tool_choice` says; `None` = no tool may be called.
pub(super) fn choice(fields: &mut Fields) -> Result<Option<ToolChoice>, Fault> {
    let path = fields.path("tool_choice");
    match fields.take("tool_choice") {
        None => Ok(Some(ToolChoice::Auto)),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Ok(Some(ToolChoice::Auto)),
            "none" => Ok(None),
            "required" | "any" => Ok(Some(ToolChoice::Required)),
            _ => Err(unknown_word(&path, &word, "none, auto, required or a function")),
        },
        Some(named) => {
            let mut named = Fields::nested(named, path)?;
            only_functions(&mut named)?;
            let function_path = named.path("function");
            let mut function = Fields::nested(named.require("function")?, function_path)?;
            name(&mut function).map(|name| Some(ToolChoice::Named(name)))
        }
    }
}

/// The tools that the model is shown: those of the request, or none where `choice` says so. What is chosen must be there.
pub(super) fn tools(
    fields: &mut Fields,
    choice: Option<ToolChoice>,
) -> Result<(Vec<Tool>, ToolChoice), Fault> {
    let all = listed(fields)?;
    let Some(choice) = choice else { return Ok((Vec::new(), ToolChoice::Auto)) };
    let missing = match &choice {
        ToolChoice::Auto => None,
        ToolChoice::Required => all.is_empty().then(|| "a call is required and no tool is given".to_owned()),
        ToolChoice::Named(name) => {
            let there = all.iter().any(|tool| tool.name == *name);
            (!there).then(|| format!("the tool {:?} is not among `tools`", clipped(name)))
        }
    };
    match missing {
        None => Ok((all, choice)),
        Some(message) => Err(Fault::invalid("invalid_value", fields.path("tool_choice"), message)),
    }
}

fn listed(fields: &mut Fields) -> Result<Vec<Tool>, Fault> {
    let path = fields.path("tools");
    let Some(values) = fields.take("tools") else { return Ok(Vec::new()) };
    let values = array(values, &path)?;
    if values.len() > TOOLS_MAX {
        let message = format!("`{path}` has {} tools, accepted are {TOOLS_MAX}", values.len());
        return Err(Fault::invalid("too_many", path, message));
    }
    let tools = values.into_iter().enumerate().map(|(at, value)| tool(value, &format!("{path}[{at}]")));
    tools.collect()
}

fn tool(value: Value, path: &str) -> Result<Tool, Fault> {
    let mut fields = Fields::nested(value.clone(), path.to_owned())?;
    only_functions(&mut fields)?;
    let function_path = fields.path("function");
    let mut function = Fields::nested(fields.require("function")?, function_path)?;
    let name = name(&mut function)?;
    function.string("description")?;
    function.flag("strict")?;
    if let Some(parameters) = function.take("parameters") {
        Fields::nested(parameters, function.path("parameters"))?;
    }
    Ok(Tool { name, json: json_of(value) })
}

/// The calls of one message, where it has any.
pub(super) fn tool_calls(fields: &mut Fields, budget: &Budget) -> Result<Vec<ToolCall>, Fault> {
    let path = fields.path("tool_calls");
    let Some(values) = fields.take("tool_calls") else { return Ok(Vec::new()) };
    let values = array(values, &path)?.into_iter().enumerate();
    values.map(|(at, value)| tool_call(value, format!("{path}[{at}]"), budget)).collect()
}

fn tool_call(value: Value, path: String, budget: &Budget) -> Result<ToolCall, Fault> {
    let mut fields = Fields::nested(value, path)?;
    let id = fields.string("id")?.unwrap_or_default();
    only_functions(&mut fields)?;
    let function_path = fields.path("function");
    let mut function = Fields::nested(fields.require("function")?, function_path)?;
    let name = name(&mut function)?;
    let path = function.path("arguments");
    let arguments = match function.take("arguments") {
        None => Value::Object(Map::new()),
        Some(Value::String(text)) => arguments_of(&text, &path, budget)?,
        Some(value) => value,
    };
    if !arguments.is_object() {
        return Err(wrong_type(&path, "an object or the text of one", &arguments));
    }
    Ok(ToolCall { id, name, arguments: json_of(arguments) })
}

/// The value of arguments that are written as text, as OpenAI's clients do; no text is no arguments.
fn arguments_of(text: &str, path: &str, budget: &Budget) -> Result<Value, Fault> {
    if text.trim_ascii().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let value = body::parse(text, budget).map_err(|error| {
        let message = format!("`{path}` is not valid JSON: {error}");
        let fault = if budget.is_spent() {
            Fault::new(FaultKind::TooLarge, "too_many_values", message).param(path)
        } else {
            Fault::invalid("invalid_json", path, message)
        };
        fault.hint("give the arguments of the call as the text of one JSON object")
    })?;
    if value.is_object() {
        return Ok(value);
    }
    Err(wrong_type(path, "the text of a JSON object", &value))
}

fn only_functions(fields: &mut Fields) -> Result<(), Fault> {
    let path = fields.path("type");
    match fields.string("type")?.as_deref() {
        None | Some("function") => Ok(()),
        Some(kind @ ("custom" | "web_search" | "file_search" | "code_interpreter" | "mcp")) => {
            let message = format!("`{path}` is \"{kind}\"; this build takes functions only");
            Err(Fault::new(FaultKind::Unsupported, "unsupported_parameter", message).param(path))
        }
        Some(kind) => Err(unknown_word(&path, kind, "function")),
    }
}

fn name(function: &mut Fields) -> Result<String, Fault> {
    let path = function.path("name");
    let name = string(function.require("name")?, &path)?;
    if name.is_empty() {
        return Err(Fault::invalid("invalid_value", path.clone(), format!("`{path}` is empty")));
    }
    Ok(name)
}

/// The same value without its parser.
pub(super) fn json_of(value: Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Json::Integer(whole.into()),
            (None, Some(whole)) => Json::Integer(whole.into()),
            (None, None) => Json::Float(number.as_f64().unwrap_or(f64::MAX)),
        },
        Value::String(text) => Json::String(text),
        Value::Array(values) => Json::Array(values.into_iter().map(json_of).collect()),
        Value::Object(map) => {
            Json::Object(map.into_iter().map(|(name, value)| (name, json_of(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{choice, json_of, tool_calls, tools};
    use crate::body::Budget;
    use crate::fields::Fields;
    use serde_json::{Value, json};
    use sf_core::{Fault, Json, Tool, ToolChoice};

    fn fields(body: Value) -> Fields {
        Fields::root(body).unwrap()
    }

    fn all(body: Value) -> Result<(Vec<Tool>, ToolChoice), Fault> {
        let mut fields = fields(body);
        let choice = choice(&mut fields)?;
        tools(&mut fields, choice)
    }

    #[test]
    fn a_choice_is_among_the_tools() {
        let given = json!([{"function": {"name": "f"}}, {"function": {"name": "g"}}]);
        let check = |more: Value, expect: Result<ToolChoice, &str>| {
            let mut body = json!({"tools": given});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let got = all(body).map(|(_, choice)| choice);
            assert_eq!(
                got.as_ref().map_err(|fault| fault.param.as_deref().unwrap()),
                expect.as_ref().map_err(|param| *param),
                "{more}"
            );
        };
        check(json!({}), Ok(ToolChoice::Auto));
        check(json!({"tool_choice": "required"}), Ok(ToolChoice::Required));
        let named = |name: &str| json!({"tool_choice": {"type": "function", "function": {"name": name}}});
        check(named("g"), Ok(ToolChoice::Named("g".to_owned())));
        check(named("h"), Err("tool_choice"));
        check(json!({"tool_choice": "sometimes"}), Err("tool_choice"));
        check(json!({"tool_choice": "required", "tools": []}), Err("tool_choice"));
        check(json!({"tool_choice": {"type": "mcp"}}), Err("tool_choice.type"));
    }

    #[test]
    fn tools_come_through_as_given_and_none_are_shown_where_none_may_be_called() {
        let f = json!({"name": "f", "strict": true, "parameters": {"z": 1, "a": [1.0, null]}});
        let tool = json!({"type": "function", "function": f});
        let (read, _) = all(json!({"tools": [tool], "tool_choice": "auto"})).unwrap();
        assert_eq!((read.len(), read[0].name.as_str()), (1, "f"));
        assert_eq!(read[0].json, json_of(tool.clone()));
        let Json::Object(members) = read[0].json.get("function").unwrap().get("parameters").unwrap() else {
            panic!("an object")
        };
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["z", "a"], "the client's order");
        assert_eq!(members[1].1, Json::Array(vec![Json::Float(1.0), Json::Null]));
        assert_eq!(all(json!({"tools": [tool], "tool_choice": "none"})).unwrap(), (vec![], ToolChoice::Auto));
        assert_eq!(all(json!({"tool_choice": "auto"})).unwrap(), (vec![], ToolChoice::Auto));
    }

    #[test]
    fn a_tool_that_is_none_names_its_place() {
        let check = |tool: Value, code: &str, param: &str| {
            let fault = all(json!({"tools": [tool]})).unwrap_err();
            assert_eq!((fault.code, fault.param.as_deref()), (code, Some(param)), "{}", fault.message);
        };
        check(json!(5), "invalid_type", "tools[0]");
        check(json!({"type": "function"}), "missing_required_parameter", "tools[0].function");
        check(json!({"type": "poem", "function": {"name": "f"}}), "invalid_value", "tools[0].type");
        check(json!({"type": "web_search"}), "unsupported_parameter", "tools[0].type");
        check(json!({"function": {}}), "missing_required_parameter", "tools[0].function.name");
        check(json!({"function": {"name": ""}}), "invalid_value", "tools[0].function.name");
        let wrong = json!({"function": {"name": "f", "parameters": "{}"}});
        check(wrong, "invalid_type", "tools[0].function.parameters");
        let wrong = json!({"function": {"name": "f", "description": {}}});
        check(wrong, "invalid_type", "tools[0].function.description");
        let wrong = json!({"function": {"name": "f", "strict": "yes"}});
        check(wrong, "invalid_type", "tools[0].function.strict");
    }

    #[test]
    fn arguments_are_an_object_or_the_text_of_one() {
        let budget = Budget::default();
        let read = |arguments: Value| {
            let call =
                json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}});
            tool_calls(&mut fields(json!({"tool_calls": [call]})), &budget)
        };
        let expect = json_of(json!({"b": 1, "a": "x"}));
        for arguments in [json!({"b": 1, "a": "x"}), json!("{\"b\": 1, \"a\": \"x\"}")] {
            let calls = read(arguments).unwrap();
            assert_eq!((calls[0].id.as_str(), calls[0].name.as_str()), ("c", "f"));
            assert_eq!(calls[0].arguments, expect);
        }
        for nothing in [json!(null), json!(""), json!(" "), json!("{}")] {
            assert_eq!(read(nothing).unwrap()[0].arguments, Json::Object(Vec::new()));
        }
        for (arguments, code, words) in [
            (json!("{\"a\": }"), "invalid_json", "line 1 column 7"),
            (json!("{\"a\": 1, \"a\": 2}"), "invalid_json", "`a` stands twice"),
            (json!("[1]"), "invalid_type", "an array"),
            (json!("{} x"), "invalid_json", "trailing"),
            (json!([1]), "invalid_type", "an array"),
            (json!(true), "invalid_type", "a boolean"),
        ] {
            let fault = read(arguments).unwrap_err();
            let param = "tool_calls[0].function.arguments";
            assert_eq!((fault.code, fault.param.as_deref()), (code, Some(param)));
            assert!(fault.message.contains(words), "{} lacks {words}", fault.message);
        }
    }

    #[test]
    fn the_values_of_all_arguments_together_are_bounded() {
        let budget = Budget::default();
        let call = |count: usize| {
            let arguments = format!("{{\"a\": [{}0]}}", "0,".repeat(count));
            let call = json!({"function": {"name": "f", "arguments": arguments}});
            tool_calls(&mut fields(json!({"tool_calls": [call]})), &budget)
        };
        let half = sf_core::limits::JSON_VALUES_MAX / 2;
        assert!(call(half).is_ok());
        let fault = call(half).unwrap_err();
        assert_eq!((fault.code, fault.kind), ("too_many_values", sf_core::FaultKind::TooLarge));
    }
}

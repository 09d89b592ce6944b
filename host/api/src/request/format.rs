//! Reads the form that an answer is asked to have: `response_format` and the names that other servers have for it.

use serde_json::Value;
use sf_core::limits::GRAMMAR_BYTES_MAX;
use sf_core::{Fault, FaultKind, Form, Grammar};

use crate::fields::{Fields, array, string, unknown_word};

/// Characters that mean something in a regular expression.
const REGEX_SPECIAL: &str = r"\.+*?()|[]{}^$#&-~/";

/// The form that a request asks for. It may be asked for once, under one name.
pub(super) fn form(fields: &mut Fields) -> Result<Option<Form>, Fault> {
    let asked = [
        ("response_format", response_format(fields)?),
        ("guided_json", schema(fields, "guided_json")?),
        ("json_schema", schema(fields, "json_schema")?),
        ("guided_regex", text_of(fields, "guided_regex")?.map(|text| Grammar::Regex(text.into()))),
        ("guided_choice", choice(fields)?),
        ("guided_grammar", text_of(fields, "guided_grammar")?.map(|text| Grammar::Lark(text.into()))),
    ];
    let mut asked = asked.into_iter().filter_map(|(name, grammar)| Some((name, grammar?)));
    let Some((name, grammar)) = asked.next() else { return Ok(None) };
    if let Some((other, _)) = asked.next() {
        let message = format!("`{name}` and `{other}` both ask for a form of the answer");
        return Err(Fault::invalid("conflicting_parameters", other, message).hint("give one of them"));
    }
    let bytes = grammar.source().len();
    if bytes > GRAMMAR_BYTES_MAX {
        let message = format!("`{name}` has {bytes} bytes, accepted are {GRAMMAR_BYTES_MAX}");
        return Err(Fault::invalid("out_of_range", name, message));
    }
    Ok(Some(Form { grammar, param: name }))
}

fn response_format(fields: &mut Fields) -> Result<Option<Grammar>, Fault> {
    let path = fields.path("response_format");
    let Some(format) = fields.take("response_format") else { return Ok(None) };
    let mut format = Fields::nested(format, path)?;
    let kind_path = format.path("type");
    let kind = string(format.require("type")?, &kind_path)?;
    let grammar = match kind.as_str() {
        "text" => None,
        "json_object" => match schema(&mut format, "schema")? {
            Some(given) => Some(given),
            None => Some(Grammar::json_object()),
        },
        "json_schema" => {
            let path = format.path("json_schema");
            let mut named = Fields::nested(format.require("json_schema")?, path)?;
            let Some(given) = schema(&mut named, "schema")? else { return Err(named.missing("schema")) };
            // `name`, `description` and `strict` change nothing: the schema always holds.
            Some(given)
        }
        "regex" => Some(Grammar::Regex(text(&mut format, "pattern")?.into())),
        "lark" => Some(Grammar::Lark(text(&mut format, "grammar")?.into())),
        "structural_tag" => {
            let message = format!("`{kind_path}` is \"structural_tag\", which is not in this build yet");
            let fault = Fault::new(FaultKind::Unsupported, "unsupported_parameter", message);
            return Err(fault.param(kind_path).hint("use json_schema, regex or lark"));
        }
        _ => return Err(unknown_word(&kind_path, &kind, "text, json_object, json_schema, regex or lark")),
    };
    Ok(grammar)
}

/// A text; an empty one asks for nothing.
fn text_of(fields: &mut Fields, name: &str) -> Result<Option<String>, Fault> {
    Ok(fields.string(name)?.filter(|text| !text.is_empty()))
}

fn text(fields: &mut Fields, name: &str) -> Result<String, Fault> {
    string(fields.require(name)?, &fields.path(name))
}

/// A schema as an object, as `true`, or as JSON in a string, as vLLM's clients send it.
fn schema(fields: &mut Fields, name: &str) -> Result<Option<Grammar>, Fault> {
    Ok(fields.take(name).map(|value| match value {
        Value::String(text) => Grammar::JsonSchema(text.into()),
        other => Grammar::JsonSchema(other.to_string().into()),
    }))
}

/// One of several texts, word for word.
fn choice(fields: &mut Fields) -> Result<Option<Grammar>, Fault> {
    let path = fields.path("guided_choice");
    let Some(given) = fields.take("guided_choice") else { return Ok(None) };
    let mut choices = Vec::new();
    for (at, value) in array(given, &path)?.into_iter().enumerate() {
        choices.push(literal(&string(value, &format!("{path}[{at}]"))?));
    }
    // None asks for nothing.
    Ok((!choices.is_empty()).then(|| Grammar::Regex(choices.join("|").into())))
}

/// The regular expression of a text.
fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '\n' => out.push_str(r"\n"),
            '\r' => out.push_str(r"\r"),
            '\t' => out.push_str(r"\t"),
            _ => {
                if REGEX_SPECIAL.contains(one) {
                    out.push('\\');
                }
                out.push(one);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sf_core::{Fault, Grammar};

    use super::form;
    use crate::fields::Fields;

    fn read(body: Value) -> Result<Option<Grammar>, Fault> {
        Ok(form(&mut Fields::root(body).unwrap())?.map(|form| form.grammar))
    }

    #[test]
    fn one_form_has_many_names() {
        let check = |body: Value, expect: Option<Grammar>| {
            assert_eq!(read(body.clone()), Ok(expect), "{body}");
        };
        let schema = || Some(Grammar::JsonSchema(r#"{"b":1,"a":2}"#.into()));
        check(json!({}), None);
        check(json!({"response_format": null}), None);
        check(json!({"response_format": {"type": "text"}}), None);
        check(json!({"guided_choice": [], "guided_regex": "", "guided_grammar": ""}), None);
        check(json!({"response_format": {"type": "json_object"}}), Some(Grammar::json_object()));
        check(json!({"response_format": {"type": "json_object", "schema": {"b": 1, "a": 2}}}), schema());
        let named = json!({"name": "x", "strict": true, "schema": {"b": 1, "a": 2}});
        check(json!({"response_format": {"type": "json_schema", "json_schema": named}}), schema());
        check(json!({"guided_json": {"b": 1, "a": 2}}), schema());
        check(json!({"guided_json": r#"{"b":1,"a":2}"#}), schema());
        check(json!({"json_schema": {"b": 1, "a": 2}}), schema());
        check(json!({"guided_regex": "a+"}), Some(Grammar::Regex("a+".into())));
        check(
            json!({"response_format": {"type": "regex", "pattern": "a+"}}),
            Some(Grammar::Regex("a+".into())),
        );
        check(json!({"guided_choice": ["a.b", "c\n"]}), Some(Grammar::Regex(r"a\.b|c\n".into())));
        let lark = || Some(Grammar::Lark("start: \"x\"".into()));
        check(json!({"guided_grammar": "start: \"x\""}), lark());
        check(json!({"response_format": {"type": "lark", "grammar": "start: \"x\""}}), lark());
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let check = |body: Value, param: &str| {
            let fault = read(body.clone()).unwrap_err();
            assert_eq!(fault.param.as_deref(), Some(param), "{body}: {fault:?}");
        };
        check(json!({"response_format": {"type": "xml"}}), "response_format.type");
        check(json!({"response_format": {}}), "response_format.type");
        check(json!({"response_format": "json"}), "response_format");
        check(json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema");
        let empty = json!({"type": "json_schema", "json_schema": {"name": "x"}});
        check(json!({"response_format": empty}), "response_format.json_schema.schema");
        check(json!({"guided_choice": [1]}), "guided_choice[0]");
        check(json!({"guided_regex": "a", "guided_json": {}}), "guided_regex");
        check(json!({"guided_regex": "a".repeat(300_000)}), "guided_regex");
    }
}

//! Reads the form that an answer is asked to have: `response_format` and the names that other servers have for it.

use serde_json::Value;
use sf_core::limits::GRAMMAR_BYTES_MAX;
use sf_core::{Fault, Form, Grammar, regex_text};

use super::structural;
use crate::fields::{Fields, array, string, unknown_word};

/// The form that a request asks for. It may be asked for once, under one name.
pub(super) fn form(fields: &mut Fields) -> Result<Option<Form>, Fault> {
    let asked = [
        ("response_format", response_format(fields)?),
        ("guided_json", schema(fields, "guided_json")?),
        ("json_schema", schema(fields, "json_schema")?),
        ("guided_regex", text_of(fields, "guided_regex")?.map(|text| Grammar::Regex(text.into()))),
        ("guided_choice", choice(fields, "guided_choice")?),
        ("guided_grammar", text_of(fields, "guided_grammar")?.map(|text| Grammar::Lark(text.into()))),
        ("structured_outputs", structured_outputs(fields)?),
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
        "structural_tag" => Some(structural::grammar(&mut format)?),
        _ => {
            let known = "text, json_object, json_schema, structural_tag, regex or lark";
            return Err(unknown_word(&kind_path, &kind, known));
        }
    };
    Ok(grammar)
}

/// vLLM's later name for the `guided_` fields: an object with one of them. `{}` asks for nothing.
fn structured_outputs(fields: &mut Fields) -> Result<Option<Grammar>, Fault> {
    let path = fields.path("structured_outputs");
    let Some(given) = fields.take("structured_outputs") else { return Ok(None) };
    let mut given = Fields::nested(given, path.clone())?;
    let object = given.flag("json_object")?.then(Grammar::json_object);
    let tag = match given.take("structural_tag") {
        None => None,
        Some(tag) => Some(structural::grammar(&mut structural::fields(tag, given.path("structural_tag"))?)?),
    };
    let asked = [
        ("json", schema(&mut given, "json")?),
        ("json_object", object),
        ("regex", text_of(&mut given, "regex")?.map(|text| Grammar::Regex(text.into()))),
        ("choice", choice(&mut given, "choice")?),
        ("grammar", text_of(&mut given, "grammar")?.map(|text| Grammar::Lark(text.into()))),
        ("structural_tag", tag),
    ];
    let mut asked = asked.into_iter().filter_map(|(name, grammar)| Some((name, grammar?)));
    let (found, other) = (asked.next(), asked.next());
    if let (Some((name, _)), Some((other, _))) = (&found, &other) {
        let message = format!("`{path}` has both `{name}` and `{other}`");
        return Err(
            Fault::invalid("conflicting_parameters", given.path(other), message).hint("give one of them")
        );
    }
    structural::nothing_else(given, "json, json_object, regex, choice, grammar and structural_tag")?;
    Ok(found.map(|(_, grammar)| grammar))
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
fn choice(fields: &mut Fields, name: &str) -> Result<Option<Grammar>, Fault> {
    let path = fields.path(name);
    let Some(given) = fields.take(name) else { return Ok(None) };
    let mut choices = Vec::new();
    for (at, value) in array(given, &path)?.into_iter().enumerate() {
        choices.push(regex_text(&string(value, &format!("{path}[{at}]"))?));
    }
    // None asks for nothing.
    Ok((!choices.is_empty()).then(|| Grammar::Regex(choices.join("|").into())))
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
        check(json!({"structured_outputs": {}}), None);
        check(json!({"structured_outputs": {"json_object": false, "json": null}}), None);
        check(json!({"structured_outputs": {"json": {"b": 1, "a": 2}}}), schema());
        check(json!({"structured_outputs": {"json_object": true}}), Some(Grammar::json_object()));
        check(json!({"structured_outputs": {"regex": "a+"}}), Some(Grammar::Regex("a+".into())));
        check(json!({"structured_outputs": {"choice": ["a.b"]}}), Some(Grammar::Regex(r"a\.b".into())));
        let lark = || Some(Grammar::Lark("start: \"x\"".into()));
        check(json!({"structured_outputs": {"grammar": "start: \"x\""}}), lark());
        let structures = json!([{"begin": "<a>", "end": "</a>"}]);
        let format = json!({"type": "structural_tag", "structures": structures, "triggers": ["<a"]});
        let told = read(json!({"response_format": format})).unwrap();
        assert!(matches!(told, Some(Grammar::Lark(_))), "{told:?}");
        assert_eq!(read(json!({"structured_outputs": {"structural_tag": format}})).unwrap(), told);
        check(json!({"structured_outputs": {"structural_tag": format.to_string()}}), told);
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
        check(json!({"structured_outputs": "json"}), "structured_outputs");
        check(json!({"structured_outputs": {"json": {}, "regex": "a"}}), "structured_outputs.regex");
        check(json!({"structured_outputs": {"choice": ["a", 1]}}), "structured_outputs.choice[1]");
        check(
            json!({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}),
            "structured_outputs.whitespace_pattern",
        );
        check(json!({"structured_outputs": {"structural_tag": "{"}}), "structured_outputs.structural_tag");
        check(json!({"structured_outputs": {"regex": "a"}, "guided_json": {}}), "structured_outputs");
    }
}

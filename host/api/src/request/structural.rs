//! Reads a structural tag: free text in which certain words begin a tag, and what stands in a tag is JSON of its schema.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sf_core::limits::GRAMMAR_BYTES_MAX;
use sf_core::{Fault, FaultKind, Grammar, lark_text};

use crate::body::clipped;
use crate::fields::{Fields, array, string, unknown_word, wrong_type};

/// Tags of one request.
const TAGS_MAX: usize = 1024;

/// One kind of tag.
struct Tag {
    begin: String,
    schema: Value,
    end: String,
    path: String,
}

/// The fields of a tag that came as an object, or as JSON in a string, as vLLM's clients send it.
pub(super) fn fields(value: Value, path: String) -> Result<Fields, Fault> {
    let value = match value {
        Value::String(text) => serde_json::from_str(&text).map_err(|error| {
            Fault::invalid("invalid_json", path.clone(), format!("`{path}` is not valid JSON: {error}"))
        })?,
        other => other,
    };
    Fields::nested(value, path)
}

/// The grammar of `{"structures": [{"begin", "schema", "end"}], "triggers": []}`.
pub(super) fn grammar(fields: &mut Fields) -> Result<Grammar, Fault> {
    let path = fields.path("type");
    if let Some(kind) = fields.string("type")?.filter(|kind| kind != "structural_tag") {
        return Err(unknown_word(&path, &kind, "structural_tag"));
    }
    if fields.peek("format").is_some() {
        let path = fields.path("format");
        let message = format!("`{path}` is not in this build yet");
        return Err(Fault::new(FaultKind::Unsupported, "unsupported_parameter", message)
            .param(path)
            .hint("use `structures` and `triggers`"));
    }
    let path = fields.path("structures");
    let listed = array(fields.require("structures")?, &path)?;
    if listed.is_empty() || listed.len() > TAGS_MAX {
        let message = format!("`{path}` has {} tags, accepted are 1 to {TAGS_MAX}", listed.len());
        return Err(Fault::invalid("out_of_range", path, message));
    }
    let tags = listed.into_iter().enumerate().map(|(at, value)| tag(value, format!("{path}[{at}]")));
    let tags = tags.collect::<Result<Vec<Tag>, Fault>>()?;
    let path = fields.path("triggers");
    let given = array(fields.require("triggers")?, &path)?.into_iter().enumerate();
    let triggers = given.map(|(at, value)| string(value, &format!("{path}[{at}]")));
    let triggers = triggers.collect::<Result<Vec<String>, Fault>>()?;
    if triggers.len() > TAGS_MAX {
        let message = format!("`{path}` has {} triggers, accepted are {TAGS_MAX}", triggers.len());
        return Err(Fault::invalid("out_of_range", path, message));
    }
    let mut known = BTreeSet::new();
    if let Some(at) = triggers.iter().position(|trigger| !known.insert(trigger)) {
        let message = format!("`{path}[{at}]` stands there twice");
        return Err(Fault::invalid("invalid_value", format!("{path}[{at}]"), message));
    }
    if let Some(at) = triggers.iter().position(String::is_empty) {
        return Err(Fault::invalid("invalid_value", format!("{path}[{at}]"), "a trigger is empty"));
    }
    write(&tags, &triggers)
}

fn tag(value: Value, path: String) -> Result<Tag, Fault> {
    let mut fields = Fields::nested(value, path)?;
    let begin_path = fields.path("begin");
    let begin = string(fields.require("begin")?, &begin_path)?;
    if begin.is_empty() {
        return Err(Fault::invalid("invalid_value", begin_path.clone(), format!("`{begin_path}` is empty")));
    }
    let end = fields.string("end")?.unwrap_or_default();
    let schema_path = fields.path("schema");
    let schema = match fields.take("schema") {
        None | Some(Value::Bool(true)) => json!({}),
        Some(schema @ Value::Object(_)) => schema,
        Some(other) => return Err(wrong_type(&schema_path, "a schema", &other)),
    };
    let path = fields.path("begin");
    nothing_else(fields, "begin, schema and end")?;
    Ok(Tag { begin, schema, end, path })
}

/// Refuses fields that nobody took.
pub(super) fn nothing_else(fields: Fields, known: &str) -> Result<(), Fault> {
    let here = fields.path("");
    let mut given = fields.rest().into_iter().filter(|(_, value)| !value.is_null());
    match given.next().map(|(name, _)| format!("{here}{}", clipped(&name))) {
        None => Ok(()),
        Some(path) => {
            let message = format!("`{path}` is not in this build yet");
            let fault = Fault::new(FaultKind::Unsupported, "unsupported_parameter", message);
            Err(fault.param(path).hint(format!("what is read here are {known}")))
        }
    }
}

/// Text up to the first trigger, then what is left of a tag that begins with it; any number of times, then text.
fn write(tags: &[Tag], triggers: &[String]) -> Result<Grammar, Fault> {
    let mut rules = String::from("TEXT: /(?s:.*)/\n");
    let mut chunks = Vec::new();
    let mut taken = vec![false; tags.len()];
    let mut bytes = 0;
    for (at, trigger) in triggers.iter().enumerate() {
        let mut ways = Vec::new();
        for (index, tag) in tags.iter().enumerate() {
            let Some(rest) = tag.begin.strip_prefix(trigger.as_str()) else { continue };
            taken[index] = true;
            ways.push(format!("{} json_{index} {}", lark_text(rest), lark_text(&tag.end)));
            bytes += rest.len() + tag.end.len();
            if bytes > GRAMMAR_BYTES_MAX {
                let message = format!("the tags of all triggers have more than {GRAMMAR_BYTES_MAX} bytes");
                return Err(Fault::invalid("too_large", tag.path.clone(), message));
            }
        }
        if !ways.is_empty() {
            rules.push_str(&format!("trigger_{at}[lazy]: TEXT {}\n", lark_text(trigger)));
            chunks.push(format!("trigger_{at} ({})", ways.join(" | ")));
        }
    }
    if let Some(index) = taken.iter().position(|taken| !taken) {
        let message = format!("`{}` begins with none of the triggers", tags[index].path);
        return Err(Fault::invalid("invalid_value", tags[index].path.clone(), message));
    }
    for (index, tag) in tags.iter().enumerate() {
        let mut schema = tag.schema.clone();
        if let Value::Object(map) = &mut schema {
            // A run of white space may have no end otherwise.
            let spacing =
                json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "});
            map.insert("x-guidance".to_owned(), spacing);
        }
        rules.push_str(&format!("json_{index}: %json {schema}\n"));
    }
    Ok(Grammar::Lark(format!("start: ({})* TEXT?\n{rules}", chunks.join(" | ")).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<String, (String, String)> {
        let grammar = grammar(&mut Fields::root(body).unwrap());
        grammar
            .map(|grammar| grammar.source().to_owned())
            .map_err(|fault| (fault.param.unwrap(), fault.message))
    }

    #[test]
    fn triggers_are_bounded_and_stand_there_once() {
        let ask = |triggers: Vec<String>, end: &str| {
            let tag = json!({"begin": "<a>", "end": end});
            read(json!({"structures": [tag], "triggers": triggers})).unwrap_err().0
        };
        let many = (0..TAGS_MAX + 1).map(|at| format!("<{at}")).collect();
        assert_eq!(ask(many, "x"), "triggers");
        assert_eq!(ask(vec!["<a".to_owned(), "<a".to_owned()], "x"), "triggers[1]");
        assert_eq!(ask(vec!["<".to_owned(), "<a".to_owned()], &"x".repeat(200_000)), "structures[0].begin");
    }

    #[test]
    fn a_trigger_opens_the_tags_that_begin_with_it() {
        let tag = |begin: &str| json!({"begin": begin, "schema": {"type": "null"}, "end": "</f>\n"});
        let body =
            json!({"structures": [tag("<f=a>"), tag("<f=b>"), tag("<g>")], "triggers": ["<f=", "<g>"]});
        let text = read(body).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let f = r#"trigger_0 ("a>" json_0 "</f>\n" | "b>" json_1 "</f>\n")"#;
        assert_eq!(lines[0], format!(r#"start: ({f} | trigger_1 ("" json_2 "</f>\n"))* TEXT?"#));
        assert_eq!(lines[2], r#"trigger_0[lazy]: TEXT "<f=""#);
        assert!(lines[4].starts_with(r#"json_0: %json {"type":"null","x-guidance":{"#), "{text}");
    }

    #[test]
    fn what_is_no_tag_is_refused_by_name() {
        let check = |body: Value, param: &str| {
            assert_eq!(read(body.clone()).unwrap_err().0, param, "{body}");
        };
        let tag = json!({"begin": "<a>", "end": "</a>"});
        check(json!({}), "structures");
        check(json!({"structures": [], "triggers": ["<"]}), "structures");
        check(json!({"structures": [tag]}), "triggers");
        check(json!({"structures": [{"end": "x"}], "triggers": ["<"]}), "structures[0].begin");
        check(json!({"structures": [{"begin": "", "end": "x"}], "triggers": ["<"]}), "structures[0].begin");
        check(json!({"structures": [tag, {"begin": "b"}], "triggers": ["<"]}), "structures[1].begin");
        check(json!({"structures": [tag], "triggers": [""]}), "triggers[0]");
        check(
            json!({"structures": [{"begin": "<", "schema": 3}], "triggers": ["<"]}),
            "structures[0].schema",
        );
        check(json!({"structures": [{"begin": "<", "stop": 3}], "triggers": ["<"]}), "structures[0].stop");
        check(json!({"format": {"type": "triggered_tags"}}), "format");
        check(json!({"type": "tag"}), "type");
    }
}

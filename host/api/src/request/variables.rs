//! Reads what a client tells the model's chat template besides the messages.

use serde_json::Value;
use sf_core::limits::TEMPLATE_ARGUMENTS_MAX;
use sf_core::{Fault, Json};

use super::tools::json_of;
use crate::body::clipped;
use crate::fields::Fields;

/// Variables that every template gets from the server: what they say is not the client's to decide.
const RESERVED: &[&str] = &[
    "add_generation_prompt",
    "additional_special_tokens",
    "bos_token",
    "chat_template",
    "cls_token",
    "continue_final_message",
    "cycler",
    "dict",
    "documents",
    "eos_token",
    "joiner",
    "lipsum",
    "mask_token",
    "messages",
    "namespace",
    "pad_token",
    "raise_exception",
    "range",
    "sep_token",
    "strftime_now",
    "tokenize",
    "tools",
    "unk_token",
];

/// `chat_template_kwargs`, and `enable_thinking` and `reasoning_effort`, which may stand beside it.
pub(super) fn variables(fields: &mut Fields) -> Result<Vec<(String, Json)>, Fault> {
    let path = fields.path("chat_template_kwargs");
    let mut variables = match fields.take("chat_template_kwargs") {
        Some(given) => members(Fields::nested(given, path.clone())?, &path)?,
        None => Vec::new(),
    };
    let thinking = fields.peek("enable_thinking").is_some();
    let thinking = thinking.then(|| fields.flag("enable_thinking")).transpose()?.map(Json::Bool);
    let effort = fields.string("reasoning_effort")?.map(Json::String);
    for (name, value) in [("enable_thinking", thinking), ("reasoning_effort", effort)] {
        let Some(value) = value else { continue };
        match variables.iter().find(|(other, _)| other == name) {
            None => variables.push((name.to_owned(), value)),
            Some((_, other)) if *other == value => {}
            Some(_) => {
                let message = format!("`{name}` and `{path}.{name}` mean the same and differ");
                let fault = Fault::invalid("conflicting_parameters", fields.path(name), message);
                return Err(fault.hint("give one of them"));
            }
        }
    }
    Ok(variables)
}

fn members(given: Fields, path: &str) -> Result<Vec<(String, Json)>, Fault> {
    let given = given.rest();
    if given.len() > TEMPLATE_ARGUMENTS_MAX {
        let message = format!("`{path}` has {} entries, accepted are {TEMPLATE_ARGUMENTS_MAX}", given.len());
        return Err(Fault::invalid("too_many", path, message));
    }
    let member = |(name, value): (String, Value)| {
        if RESERVED.contains(&name.as_str()) {
            let path = format!("{path}.{}", clipped(&name));
            let message = format!("`{path}` is given to the template by the server and cannot be set");
            return Err(Fault::invalid("invalid_value", path, message).hint("leave it out"));
        }
        Ok((name, json_of(value)))
    };
    given.into_iter().map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::{RESERVED, variables};
    use crate::fields::Fields;
    use serde_json::{Value, json};
    use sf_core::{Fault, Json};

    fn read(body: Value) -> Result<Vec<(String, Json)>, Fault> {
        variables(&mut Fields::root(body).unwrap())
    }

    #[test]
    fn variables_come_from_the_kwargs_and_from_fields_of_their_own() {
        let got = read(json!({
            "chat_template_kwargs": {"b": null, "a": [1], "enable_thinking": false},
            "enable_thinking": false,
            "reasoning_effort": "high",
        }));
        let expect = [
            ("b", Json::Null),
            ("a", Json::Array(vec![Json::Integer(1)])),
            ("enable_thinking", Json::Bool(false)),
            ("reasoning_effort", "high".into()),
        ];
        assert_eq!(got.unwrap(), expect.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(read(json!({"enable_thinking": null})).unwrap(), []);
        assert_eq!(read(json!({"chat_template_kwargs": {}})).unwrap(), []);
    }

    #[test]
    fn what_the_server_gives_cannot_be_set_and_what_contradicts_is_refused() {
        let check = |body: Value, code: &str, param: &str| {
            let fault = read(body).unwrap_err();
            assert_eq!((fault.code, fault.param.as_deref()), (code, Some(param)), "{}", fault.message);
        };
        for name in RESERVED {
            let body = json!({"chat_template_kwargs": {*name: 1}});
            check(body, "invalid_value", &format!("chat_template_kwargs.{name}"));
        }
        check(json!({"chat_template_kwargs": []}), "invalid_type", "chat_template_kwargs");
        check(json!({"enable_thinking": "yes"}), "invalid_type", "enable_thinking");
        check(json!({"reasoning_effort": 3}), "invalid_type", "reasoning_effort");
        let twice = json!({"chat_template_kwargs": {"enable_thinking": true}, "enable_thinking": false});
        check(twice, "conflicting_parameters", "enable_thinking");
        let many: Value = (0..100).map(|at| (format!("v{at}"), json!(at))).collect();
        check(json!({"chat_template_kwargs": many}), "too_many", "chat_template_kwargs");
    }
}

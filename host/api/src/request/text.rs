//! Reads the body of `/v1/completions`.

use serde_json::Value;
use sf_core::limits::{CHOICES_MAX, TOP_LOGPROBS_MAX};
use sf_core::{Fault, FaultKind, Input};

use super::chat::model;
use super::format::form;
use super::sampling::{choices, sampling, stop, stop_tokens, tokens};
use super::{Dialect, Order, delivery, refused, service_tier};
use crate::fields::{Fields, string, wrong_type};

/// What OpenAI's endpoint generates when nothing is said.
const MAX_TOKENS_DEFAULT: u32 = 16;

/// The order in a completion request's body.
pub(crate) fn text(body: Value) -> Result<Order, Fault> {
    let mut fields = Fields::root(body)?;
    refused::check(&fields, refused::GENERATION)?;
    refused::check(&fields, refused::TEXT)?;
    let model = model(&mut fields)?;
    let prompt = fields.require("prompt")?;
    let inputs = inputs(prompt, &fields.path("prompt"))?;
    no_suffix(&mut fields)?;
    let choices = choices(&mut fields)?;
    best_of(&mut fields, choices)?;
    if inputs.len() as u64 * u64::from(choices) > u64::from(CHOICES_MAX) {
        let message =
            format!("{} prompts with n = {choices} are more than {CHOICES_MAX} answers", inputs.len());
        return Err(Fault::invalid("too_many", "prompt", message));
    }
    let logprobs = fields.integer("logprobs", 0..=TOP_LOGPROBS_MAX)?;
    let echo = fields.flag("echo")?;
    let order = Order {
        dialect: Dialect::Text,
        model,
        inputs,
        sampling: sampling(&mut fields)?,
        max_tokens: Some(fields.integer("max_tokens", 0..=u32::MAX)?.unwrap_or(MAX_TOKENS_DEFAULT)),
        stop: stop(&mut fields)?,
        choices,
        logprobs,
        form: form(&mut fields)?,
        stop_tokens: stop_tokens(&mut fields)?,
        min_tokens: fields.integer("min_tokens", 0..=u32::MAX)?.unwrap_or(0),
        ignore_eos: fields.flag("ignore_eos")?,
        reuse: fields.flag_or("cache_prompt", true)?,
        user: fields.string("user")?,
        service_tier: service_tier(&mut fields)?,
        echo,
        delivery: delivery(&mut fields)?,
        ignored: Vec::new(),
    };
    Ok(Order { ignored: refused::unknown(fields, &[refused::GENERATION, refused::TEXT]), ..order })
}

fn no_suffix(fields: &mut Fields) -> Result<(), Fault> {
    match fields.string("suffix")? {
        Some(suffix) if !suffix.is_empty() => {
            let message = "`suffix` (fill in the middle) is not in this build yet";
            Err(Fault::new(FaultKind::Unsupported, "fim_unsupported", message)
                .param("suffix")
                .hint("leave it out"))
        }
        _ => Ok(()),
    }
}

fn best_of(fields: &mut Fields, choices: u32) -> Result<(), Fault> {
    match fields.integer("best_of", 1..=CHOICES_MAX)? {
        Some(best_of) if best_of != choices => {
            let message = format!(
                "`best_of` is {best_of} and `n` is {choices}; choosing among answers is not in this build yet"
            );
            Err(Fault::new(FaultKind::Unsupported, "unsupported_parameter", message).param("best_of"))
        }
        _ => Ok(()),
    }
}

/// A string, strings, tokens, or arrays of tokens.
pub(super) fn inputs(prompt: Value, path: &str) -> Result<Vec<Input>, Fault> {
    let values = match prompt {
        Value::String(text) => return Ok(vec![Input::Text(text)]),
        Value::Array(values) => values,
        other => return Err(wrong_type(path, "a string, strings, tokens or arrays of tokens", &other)),
    };
    match values.first() {
        None => Err(Fault::invalid("invalid_value", path, format!("`{path}` is empty"))),
        Some(Value::Number(_)) => Ok(vec![Input::Tokens(tokens(Value::Array(values), path)?)]),
        Some(Value::String(_)) => {
            let text = |(at, value)| string(value, &format!("{path}[{at}]")).map(Input::Text);
            values.into_iter().enumerate().map(text).collect()
        }
        Some(Value::Array(_)) => {
            let ids = |(at, value)| tokens(value, &format!("{path}[{at}]")).map(Input::Tokens);
            values.into_iter().enumerate().map(ids).collect()
        }
        Some(other) => {
            Err(wrong_type(&format!("{path}[0]"), "a string, a token or an array of tokens", other))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::text;
    use serde_json::{Value, json};
    use sf_core::{Input, Token};

    fn check(prompt: &Value, expect: &[Input]) {
        assert_eq!(text(json!({"prompt": prompt})).unwrap().inputs, expect);
    }

    #[test]
    fn a_prompt_has_four_shapes() {
        let text = |s: &str| Input::Text(s.to_owned());
        check(&json!("a"), &[text("a")]);
        check(&json!(""), &[text("")]);
        check(&json!(["a", "b"]), &[text("a"), text("b")]);
        check(&json!([1, 2]), &[Input::Tokens(vec![Token(1), Token(2)])]);
        check(
            &json!([[1], [2, 3]]),
            &[Input::Tokens(vec![Token(1)]), Input::Tokens(vec![Token(2), Token(3)])],
        );
    }

    #[test]
    fn a_completion_without_more_is_sixteen_tokens() {
        assert_eq!(text(json!({"prompt": "x"})).unwrap().max_tokens, Some(16));
    }
}

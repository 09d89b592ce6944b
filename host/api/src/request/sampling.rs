//! The fields that both generating endpoints share: sampling, stop strings, lengths and counts.

use serde_json::Value;
use sf_core::limits::{BIASES_MAX, CHOICES_MAX, STOP_BYTES_MAX, STOPS_MAX};
use sf_core::{Fault, SamplingParams, Token};

use crate::body::clipped;
use crate::fields::{Fields, Span, array, number, string, wrong_type};

const TEMPERATURE: Span = Span::closed(0.0, 2.0);
const TOP_P: Span = Span::above(0.0, 1.0);
const MIN_P: Span = Span::closed(0.0, 1.0);
const REPEAT_PENALTY: Span = Span::above(0.0, 2.0);
const PENALTY: Span = Span::closed(-2.0, 2.0);
const BIAS: Span = Span::closed(-100.0, 100.0);

/// Everything that decides how a token is chosen.
pub(super) fn sampling(fields: &mut Fields) -> Result<SamplingParams, Fault> {
    let repeat = fields.number("repeat_penalty", REPEAT_PENALTY)?;
    let repetition = fields.number("repetition_penalty", REPEAT_PENALTY)?;
    Ok(SamplingParams {
        temperature: fields.number("temperature", TEMPERATURE)?,
        top_p: fields.number("top_p", TOP_P)?,
        top_k: fields.integer("top_k", 0..=u32::MAX)?,
        min_p: fields.number("min_p", MIN_P)?,
        repeat_penalty: same("repeat_penalty", repeat, "repetition_penalty", repetition)?,
        presence_penalty: fields.number("presence_penalty", PENALTY)?,
        frequency_penalty: fields.number("frequency_penalty", PENALTY)?,
        seed: seed(fields)?,
        bias: bias(fields)?,
    })
}

/// One meaning under two names: given twice, both must say the same.
pub(super) fn same<T: PartialEq>(
    name: &str,
    value: Option<T>,
    other_name: &str,
    other: Option<T>,
) -> Result<Option<T>, Fault> {
    match (value, other) {
        (Some(a), Some(b)) if a != b => {
            let message = format!("`{name}` and `{other_name}` mean the same and differ");
            Err(Fault::invalid("conflicting_parameters", name, message).hint("give one of them"))
        }
        (a, b) => Ok(a.or(b)),
    }
}

/// Any 64-bit integer, signed or not, is a seed of its own; 0 and -1 mean nothing special.
fn seed(fields: &mut Fields) -> Result<Option<u64>, Fault> {
    let path = fields.path("seed");
    match fields.take("seed") {
        None => Ok(None),
        Some(Value::Number(n)) => match (n.as_u64(), n.as_i64()) {
            (Some(seed), _) => Ok(Some(seed)),
            (None, Some(negative)) => Ok(Some(negative.cast_unsigned())),
            (None, None) => {
                let message = format!("`{path}` is {n}, accepted is a whole number of 64 bits");
                Err(Fault::invalid("out_of_range", path, message))
            }
        },
        Some(other) => Err(wrong_type(&path, "an integer", &other)),
    }
}

fn bias(fields: &mut Fields) -> Result<Vec<(Token, f32)>, Fault> {
    let path = fields.path("logit_bias");
    let entries = match fields.take("logit_bias") {
        None => return Ok(Vec::new()),
        Some(Value::Object(entries)) => entries,
        Some(other) => return Err(wrong_type(&path, "an object from token ids to numbers", &other)),
    };
    if entries.len() > BIASES_MAX {
        let message = format!("`{path}` has {} entries, accepted are {BIASES_MAX}", entries.len());
        return Err(Fault::invalid("too_many", path, message));
    }
    let mut bias = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let entry = format!("{path}.{}", clipped(&key));
        // `05` and `5` would name one token twice.
        let token = key.parse::<u32>().ok().filter(|token| token.to_string() == key).ok_or_else(|| {
            let message = format!("`{entry}` is not a token id");
            Fault::invalid("invalid_value", entry.clone(), message)
                .hint("keys are token ids as decimal strings")
        })?;
        bias.push((Token(token), number(&value, &entry, BIAS)?));
    }
    Ok(bias)
}

/// Text that ends an answer.
pub(super) fn stop(fields: &mut Fields) -> Result<Vec<String>, Fault> {
    let path = fields.path("stop");
    let given = match fields.take("stop") {
        None => return Ok(Vec::new()),
        Some(one @ Value::String(_)) => vec![one],
        Some(Value::Array(many)) => many,
        Some(other) => return Err(wrong_type(&path, "a string or an array of strings", &other)),
    };
    if given.len() > STOPS_MAX {
        let message = format!("`{path}` has {} strings, accepted are {STOPS_MAX}", given.len());
        return Err(Fault::invalid("too_many", path, message));
    }
    let mut stops = Vec::with_capacity(given.len());
    for (at, value) in given.into_iter().enumerate() {
        let entry = format!("{path}[{at}]");
        let text = string(value, &entry)?;
        if text.is_empty() || text.len() > STOP_BYTES_MAX {
            let message = format!("`{entry}` has {} bytes, accepted is 1 to {STOP_BYTES_MAX}", text.len());
            return Err(Fault::invalid("invalid_value", entry, message));
        }
        stops.push(text);
    }
    Ok(stops)
}

/// Tokens that end an answer.
pub(super) fn stop_tokens(fields: &mut Fields) -> Result<Vec<Token>, Fault> {
    let path = fields.path("stop_token_ids");
    match fields.take("stop_token_ids") {
        None => Ok(Vec::new()),
        Some(Value::Array(none)) if none.is_empty() => Ok(Vec::new()),
        Some(given) => tokens(given, &path),
    }
}

/// Answers per input.
pub(super) fn choices(fields: &mut Fields) -> Result<u32, Fault> {
    Ok(fields.integer("n", 1..=CHOICES_MAX)?.unwrap_or(1))
}

/// An array of token ids.
pub(super) fn tokens(value: Value, path: &str) -> Result<Vec<Token>, Fault> {
    let values = array(value, path)?;
    if values.is_empty() {
        return Err(Fault::invalid("invalid_value", path, format!("`{path}` is empty")));
    }
    let id = |(at, value): (usize, &Value)| {
        // The path is only worth building for a complaint.
        match value.as_u64().and_then(|id| u32::try_from(id).ok()) {
            Some(id) => Ok(Token(id)),
            None => crate::fields::integer(value, &format!("{path}[{at}]"), 0..=u32::MAX).map(Token),
        }
    };
    values.iter().enumerate().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::{sampling, stop};
    use crate::fields::Fields;
    use serde_json::{Value, json};
    use sf_core::Token;

    fn fields(body: Value) -> Fields {
        Fields::root(body).unwrap()
    }

    #[test]
    fn every_seed_is_a_seed() {
        for (given, seed) in [
            (json!(0), Some(0)),
            (json!(-1), Some(u64::MAX)),
            (json!(u64::MAX), Some(u64::MAX)),
            (json!(i64::MIN), Some(1 << 63)),
            (Value::Null, None),
        ] {
            assert_eq!(sampling(&mut fields(json!({"seed": given}))).unwrap().seed, seed);
        }
    }

    #[test]
    fn fields_arrive_as_given() {
        let mut body = fields(json!({
            "temperature": 0, "top_p": 0.5, "top_k": 40, "min_p": 0.1, "repetition_penalty": 1.25,
            "presence_penalty": -2, "frequency_penalty": 2, "logit_bias": {"5": -100, "0": 1.5}
        }));
        let got = sampling(&mut body).unwrap();
        assert_eq!(got.temperature, Some(0.0));
        assert_eq!(got.top_p, Some(0.5));
        assert_eq!(got.top_k, Some(40));
        assert_eq!(got.min_p, Some(0.1));
        assert_eq!(got.repeat_penalty, Some(1.25));
        assert_eq!(got.presence_penalty, Some(-2.0));
        assert_eq!(got.frequency_penalty, Some(2.0));
        let mut bias = got.bias;
        bias.sort_by_key(|entry| entry.0);
        assert_eq!(bias, [(Token(0), 1.5), (Token(5), -100.0)]);
    }

    #[test]
    fn stop_is_a_string_or_several() {
        assert_eq!(stop(&mut fields(json!({"stop": "a"}))).unwrap(), ["a"]);
        assert_eq!(stop(&mut fields(json!({"stop": ["a", "b"]}))).unwrap(), ["a", "b"]);
        assert!(stop(&mut fields(json!({"stop": []}))).unwrap().is_empty());
    }
}

//! Reads typed fields out of a JSON object; every complaint names the field's path, e.g. `messages[2].content`.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};
use sf_core::Fault;

use crate::body::clipped;

/// An object that is taken apart field by field; what is left was not known. `null` counts as absent.
pub(crate) struct Fields {
    path: String,
    map: Map<String, Value>,
}

/// The numbers that a field accepts.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) low: f32,
    pub(crate) high: f32,
    /// Whether `low` itself is left out.
    pub(crate) above: bool,
}

impl Span {
    pub(crate) const fn closed(low: f32, high: f32) -> Span {
        Span { low, high, above: false }
    }

    pub(crate) const fn above(low: f32, high: f32) -> Span {
        Span { low, high, above: true }
    }

    fn holds(self, value: f32) -> bool {
        value <= self.high && if self.above { value > self.low } else { value >= self.low }
    }
}

impl Fields {
    /// The outermost object.
    pub(crate) fn root(value: Value) -> Result<Fields, Fault> {
        match value {
            Value::Object(map) => Ok(Fields { path: String::new(), map }),
            other => Err(Fault::new(
                sf_core::FaultKind::Invalid,
                "invalid_type",
                format!("body is {}, expected an object", kind(&other)),
            )),
        }
    }

    /// An object inside another.
    pub(crate) fn nested(value: Value, path: String) -> Result<Fields, Fault> {
        match value {
            Value::Object(map) => Ok(Fields { path, map }),
            other => Err(wrong_type(&path, "an object", &other)),
        }
    }

    /// Where a field of this object stands.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Takes a field, whatever it is.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name).filter(|value| !value.is_null())
    }

    /// Looks at a field and leaves it.
    pub(crate) fn peek(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Takes a field that must be there.
    pub(crate) fn require(&mut self, name: &str) -> Result<Value, Fault> {
        self.take(name).ok_or_else(|| self.missing(name))
    }

    /// The complaint about a field that must be there.
    pub(crate) fn missing(&self, name: &str) -> Fault {
        let path = self.path(name);
        Fault::invalid("missing_required_parameter", path.clone(), format!("`{path}` is missing"))
    }

    pub(crate) fn string(&mut self, name: &str) -> Result<Option<String>, Fault> {
        self.take(name).map(|value| string(value, &self.path(name))).transpose()
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Fault> {
        self.flag_or(name, false)
    }

    /// A flag that counts as `absent` when it is not there.
    pub(crate) fn flag_or(&mut self, name: &str, absent: bool) -> Result<bool, Fault> {
        match self.take(name) {
            None => Ok(absent),
            Some(Value::Bool(value)) => Ok(value),
            Some(other) => Err(wrong_type(&self.path(name), "a boolean", &other)),
        }
    }

    pub(crate) fn integer(&mut self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, Fault> {
        self.take(name).map(|value| integer(&value, &self.path(name), range)).transpose()
    }

    pub(crate) fn number(&mut self, name: &str, span: Span) -> Result<Option<f32>, Fault> {
        self.take(name).map(|value| number(&value, &self.path(name), span)).transpose()
    }

    /// What was not taken.
    pub(crate) fn rest(self) -> Map<String, Value> {
        self.map
    }
}

/// A string or a complaint.
pub(crate) fn string(value: Value, path: &str) -> Result<String, Fault> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(wrong_type(path, "a string", &other)),
    }
}

/// An array or a complaint.
pub(crate) fn array(value: Value, path: &str) -> Result<Vec<Value>, Fault> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(wrong_type(path, "an array", &other)),
    }
}

/// A whole number within `range`; `3.0` is one.
pub(crate) fn integer(value: &Value, path: &str, range: RangeInclusive<u32>) -> Result<u32, Fault> {
    let Value::Number(number) = value else { return Err(wrong_type(path, "an integer", value)) };
    let whole = match (number.as_i64(), number.as_f64()) {
        (Some(whole), _) => whole,
        (None, Some(float)) if float.fract() != 0.0 => {
            return Err(Fault::invalid(
                "invalid_type",
                path,
                format!("`{path}` is {number}, expected an integer"),
            ));
        }
        // Saturates far outside every range that is asked for.
        (None, float) => float.unwrap_or(f64::MAX) as i64,
    };
    u32::try_from(whole).ok().filter(|whole| range.contains(whole)).ok_or_else(|| {
        let (low, high) = (range.start(), range.end());
        Fault::invalid("out_of_range", path, format!("`{path}` is {number}, accepted is {low} to {high}"))
    })
}

/// A number within `span`.
pub(crate) fn number(value: &Value, path: &str, span: Span) -> Result<f32, Fault> {
    let Value::Number(number) = value else { return Err(wrong_type(path, "a number", value)) };
    let given = number.as_f64().unwrap_or(f64::NAN);
    let rounded = given as f32;
    // A value just above a limit may round onto it: the value as given counts too.
    if span.holds(rounded) && given <= f64::from(span.high) {
        return Ok(rounded);
    }
    let Span { low, high, above } = span;
    let from = if above { "above " } else { "" };
    Err(Fault::invalid(
        "out_of_range",
        path,
        format!("`{path}` is {number}, accepted is {from}{low} to {high}"),
    ))
}

/// The complaint about a value of another type.
pub(crate) fn wrong_type(path: &str, expected: &str, got: &Value) -> Fault {
    Fault::invalid("invalid_type", path, format!("`{path}` is {}, expected {expected}", kind(got)))
}

/// The complaint about a word that is none of those accepted.
pub(crate) fn unknown_word(path: &str, word: &str, accepted: &str) -> Fault {
    let word = clipped(word);
    Fault::invalid("invalid_value", path, format!("`{path}` is \"{word}\", accepted is {accepted}"))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::{Span, integer, number};
    use serde_json::{Value, json};

    fn check_integer(value: &Value, expect: Result<u32, &str>) {
        let got = integer(value, "n", 1..=8);
        assert_eq!(got.map_err(|f| f.message), expect.map_err(str::to_owned));
    }

    #[test]
    fn integers_are_whole_and_in_range() {
        check_integer(&json!(1), Ok(1));
        check_integer(&json!(8.0), Ok(8));
        check_integer(&json!(0), Err("`n` is 0, accepted is 1 to 8"));
        check_integer(&json!(9), Err("`n` is 9, accepted is 1 to 8"));
        check_integer(&json!(-1), Err("`n` is -1, accepted is 1 to 8"));
        check_integer(&json!(4294967297u64), Err("`n` is 4294967297, accepted is 1 to 8"));
        check_integer(&json!(u64::MAX), Err("`n` is 18446744073709551615, accepted is 1 to 8"));
        check_integer(&json!(1e300), Err("`n` is 1e+300, accepted is 1 to 8"));
        check_integer(&json!(1.5), Err("`n` is 1.5, expected an integer"));
        check_integer(&json!("1"), Err("`n` is a string, expected an integer"));
        check_integer(&json!(true), Err("`n` is a boolean, expected an integer"));
    }

    fn check_number(value: &Value, expect: Result<f32, &str>) {
        let got = number(value, "p", Span::above(0.0, 1.0));
        assert_eq!(got.map_err(|f| f.message), expect.map_err(str::to_owned));
    }

    #[test]
    fn numbers_keep_to_their_span() {
        check_number(&json!(1), Ok(1.0));
        check_number(&json!(0.5), Ok(0.5));
        check_number(&json!(0), Err("`p` is 0, accepted is above 0 to 1"));
        check_number(&json!(1e-60), Err("`p` is 1e-60, accepted is above 0 to 1"));
        check_number(&json!(1.000000001), Err("`p` is 1.000000001, accepted is above 0 to 1"));
        check_number(&json!([]), Err("`p` is an array, expected a number"));
    }
}

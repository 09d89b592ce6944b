//! From JSON to a header, so that what has the wrong shape is called by its path.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::BaseError;
use crate::header::Header;
use crate::layout::Layout;

/// What a field of a slot or a tensor holds.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Flag,
    U32,
    U64,
}

const SLOT: [(&str, Shape); 5] = [
    ("id", Shape::Text),
    ("required", Shape::Flag),
    ("offset", Shape::U64),
    ("bytes", Shape::U64),
    ("checksum", Shape::Text),
];

const TENSOR: [(&str, Shape); 8] = [
    ("name", Shape::Text),
    ("row", Shape::U32),
    ("rows", Shape::U32),
    ("cols", Shape::U32),
    ("layout", Shape::Text),
    ("offset", Shape::U64),
    ("bytes", Shape::U64),
    ("checksum", Shape::Text),
];

/// The header that a canonical value without unknown `must_` fields is.
pub(crate) fn header(mut value: Value) -> Result<Header, BaseError> {
    let Value::Object(fields) = &mut value else { return Err(wrong("it", "an object", &value)) };
    let slots = items(fields, "slots", &SLOT)?;
    let tensors = items(fields, "tensors", &TENSOR)?;
    if let Some(architecture) = fields.get("architecture") {
        part::<crate::Arch>("architecture", architecture)?;
    }
    let mut header: Header =
        serde_json::from_value(value).map_err(|error| BaseError::Header { reason: error.to_string() })?;
    header.slots = slots;
    header.tensors = tensors;
    Ok(header)
}

/// Takes a list out of the header, and leaves an empty one.
fn items<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &str,
    shapes: &[(&str, Shape)],
) -> Result<Vec<T>, BaseError> {
    let Some(list) = fields.get_mut(name) else { return Err(missing(name)) };
    let Value::Array(list) = list else { return Err(wrong(name, "a list", list)) };
    let list = std::mem::take(list);
    list.iter()
        .enumerate()
        .map(|(number, item)| {
            let path = format!("{name}[{number}]");
            check_item(&path, item, shapes)?;
            part(&path, item)
        })
        .collect()
}

fn check_item(path: &str, item: &Value, shapes: &[(&str, Shape)]) -> Result<(), BaseError> {
    if !item.is_object() {
        return Err(wrong(path, "an object", item));
    }
    for (name, shape) in shapes {
        let path = format!("{path}.{name}");
        let Some(value) = item.get(name) else { return Err(missing(&path)) };
        let (fits, words) = match shape {
            Shape::Text => (value.is_string(), "text"),
            Shape::Flag => (value.is_boolean(), "true or false"),
            Shape::U32 => {
                (value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()), "0 to 4294967295")
            }
            Shape::U64 => (value.is_u64(), "0 to 18446744073709551615"),
        };
        if !fits {
            return Err(wrong(&path, words, value));
        }
        if let (&"layout", Some(layout)) = (name, value.as_str())
            && Layout::named(layout).is_none()
        {
            let known: Vec<&str> = Layout::ALL.iter().map(|layout| layout.name()).collect();
            return Err(BaseError::value(
                path,
                format!("{layout:?}"),
                format!("known are {}", known.join(", ")),
            ));
        }
    }
    Ok(())
}

fn part<T: DeserializeOwned>(path: &str, value: &Value) -> Result<T, BaseError> {
    T::deserialize(value).map_err(|error| shape(path, &error))
}

fn shape(path: &str, error: &serde_json::Error) -> BaseError {
    BaseError::Header { reason: format!("{path}: {error}") }
}

fn missing(path: &str) -> BaseError {
    BaseError::Header { reason: format!("{path} is missing") }
}

fn wrong(path: &str, expected: &str, found: &Value) -> BaseError {
    let mut found = found.to_string();
    if found.len() > 60 {
        let end = (0..=60).rev().find(|at| found.is_char_boundary(*at)).unwrap_or(0);
        found.truncate(end);
        found.push('…');
    }
    BaseError::Header { reason: format!("{path} is {found}, expected is {expected}") }
}

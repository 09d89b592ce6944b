//! `tojson` as transformers defines it: Python's `json.dumps` without escaping what is not ASCII.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::repr::write_number;
use super::sentinel;
use crate::template::OUTPUT_BYTES_MAX;
use crate::wire::push_char;

/// Deepest nesting that is written; what a client sends is at most 128 deep.
const DEPTH_MAX: usize = 200;
/// Widest indentation of one level.
const INDENT_MAX: usize = 64;

/// How it is written.
struct Style {
    indent: Option<String>,
    item: String,
    key: String,
    ascii: bool,
    sorted: bool,
    sentinel: Option<char>,
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
///
/// The first two may come without their names.
pub(crate) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    ascii: Option<Value>,
    indent: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let named = |name: &str| kwargs.get::<Option<Value>>(name);
    let ascii = ascii.or(named("ensure_ascii")?).is_some_and(|value| value.is_true());
    let indent = match indent.or(named("indent")?) {
        None => None,
        Some(text) if text.as_str().is_some() => {
            text.as_str().map(|text| text.chars().take(INDENT_MAX).collect())
        }
        Some(width) => Some(" ".repeat(i64::try_from(width)?.clamp(0, INDENT_MAX as i64) as usize)),
    };
    let (item, key) = match named("separators")? {
        Some(pair) => (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string()),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let sorted = named("sort_keys")?.is_some_and(|value| value.is_true());
    kwargs.assert_all_used()?;
    let style = Style { indent, item, key, ascii, sorted, sentinel: sentinel(state) };
    let mut out = String::new();
    style.write(value, 0, &mut out)?;
    Ok(Value::from(out))
}

impl Style {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            let message = format!("tojson: nested more than {DEPTH_MAX} deep");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        if out.len() > OUTPUT_BYTES_MAX {
            let message = format!("tojson: more than {OUTPUT_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => write_json_number(value, out),
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default(), out),
            ValueKind::Map => self.write_map(value, depth, out)?,
            ValueKind::Seq | ValueKind::Iterable => {
                out.push('[');
                let mut is_empty = true;
                for item in value.try_iter()?.checked() {
                    self.next(is_empty, depth + 1, out);
                    is_empty = false;
                    self.write(&item?, depth + 1, out)?;
                }
                self.close(is_empty, depth, out);
                out.push(']');
            }
            other => {
                let message = format!("tojson: a value of type {other} is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn write_map(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut keys = value.try_iter()?.checked().collect::<Result<Vec<Value>, Error>>()?;
        if self.sorted {
            let plain = |key: &Value| {
                let text = key.as_str().unwrap_or_default();
                self.sentinel.map_or(text.to_owned(), |sentinel| text.replace(sentinel, ""))
            };
            keys.sort_by_cached_key(plain);
        }
        out.push('{');
        for (at, key) in keys.iter().enumerate() {
            self.next(at == 0, depth + 1, out);
            match key.as_str() {
                Some(text) => self.write_string(text, out),
                None => {
                    let mut text = String::new();
                    self.write(key, depth + 1, &mut text)?;
                    self.write_string(&text, out);
                }
            }
            out.push_str(&self.key);
            self.write(&value.get_item(key)?, depth + 1, out)?;
        }
        self.close(keys.is_empty(), depth, out);
        out.push('}');
        Ok(())
    }

    /// What stands before an item.
    fn next(&self, is_first: bool, depth: usize, out: &mut String) {
        out.push_str(if is_first { "" } else { &self.item });
        self.close(false, depth, out);
    }

    /// A line break and the indentation, where there is any.
    fn close(&self, is_empty: bool, depth: usize, out: &mut String) {
        if let Some(indent) = self.indent.as_deref().filter(|_| !is_empty) {
            out.push('\n');
            out.extend(std::iter::repeat_n(indent, depth));
        }
    }

    fn write_string(&self, text: &str, out: &mut String) {
        out.push('"');
        for character in text.chars() {
            match character {
                other if self.ascii && other > '~' && Some(other) != self.sentinel => {
                    other.encode_utf16(&mut [0; 2]).iter().for_each(|unit| push_unit(*unit, out));
                }
                other => push_char(other, out),
            }
        }
        out.push('"');
    }
}

fn push_unit(unit: u16, out: &mut String) {
    write!(out, "\\u{unit:04x}").expect("writing to a string does not fail");
}

fn write_json_number(value: &Value, out: &mut String) {
    match f64::try_from(value.clone()).ok().filter(|_| !value.is_integer()) {
        Some(number) if number.is_nan() => out.push_str("NaN"),
        Some(number) if number.is_infinite() => {
            out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" });
        }
        _ => write_number(value, out),
    }
}

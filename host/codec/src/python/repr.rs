//! Python's `str()` and `repr()` of values.

use std::fmt::Write;

use minijinja::Value;
use minijinja::value::ValueKind;

/// Deepest nesting that is written; what a client sends is at most 128 deep.
const DEPTH_MAX: usize = 200;

/// `str(value)`. `sentinel` is the guard's own character: it stays as it is.
pub(crate) fn write_str(value: &Value, sentinel: Option<char>, out: &mut String) {
    match value.kind() {
        ValueKind::String => out.push_str(value.as_str().unwrap_or_default()),
        ValueKind::Undefined => {}
        _ => write_repr(value, sentinel, 0, out),
    }
}

/// `repr(value)`.
pub(crate) fn write_repr(value: &Value, sentinel: Option<char>, depth: usize, out: &mut String) {
    if depth > DEPTH_MAX {
        out.push_str("...");
        return;
    }
    match value.kind() {
        ValueKind::String => write_text(value.as_str().unwrap_or_default(), sentinel, out),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number => write_number(value, out),
        ValueKind::Map => {
            out.push('{');
            for (at, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write_repr(&key, sentinel, depth + 1, out);
                out.push_str(": ");
                write_repr(&value.get_item(&key).unwrap_or_default(), sentinel, depth + 1, out);
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            let mut count = 0;
            for item in value.try_iter().into_iter().flatten() {
                out.push_str(if count == 0 { "" } else { ", " });
                write_repr(&item, sentinel, depth + 1, out);
                count += 1;
            }
            out.push_str(if value.is_tuple() && count == 1 { "," } else { "" });
            out.push(close);
        }
        _ => write!(out, "{value}").expect("writing to a string does not fail"),
    }
}

/// A number as both `str()` and `json.dumps` write it, but for what is not finite.
pub(crate) fn write_number(value: &Value, out: &mut String) {
    if value.is_integer() {
        write!(out, "{value}").expect("writing to a string does not fail");
        return;
    }
    let number = f64::try_from(value.clone()).unwrap_or(f64::NAN);
    if number.is_nan() {
        out.push_str("nan");
        return;
    }
    // Rust and Python switch to exponents at the same sizes, and spell them differently.
    let digits = format!("{number:?}");
    match digits.split_once('e') {
        None => out.push_str(&digits),
        Some((mantissa, exponent)) => {
            let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
            write!(out, "{mantissa}e{sign}{digits:0>2}").expect("writing to a string does not fail");
        }
    }
}

fn write_text(text: &str, sentinel: Option<char>, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        let code = u32::from(character);
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => {
                out.push('\\');
                out.push(quote);
            }
            _ if Some(character) == sentinel || is_printable(character) => out.push(character),
            _ => {
                let written = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
                written.expect("writing to a string does not fail");
            }
        }
    }
    out.push(quote);
}

/// `str.isprintable`, by the Unicode tables of Rust's own escapes.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // Behind another character, for a mark that combines is escaped only where it stands first.
    let mut text = [0; 5];
    text[0] = b'a';
    let length = 1 + character.encode_utf8(&mut text[1..]).len();
    let text = std::str::from_utf8(&text[..length]).expect("encoded right above");
    text.escape_debug().nth(1) != Some('\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn str_of(value: &Value) -> String {
        let mut out = String::new();
        write_str(value, Some('\u{e000}'), &mut out);
        out
    }

    #[test]
    fn values_are_written_as_python_does() {
        let check = |value: Value, expect: &str| assert_eq!(str_of(&value), expect);
        check(Value::from("it's"), "it's");
        check(
            Value::from(vec!["it's", "\"", "'\"", "\\\n\t\0\u{7f}é"]),
            r#"["it's", '"', '\'"', '\\\n\t\x00\x7fé']"#,
        );
        check(
            Value::from(vec!["\u{a0}\u{200b}\u{e001}\u{e000}\u{301}😀\u{10ffff}"]),
            "['\\xa0\\u200b\\ue001\u{e000}\u{301}😀\\U0010ffff']",
        );
        check(
            Value::from(vec![1.0, 0.1, 1e16, 1e-5, -1e22, 123_456_789.0]),
            "[1.0, 0.1, 1e+16, 1e-05, -1e+22, 123456789.0]",
        );
        check(Value::from(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0]), "[nan, inf, -inf, -0.0]");
        check(Value::from(()), "None");
        check(Value::from(true), "True");
        check(
            Value::from_pairs([("a", Value::from(vec![Value::from(()), Value::from(1)]))]),
            "{'a': [None, 1]}",
        );
        check(Value::from((1, "a")), "(1, 'a')");
        check(Value::from((1,)), "(1,)");
        check(Value::UNDEFINED, "");
        check(Value::from(i128::MAX), "170141183460469231731687303715884105727");
    }

    #[test]
    fn nesting_without_end_is_cut() {
        let deep = (0..1000).fold(Value::from(1), |value, _| Value::from(vec![value]));
        assert!(str_of(&deep).contains("[...]"));
    }
}

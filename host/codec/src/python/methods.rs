//! Methods of Python's strings, dicts and lists that minijinja's own set lacks or reads differently.

use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::{plain, sentinel};

/// Most bytes that padding makes.
const WIDTH_MAX: usize = 1 << 16;

/// Calls `value.method(*args)`.
pub(crate) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match (value.kind(), value.as_str()) {
        (_, Some(text)) => text_method(text, method, args, sentinel(state))?,
        (ValueKind::Seq | ValueKind::Iterable, _) => list_method(value, method, args)?,
        (ValueKind::Map, _) if method == "copy" => Some(value.clone()),
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => unknown_method_callback(state, value, method, args),
    }
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// `str.isspace`.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// `text.strip(chars)`, on the sides that are asked for.
pub(crate) fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let goes = |character: char| chars.map_or_else(|| is_space(character), |chars| chars.contains(character));
    let text = if left { text.trim_start_matches(goes) } else { text };
    if right { text.trim_end_matches(goes) } else { text }
}

fn text_method(
    text: &str,
    method: &str,
    args: &[Value],
    sentinel: Option<char>,
) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Value::from(strip(text, chars, method != "rstrip", method != "lstrip"))
        }
        "split" | "rsplit" => split(text, method == "rsplit", args)?,
        "splitlines" => {
            let (keep, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = keep.or(kwargs.get("keepends")?).unwrap_or(false);
            kwargs.assert_all_used()?;
            lines(text, keep)
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let found = if method == "partition" {
                text.split_once(separator).ok_or((text, "", ""))
            } else {
                text.rsplit_once(separator).ok_or(("", "", text))
            };
            let (before, between, after) = found.map_or_else(|none| none, |(a, b)| (a, separator, b));
            Value::from((before, between, after))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "find" | "rfind" | "index" | "rindex" => place(text, method, args, sentinel)?,
        "capitalize" => {
            let () = from_args(args)?;
            Value::from(capitalized(text, sentinel))
        }
        "title" => {
            let () = from_args(args)?;
            Value::from(titled(text, sentinel))
        }
        "ljust" | "rjust" | "center" | "zfill" => padded(text, method, args)?,
        "casefold" => Value::from(text.to_lowercase()),
        "swapcase" => Value::from(
            text.chars()
                .map(|c| {
                    if c.is_uppercase() { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() }
                })
                .collect::<String>(),
        ),
        "isdecimal" => Value::from(!text.is_empty() && text.chars().all(char::is_numeric)),
        _ => return Ok(None),
    }))
}

/// Where `what` stands in `text`, without what the guard put into either.
fn place(text: &str, method: &str, args: &[Value], sentinel: Option<char>) -> Result<Value, Error> {
    let (what,): (&str,) = from_args(args)?;
    let (text, what) = (plain(text, sentinel), plain(what, sentinel));
    let found = if method.starts_with('r') { text.rfind(&what) } else { text.find(&what) };
    match found {
        Some(at) => Ok(Value::from(text[..at].chars().count())),
        None if method.ends_with("find") => Ok(Value::from(-1)),
        None => Err(failed("substring not found")),
    }
}

/// `str.capitalize`.
pub(crate) fn capitalized(text: &str, sentinel: Option<char>) -> String {
    let lead: usize = text.chars().take_while(|&c| Some(c) == sentinel).map(char::len_utf8).sum();
    let (lead, text) = text.split_at(lead);
    let first = text.chars().next().map_or(0, char::len_utf8);
    let (first, rest) = text.split_at(first);
    format!("{lead}{}{}", first.to_uppercase(), rest.to_lowercase())
}

/// `str.title`: a letter behind anything but a letter is a capital.
fn titled(text: &str, sentinel: Option<char>) -> String {
    let mut is_inside = false;
    let mut titled = String::with_capacity(text.len());
    for character in text.chars() {
        if Some(character) == sentinel {
            titled.push(character);
        } else if is_inside {
            titled.extend(character.to_lowercase());
        } else {
            titled.extend(character.to_uppercase());
        }
        if Some(character) != sentinel {
            is_inside = character.is_lowercase() || character.is_uppercase();
        }
    }
    titled
}

/// `split(sep=None, maxsplit=-1)`, from either end.
fn split(text: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator, most, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.or(kwargs.get("sep")?).filter(|value| !value.is_none());
    let most = most.or(kwargs.get("maxsplit")?).and_then(|most| usize::try_from(most).ok());
    kwargs.assert_all_used()?;
    let mut parts: Vec<&str> = match &separator {
        None => words(text, from_right, most.unwrap_or(usize::MAX)),
        Some(separator) => {
            let separator = separator.as_str().ok_or_else(|| failed("must be str or None"))?;
            if separator.is_empty() {
                return Err(failed("empty separator"));
            }
            let parts = most.map_or(usize::MAX, |most| most.saturating_add(1));
            if from_right {
                text.rsplitn(parts, separator).collect()
            } else {
                text.splitn(parts, separator).collect()
            }
        }
    };
    if from_right {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

/// Words between white space; what is left after `most` cuts is the last one.
fn words(text: &str, from_right: bool, most: usize) -> Vec<&str> {
    let trimmed = |text: &'_ str| strip(text, None, !from_right, from_right).len();
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let length = trimmed(rest);
        rest = if from_right { &rest[..length] } else { &rest[rest.len() - length..] };
        if rest.is_empty() {
            return parts;
        }
        let cut = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(cut) = cut.filter(|_| parts.len() < most) else {
            parts.push(rest);
            return parts;
        };
        if from_right {
            let space = rest[cut..].chars().next().map_or(0, char::len_utf8);
            parts.push(&rest[cut + space..]);
            rest = &rest[..cut];
        } else {
            parts.push(&rest[..cut]);
            rest = &rest[cut..];
        }
    }
}

fn lines(text: &str, keep: bool) -> Value {
    let ends = ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let end = rest[at..].chars().next().map_or(0, char::len_utf8);
        let end = if rest[at..].starts_with("\r\n") { 2 } else { end };
        lines.push(Value::from(&rest[..if keep { at + end } else { at }]));
        rest = &rest[at + end..];
    }
    lines.extend(Some(rest).filter(|rest| !rest.is_empty()).map(Value::from));
    Value::from(lines)
}

fn padded(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let fill = if method == "zfill" { "0" } else { fill.unwrap_or(" ") };
    if fill.chars().count() != 1 {
        return Err(failed("the fill character must be exactly one character long".to_owned()));
    }
    let width = usize::try_from(width).unwrap_or(0);
    if width > WIDTH_MAX {
        return Err(failed(format!("width {width} is above {WIDTH_MAX}")));
    }
    let missing = width.saturating_sub(text.chars().count());
    let left = match method {
        "ljust" => 0,
        "rjust" | "zfill" => missing,
        // CPython puts the odd one left only where the width is odd too.
        _ => missing / 2 + (missing & width & 1),
    };
    let sign = text.find(['+', '-']).filter(|&at| at == 0 && method == "zfill").map_or(0, |_| 1);
    let (sign, text) = text.split_at(sign);
    Ok(Value::from(format!("{sign}{}{text}{}", fill.repeat(left), fill.repeat(missing - left))))
}

fn list_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match method {
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            let at = value.try_iter()?.position(|item| item == *what);
            at.map(|at| Some(Value::from(at))).ok_or_else(|| failed(format!("{what} is not in list")))
        }
        "copy" => Ok(Some(value.clone())),
        _ => Ok(None),
    }
}

//! Makes minijinja's environment the one that transformers gives to chat templates: the one place where the two differ.
//!
//! What differs, and what is done about it:
//! * `{{ value }}` and `|string` write values as Python's `str()`: the formatter and `repr`.
//! * `tojson` is `json.dumps`: `json`.
//! * Methods of strings, dicts and lists that minijinja lacks or reads differently: `methods`.
//! * Filters and tests that minijinja reads differently: here.
//! * `'…' % value`, `{% generation %}`, escapes and line ends: rewritten in `source`.
//! * Dicts of the client's, with keys that are guarded: `values`.
//!
//! Left as they are: what Python refuses and minijinja takes (a loop over `none`, `tojson` of a lazy result, `unique` of dicts);
//! `|safe`, which makes Python's `+` escape HTML; `%` behind anything but a string literal, and `%r`; `dict.method` without a
//! call, which is the method in Python and the item here; `set` of a namespace's name that begins with an underscore, which
//! transformers refuses, and `dict.fromkeys`; `varargs` and `kwargs` in macros; slices of a client's text by
//! position, which count the guard's characters; times, which are in UTC.

#![expect(clippy::needless_pass_by_value, reason = "minijinja hands arguments over by value")]

mod json;
mod methods;
mod repr;
mod strftime;
mod values;

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, escape_formatter};

pub(crate) use self::methods::is_space;
use self::methods::{capitalized, strip};
use self::strftime::strftime;
pub(crate) use self::values::value_of;
use crate::source::PERCENT;

/// Variable that holds the guard's sentinel; no template can spell it.
pub(crate) const SENTINEL: &str = " sentinel";
/// Variable that holds the time, seconds since 1970.
pub(crate) const NOW: &str = " now";

/// The template's own words, carried through the engine's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refusal(pub String);

/// The guard's sentinel in this rendering.
fn sentinel(state: &State<'_, '_>) -> Option<char> {
    state.lookup(SENTINEL)?.as_str()?.chars().next()
}

fn str_of(state: &State<'_, '_>, value: &Value) -> String {
    let mut text = String::new();
    repr::write_str(value, sentinel(state), &mut text);
    text
}

/// Gives `environment` what templates expect of Python, Jinja and transformers.
pub(crate) fn install(environment: &mut Environment<'static>) {
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(write_value);
    environment.set_unknown_method_callback(methods::call);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("string", string);
    environment.add_filter("trim", trim);
    environment.add_filter("join", join);
    environment.add_filter("list", list);
    environment.add_filter("indent", indent);
    environment.add_filter("title", title);
    environment.add_filter("capitalize", capitalize);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_filter("sort", sort);
    environment.add_filter("dictsort", dictsort);
    environment.add_filter(PERCENT, percent);
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", |value: Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    environment.add_function("namespace", namespace);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
}

/// `namespace(**values)`; as in transformers, no name in it begins with an underscore.
fn namespace(given: Option<ValueOrKwargs>) -> Result<Value, Error> {
    let names = given.as_ref().and_then(|given| given.try_iter().ok()).into_iter().flatten();
    for name in names {
        if name.as_str().is_some_and(|name| name.starts_with('_')) {
            let message = format!("a namespace has no names that begin with an underscore, such as {name}");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    minijinja::functions::namespace(given)
}

fn raise_exception(state: &State<'_, '_>, words: &Value) -> Result<Value, Error> {
    let refusal = Refusal(str_of(state, words));
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(refusal))
}

fn strftime_now(state: &State<'_, '_>, format: &str) -> String {
    let now = state.lookup(NOW).and_then(|now| u64::try_from(now).ok());
    strftime(format, now.unwrap_or(0))
}

/// `value|string`.
fn string(state: &State<'_, '_>, value: Value) -> Value {
    if value.kind() == ValueKind::String { value } else { Value::from(str_of(state, &value)) }
}

/// `value|trim(chars=None)`.
fn trim(state: &State<'_, '_>, value: &Value, chars: Option<&str>) -> String {
    strip(&str_of(state, value), chars, true, true).to_owned()
}

/// `value|capitalize`.
fn capitalize(state: &State<'_, '_>, value: &Value) -> String {
    capitalized(&str_of(state, value), sentinel(state))
}

/// `value|title`: what follows a space, a hyphen or an opening bracket is a capital.
fn title(state: &State<'_, '_>, value: &Value) -> String {
    let sentinel = sentinel(state);
    let mut begins = true;
    let mut titled = String::new();
    for character in str_of(state, value).chars() {
        if Some(character) == sentinel {
            titled.push(character);
        } else if is_space(character) || matches!(character, '-' | '(' | '{' | '[' | '<') {
            titled.push(character);
            begins = true;
        } else if std::mem::take(&mut begins) {
            titled.extend(character.to_uppercase());
        } else {
            titled.extend(character.to_lowercase());
        }
    }
    titled
}

/// `value|list`; of a text its characters, each with what the guard put there.
fn list(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        let mut items = Vec::new();
        for item in value.try_iter()?.checked() {
            state.consume_fuel(1)?;
            items.push(item?);
        }
        return Ok(Value::from(items));
    };
    let sentinel = sentinel(state);
    let mut items: Vec<String> = Vec::new();
    let mut is_lead = false;
    for character in text.chars() {
        let is_sentinel = Some(character) == sentinel;
        match items.last_mut().filter(|_| is_sentinel || is_lead) {
            Some(item) => item.push(character),
            None => items.push(character.to_string()),
        }
        is_lead = is_sentinel && (is_lead || items.len() == 1 && items[0].len() == character.len_utf8());
    }
    Ok(items.into_iter().map(Value::from).collect())
}

/// `value|indent(width=4, first=False, blank=False)`.
fn indent(
    state: &State<'_, '_>,
    value: &Value,
    width: Option<Value>,
    first: Option<bool>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let width = width.or(kwargs.get("width")?).unwrap_or_else(|| Value::from(4));
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank = kwargs.get::<Option<bool>>("blank")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let indent = match width.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(i64::try_from(width)?.clamp(0, 1024) as usize),
    };
    let text = str_of(state, value);
    let mut indented = String::from(if first { &*indent } else { "" });
    for (at, line) in text.split('\n').enumerate() {
        state.consume_fuel(1 + indent.len() as u64 / 64)?;
        indented.push_str(if at == 0 { "" } else { "\n" });
        indented.push_str(if at == 0 || line.is_empty() && !blank { "" } else { &indent });
        indented.push_str(line);
    }
    Ok(indented)
}

/// `template % values`.
fn percent(template: &str, values: Value) -> Result<String, Error> {
    let values: Vec<Value> = if values.is_tuple() { values.try_iter()?.collect() } else { vec![values] };
    format(FormatStyle::Printf, template, &values)
}

/// Whether it has a length and items, as lists, texts and dicts do.
fn is_sequence(value: &Value) -> bool {
    match value.kind() {
        ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined => true,
        // A slice of a list is a list.
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    }
}

/// `{{ value }}`.
fn write_value(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Number | ValueKind::Map | ValueKind::Seq | ValueKind::Iterable => {
            out.write_str(&str_of(state, value)).map_err(Error::from)
        }
        _ => escape_formatter(out, state, value),
    }
}

fn plain(text: &str, sentinel: Option<char>) -> String {
    sentinel.map_or_else(|| text.to_owned(), |sentinel| text.replace(sentinel, ""))
}

/// `attribute`, dots and all, of a value.
fn attribute_of(value: &Value, attribute: &str) -> Value {
    attribute
        .split('.')
        .try_fold(value.clone(), |value, part| match part.parse::<usize>() {
            Ok(at) => value.get_item_by_index(at),
            Err(_) => value.get_attr(part),
        })
        .unwrap_or_default()
}

/// `value|join(d="", attribute=None)`.
fn join(
    state: &State<'_, '_>,
    value: &Value,
    between: Option<Value>,
    attribute: Option<String>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let between = between.or(kwargs.get("d")?).map(|between| str_of(state, &between)).unwrap_or_default();
    let attribute = attribute.or(kwargs.get("attribute")?);
    kwargs.assert_all_used()?;
    let mut joined = String::new();
    for (at, item) in value.try_iter()?.checked().enumerate() {
        let item = item?;
        state.consume_fuel(1 + between.len() as u64 / 64)?;
        joined.push_str(if at == 0 { "" } else { &between });
        let item = attribute.as_deref().map_or_else(|| item.clone(), |name| attribute_of(&item, name));
        repr::write_str(&item, sentinel(state), &mut joined);
    }
    Ok(joined)
}

/// `len(value)`, without what the guard put into a text.
fn length(state: &State<'_, '_>, value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    if let Some(text) = value.as_str() {
        return Ok(text.chars().filter(|&character| Some(character) != sentinel(state)).count());
    }
    value.len().ok_or_else(|| {
        Error::new(ErrorKind::InvalidOperation, format!("a value of type {} has no length", value.kind()))
    })
}

/// `value|default(default_value="", boolean=False)`.
fn default(value: Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let (given, kwargs): (&[Value], Kwargs) = from_args(&args)?;
    let named = |name: &str| kwargs.has(name).then(|| kwargs.get::<Value>(name)).transpose();
    let other = given.first().cloned().or(named("default_value")?).unwrap_or_else(|| Value::from(""));
    let lax = given.get(1).cloned().or(named("boolean")?).is_some_and(|lax| lax.is_true());
    kwargs.assert_all_used()?;
    Ok(if value.is_undefined() || lax && !value.is_true() { other } else { value })
}

/// `value|int(default=0, base=10)`: what is no number is the default.
fn int(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = default.or(kwargs.get("default")?).unwrap_or_else(|| Value::from(0));
    let base = base.or(kwargs.get("base")?).unwrap_or(10).clamp(2, 36);
    kwargs.assert_all_used()?;
    let whole = |number: f64| number.is_finite().then(|| Value::from(number as i128));
    let read = match (value.kind(), value.as_str()) {
        (ValueKind::Bool, _) => Some(Value::from(i64::from(value.is_true()))),
        (ValueKind::Number, _) if value.is_integer() => Some(value.clone()),
        (ValueKind::Number, _) => f64::try_from(value.clone()).ok().and_then(whole),
        (_, Some(text)) => {
            let text = plain(text, sentinel(state)).trim().replace('_', "");
            let integer = i128::from_str_radix(&text, base).ok().map(Value::from);
            integer.or_else(|| text.parse().ok().and_then(whole))
        }
        _ => None,
    };
    Ok(read.unwrap_or(default))
}

/// `value|float(default=0.0)`.
fn float(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = default.or(kwargs.get("default")?).unwrap_or_else(|| Value::from(0.0));
    kwargs.assert_all_used()?;
    let read = match (value.kind(), value.as_str()) {
        (ValueKind::Bool, _) => Some(f64::from(u8::from(value.is_true()))),
        (ValueKind::Number, _) => f64::try_from(value.clone()).ok(),
        (_, Some(text)) => plain(text, sentinel(state)).trim().parse().ok(),
        _ => None,
    };
    Ok(read.map_or(default, Value::from))
}

/// Sorts by keys, texts by what the client wrote.
fn sorted(mut keyed: Vec<(Value, Value)>, sentinel: Option<char>, cased: bool, reverse: bool) -> Vec<Value> {
    for (key, _) in &mut keyed {
        if let Some(text) = key.as_str() {
            let text = plain(text, sentinel);
            *key = Value::from(if cased { text } else { text.to_lowercase() });
        }
    }
    keyed.sort_by(|(a, _), (b, _)| {
        let order = a.cmp(b);
        if reverse { order.reverse() } else { order }
    });
    keyed.into_iter().map(|(_, value)| value).collect()
}

/// `value|sort(reverse=False, case_sensitive=False, attribute=None)`.
fn sort(
    state: &State<'_, '_>,
    value: &Value,
    reverse: Option<bool>,
    cased: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let reverse = reverse.or(kwargs.get("reverse")?).unwrap_or(false);
    let cased = cased.or(kwargs.get("case_sensitive")?).unwrap_or(false);
    let attribute: Option<String> = kwargs.get("attribute")?;
    kwargs.assert_all_used()?;
    let mut keyed = Vec::new();
    for item in value.try_iter()?.checked() {
        let item = item?;
        state.consume_fuel(1)?;
        let key = attribute.as_deref().map_or_else(|| item.clone(), |name| attribute_of(&item, name));
        keyed.push((key, item));
    }
    Ok(Value::from(sorted(keyed, sentinel(state), cased, reverse)))
}

/// `value|dictsort(case_sensitive=False, by="key", reverse=False)`.
fn dictsort(
    state: &State<'_, '_>,
    value: &Value,
    cased: Option<bool>,
    by: Option<String>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let cased = cased.or(kwargs.get("case_sensitive")?).unwrap_or(false);
    let by_value = by.or(kwargs.get("by")?).is_some_and(|by| by == "value");
    let reverse = kwargs.get::<Option<bool>>("reverse")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    if value.kind() != ValueKind::Map {
        let message = format!("dictsort takes a dict, not a value of type {}", value.kind());
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let mut keyed = Vec::new();
    for key in value.try_iter()?.checked() {
        let key = key?;
        state.consume_fuel(1)?;
        let item = value.get_item(&key)?;
        let pair = Value::from(Tuple::from([key.clone(), item.clone()]));
        keyed.push((if by_value { item } else { key }, pair));
    }
    Ok(Value::from(sorted(keyed, sentinel(state), cased, reverse)))
}

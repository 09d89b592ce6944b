//! Text to typed value, checked against what the flag's row accepts.

use crate::error::{Problem, UsageError};
use crate::table::{Flag, Kind};

/// A value that its row accepts.
#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    /// `Switch`, `Toggle`.
    On(bool),
    /// `Count`, `Int`.
    Int(i64),
    /// `Float`.
    Float(f64),
    /// The word of an `Int`, or one of a `Choice`.
    Word(&'static str),
    /// `Text`, `Path`, `Address`, `Secret`.
    Text(String),
}

/// Longest secret, bytes.
const SECRET_BYTES_MAX: usize = 512;

/// `on`, `off` and their relatives.
pub(crate) fn on_off(text: &str) -> Option<bool> {
    match text {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// Reads `text` for `flag`; `spelled` is how the flag was written.
pub(crate) fn read(flag: &'static Flag, spelled: &str, text: &str) -> Result<Value, UsageError> {
    let refused = || Problem::BadValue { flag: spelled.into(), value: text.into(), accepts: flag.accepts() };
    let value = match flag.kind {
        Kind::Switch | Kind::Toggle | Kind::Family => on_off(text).map(Value::On).ok_or_else(|| {
            let accepts = "on or off".into();
            Problem::BadValue { flag: spelled.into(), value: text.into(), accepts }
        })?,
        Kind::Count => {
            let count = text.parse().ok().filter(|count| (0..=9).contains(count));
            Value::Int(count.ok_or_else(refused)?)
        }
        Kind::Int { word: Some(word), .. } if word == text => Value::Word(word),
        Kind::Int { min, max, .. } => {
            Value::Int(text.parse().ok().filter(|n| (min..=max).contains(n)).ok_or_else(refused)?)
        }
        Kind::Float { min, max } => {
            Value::Float(text.parse().ok().filter(|x| (min..=max).contains(x)).ok_or_else(refused)?)
        }
        Kind::Choice { words, later } => match words.iter().find(|word| **word == text) {
            Some(word) => Value::Word(word),
            None if later.contains(&text) => {
                return Err(Problem::ValueNotYet { flag: spelled.into(), value: text.into() }.into());
            }
            None => return Err(refused().into()),
        },
        Kind::Text | Kind::Path if text.is_empty() => return Err(refused().into()),
        Kind::Address if address(text).is_none() => return Err(refused().into()),
        Kind::Text | Kind::Path | Kind::Address => Value::Text(text.into()),
        Kind::Secret => {
            let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
            if text.is_empty() || text.len() > SECRET_BYTES_MAX || !visible {
                let (flag, accepts) = (spelled.into(), flag.accepts());
                return Err(Problem::BadSecret { flag, accepts }.into());
            }
            Value::Text(text.into())
        }
    };
    Ok(value)
}

/// Splits `HOST:PORT`; an IPv6 host stands in brackets.
pub(crate) fn address(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(inside) => inside.strip_suffix(']').filter(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok())?,
        None => Some(host).filter(|host| !host.contains([':', '[', ']', '/', ' ']))?,
    };
    let plain = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (!host.is_empty() && plain).then_some(())?;
    Some((host, port.parse().ok()?))
}

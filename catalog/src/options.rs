//! Runtime options as the user wrote them, checked against what the runtime declares, and typed.

use sf_abi::descriptor::{OptionKind, OptionSpec};
use sf_core::{EngineOption, OptionValue};

use serde_json::Value;

use crate::choose::nearest;
use crate::discover::Catalog;
use crate::entry::Entry;

/// Why an option is refused. `flag` is `--<runtime>-<key>`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum OptionError {
    #[error("{flag}: runtime {runtime} declares no option {key}{} (option.unknown)", known(nearest, keys))]
    Unknown { flag: String, runtime: String, key: String, nearest: Option<String>, keys: Vec<String> },
    #[error("{flag} is given twice (option.given_twice)")]
    GivenTwice { flag: String },
    #[error("{flag} is {value:?}; accepted is {accepts} (option.bad_value)")]
    BadValue { flag: String, value: String, accepts: String },
    #[error("{flag} is an option of runtime {runtime}, and no model is served by it; chosen: {} (option.other_runtime)", chosen.join(", "))]
    OtherRuntime { flag: String, runtime: String, chosen: Vec<String> },
}

impl OptionError {
    /// Exit code of a refused option.
    pub const EXIT_CODE: u8 = 2;
}

fn known(nearest: &Option<String>, keys: &[String]) -> String {
    match (nearest, keys) {
        (Some(near), _) => format!("; did you mean {near}?"),
        (None, []) => "; it has none".into(),
        (None, keys) => format!("; it has {}", keys.join(", ")),
    }
}

impl Entry {
    /// Types options given as `(key, value)` text. All are `must`: a runtime that does not honour one exactly refuses to
    /// open the model.
    ///
    /// # Errors
    /// An unknown key, a key given twice, a value of the wrong type or out of range.
    pub fn options<K: AsRef<str>, V: AsRef<str>>(
        &self,
        given: &[(K, V)],
    ) -> Result<Vec<EngineOption>, OptionError> {
        let id = self.id();
        let mut typed: Vec<EngineOption> = Vec::with_capacity(given.len());
        for (key, text) in given {
            let (key, text) = (key.as_ref(), text.as_ref());
            let flag = format!("--{id}-{key}");
            let Some(spec) = self.descriptor.options.iter().find(|spec| spec.key == key) else {
                let keys: Vec<String> = self.descriptor.options.iter().map(|spec| spec.key.clone()).collect();
                let near = nearest(key, keys.iter().map(String::as_str)).map(str::to_owned);
                let (runtime, key) = (id.to_owned(), key.to_owned());
                return Err(OptionError::Unknown { flag, runtime, key, nearest: near, keys });
            };
            let wire = format!("x.{id}.{key}");
            if typed.iter().any(|option| option.key == wire) {
                return Err(OptionError::GivenTwice { flag });
            }
            let Some(value) = read(spec, text) else {
                return Err(OptionError::BadValue { flag, value: text.to_owned(), accepts: accepts(spec) });
            };
            typed.push(EngineOption { key: wire, value, must: true });
        }
        Ok(typed)
    }
}

/// Refuses options of runtimes that serve no model. `given` are `(runtime, key)`.
///
/// # Errors
/// [`OptionError::OtherRuntime`] for the first such option.
pub fn check_owners<'a>(
    chosen: &[&Entry],
    given: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(), OptionError> {
    for (runtime, key) in given {
        if !chosen.iter().any(|entry| entry.id() == runtime) {
            let mut ids: Vec<String> = chosen.iter().map(|entry| entry.id().to_owned()).collect();
            ids.dedup();
            let flag = format!("--{runtime}-{key}");
            return Err(OptionError::OtherRuntime { flag, runtime: runtime.to_owned(), chosen: ids });
        }
    }
    Ok(())
}

fn read(spec: &OptionSpec, text: &str) -> Option<OptionValue> {
    let within = |x: f64| spec.min.is_none_or(|min| x >= min) && spec.max.is_none_or(|max| x <= max);
    match spec.kind {
        OptionKind::Bool => match text {
            "on" | "true" | "yes" | "1" => Some(OptionValue::Bool(true)),
            "off" | "false" | "no" | "0" => Some(OptionValue::Bool(false)),
            _ => None,
        },
        OptionKind::Int => {
            let value: i64 = text.parse().ok()?;
            within(value as f64).then_some(OptionValue::Int(value))
        }
        OptionKind::Float => {
            let value: f64 = text.parse().ok()?;
            (value.is_finite() && within(value)).then_some(OptionValue::Float(value))
        }
        OptionKind::Str => {
            let listed = spec.values.is_empty() || spec.values.iter().any(|value| value == text);
            listed.then(|| OptionValue::Str(text.to_owned()))
        }
    }
}

/// One option as help shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionHelp {
    /// Id of the runtime.
    pub runtime: String,
    /// Key, as in `--<runtime>-<key>`.
    pub key: String,
    /// Type of its value.
    pub kind: OptionKind,
    /// What it accepts, in words.
    pub accepts: String,
    /// Value when not given, as it would be written; empty = the runtime decides.
    pub default: String,
    /// One line.
    pub help: String,
}

impl Catalog {
    /// The options of every runtime, grouped by runtime; of several with one id those of the one that counts.
    pub fn option_help(&self) -> Vec<OptionHelp> {
        let counts = |entry: &&Entry| self.find(entry.id()).is_some_and(|found| std::ptr::eq(found, *entry));
        let help = |entry: &Entry, spec: &OptionSpec| OptionHelp {
            runtime: entry.id().to_owned(),
            key: spec.key.clone(),
            kind: spec.kind,
            accepts: accepts(spec),
            default: written(&spec.default),
            help: spec.help.clone(),
        };
        let counting = self.entries.iter().filter(counts);
        counting
            .flat_map(|entry| entry.descriptor.options.iter().map(move |spec| help(entry, spec)))
            .collect()
    }
}

fn written(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(on) => OptionValue::Bool(*on).to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What an option accepts, in words.
fn accepts(spec: &OptionSpec) -> String {
    let kind = match spec.kind {
        OptionKind::Bool => return "on or off".into(),
        OptionKind::Str if spec.values.is_empty() => return "any text".into(),
        OptionKind::Str => return format!("one of {}", spec.values.join(", ")),
        OptionKind::Int => "a whole number",
        OptionKind::Float => "a number",
    };
    match (spec.min, spec.max) {
        (None, None) => kind.into(),
        (Some(min), None) => format!("{kind} from {min} on"),
        (None, Some(max)) => format!("{kind} up to {max}"),
        (Some(min), Some(max)) => format!("{kind} from {min} to {max}"),
    }
}

//! The keys of a `config.json`, with errors that name them.

use serde_json::{Map, Value};

use crate::error::ConvertError;

/// Largest of each count that is believed.
pub(super) const SIZE_MAX: u64 = 1 << 20;

/// A `config.json`, or a block of one.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    file: &'static str,
    map: &'a Map<String, Value>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(map: &'a Map<String, Value>) -> Facts<'a> {
        Facts { file: "config.json", map }
    }

    /// Of another file beside it.
    pub(super) fn of(file: &'static str, map: &'a Map<String, Value>) -> Facts<'a> {
        Facts { file, map }
    }

    /// A value that is there and is not `null`.
    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn fault(&self, key: &str, why: impl Into<String>) -> ConvertError {
        ConvertError::key(&format!("{}'s {key}", self.file), why)
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.value(key).and_then(Value::as_str)
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ConvertError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.fault(key, format!("is {other}, not true or false"))),
        }
    }

    /// A count from zero on.
    pub(super) fn count(&self, key: &str) -> Result<Option<u32>, ConvertError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.map(Some).ok_or_else(|| self.fault(key, format!("is {value}, not a count")))
    }

    /// A count that is not zero.
    pub(super) fn size(&self, key: &str) -> Result<Option<u32>, ConvertError> {
        match self.count(key)? {
            Some(0) => Err(self.fault(key, "is 0, which no model has")),
            given => Ok(given),
        }
    }

    pub(super) fn must(&self, key: &str) -> Result<u32, ConvertError> {
        self.size(key)?.ok_or_else(|| self.fault(key, "is missing"))
    }

    /// A positive, finite number.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, ConvertError> {
        self.number_of(key, self.value(key))
    }

    /// The same of a value that stands deeper, under a key that names its way.
    pub(super) fn number_of(&self, key: &str, value: Option<&Value>) -> Result<Option<f64>, ConvertError> {
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
        let number = value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
        number.map(Some).ok_or_else(|| self.fault(key, format!("is {value}, not a positive number")))
    }
}

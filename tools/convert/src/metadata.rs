//! The keys of a GGUF file with errors that name them; an architecture's own keys are asked for without its prefix.

use sf_artifact::Gguf;
use sf_artifact::gguf::Value;

use crate::error::ConvertError;

/// The keys of one file.
pub(crate) struct Metadata<'a> {
    gguf: &'a Gguf,
    pub(crate) architecture: String,
}

impl<'a> Metadata<'a> {
    pub(crate) fn new(gguf: &'a Gguf) -> Metadata<'a> {
        let architecture = gguf.get("general.architecture").and_then(Value::as_str).unwrap_or_default();
        Metadata { gguf, architecture: architecture.to_owned() }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.gguf.get(key)
    }

    pub(crate) fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key).and_then(Value::as_str)
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).and_then(Value::as_bool)
    }

    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(Value::as_u64)
    }

    fn own_key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// A count of the architecture, e.g. `block_count`.
    pub(crate) fn own(&self, key: &str) -> Option<u64> {
        self.number(&self.own_key(key))
    }

    pub(crate) fn own_must(&self, key: &str) -> Result<u64, ConvertError> {
        self.own(key).ok_or_else(|| ConvertError::key(&self.own_key(key), "is missing or no count"))
    }

    /// A float of the architecture.
    pub(crate) fn own_float(&self, key: &str) -> Option<f64> {
        match self.get(&self.own_key(key)) {
            // As a person would write it: 0.00001 and not its nearest float of 32 bits.
            Some(Value::F32(value)) => value.to_string().parse().ok(),
            Some(Value::F64(value)) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn own_text(&self, key: &str) -> Option<&'a str> {
        self.text(&self.own_key(key))
    }

    /// The strings of an array.
    pub(crate) fn strings(&self, key: &str) -> Result<Vec<&'a str>, ConvertError> {
        let strings = self.get(key).and_then(Value::as_array).and_then(|array| array.strings());
        let strings = strings.ok_or_else(|| ConvertError::key(key, "is missing or no list of texts"))?;
        let text = |bytes| {
            std::str::from_utf8(bytes).map_err(|_| ConvertError::key(key, "has a text that is no UTF-8"))
        };
        strings.map(text).collect()
    }
}

//! Options handed to a runtime when it opens a model.

use std::fmt;

/// A typed value.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// `on` or `off`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text.
    Str(String),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Bool(value) => f.write_str(if *value { "on" } else { "off" }),
            OptionValue::Int(value) => value.fmt(f),
            OptionValue::Float(value) => value.fmt(f),
            OptionValue::Str(value) => f.write_str(value),
        }
    }
}

/// One option of an open call.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOption {
    /// Wire key: `ctx.max`, `threads`, `x.llamacpp.ubatch-size`, ...
    pub key: String,
    /// Its value.
    pub value: OptionValue,
    /// Refuse the open rather than ignore or approximate it.
    pub must: bool,
}

//! The flags that runtimes bring along: `--<runtime>-<option>`, known to the caller's catalog.

use crate::table::env_name;

/// What the parser and the help need to know about runtimes' own options.
pub trait RuntimeOptions {
    /// Every option of every runtime in the catalog, grouped by runtime.
    fn options(&self) -> &[RuntimeOption];
}

impl RuntimeOptions for [RuntimeOption] {
    fn options(&self) -> &[RuntimeOption] {
        self
    }
}

impl RuntimeOptions for Vec<RuntimeOption> {
    fn options(&self) -> &[RuntimeOption] {
        self
    }
}

impl<const N: usize> RuntimeOptions for [RuntimeOption; N] {
    fn options(&self) -> &[RuntimeOption] {
        self
    }
}

/// One option of one runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeOption {
    /// The runtime's id.
    pub runtime: String,
    /// The option's key.
    pub key: String,
    /// Form of its value.
    pub value: RuntimeValue,
    /// One line.
    pub help: String,
    /// What it accepts, in words, e.g. `1 to 4096`; empty = no limit.
    pub accepts: String,
    /// Value when not given, in words; empty = the runtime decides.
    pub default: String,
}

/// Form of a runtime option's value; type and range are checked by the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeValue {
    /// May stand without a value, which means `on`.
    Bool,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// Text.
    Str,
}

impl RuntimeOption {
    /// The flag without dashes: `llamacpp-ubatch-size`.
    pub fn flag(&self) -> String {
        format!("{}-{}", self.runtime, self.key)
    }

    /// The environment variable that stands for it.
    pub fn env(&self) -> String {
        env_name(&self.flag())
    }

    /// What stands for its value in help.
    pub(crate) fn placeholder(&self) -> &'static str {
        match self.value {
            RuntimeValue::Bool => "[on|off]",
            RuntimeValue::Int => "N",
            RuntimeValue::Float => "X",
            RuntimeValue::Str => "TEXT",
        }
    }
}

/// A runtime option as it was given, still text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeFlag {
    /// The runtime's id.
    pub runtime: String,
    /// The option's key.
    pub key: String,
    /// Its value; `on` for a bool without one.
    pub value: String,
}

//! What `superfluid pack` and `superfluid inspect` mean: which model becomes which bundle, and what is asked of a model.

use std::path::PathBuf;

use crate::error::{Problem, UsageError};
use crate::parse::Matches;
use crate::verbs::Verb;

/// `superfluid pack`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackSettings {
    /// A model file or directory.
    pub source: PathBuf,
    /// Where the bundle goes; `None` = here, named after the model.
    pub output: Option<PathBuf>,
    /// `keep`, `q4`, `q8` or `f16`.
    pub profile: &'static str,
    /// Replace a bundle.
    pub force: bool,
    /// JSON instead of text.
    pub json: bool,
}

/// `superfluid inspect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectSettings {
    /// A model file or directory.
    pub model: PathBuf,
    /// List every tensor.
    pub tensors: bool,
    /// Compare a bundle with its checksums.
    pub verify: bool,
    /// JSON instead of text.
    pub json: bool,
}

pub(crate) fn pack(matches: &Matches) -> Result<PackSettings, UsageError> {
    let hint = "for example: superfluid pack smol.gguf -o smol.base; the bundle's file follows -o";
    Ok(PackSettings {
        source: only(matches, Verb::Pack, hint)?,
        output: matches.text("output").map(PathBuf::from),
        profile: matches.word("profile").unwrap_or("keep"),
        force: matches.on("force").unwrap_or(false),
        json: matches.on("json").unwrap_or(false),
    })
}

pub(crate) fn inspect(matches: &Matches) -> Result<InspectSettings, UsageError> {
    Ok(InspectSettings {
        model: only(matches, Verb::Inspect, "for example: superfluid inspect smol.gguf")?,
        tensors: matches.on("tensors").unwrap_or(false),
        verify: matches.on("verify").unwrap_or(false),
        json: matches.on("json").unwrap_or(false),
    })
}

/// The one model.
fn only(matches: &Matches, verb: Verb, hint: &str) -> Result<PathBuf, UsageError> {
    let problem = match matches.operands.as_slice() {
        [model] if !model.is_empty() => return Ok(model.into()),
        [] => Problem::Missing { verb: verb.name(), what: "a model" },
        [first] => Problem::ExtraArgument { verb: verb.name(), value: first.clone() },
        [_, extra, ..] => Problem::ExtraArgument { verb: verb.name(), value: extra.clone() },
    };
    Err(UsageError::hint(problem, hint))
}

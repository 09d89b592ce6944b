//! What `superfluid convert` means: which model becomes what, and where.

use std::path::PathBuf;

use crate::error::{Problem, UsageError};
use crate::parse::Matches;

/// `superfluid convert`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvertSettings {
    /// A model file or directory.
    pub source: PathBuf,
    /// Where the result goes.
    pub directory: PathBuf,
    /// Bits of a code; `None` = nothing is quantized.
    pub bits: Option<u32>,
    /// Elements of a group; `None` = not said.
    pub group: Option<u32>,
    /// `f32`, `f16` or `bf16`; `None` = not said.
    pub plain: Option<&'static str>,
    /// Replace a directory that a conversion wrote.
    pub force: bool,
    /// JSON instead of text.
    pub json: bool,
}

pub(crate) fn convert(matches: &Matches) -> Result<ConvertSettings, UsageError> {
    let verb = "convert";
    let given = |at: usize| matches.operands.get(at).filter(|operand| !operand.is_empty()).map(PathBuf::from);
    if let Some(extra) = matches.operands.get(2) {
        return Err(Problem::ExtraArgument { verb, value: extra.clone() }.into());
    }
    let (Some(source), Some(directory)) = (given(0), given(1)) else {
        let what = if given(0).is_none() { "a model and a directory" } else { "a directory for the result" };
        let hint = "for example: superfluid convert smol.gguf ~/models/smol --bits 4";
        return Err(UsageError::hint(Problem::Missing { verb, what }, hint));
    };
    let number = |name: &str| matches.word(name).and_then(|word| word.parse().ok());
    Ok(ConvertSettings {
        source,
        directory,
        bits: number("bits"),
        group: number("group"),
        plain: matches.word("plain"),
        force: matches.on("force").unwrap_or(false),
        json: matches.on("json").unwrap_or(false),
    })
}

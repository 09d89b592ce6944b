//! Reads the bodies of `/v1/tokenize` and `/v1/detokenize`.

use serde_json::Value;
use sf_core::{Fault, Input, Token};

use super::chat::{conversation, model};
use super::sampling::tokens;
use crate::fields::{Fields, string};

/// Text to become tokens.
#[derive(Debug, PartialEq)]
pub(crate) struct ToTokenize {
    pub(crate) model: Option<String>,
    pub(crate) input: Input,
}

/// Tokens to become text.
#[derive(Debug, PartialEq)]
pub(crate) struct ToDetokenize {
    pub(crate) model: Option<String>,
    pub(crate) tokens: Vec<Token>,
}

/// Either `prompt` (a string) or `messages`, with `tools` and template variables as a chat has them.
pub(crate) fn tokenize(body: Value) -> Result<ToTokenize, Fault> {
    let mut fields = Fields::root(body)?;
    let model = model(&mut fields)?;
    let input = match (fields.take("prompt"), fields.peek("messages")) {
        (Some(prompt), None) => Input::Text(string(prompt, &fields.path("prompt"))?),
        (None, Some(_)) => Input::Chat(conversation(&mut fields)?),
        (None, None) => return Err(fields.missing("prompt").hint("give `prompt` or `messages`")),
        (Some(_), Some(_)) => {
            let message = "`prompt` and `messages` are both given";
            return Err(Fault::invalid("conflicting_parameters", "prompt", message).hint("give one of them"));
        }
    };
    Ok(ToTokenize { model, input })
}

/// `tokens`, an array of ids.
pub(crate) fn detokenize(body: Value) -> Result<ToDetokenize, Fault> {
    let mut fields = Fields::root(body)?;
    let model = model(&mut fields)?;
    let value = fields.require("tokens")?;
    let tokens = match value {
        Value::Array(values) if values.is_empty() => Vec::new(),
        value => tokens(value, &fields.path("tokens"))?,
    };
    Ok(ToDetokenize { model, tokens })
}

//! What a chat's tools mean for its answer: how it is taken apart, and what it is held to.

use sf_codec::wire::{Parser, ToolSchema};
use sf_core::ports::Warning;
use sf_core::{Chat, Fault, FaultKind, Form, Grammar, Token, Tool, ToolChoice};

use crate::model::Model;

/// The tools of one chat.
#[derive(Default)]
pub(crate) struct Tools {
    schemas: Vec<ToolSchema>,
    /// An answer of the client's own form is not searched for anything, and neither is one that is no chat's.
    taken_apart: bool,
    /// The answer must be calls.
    pub(crate) forced: Option<Form>,
    /// What the client should know.
    pub(crate) warnings: Vec<Warning>,
}

impl Tools {
    /// Reads them, and what must be called. `formed`: the client asks for a form of the answer itself.
    pub(crate) fn of(model: &Model, chat: &Chat, formed: bool) -> Result<Tools, Fault> {
        let schemas = chat.tools.iter().map(ToolSchema::of).collect::<Result<Vec<_>, _>>();
        let schemas = schemas.map_err(|error| Fault::invalid("invalid_tool", "tools", error.to_string()))?;
        let forced = forced(model, chat)?;
        if formed && forced.is_some() {
            let message = "`tool_choice` wants a call, and `response_format` another form of the answer";
            return Err(
                Fault::invalid("conflicting_parameters", "tool_choice", message).hint("give one of them")
            );
        }
        let mut warnings = Vec::new();
        if !schemas.is_empty() && model.codec.wire().is_none() {
            let message = "calls in answers stay text: it is not known how this model writes them, see --tool-call-parser";
            warnings.push(Warning { param: "tools".to_owned(), message: message.to_owned() });
        }
        Ok(Tools { schemas, taken_apart: !formed, forced, warnings })
    }

    /// What takes the answer apart; `None` where it is all text.
    pub(crate) fn parser(&self, model: &Model, prompt: &[Token], is_forced: bool) -> Option<Parser> {
        if is_forced {
            // It begins with the call, whatever the prompt leaves open.
            return model.codec.wire().map(|wire| Parser::new(wire, &self.schemas));
        }
        self.taken_apart.then(|| model.codec.parser(prompt, &self.schemas)).flatten()
    }
}

/// The grammar of an answer that must be calls.
fn forced(model: &Model, chat: &Chat) -> Result<Option<Form>, Fault> {
    let (tools, several): (Vec<&Tool>, bool) = match &chat.choice {
        ToolChoice::Auto => return Ok(None),
        ToolChoice::Required { several } => (chat.tools.iter().collect(), *several),
        ToolChoice::Named(name) => (chat.tools.iter().filter(|tool| tool.name == *name).collect(), false),
    };
    let wire = model.codec.wire();
    let text = wire.and_then(|wire| wire.call_grammar(&tools, several)).ok_or_else(|| {
        let why = match wire {
            None => "it is not known how this model writes calls".to_owned(),
            Some(wire) => format!("calls as {} writes them cannot be held to a grammar yet", wire.name()),
        };
        Fault::new(FaultKind::Unsupported, "unsupported_parameter", why)
            .param("tool_choice")
            .hint("use \"auto\", or name the format with --tool-call-parser")
    })?;
    Ok(Some(Form { grammar: Grammar::Lark(text.into()), param: "tool_choice" }))
}

//! What a chat's tools mean for its answer: how it is taken apart, and what it is held to.

use sf_codec::wire::{CallForm, Callable, NotHeld, Parser, ToolSchema, parameters_text};
use sf_core::ports::Warning;
use sf_core::{Chat, Fault, FaultKind, Form, Grammar, Json, Token, Tool, ToolChoice};

use crate::model::Model;
use crate::resolve;

/// The tools of one chat.
#[derive(Default)]
pub(crate) struct Tools {
    schemas: Vec<ToolSchema>,
    /// An answer of the client's own form is not searched for anything, and neither is one that is no chat's.
    taken_apart: bool,
    /// The answer's calls keep to a grammar.
    held: bool,
    /// The tools whose schemas are in it, by their places in the request.
    pub(crate) strict: Vec<usize>,
    /// That grammar.
    pub(crate) form: Option<Form>,
    /// What the client should know.
    pub(crate) warnings: Vec<Warning>,
}

/// What is asked of the calls of a chat.
struct Wanted<'a> {
    calls: CallForm<'a>,
    /// The field that asks for it.
    param: &'static str,
}

impl Tools {
    /// Reads them, and what calls are held to. `formed`: the client asks for a form of the answer itself.
    pub(crate) fn of(model: &Model, chat: &Chat, prompt: &[Token], formed: bool) -> Result<Tools, Fault> {
        let schemas = chat.tools.iter().map(ToolSchema::of).collect::<Result<Vec<_>, _>>();
        let schemas = schemas.map_err(|error| Fault::invalid("invalid_tool", "tools", error.to_string()))?;
        let mut tools = Tools { schemas, taken_apart: !formed, ..Tools::default() };
        tools.warnings.extend(resolve::unread(model, chat));
        if !tools.schemas.is_empty() && model.codec.wire().is_none() {
            let message = "calls in answers stay text: it is not known how this model writes them, see --tool-call-parser";
            tools.warn("tools".to_owned(), message);
        }
        let Some(wanted) = wanted(model, chat, prompt) else { return Ok(tools) };
        if formed {
            if !wanted.calls.must {
                return Ok(tools);
            }
            let message = "`tool_choice` wants a call, and `response_format` another form of the answer";
            return Err(
                Fault::invalid("conflicting_parameters", "tool_choice", message).hint("give one of them")
            );
        }
        tools.hold(model, &wanted)?;
        Ok(tools)
    }

    /// Holds the answer's calls to what is wanted of them.
    fn hold(&mut self, model: &Model, wanted: &Wanted<'_>) -> Result<(), Fault> {
        for callable in wanted.calls.tools.iter().filter(|callable| callable.strict) {
            self.strict.push(callable.index);
            let ignored = sf_kit::ignored_keywords(&parameters_text(callable.tool))
                .map_err(|error| unfit_tool(callable.index, callable.tool, &error.to_string()))?;
            for (at, keyword) in ignored {
                let message = format!("{at}: the keyword `{keyword}` is not read");
                self.warn(format!("tools[{}].function.parameters", callable.index), message);
            }
        }
        match model.codec.call_grammar(&wanted.calls) {
            Some(Ok(text)) => {
                self.held = true;
                self.form = Some(Form { grammar: Grammar::Lark(text.into()), param: wanted.param });
            }
            Some(Err(why)) => self.unheld(wanted, &why)?,
            None if wanted.calls.must => {
                return Err(unsupported("it is not known how this model writes calls".to_owned()));
            }
            None => {}
        }
        Ok(())
    }

    /// Refuses what cannot be held, or says that it is not.
    fn unheld(&mut self, wanted: &Wanted<'_>, why: &NotHeld) -> Result<(), Fault> {
        let message = why.to_string();
        let listed = |tool: &usize| wanted.calls.tools.iter().find(|callable| callable.index == *tool);
        match why {
            NotHeld::Schema { tool, .. } => {
                let name = listed(tool).map_or("", |callable| &callable.tool.name);
                let param = format!("tools[{tool}].function.parameters");
                let message = format!("the parameters of tool {name:?}: {message}");
                let hint = "say it with type, properties, required, enum, minLength and maxLength";
                return Err(Fault::invalid("invalid_grammar", param, message).hint(hint));
            }
            NotHeld::Name { tool, .. } => {
                let param = format!("tools[{tool}].function.name");
                return Err(Fault::invalid("invalid_tool", param, message)
                    .hint("begin it with a letter; letters, digits, `_` and `-` may follow"));
            }
            NotHeld::NoCalls { .. } | NotHeld::NoMark { .. } | NotHeld::NoToken { .. }
                if wanted.calls.must =>
            {
                return Err(unsupported(message));
            }
            NotHeld::NoCalls { .. } | NotHeld::NoMark { .. } | NotHeld::NoToken { .. } => {}
        }
        for callable in wanted.calls.tools.iter().filter(|callable| callable.strict) {
            let note = format!("not held: {message}; `tool_choice` \"required\" holds calls");
            self.warn(format!("tools[{}].function.strict", callable.index), note);
        }
        if !wanted.calls.several {
            self.warn("parallel_tool_calls".to_owned(), format!("not held: {message}"));
        }
        Ok(())
    }

    fn warn(&mut self, param: String, message: impl Into<String>) {
        self.warnings.push(Warning { param, message: message.into() });
    }

    /// What takes the answer apart; `None` where it is all text.
    pub(crate) fn parser(&self, model: &Model, prompt: &[Token]) -> Option<Parser> {
        let parser = self.taken_apart.then(|| model.codec.parser(prompt, &self.schemas)).flatten()?;
        Some(if self.held { parser.held() } else { parser })
    }
}

/// What a chat asks of its calls; nothing where tools are free.
fn wanted<'a>(model: &Model, chat: &'a Chat, prompt: &[Token]) -> Option<Wanted<'a>> {
    if chat.tools.is_empty() {
        return None;
    }
    let must = chat.choice != ToolChoice::Auto;
    let chosen = |tool: &Tool| !matches!(&chat.choice, ToolChoice::Named(name) if tool.name != *name);
    let all = chat.tools.iter().enumerate().filter(|(_, tool)| chosen(tool));
    let tools: Vec<Callable<'_>> =
        all.map(|(index, tool)| Callable { tool, index, strict: must || is_strict(tool) }).collect();
    let several = !chat.one_call && !matches!(chat.choice, ToolChoice::Named(_));
    let param = match (must, tools.iter().any(|tool| tool.strict)) {
        (true, _) => "tool_choice",
        (false, true) => "tools",
        (false, false) if !several => "parallel_tool_calls",
        (false, false) => return None,
    };
    let calls = CallForm { tools, must, several, reasoning: model.codec.thought(prompt) };
    Some(Wanted { calls, param })
}

/// Whether a tool's arguments keep to its schema, whoever decides to call it.
fn is_strict(tool: &Tool) -> bool {
    let function = tool.json.get("function").unwrap_or(&tool.json);
    matches!(function.get("strict"), Some(Json::Bool(true)))
}

fn unsupported(why: String) -> Fault {
    Fault::new(FaultKind::Unsupported, "unsupported_parameter", why)
        .param("tool_choice")
        .hint("use \"auto\", or name the format with --tool-call-parser")
}

/// A tool whose schema nobody can be held to.
pub(crate) fn unfit_tool(index: usize, tool: &Tool, why: &str) -> Fault {
    let message = format!("the parameters of tool {:?}: {why}", tool.name);
    Fault::invalid("invalid_grammar", format!("tools[{index}].function.parameters"), message)
        .hint("what is supported stands in README, Answers of a given form")
}

//! Reads the body of `/v1/chat/completions/render`: that of a chat, and how the prompt ends.

use serde_json::Value;
use sf_core::{Chat, Ending, Fault, Input};

use super::chat::chat;
use crate::fields::Fields;

/// A chat to be rendered and not answered.
#[derive(Debug, PartialEq)]
pub(crate) struct ToRender {
    pub(crate) model: Option<String>,
    pub(crate) chat: Chat,
    /// Fields that nobody knows.
    pub(crate) ignored: Vec<String>,
}

/// Everything that a chat's own endpoint refuses is refused here too.
pub(crate) fn render(body: Value) -> Result<ToRender, Fault> {
    let mut fields = Fields::root(body)?;
    let continued = fields.flag("continue_final_message")?;
    let prompt = fields.flag_or("add_generation_prompt", !continued)?;
    let ending = match (prompt, continued) {
        (true, false) => Ending::Prompt,
        (false, false) => Ending::Closed,
        (false, true) => Ending::Continued,
        (true, true) => {
            let message = "`continue_final_message` and `add_generation_prompt` are both true";
            let fault = Fault::invalid("conflicting_parameters", "continue_final_message", message);
            return Err(fault.hint("give one of them"));
        }
    };
    let order = chat(Value::Object(fields.rest()))?;
    let chat = order.inputs.into_iter().find_map(|input| match input {
        Input::Chat(chat) => Some(Chat { ending, ..chat }),
        Input::Text(_) | Input::Tokens(_) => None,
    });
    Ok(ToRender { model: order.model, chat: chat.unwrap_or_default(), ignored: order.ignored })
}

#[cfg(test)]
mod tests {
    use super::render;
    use serde_json::{Value, json};
    use sf_core::Ending;

    fn body(more: &Value) -> Value {
        let mut body =
            json!({"messages": [{"role": "user", "content": "x"}], "stream": true, "max_tokens": 5});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    }

    #[test]
    fn a_chat_ends_as_it_is_told_to() {
        let check = |more: Value, expect: Ending| {
            assert_eq!(render(body(&more)).unwrap().chat.ending, expect, "{more}");
        };
        check(json!({}), Ending::Prompt);
        check(json!({"add_generation_prompt": null}), Ending::Prompt);
        check(json!({"add_generation_prompt": true, "continue_final_message": false}), Ending::Prompt);
        check(json!({"add_generation_prompt": false}), Ending::Closed);
        check(json!({"continue_final_message": true}), Ending::Continued);
        check(json!({"continue_final_message": true, "add_generation_prompt": false}), Ending::Continued);
        let both = body(&json!({"continue_final_message": true, "add_generation_prompt": true}));
        let fault = render(both).unwrap_err();
        assert_eq!(
            (fault.code, fault.param.as_deref()),
            ("conflicting_parameters", Some("continue_final_message"))
        );
    }

    #[test]
    fn what_a_chat_refuses_is_refused_and_what_nobody_knows_is_named() {
        let fault = render(body(&json!({"temperature": 9}))).unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("temperature"));
        let fault = render(json!({"messages": []})).unwrap_err();
        assert_eq!((fault.code, fault.param.as_deref()), ("invalid_value", Some("messages")));
        assert_eq!(render(body(&json!({"frobnicate": 1}))).unwrap().ignored, ["frobnicate"]);
    }
}

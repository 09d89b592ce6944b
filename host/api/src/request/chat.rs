//! Reads the body of `/v1/chat/completions`.

use serde_json::Value;
use sf_core::limits::{MESSAGES_MAX, TOP_LOGPROBS_MAX};
use sf_core::{Chat, Content, Ending, Fault, FaultKind, Input, Message, Part, Role};

use super::format::form;
use super::sampling::{choices, same, sampling, stop, stop_tokens};
use super::tools::{choice, tool_calls, tools};
use super::variables::variables;
use super::{Dialect, Order, delivery, refused, service_tier};
use crate::body::Budget;
use crate::fields::{Fields, array, string, unknown_word, wrong_type};

/// The order in a chat request's body.
pub(crate) fn chat(body: Value) -> Result<Order, Fault> {
    let mut fields = Fields::root(body)?;
    refused::check(&fields, refused::GENERATION)?;
    refused::check(&fields, refused::CHAT)?;
    let model = model(&mut fields)?;
    let conversation = conversation(&mut fields)?;
    let limit = fields.integer("max_tokens", 1..=u32::MAX)?;
    let completion_limit = fields.integer("max_completion_tokens", 1..=u32::MAX)?;
    let order = Order {
        dialect: Dialect::Chat,
        model,
        inputs: vec![Input::Chat(conversation)],
        sampling: sampling(&mut fields)?,
        max_tokens: same("max_tokens", limit, "max_completion_tokens", completion_limit)?,
        stop: stop(&mut fields)?,
        choices: choices(&mut fields)?,
        logprobs: logprobs(&mut fields)?,
        form: form(&mut fields)?,
        stop_tokens: stop_tokens(&mut fields)?,
        min_tokens: fields.integer("min_tokens", 0..=u32::MAX)?.unwrap_or(0),
        ignore_eos: fields.flag("ignore_eos")?,
        reuse: fields.flag_or("cache_prompt", true)?,
        user: fields.string("user")?,
        service_tier: service_tier(&mut fields)?,
        echo: false,
        delivery: delivery(&mut fields)?,
        ignored: Vec::new(),
    };
    Ok(Order { ignored: refused::unknown(fields, &[refused::GENERATION, refused::CHAT]), ..order })
}

/// The model's id, when one is named.
pub(super) fn model(fields: &mut Fields) -> Result<Option<String>, Fault> {
    let model = fields.string("model")?;
    if model.as_deref() == Some("") {
        let fault = Fault::invalid("invalid_value", fields.path("model"), "`model` is empty");
        return Err(fault.hint("leave it out for the server's first model, or see /v1/models"));
    }
    Ok(model)
}

fn logprobs(fields: &mut Fields) -> Result<Option<u32>, Fault> {
    let wanted = fields.flag("logprobs")?;
    let top = fields.integer("top_logprobs", 0..=TOP_LOGPROBS_MAX)?;
    match (wanted, top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => {
            let message = "`top_logprobs` needs `logprobs` to be true";
            Err(Fault::invalid("invalid_value", fields.path("top_logprobs"), message))
        }
    }
}

/// What the model's template is given, on whichever endpoint.
pub(super) fn conversation(fields: &mut Fields) -> Result<Chat, Fault> {
    let messages = fields.require("messages")?;
    let messages = messages_of(messages, &fields.path("messages"))?;
    let one_call = !fields.flag_or("parallel_tool_calls", true)?;
    let choice = choice(fields)?;
    let (tools, choice) = tools(fields, choice)?;
    Ok(Chat { messages, tools, arguments: variables(fields)?, choice, one_call, ending: Ending::Prompt })
}

fn messages_of(value: Value, path: &str) -> Result<Vec<Message>, Fault> {
    let values = array(value, path)?;
    if values.is_empty() {
        return Err(Fault::invalid("invalid_value", path, format!("`{path}` is empty")));
    }
    if values.len() > MESSAGES_MAX {
        let message = format!("`{path}` has {} messages, accepted are {MESSAGES_MAX}", values.len());
        return Err(Fault::invalid("too_many", path, message));
    }
    let budget = Budget::default();
    let values = values.into_iter().enumerate();
    values.map(|(at, value)| message(value, format!("{path}[{at}]"), &budget)).collect()
}

fn message(value: Value, path: String, budget: &Budget) -> Result<Message, Fault> {
    let mut fields = Fields::nested(value, path)?;
    refused::check(&fields, refused::MESSAGE)?;
    let role = role(&string(fields.require("role")?, &fields.path("role"))?, &fields.path("role"))?;
    let name = fields.string("name")?;
    let tool_call_id = fields.string("tool_call_id")?;
    let (thought, other) = (fields.string("reasoning_content")?, fields.string("reasoning")?);
    let reasoning = same(&fields.path("reasoning_content"), thought, &fields.path("reasoning"), other)?;
    let tool_calls = tool_calls(&mut fields, budget)?;
    if role != Role::Assistant && !tool_calls.is_empty() {
        let path = fields.path("tool_calls");
        let message = format!("`{path}` stands in a message of role {}", role.as_str());
        return Err(Fault::invalid("invalid_value", path, message).hint("only the assistant calls tools"));
    }
    let content = match fields.take("content") {
        Some(content) => Some(content_of(content, &fields.path("content"))?),
        None if role != Role::Assistant => return Err(fields.missing("content")),
        // A turn that only called tools or thought has no text; one that did nothing said nothing.
        None if !tool_calls.is_empty() || reasoning.is_some() => None,
        None => Some(Content::Text(String::new())),
    };
    Ok(Message { role, content, name, reasoning, tool_calls, tool_call_id })
}

fn role(word: &str, path: &str) -> Result<Role, Fault> {
    match word {
        "system" | "developer" => Ok(Role::System),
        "user" => Ok(Role::User),
        "assistant" => Ok(Role::Assistant),
        "tool" => Ok(Role::Tool),
        _ => Err(unknown_word(path, word, "system, developer, user, assistant or tool")),
    }
}

/// A string or parts, as they are.
fn content_of(value: Value, path: &str) -> Result<Content, Fault> {
    let parts = match value {
        Value::String(text) => return Ok(Content::Text(text)),
        Value::Array(parts) => parts,
        other => return Err(wrong_type(path, "a string or an array of parts", &other)),
    };
    let parts = parts.into_iter().enumerate();
    parts
        .map(|(at, part)| part_of(part, format!("{path}[{at}]")))
        .collect::<Result<_, _>>()
        .map(Content::Parts)
}

fn part_of(value: Value, path: String) -> Result<Part, Fault> {
    let mut part = Fields::nested(value, path.clone())?;
    let kind_path = part.path("type");
    let kind = string(part.require("type")?, &kind_path)?;
    let what = match kind.as_str() {
        "text" => return string(part.require("text")?, &part.path("text")).map(Part::Text),
        "image_url" | "input_image" => {
            image(&mut part)?;
            "an image"
        }
        "input_audio" | "audio_url" => "audio",
        "video_url" => "a video",
        "file" => "a file",
        _ => return Err(unknown_word(&kind_path, &kind, "text or image_url")),
    };
    let message = format!("`{path}` is {what}, and no runtime here takes anything but text");
    let fault = Fault::new(FaultKind::Unsupported, "unsupported_input", message).param(path);
    Err(fault.hint("send its text, or leave the part out"))
}

/// Refuses an image that is nowhere taken: nothing is fetched, and no file is read, for whoever names one.
fn image(part: &mut Fields) -> Result<(), Fault> {
    let place = part.path("image_url");
    let (url, path) = match part.require("image_url")? {
        Value::String(url) => (url, place),
        image => {
            let mut image = Fields::nested(image, place)?;
            let path = image.path("url");
            (string(image.require("url")?, &path)?, path)
        }
    };
    if url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) {
        return Ok(());
    }
    let message = format!("`{path}` is no `data:` URL; this server fetches nothing");
    Err(Fault::invalid("invalid_value", path, message)
        .hint("put the image into the request: data:image/png;base64,..."))
}

#[cfg(test)]
mod tests {
    use super::chat;
    use crate::request::Delivery;
    use serde_json::{Value, json};
    use sf_core::{Content, Input, Json, Message, Part, Role};

    fn messages(value: &Value) -> Vec<Message> {
        let order = chat(json!({"messages": value})).unwrap();
        let [Input::Chat(chat)] = &order.inputs[..] else { panic!("one chat") };
        chat.messages.clone()
    }

    #[test]
    fn content_is_a_string_or_parts_or_an_assistants_silence() {
        let got = messages(&json!([
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null},
            {"role": "assistant", "content": null, "reasoning": "hm"},
            {"role": "tool", "content": "4", "tool_call_id": "x"},
        ]));
        let parts = ["a", "b"].map(|text| Part::Text(text.to_owned()));
        assert_eq!(
            got,
            [
                Message::new(Role::System, "be brief"),
                Message { content: Some(Content::Parts(parts.to_vec())), ..Message::new(Role::User, "") },
                Message::new(Role::Assistant, ""),
                Message {
                    content: None,
                    reasoning: Some("hm".to_owned()),
                    ..Message::new(Role::Assistant, "")
                },
                Message { tool_call_id: Some("x".to_owned()), ..Message::new(Role::Tool, "4") },
            ]
        );
    }

    #[test]
    fn what_is_no_text_is_refused_by_its_place() {
        let check = |part: Value, (code, param): (&str, &str), words: &str| {
            let text = json!({"type": "text", "text": "x"});
            let body = json!({"messages": [
                {"role": "user", "content": "x"}, {"role": "user", "content": [text, part]},
            ]});
            let fault = chat(body).unwrap_err();
            let place = format!("messages[1].content[1]{param}");
            assert_eq!((fault.code, fault.param), (code, Some(place)), "{}", fault.message);
            assert!(fault.message.contains(words), "{}", fault.message);
        };
        let here = ("unsupported_input", "");
        check(
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}),
            here,
            "is an image",
        );
        check(
            json!({"type": "input_image", "image_url": "DATA:image/png;base64,AA"}),
            here,
            "no runtime here",
        );
        check(json!({"type": "input_audio", "input_audio": {}}), here, "is audio");
        check(json!({"type": "file", "file": {}}), here, "is a file");
        let url = ("invalid_value", ".image_url.url");
        check(
            json!({"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}),
            url,
            "fetches nothing",
        );
        check(json!({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}), url, "`data:` URL");
        check(
            json!({"type": "input_image", "image_url": "é"}),
            ("invalid_value", ".image_url"),
            "`data:` URL",
        );
        check(json!({"type": "image_url"}), ("missing_required_parameter", ".image_url"), "is missing");
        check(
            json!({"type": "image_url", "image_url": {}}),
            ("missing_required_parameter", ".image_url.url"),
            "",
        );
        check(json!({"type": "text"}), ("missing_required_parameter", ".text"), "");
        check(json!({"type": "picture"}), ("invalid_value", ".type"), "image_url");
    }

    #[test]
    fn an_assistant_that_calls_tools_needs_no_text_and_nobody_else_calls_any() {
        let call =
            json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
        let got = messages(&json!([{"role": "assistant", "tool_calls": [call, call]}]));
        assert_eq!((got[0].content.as_ref(), got[0].tool_calls.len()), (None, 2));
        assert_eq!(got[0].tool_calls[0].arguments, Json::Object(vec![("a".to_owned(), Json::Integer(1))]));
        let body = json!({"messages": [{"role": "user", "content": "x", "tool_calls": [call]}]});
        assert_eq!(chat(body).unwrap_err().param.as_deref(), Some("messages[0].tool_calls"));
    }

    #[test]
    fn unknown_fields_are_named_and_harmless_ones_are_not() {
        let order = chat(json!({
            "messages": [{"role": "user", "content": "x"}],
            "user": "u", "metadata": {}, "store": true, "frobnicate": 1, "tools": [], "stop": null
        }))
        .unwrap();
        assert_eq!(order.ignored, ["frobnicate"]);
    }

    #[test]
    fn a_chat_without_more_asks_for_one_whole_answer_up_to_the_window() {
        let order = chat(json!({"messages": [{"role": "user", "content": "x"}]})).unwrap();
        assert_eq!(order.delivery, Delivery::Whole);
        assert_eq!((order.choices, order.max_tokens, order.logprobs, order.model), (1, None, None, None));
    }
}

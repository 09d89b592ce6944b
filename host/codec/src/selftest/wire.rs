//! Whether calls as the template writes them are what the wire reads.

use sf_core::{Chat, Json, Message, Role, Token, Tool, ToolCall};

use super::{Outcome, failed, first, quoted};
use crate::codec::Codec;
use crate::vocab::Kind;
use crate::wire::{Answer, Delta, Input, Parser, ToolSchema, Wire};

const TOOL: &str = "get_weather";
const CITY: &str = "Paris";

/// Wires whose templates write the calls of earlier turns otherwise than the models do.
const OTHERWISE: &[&str] = &["llama4_pythonic"];

const NO_WIRE: Outcome = Outcome::Skipped("it is not known how the model writes calls");

pub(super) fn marks(codec: &Codec) -> Outcome {
    let Some(wire) = codec.wire() else { return NO_WIRE };
    let has = |text: &&str| codec.marks().any(|mark| mark == *text);
    first(wire.needed_tokens().into_iter().map(|group| match group.iter().any(has) {
        true => Outcome::Passed,
        false => {
            let wants = format!("one of {} as a token of its own", group.join(" "));
            failed(format!("wire {}", wire.name()), wants, "none in the vocabulary")
        }
    }))
}

fn object(members: Vec<(&str, Json)>) -> Json {
    Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn tool() -> Tool {
    let city = object(vec![("type", "string".into()), ("description", "A city.".into())]);
    let parameters = object(vec![
        ("type", "object".into()),
        ("properties", object(vec![("city", city)])),
        ("required", Json::Array(vec!["city".into()])),
    ]);
    let function = object(vec![
        ("name", TOOL.into()),
        ("description", "Tells the weather.".into()),
        ("parameters", parameters),
    ]);
    Tool { name: TOOL.to_owned(), json: object(vec![("type", "function".into()), ("function", function)]) }
}

/// Some templates want ids of nine letters or digits, some write nothing but the id, which then names the tool.
const IDS: [&str; 2] = ["call00001", "functions.get_weather:0"];

/// A question, and the same with its answer, which is a call; in one of them the tool answers too.
fn chats(id: &str) -> (Chat, [Chat; 2]) {
    let arguments = object(vec![("city", CITY.into())]);
    let call = ToolCall { id: id.to_owned(), name: TOOL.to_owned(), arguments };
    let question = Message::new(Role::User, "Is it warm in Paris?");
    let answer = Message { content: None, tool_calls: vec![call], ..Message::new(Role::Assistant, "") };
    let result = Message {
        name: Some(TOOL.to_owned()),
        tool_call_id: Some(id.to_owned()),
        ..Message::new(Role::Tool, "{\"celsius\": 21}")
    };
    let chat = |messages| Chat { messages, tools: vec![tool()], ..Chat::default() };
    let called = [question.clone(), answer, result];
    (chat(vec![question]), [chat(called.to_vec()), chat(called[..2].to_vec())])
}

pub(super) fn call(codec: &Codec) -> Outcome {
    let Some(wire) = codec.wire() else { return NO_WIRE };
    if OTHERWISE.contains(&wire.name()) {
        return Outcome::Skipped("the template writes calls otherwise than the model");
    }
    let [first, second] = IDS.map(|id| call_with(codec, wire, id));
    if matches!(first, Outcome::Failed(_)) && second == Outcome::Passed { second } else { first }
}

fn call_with(codec: &Codec, wire: &Wire, id: &str) -> Outcome {
    let (question, called) = chats(id);
    if !codec.reads("tools") || !codec.unread(&called[0]).is_empty() {
        return Outcome::Skipped("the template shows no tools or writes no calls");
    }
    let rendered = called.iter().find_map(|chat| codec.render(chat).ok());
    let (Ok(prompt), Some(whole)) = (codec.render(&question), rendered) else {
        return Outcome::Skipped("the template does not render calls");
    };
    let (prompt, answer) = whole.split_at(shared(codec, &prompt, &whole));
    let end = answer.iter().position(|token| codec.is_eog(*token)).unwrap_or(answer.len());
    let answer = &answer[..end];
    let Ok(schema) = ToolSchema::of(&tool()) else { return NO_WIRE };
    let Some(parser) = codec.parser(prompt, &[schema]) else { return NO_WIRE };
    let read = read(codec, parser, answer);
    let wanted = serde_json::json!({"city": CITY});
    let is_call = |call: &crate::wire::Call| {
        let arguments = serde_json::from_str::<serde_json::Value>(&call.arguments);
        call.whole && call.name == TOOL && arguments.is_ok_and(|arguments| arguments == wanted)
    };
    if matches!(&read.calls[..], [call] if is_call(call)) {
        return Outcome::Passed;
    }
    let names: Vec<&str> = answer.iter().map(|token| shown(codec, *token)).collect();
    let found = match &read.calls[..] {
        [] => format!("no call, the text {}", quoted(&read.text)),
        calls => format!("{} with {}", calls[0].name, quoted(&calls[0].arguments)),
    };
    failed(
        format!("the template's own call {}", quoted(&names.concat())),
        format!("{TOOL} with {wanted} through wire {}", wire.name()),
        found,
    )
}

/// How many tokens of `whole` are the prompt's. Where the prompt opens what this answer does not have, such as reasoning, the
/// answer starts behind the last line or mark that both have.
fn shared(codec: &Codec, prompt: &[Token], whole: &[Token]) -> usize {
    let same = prompt.iter().zip(whole).take_while(|(ours, theirs)| ours == theirs).count();
    if same == prompt.len() {
        return same;
    }
    let ends = |token: &Token| {
        let bytes = codec.token_bytes(*token);
        bytes.is_empty() || bytes.ends_with(b"\n") || codec.vocab.kind(token.0) == Kind::UserDefined
    };
    whole[..same].iter().rposition(ends).map_or(same, |at| at + 1)
}

/// A token as people read it.
fn shown(codec: &Codec, token: Token) -> &str {
    match std::str::from_utf8(codec.token_bytes(token)) {
        Ok(text) if !text.is_empty() => text,
        _ => codec.token_name(token),
    }
}

/// An answer taken apart, marks told from text as while serving.
fn read(codec: &Codec, mut parser: Parser, tokens: &[Token]) -> Answer {
    let (mut deltas, mut text): (Vec<Delta>, Vec<u8>) = (Vec::new(), Vec::new());
    for &token in tokens {
        let Some(mark) = codec.mark(token) else {
            text.extend_from_slice(codec.token_bytes(token));
            continue;
        };
        parser.feed(Input::Text(&String::from_utf8_lossy(&text)), &mut deltas);
        parser.feed(Input::Marker(mark), &mut deltas);
        text.clear();
    }
    parser.feed(Input::Text(&String::from_utf8_lossy(&text)), &mut deltas);
    parser.finish(&mut deltas);
    let mut answer = Answer::default();
    deltas.iter().for_each(|delta| answer.take(delta));
    answer
}

impl Codec {
    /// Marks of the wire that are tokens.
    fn marks(&self) -> impl Iterator<Item = &str> {
        (0..self.vocab()).filter_map(|id| self.mark(Token(id)))
    }
}

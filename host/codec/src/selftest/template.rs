//! Whether the chat template makes prompts of chats, and its marks mean something to the vocabulary.

use std::collections::BTreeSet;

use sf_core::{Chat, Ending, Message, Role, Token};

use super::{Outcome, failed, first, quoted, same};
use crate::codec::Codec;
use crate::error::CodecError;
use crate::given::Given;
use crate::template::Template;
use crate::vocab::Kind;

const QUESTION: &str = "kiwi plum 41";
const ANSWER: &str = "Pear melon 52";
const QUESTION_AGAIN: &str = "fig lime 63";
const SYSTEM: &str = "Mango grape 74";
/// 2024-02-29 12:00:00 UTC.
const NOON: u64 = 1_709_208_000;

/// Marks that are tried in a message.
const MARKS_MAX: usize = 64;

const NO_TEMPLATE: Outcome = Outcome::Skipped("there is no chat template");

pub(super) fn one_turn(content: &str) -> Chat {
    vec![Message::new(Role::User, content)].into()
}

fn two_turns() -> Chat {
    vec![
        Message::new(Role::User, QUESTION),
        Message::new(Role::Assistant, ANSWER),
        Message::new(Role::User, QUESTION_AGAIN),
    ]
    .into()
}

/// The text of a chat, through what the check says about it.
fn with_text(codec: &Codec, chat: &Chat, says: impl FnOnce(&str) -> Outcome) -> Outcome {
    match codec.render_text(chat) {
        Ok(text) => says(&text),
        // The checks of turns report it.
        Err(CodecError::NoChat) => NO_TEMPLATE,
        Err(_) => Outcome::Skipped("the template does not render it"),
    }
}

fn with_template(codec: &Codec, says: impl FnOnce(&Template) -> Outcome) -> Outcome {
    codec.template.as_ref().map_or(NO_TEMPLATE, says)
}

/// Whether a chat renders with all of its messages' texts in it.
fn renders(codec: &Codec, what: &str, chat: &Chat) -> Outcome {
    let text = match codec.render_text(chat) {
        Ok(text) => text,
        Err(CodecError::NoChat) => return NO_TEMPLATE,
        Err(error) => return failed(what, "a prompt", error),
    };
    let contents = chat.messages.iter().filter_map(|message| message.content.as_ref());
    first(contents.map(sf_core::Content::text).map(|content| match text.contains(&*content) {
        true => Outcome::Passed,
        false => failed(what, format!("a prompt with {} in it", quoted(&content)), quoted(&text)),
    }))
}

pub(super) fn turn(codec: &Codec) -> Outcome {
    renders(codec, "one message of a user", &one_turn(QUESTION))
}

pub(super) fn turns(codec: &Codec) -> Outcome {
    renders(codec, "a question, an answer and a question", &two_turns())
}

pub(super) fn system(codec: &Codec) -> Outcome {
    let chat: Chat = vec![Message::new(Role::System, SYSTEM), Message::new(Role::User, QUESTION)].into();
    match codec.render_text(&chat) {
        Err(CodecError::Refused(_)) => Outcome::Skipped("the template refuses system messages"),
        _ => renders(codec, "a system message and one of a user", &chat),
    }
}

pub(super) fn generation_prompt(codec: &Codec) -> Outcome {
    with_template(codec, |template| {
        if !template.reads("add_generation_prompt") {
            return Outcome::Skipped("the template does not read add_generation_prompt");
        }
        let text = |ending| text_at(template, &Chat { ending, ..one_turn(QUESTION) }, NOON);
        match (text(Ending::Prompt), text(Ending::Closed)) {
            (Ok(with), Ok(without)) if with == without => {
                failed("one message of a user", "a prompt that opens the assistant's turn", quoted(&with))
            }
            (Ok(_), Ok(_)) => Outcome::Passed,
            _ => Outcome::Skipped("the template does not render it"),
        }
    })
}

pub(super) fn bos(codec: &Codec) -> Outcome {
    let Some(bos) = codec.bos() else { return Outcome::Skipped("the model has no BOS") };
    let tokens = match codec.render(&one_turn(QUESTION)) {
        Ok(tokens) => tokens,
        Err(CodecError::NoChat) => return NO_TEMPLATE,
        Err(_) => return Outcome::Skipped("the template does not render it"),
    };
    let count = tokens.iter().take_while(|&&token| token == bos).count();
    if count > 1 {
        return failed("one message of a user", "one BOS at most", format!("{count}"));
    }
    Outcome::Passed
}

pub(super) fn ends(codec: &Codec) -> Outcome {
    with_text(codec, &two_turns(), |text| {
        let behind = text.split_once(ANSWER).and_then(|(_, rest)| rest.split_once(QUESTION_AGAIN));
        let Some((behind, _)) = behind else {
            return Outcome::Skipped("the template changes messages");
        };
        let tokens = codec.encode_trusted(behind).unwrap_or_default();
        // Where messages have channels, what ends one is not what ends the answer.
        let ends = |token: &Token| codec.is_eog(*token) || codec.vocab.kind(token.0) == Kind::Channel;
        if tokens.iter().any(ends) {
            return Outcome::Passed;
        }
        let known: Vec<&str> = codec.eog_tokens().take(6).map(|token| codec.token_name(token)).collect();
        let expected = format!("one of {} behind it", known.join(" "));
        failed("an answer in a chat", expected, quoted(behind))
    })
}

/// Tokens of the template's own that stand for themselves and look like a mark.
fn marks_in(codec: &Codec, tokens: &[Token]) -> BTreeSet<Token> {
    let is_mark = |token: &&Token| {
        let name = codec.token_name(**token);
        let stands = matches!(codec.vocab.kind(token.0), Kind::Control | Kind::Channel | Kind::UserDefined);
        stands && name.len() > 2 && name.starts_with(['<', '['])
    };
    tokens.iter().filter(is_mark).copied().collect()
}

pub(super) fn content(codec: &Codec) -> Outcome {
    let plain = match codec.render(&one_turn(QUESTION)) {
        Ok(plain) => plain,
        Err(CodecError::NoChat) => return NO_TEMPLATE,
        Err(_) => return Outcome::Skipped("the template does not render it"),
    };
    let marks = marks_in(codec, &plain);
    let count = |tokens: &[Token], mark: Token| tokens.iter().filter(|&&token| token == mark).count();
    // A template may write thousands.
    first(marks.iter().take(MARKS_MAX).map(|&mark| {
        let name = codec.token_name(mark);
        let Ok(hostile) = codec.render(&one_turn(&format!("kiwi {name} 41"))) else {
            return Outcome::Passed;
        };
        let (usual, now) = (count(&plain, mark), count(&hostile, mark));
        if now <= usual {
            return Outcome::Passed;
        }
        let expected = format!("{usual} tokens {name} in the prompt");
        failed(format!("a message that spells {}", quoted(name)), expected, now)
    }))
}

pub(super) fn steady(codec: &Codec) -> Outcome {
    with_template(codec, |template| {
        let chat = two_turns();
        let at = |now| text_at(template, &chat, now);
        match (at(NOON), at(NOON + 1)) {
            (Ok(now), Ok(later)) => same("the same chat a second later", &now, &later),
            _ => Outcome::Skipped("the template does not render it"),
        }
    })
}

fn text_at(template: &Template, chat: &Chat, now: u64) -> Result<String, CodecError> {
    Ok(Given::at(template, chat, Some(now))?.whole()?.prompt.text)
}

//! A small vocabulary, and what the fuzzer does with its bytes: the first one says which kind of form the rest is.
#![allow(dead_code, reason = "each user takes its own part")]

use std::sync::Arc;

use sf_core::{Grammar, Token, Vocabulary};
use sf_kit::{Grammars, noop};

/// The token that ends an answer.
pub(crate) const END: u32 = 0;
/// What the no-op runtime's tokens spell: enough for JSON with names of a to h. Some are pieces of two kinds.
pub(crate) const WORDS: [&str; noop::VOCAB] = [
    "", "{", "}", "[", "]", ":", ",", "\"", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "-", ".", "e",
    "E", "+", "true", "false", "null", "t", "r", "u", "f", "a", "l", "s", "n", "b", "c", "d", "g", "h", " ",
    "\n", "\":", "\",", "\"}", "},", "{\"", "[\"", "\"]", "10", "25", ", ", ": ", "\\", "\\u00", "i", "o",
    "x", "y", "z", "é", "ab", "cd", "ef", "gh",
];

pub(crate) fn vocabulary() -> Arc<Vocabulary> {
    Arc::new(Vocabulary::new(WORDS.iter().map(|word| word.as_bytes()), &[Token(END)]))
}

pub(crate) fn grammars() -> Grammars {
    Grammars::new(vocabulary())
}

/// Compiles what the bytes say; whether it could be is of no interest.
pub(crate) fn input(data: &[u8]) {
    thread_local! { static GRAMMARS: Grammars = grammars(); }
    let Some((kind, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let grammar = match kind {
        b'r' => Grammar::Regex(text.into()),
        b'l' => Grammar::Lark(text.into()),
        _ => Grammar::JsonSchema(text.into()),
    };
    GRAMMARS.with(|grammars| {
        let _ = grammars.check(&grammar);
    });
}

//! Writes rules of a grammar in llguidance's Lark: fixed texts in which control tokens stand for themselves, and free text
//! up to a mark.

use serde_json::{Value as Json, json};
use sf_core::limits::GRAMMAR_BYTES_MAX;
use sf_core::{Token, lark_text, regex_text};

use super::NotHeld;
use crate::wire::window::Mark;

/// Any text.
pub(super) const ANY: &str = "/(?s:.*)/";

/// A grammar that is being written.
pub(super) struct Writer {
    wire: &'static str,
    /// Texts of the wire that are one token in the vocabulary.
    tokens: Vec<(&'static str, Token)>,
    /// Marks that only their token makes.
    only: Vec<&'static str>,
    rules: String,
    count: usize,
}

impl Writer {
    pub(super) fn new(
        wire: &'static str,
        tokens: Vec<(&'static str, Token)>,
        only: Vec<&'static str>,
    ) -> Writer {
        Writer { wire, tokens, only, rules: String::new(), count: 0 }
    }

    /// All rules, with the first one in front.
    pub(super) fn finish(self, start: &str) -> String {
        format!("start: {start}\n{}", self.rules)
    }

    pub(super) fn token(&self, text: &str) -> Option<Token> {
        self.tokens.iter().find(|(known, _)| *known == text).map(|(_, token)| *token)
    }

    /// Adds a rule and gives its name.
    pub(super) fn rule(&mut self, body: &str) -> String {
        self.define("r", "", body)
    }

    /// The same of text without structure.
    pub(super) fn terminal(&mut self, body: &str) -> String {
        self.define("T", "", body)
    }

    /// Text that ends where it first may.
    pub(super) fn lazy(&mut self, body: &str) -> String {
        self.define("r", "[lazy]", body)
    }

    /// Whether it is longer than any grammar may be: what comes now changes nothing.
    pub(super) fn is_full(&self) -> bool {
        self.rules.len() > GRAMMAR_BYTES_MAX
    }

    fn define(&mut self, letter: &str, attributes: &str, body: &str) -> String {
        let name = format!("{letter}{}", self.count);
        self.count += 1;
        if self.is_full() {
            return name;
        }
        self.rules.push_str(&format!("{name}{attributes}: {body}\n"));
        name
    }

    /// JSON that a schema accepts, spaced as Python's `json.dumps` does it, which is what templates show.
    pub(super) fn json(&mut self, mut schema: Json) -> String {
        if let Some(map) = schema.as_object_mut() {
            let spacing =
                json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "});
            map.insert("x-guidance".to_owned(), spacing);
        }
        self.rule(&format!("%json {schema}"))
    }

    /// A fixed text. What is a token of this vocabulary is written as that token.
    pub(super) fn text(&self, text: &str) -> Result<String, NotHeld> {
        let mut parts: Vec<String> = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let found =
                self.tokens.iter().filter_map(|(known, token)| Some((rest.find(known)?, *known, *token)));
            let next = found.min_by_key(|(at, known, _)| (*at, usize::MAX - known.len()));
            let until = next.map_or(rest.len(), |(at, ..)| at);
            let plain = &rest[..until];
            if let Some(mark) = self.only.iter().find(|mark| plain.contains(**mark)) {
                return Err(NotHeld::NoToken { wire: self.wire, mark: (*mark).to_owned() });
            }
            parts.extend(Some(lark_text(plain)).filter(|_| !plain.is_empty()));
            parts.extend(next.map(|(_, _, token)| format!("<[{}]>", token.0)));
            rest = &rest[next.map_or(rest.len(), |(at, known, _)| at + known.len())..];
        }
        Ok(if parts.is_empty() { "\"\"".to_owned() } else { parts.join(" ") })
    }

    /// Text of the terminal `inner`, up to the first of `ends`, which is taken; none of `except` stands in it.
    pub(super) fn until(&mut self, inner: &str, ends: &[Mark], except: &[&str]) -> String {
        let spelled: Vec<&str> = ends.iter().filter(|mark| !mark.token).map(|mark| mark.text).collect();
        let mut without: Vec<&str> = except.to_vec();
        if inner != ANY {
            without.extend(&spelled);
        }
        let text = self.terminal(&except_for(inner, &without));
        let mut ways = Vec::new();
        if !spelled.is_empty() {
            let ends: Vec<String> = spelled.iter().map(|end| lark_text(end)).collect();
            ways.push(self.lazy(&format!("{text} ({})", ends.join(" | "))));
        }
        let mut tokens: Vec<Token> = ends.iter().filter_map(|end| self.token(end.text)).collect();
        tokens.dedup();
        ways.extend(tokens.iter().map(|token| format!("{text} <[{}]>", token.0)));
        format!("({})", ways.join(" | "))
    }
}

/// Text of a terminal in which none of `without` stands.
pub(super) fn except_for(inner: &str, without: &[&str]) -> String {
    if without.is_empty() {
        return inner.to_owned();
    }
    let any: Vec<String> = without.iter().map(|text| regex_text(text)).collect();
    format!("{inner} & ~/(?s:.*)({})(?s:.*)/", any.join("|"))
}

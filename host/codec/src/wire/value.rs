//! Turns one literal, character by character, into compact JSON: from JSON, Python's syntax or Gemma's.
//!
//! Output is canonical: no white space outside strings, escapes only where JSON needs them, numbers as they were
//! written. A raw control character inside a string is escaped rather than refused, for models write line breaks so.

use super::delta::CallFault;
use super::json::{is_number, push_char, push_text};

/// Nesting that is followed; a recursive reader of the arguments must survive it.
const DEPTH_MAX: usize = 96;
/// Longest number, constant or bare word, in bytes.
const WORD_BYTES_MAX: usize = 1024;

/// The syntax that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    Json,
    /// `True`, `None`, single quotes, tuples, commas before a closing bracket.
    Python,
    /// Bare keys and words; strings between marks of their own, see [`Value::mark`].
    Gemma,
}

/// What became of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Took {
    /// It is taken; the value goes on.
    More,
    /// It is taken and ends the value.
    Done,
    /// The value ended before it: it is not taken.
    Before,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    List,
    Tuple,
    Object,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quote {
    Char(char),
    Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    No,
    Slash,
    /// Digits still to come, and the value so far; pairs of surrogates only where `\u` wrote them.
    Hex {
        left: u8,
        value: u32,
    },
}

#[derive(Debug)]
enum At {
    /// A value is due; `fresh` if the container is empty so far.
    Value {
        fresh: bool,
    },
    Key {
        fresh: bool,
    },
    Colon,
    /// Behind a value inside a container.
    After,
    Text {
        quote: Quote,
        key: bool,
        escape: Escape,
    },
    Word {
        word: String,
        key: bool,
    },
    Done,
}

/// A literal that is being read.
#[derive(Debug)]
pub(super) struct Value {
    syntax: Syntax,
    levels: Vec<Level>,
    at: At,
    /// Upper half of a surrogate pair.
    high: Option<u32>,
    /// A comma that goes out with what follows it.
    comma: bool,
}

impl Value {
    pub(super) fn new(syntax: Syntax) -> Value {
        Value { syntax, levels: Vec::new(), at: At::Value { fresh: false }, high: None, comma: false }
    }

    /// Takes one character and appends what is certain to `out`.
    pub(super) fn push(&mut self, c: char, out: &mut String) -> Result<Took, CallFault> {
        match &mut self.at {
            At::Text { quote, key, escape } => {
                let (quote, key, escape) = (*quote, *key, *escape);
                self.push_text(c, (quote, key), escape, out)
            }
            At::Word { word, .. } if is_word(c) => {
                if word.len() >= WORD_BYTES_MAX {
                    return Err(CallFault::Limit);
                }
                word.push(c);
                Ok(Took::More)
            }
            At::Word { .. } => {
                self.end_word(out)?;
                if self.levels.is_empty() {
                    return Ok(Took::Before);
                }
                self.push(c, out)
            }
            At::Done => Ok(Took::Before),
            _ if matches!(c, ' ' | '\t' | '\r' | '\n') => Ok(Took::More),
            At::Value { fresh } => {
                let fresh = *fresh;
                self.push_value(c, fresh, out)
            }
            At::Key { fresh } => {
                let fresh = *fresh;
                self.push_key(c, fresh, out)
            }
            At::Colon if c == ':' => {
                out.push(':');
                self.at = At::Value { fresh: false };
                Ok(Took::More)
            }
            At::After => self.push_after(c, out),
            At::Colon => Err(CallFault::Syntax),
        }
    }

    /// Takes the mark that opens and closes Gemma's strings.
    pub(super) fn mark(&mut self, out: &mut String) -> Result<(), CallFault> {
        match self.at {
            At::Text { quote: Quote::Mark, key, .. } => {
                self.end_text(key, out);
                Ok(())
            }
            At::Value { .. } => {
                self.open_text(Quote::Mark, false, out);
                Ok(())
            }
            At::Key { .. } => {
                self.open_text(Quote::Mark, true, out);
                Ok(())
            }
            _ => Err(CallFault::Syntax),
        }
    }

    /// Whether it is inside a string between quotes of JSON, where no mark ends it.
    pub(super) fn is_quoted(&self) -> bool {
        matches!(self.at, At::Text { quote: Quote::Char(_), .. })
    }

    /// The input ended: whether the value is whole.
    pub(super) fn finish(&mut self, out: &mut String) -> Result<bool, CallFault> {
        if self.levels.is_empty() && matches!(self.at, At::Word { .. }) {
            self.end_word(out)?;
        }
        Ok(matches!(self.at, At::Done))
    }

    fn push_value(&mut self, c: char, fresh: bool, out: &mut String) -> Result<Took, CallFault> {
        let may_close = fresh || (self.comma && self.syntax != Syntax::Json);
        match c {
            '"' => self.open_text(Quote::Char(c), false, out),
            '\'' if self.syntax == Syntax::Python => self.open_text(Quote::Char(c), false, out),
            '[' => return self.open(Level::List, out),
            '(' if self.syntax == Syntax::Python => return self.open(Level::Tuple, out),
            '{' => return self.open(Level::Object, out),
            ']' | ')' if may_close => return self.close(c, out),
            _ if is_word(c) => {
                self.before(out);
                self.at = At::Word { word: c.into(), key: false };
            }
            _ => return Err(CallFault::Syntax),
        }
        Ok(Took::More)
    }

    fn push_key(&mut self, c: char, fresh: bool, out: &mut String) -> Result<Took, CallFault> {
        let may_close = fresh || (self.comma && self.syntax != Syntax::Json);
        match c {
            '"' => self.open_text(Quote::Char(c), true, out),
            '\'' if self.syntax == Syntax::Python => self.open_text(Quote::Char(c), true, out),
            '}' if may_close => return self.close(c, out),
            _ if self.syntax == Syntax::Gemma && is_word(c) => {
                self.before(out);
                self.at = At::Word { word: c.into(), key: true };
            }
            _ => return Err(CallFault::Syntax),
        }
        Ok(Took::More)
    }

    fn push_after(&mut self, c: char, out: &mut String) -> Result<Took, CallFault> {
        if c != ',' {
            return self.close(c, out);
        }
        self.comma = true;
        self.at = match self.levels.last() {
            Some(Level::Object) => At::Key { fresh: false },
            _ => At::Value { fresh: false },
        };
        Ok(Took::More)
    }

    fn before(&mut self, out: &mut String) {
        if std::mem::take(&mut self.comma) {
            out.push(',');
        }
    }

    fn open(&mut self, level: Level, out: &mut String) -> Result<Took, CallFault> {
        if self.levels.len() >= DEPTH_MAX {
            return Err(CallFault::Limit);
        }
        self.before(out);
        self.levels.push(level);
        let is_object = level == Level::Object;
        out.push(if is_object { '{' } else { '[' });
        self.at = if is_object { At::Key { fresh: true } } else { At::Value { fresh: true } };
        Ok(Took::More)
    }

    fn close(&mut self, c: char, out: &mut String) -> Result<Took, CallFault> {
        let end = match (self.levels.pop(), c) {
            (Some(Level::Object), '}') => '}',
            (Some(Level::List), ']') | (Some(Level::Tuple), ')') => ']',
            _ => return Err(CallFault::Syntax),
        };
        out.push(end);
        self.comma = false;
        Ok(self.end_value())
    }

    fn end_value(&mut self) -> Took {
        if self.levels.is_empty() {
            self.at = At::Done;
            return Took::Done;
        }
        self.at = At::After;
        Took::More
    }

    fn open_text(&mut self, quote: Quote, key: bool, out: &mut String) {
        self.before(out);
        out.push('"');
        self.at = At::Text { quote, key, escape: Escape::No };
    }

    fn end_text(&mut self, key: bool, out: &mut String) -> Took {
        self.lone(out);
        out.push('"');
        if key {
            self.at = At::Colon;
            return Took::More;
        }
        self.end_value()
    }

    /// An upper surrogate without its lower half stands for no character.
    fn lone(&mut self, out: &mut String) {
        if self.high.take().is_some() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    fn push_text(
        &mut self,
        c: char,
        (quote, key): (Quote, bool),
        escape: Escape,
        out: &mut String,
    ) -> Result<Took, CallFault> {
        let next = match escape {
            Escape::No if quote == Quote::Char(c) => return Ok(self.end_text(key, out)),
            Escape::No if c == '\\' && quote != Quote::Mark => Escape::Slash,
            Escape::No => {
                self.lone(out);
                push_char(c, out);
                Escape::No
            }
            Escape::Slash => self.escaped(c, out)?,
            Escape::Hex { left, value } => {
                let digit = c.to_digit(16).ok_or(CallFault::Syntax)?;
                let value = value << 4 | digit;
                if left > 1 { Escape::Hex { left: left - 1, value } } else { self.code(value, out)? }
            }
        };
        self.at = At::Text { quote, key, escape: next };
        Ok(Took::More)
    }

    /// The character behind a backslash.
    fn escaped(&mut self, c: char, out: &mut String) -> Result<Escape, CallFault> {
        if c == 'u' {
            return Ok(Escape::Hex { left: 4, value: 0 });
        }
        self.lone(out);
        let python = self.syntax == Syntax::Python;
        let plain = match c {
            '"' | '\\' => c,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            '/' if !python => '/',
            '\'' if python => '\'',
            'a' if python => '\u{7}',
            'v' if python => '\u{b}',
            '0' if python => '\0',
            'x' if python => return Ok(Escape::Hex { left: 2, value: 0 }),
            'U' if python => return Ok(Escape::Hex { left: 8, value: 0 }),
            '\n' if python => return Ok(Escape::No),
            _ if python => {
                // Python keeps a backslash that escapes nothing.
                push_char('\\', out);
                c
            }
            _ => return Err(CallFault::Syntax),
        };
        push_char(plain, out);
        Ok(Escape::No)
    }

    /// A character by its number; surrogates come in pairs.
    fn code(&mut self, value: u32, out: &mut String) -> Result<Escape, CallFault> {
        if let (Some(high), 0xdc00..=0xdfff) = (self.high, value) {
            self.high = None;
            let pair = 0x1_0000 + ((high - 0xd800) << 10) + (value - 0xdc00);
            push_char(char::from_u32(pair).expect("a surrogate pair is a character"), out);
            return Ok(Escape::No);
        }
        self.lone(out);
        match value {
            0xd800..=0xdbff => self.high = Some(value),
            0xdc00..=0xdfff => out.push(char::REPLACEMENT_CHARACTER),
            _ => push_char(char::from_u32(value).ok_or(CallFault::Syntax)?, out),
        }
        Ok(Escape::No)
    }

    fn end_word(&mut self, out: &mut String) -> Result<(), CallFault> {
        let At::Word { word, key } = std::mem::replace(&mut self.at, At::Done) else { return Ok(()) };
        if key {
            push_text(&word, out);
            self.at = At::Colon;
            return Ok(());
        }
        match &*word {
            "true" | "false" | "null" => out.push_str(&word),
            "True" if self.syntax != Syntax::Json => out.push_str("true"),
            "False" if self.syntax != Syntax::Json => out.push_str("false"),
            "None" if self.syntax != Syntax::Json => out.push_str("null"),
            _ if is_number(&word) => out.push_str(&word),
            _ if self.syntax == Syntax::Python => out.push_str(&number(&word).ok_or(CallFault::Syntax)?),
            _ if self.syntax == Syntax::Gemma => push_text(&word, out),
            _ => return Err(CallFault::Syntax),
        }
        self.end_value();
        Ok(())
    }
}

/// Characters of numbers, constants and bare words.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '+' | '-' | '.' | '$')
}

/// A number that only Python writes so, as JSON has it: `+1`, `.5`, `5.` and `1_000`.
fn number(word: &str) -> Option<String> {
    let word = word.replace('_', "");
    let (sign, word) = match word.strip_prefix(['+', '-']) {
        Some(rest) => (if word.starts_with('-') { "-" } else { "" }, rest),
        None => ("", &*word),
    };
    let lead = if word.starts_with('.') { "0" } else { "" };
    let end = if word.ends_with('.') { "0" } else { "" };
    let any = word.bytes().any(|byte| byte.is_ascii_digit());
    Some(format!("{sign}{lead}{word}{end}")).filter(|number| any && is_number(number))
}

/// All of `text` as one value in compact JSON, if it is one.
pub(super) fn read(text: &str, syntax: Syntax) -> Option<String> {
    let mut value = Value::new(syntax);
    let mut json = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match value.push(c, &mut json).ok()? {
            Took::More => {}
            Took::Done => return chars.all(char::is_whitespace).then_some(json),
            Took::Before => {
                return (c.is_whitespace() && chars.all(char::is_whitespace)).then_some(json);
            }
        }
    }
    value.finish(&mut json).ok()?.then_some(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(syntax: Syntax, text: &str, expect: Option<&str>) {
        assert_eq!(read(text, syntax).as_deref(), expect, "{syntax:?} {text:?}");
        if let Some(json) = expect {
            serde_json::from_str::<serde_json::Value>(json).expect(json);
            assert_eq!(read(json, Syntax::Json).as_deref(), Some(json), "canonical text stays as it is");
        }
    }

    #[test]
    fn json_becomes_compact_and_keeps_its_numbers() {
        let check = |text, expect| check(Syntax::Json, text, expect);
        check(" { \"a\" : [ 1 , -2.50e+3 , true , null ] } ", Some(r#"{"a":[1,-2.50e+3,true,null]}"#));
        check("123456789012345678901234567890", Some("123456789012345678901234567890"));
        check("[]", Some("[]"));
        check("{}", Some("{}"));
        check(r#""\u00e9\u0041\/\ud83d\ude00""#, Some("\"éA/😀\""));
        check(r#""\ud83d x \udc00""#, Some("\"\u{fffd} x \u{fffd}\""));
        check(r#""\ud83d\ud83d\ude00""#, Some("\"\u{fffd}😀\""));
        check("\"a\nb\u{1}\"", Some("\"a\\nb\\u0001\""));
        for broken in [
            "",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "'a'",
            "True",
            "NaN",
            "01",
            "1.",
            "[1 2]",
            "{\"a\" 1}",
            "]",
            r#""\x41""#,
            "\"a",
            "[",
            "1 2",
            "{\"a\":}",
            "[,]",
            "{,}",
        ] {
            check(broken, None);
        }
    }

    #[test]
    fn python_literals_become_json() {
        let check = |text, expect| check(Syntax::Python, text, expect);
        check("{'a': (1, True, None,), \"b\": [False]}", Some(r#"{"a":[1,true,null],"b":[false]}"#));
        check(r"'it\'s \x41 \d \u00e9'", Some(r#""it's A \\d é""#));
        check(r#"'say "hi"'"#, Some(r#""say \"hi\"""#));
        check("[1,]", Some("[1]"));
        check("()", Some("[]"));
        check("[+1, -.5, 5., 1_000, 1e5]", Some("[1,-0.5,5.0,1000,1e5]"));
        check("[.]", None);
        check("{'a'}", None);
        check("(1]", None);
        check("name", None);
    }

    #[test]
    fn gemma_keys_and_words_need_no_quotes() {
        let check = |text, expect| check(Syntax::Gemma, text, expect);
        check("{a:1,b:{c:[true,x]}}", Some(r#"{"a":1,"b":{"c":[true,"x"]}}"#));
        check("{\"a b\":\"c\"}", Some(r#"{"a b":"c"}"#));
        let mut value = Value::new(Syntax::Gemma);
        let mut json = String::new();
        for part in ["{k:", "", "a\"\\n{", "", "}"] {
            if part.is_empty() {
                value.mark(&mut json).expect("a string opens or closes");
            }
            part.chars().for_each(|c| assert!(value.push(c, &mut json).is_ok()));
        }
        assert_eq!(json, r#"{"k":"a\"\\n{"}"#);
    }

    #[test]
    fn nesting_and_words_have_limits() {
        let mut value = Value::new(Syntax::Json);
        let mut json = String::new();
        let fault = (0..=DEPTH_MAX).find_map(|_| value.push('[', &mut json).err());
        assert_eq!(fault, Some(CallFault::Limit));
        let mut value = Value::new(Syntax::Json);
        let fault = (0..=WORD_BYTES_MAX).find_map(|_| value.push('1', &mut json).err());
        assert_eq!(fault, Some(CallFault::Limit));
    }
}

//! What an answer must look like, and what a grammar must know of a model's tokens.

use std::sync::Arc;

use crate::ids::Token;

/// A form that the answer is held to, token by token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Grammar {
    /// JSON that a schema accepts; the schema as JSON text.
    JsonSchema(Arc<str>),
    /// Text that a regular expression matches as a whole, in the syntax of Rust's `regex` crate.
    Regex(Arc<str>),
    /// Text of a context-free grammar in llguidance's variant of Lark.
    Lark(Arc<str>),
}

impl Grammar {
    /// Any JSON object.
    pub fn json_object() -> Grammar {
        Grammar::JsonSchema(Arc::from(r#"{"type":"object"}"#))
    }

    /// The schema, expression or grammar.
    pub fn source(&self) -> &str {
        match self {
            Grammar::JsonSchema(text) | Grammar::Regex(text) | Grammar::Lark(text) => text,
        }
    }
}

/// Keywords of a JSON schema that bound its values and that a grammar can hold them to, sorted.
pub const SCHEMA_HELD: [&str; 27] = [
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "required",
    "type",
];

/// A text as a literal of a Lark grammar.
pub fn lark_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for one in text.chars() {
        match one {
            '"' | '\\' => out.extend(['\\', one]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f' | '\x7f' => out.push_str(&format!("\\u{:04x}", u32::from(one))),
            _ => out.push(one),
        }
    }
    out.push('"');
    out
}

/// Characters that mean something in a regular expression, or end one in Lark.
const REGEX_SPECIAL: &str = r"\.+*?()|[]{}^$#&-~/";

/// The regular expression that only a text matches; it may stand between Lark's slashes.
pub fn regex_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '\n' => out.push_str(r"\n"),
            '\r' => out.push_str(r"\r"),
            '\t' => out.push_str(r"\t"),
            _ => {
                if REGEX_SPECIAL.contains(one) {
                    out.push('\\');
                }
                out.push(one);
            }
        }
    }
    out
}

/// The form that a turn asks for, and where it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The form.
    pub grammar: Grammar,
    /// The field that asks for it; complaints name it.
    pub param: &'static str,
}

/// The bytes of every token of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    /// All tokens' bytes one after another.
    bytes: Vec<u8>,
    /// Where each token's bytes end.
    ends: Vec<u32>,
    /// Tokens that end an answer, sorted.
    eog: Vec<Token>,
}

impl Vocabulary {
    /// Of tokens in the order of their ids. Control tokens have no bytes: no text is made of them.
    pub fn new<'a>(tokens: impl Iterator<Item = &'a [u8]>, eog: &[Token]) -> Vocabulary {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for token in tokens {
            bytes.extend_from_slice(token);
            ends.push(bytes.len() as u32);
        }
        Vocabulary { bytes, ends, eog: eog.to_vec() }
    }

    /// From what [`Vocabulary::parts`] gave; `None` when that is no vocabulary.
    pub fn from_parts(bytes: Vec<u8>, ends: Vec<u32>, eog: Vec<Token>) -> Option<Vocabulary> {
        let good = ends.is_sorted()
            && ends.last().copied().unwrap_or(0) as usize == bytes.len()
            && eog.iter().all(|token| (token.0 as usize) < ends.len());
        good.then_some(Vocabulary { bytes, ends, eog })
    }

    /// All bytes, where each token's end, and the tokens that end an answer.
    pub fn parts(&self) -> (&[u8], &[u32], &[Token]) {
        (&self.bytes, &self.ends, &self.eog)
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Each token's bytes, in the order of ids.
    pub fn tokens(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start as usize..*end as usize])
    }

    /// Tokens that end an answer, sorted.
    pub fn eog(&self) -> &[Token] {
        &self.eog
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stand_in_grammars_as_themselves() {
        assert_eq!(lark_text("a\"b\\\n\t\u{1}\u{7f}é</x>"), r#""a\"b\\\n\t\u0001\u007fé</x>""#);
        assert_eq!(regex_text("a.b</x>\n[\"é"), r#"a\.b<\/x>\n\["é"#);
    }

    #[test]
    fn a_vocabulary_survives_the_way_through_its_parts() {
        let tokens: [&[u8]; 4] = [b"a", b"", b"bc", b"d"];
        let vocabulary = Vocabulary::new(tokens.iter().copied(), &[Token(1)]);
        assert_eq!(vocabulary.tokens().collect::<Vec<_>>(), tokens);
        let (bytes, ends, eog) = vocabulary.parts();
        let again = Vocabulary::from_parts(bytes.to_vec(), ends.to_vec(), eog.to_vec());
        assert_eq!(again.as_ref(), Some(&vocabulary));
    }

    #[test]
    fn parts_that_do_not_fit_are_no_vocabulary() {
        let check = |bytes: &[u8], ends: &[u32], eog: &[u32]| {
            let eog = eog.iter().copied().map(Token).collect();
            assert_eq!(Vocabulary::from_parts(bytes.to_vec(), ends.to_vec(), eog), None);
        };
        check(b"abc", &[1, 2], &[]);
        check(b"abc", &[2, 1, 3], &[]);
        check(b"abc", &[3], &[1]);
        check(b"abc", &[], &[]);
    }
}

//! What the `decoder` of a `tokenizer.json` makes of each token: bytes that only need to be joined.

use serde_json::Value;

use crate::bytelevel;
use crate::vocab::{Kind, byte_of};

#[derive(Debug, Default)]
enum Rule {
    /// GPT-2's alphabet.
    ByteLevel,
    /// Replacements, one after the other.
    #[default]
    Plain,
    /// A token starts a word unless it has the prefix.
    Words { prefix: String, cleanup: bool },
}

/// Replacements in a row; real files have one or two.
const REPLACEMENTS_MAX: usize = 4;
/// Bytes that one match becomes at most: what a piece can grow to is this to the power of the above.
const REPLACEMENT_BYTES_MAX: usize = 8;

/// How tokens become text.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    rule: Rule,
    replacements: Vec<(String, String)>,
    /// `<0x0A>` is a byte.
    bytes: bool,
    /// The pieces are joined: what comes later is done to the whole text.
    joined: bool,
    /// One space at the start of a text is taken off.
    pub strips_space: bool,
}

/// Spaces that WordPiece's decoder takes out again, with what is left.
const CLEANUPS: [(&str, &str); 11] = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

impl Decoder {
    /// `Err` says what is not supported.
    pub(crate) fn read(decoder: Option<&Value>) -> Result<Decoder, String> {
        let mut read = Decoder::default();
        match decoder {
            // Tokens are joined by spaces.
            None | Some(Value::Null) => {
                read.rule = Rule::Words { prefix: String::new(), cleanup: false };
                read.strips_space = true;
            }
            Some(decoder) => read.add(decoder)?,
        }
        Ok(read)
    }

    fn add(&mut self, decoder: &Value) -> Result<(), String> {
        let name = decoder.get("type").and_then(Value::as_str).ok_or("it has no type")?;
        let text = |key: &str| {
            let text = decoder.get(key).and_then(Value::as_str);
            text.map(str::to_owned).ok_or_else(|| format!("{name} has no {key}"))
        };
        let number = |key: &str| decoder.get(key).and_then(Value::as_u64);
        let is_alone = matches!(self.rule, Rule::Plain) && self.replacements.is_empty() && !self.bytes;
        if self.joined && !matches!(name, "Fuse" | "Strip") {
            return Err(format!("{name} behind Fuse is not supported"));
        }
        match name {
            "Sequence" => {
                let list =
                    decoder.get("decoders").and_then(Value::as_array).ok_or("Sequence has no decoders")?;
                return list.iter().try_for_each(|decoder| self.add(decoder));
            }
            "ByteLevel" if is_alone => (self.rule, self.joined) = (Rule::ByteLevel, true),
            "WordPiece" if is_alone => {
                let cleanup = decoder.get("cleanup").and_then(Value::as_bool).unwrap_or(true);
                (self.rule, self.strips_space) = (Rule::Words { prefix: text("prefix")?, cleanup }, true);
            }
            "Metaspace" => {
                self.replacements.push((text("replacement")?, " ".to_owned()));
                let never = decoder.get("add_prefix_space") == Some(&Value::Bool(false))
                    || decoder.get("prepend_scheme").and_then(Value::as_str) == Some("never");
                self.strips_space = !never;
            }
            "Replace" => {
                let pattern = decoder.get("pattern").and_then(|pattern| pattern.get("String"));
                let pattern = pattern.and_then(Value::as_str).filter(|pattern| !pattern.is_empty());
                let pattern = pattern.ok_or("Replace of a regular expression is not supported")?;
                let content = text("content")?;
                if self.replacements.len() >= REPLACEMENTS_MAX || content.len() > REPLACEMENT_BYTES_MAX {
                    return Err("so many or so long replacements are not supported".to_owned());
                }
                self.replacements.push((pattern.to_owned(), content));
            }
            "ByteFallback" => self.bytes = true,
            "Fuse" => self.joined = true,
            "Strip" if self.joined && number("stop") == Some(0) && number("start") == Some(0) => {}
            "Strip" if self.joined && number("stop") == Some(0) && number("start") == Some(1) => {
                if text("content")? != " " {
                    return Err("Strip of another character than the space is not supported".to_owned());
                }
                self.strips_space = true;
            }
            _ => return Err(format!("{name} is not supported here")),
        }
        Ok(())
    }

    /// Whether lone bytes have tokens.
    pub(crate) fn has_bytes(&self) -> bool {
        self.bytes
    }

    /// Appends the bytes that a token adds to a text.
    pub(crate) fn spell(&self, text: &[u8], kind: Kind, out: &mut Vec<u8>) {
        match kind {
            Kind::Control | Kind::Unknown | Kind::Unused | Kind::Undefined => return,
            Kind::Byte => return out.extend(byte_of(text)),
            // Added tokens are found in a text as they are, so they are written as they are.
            Kind::UserDefined | Kind::Channel => {
                if matches!(self.rule, Rule::Words { .. }) {
                    out.push(b' ');
                }
                return out.extend_from_slice(text);
            }
            Kind::Normal => {}
        }
        let text = std::str::from_utf8(text).unwrap_or("");
        match &self.rule {
            Rule::ByteLevel => bytelevel::decode(text.as_bytes(), out),
            Rule::Plain => {
                let replaced = self.replacements.iter();
                let text = replaced.fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
                out.extend_from_slice(text.as_bytes());
            }
            Rule::Words { prefix, cleanup } => {
                let goes_on = text.strip_prefix(&**prefix).filter(|_| !prefix.is_empty());
                let mut text = goes_on.map_or_else(|| format!(" {text}"), str::to_owned);
                if *cleanup {
                    text = CLEANUPS.iter().fold(text, |text, (from, to)| text.replace(from, to));
                }
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_are_spelled_as_the_decoder_does() {
        let check = |decoder: Value, tokens: &[&str], expect: &str, strips: bool| {
            let decoder = Decoder::read(Some(&decoder)).expect("supported");
            let mut out = Vec::new();
            for token in tokens {
                let is_byte = decoder.has_bytes() && byte_of(token.as_bytes()).is_some();
                decoder.spell(token.as_bytes(), if is_byte { Kind::Byte } else { Kind::Normal }, &mut out);
            }
            assert_eq!((String::from_utf8_lossy(&out).as_ref(), decoder.strips_space), (expect, strips));
        };
        check(json!({"type": "ByteLevel"}), &["ĠHi", "Ã", "¤"], " Hiä", false);
        check(
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}),
            &["▁a", "b▁"],
            " ab ",
            true,
        );
        check(
            json!({"type": "Metaspace", "replacement": "▁", "add_prefix_space": false}),
            &["▁a"],
            " a",
            false,
        );
        check(
            json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
            &["a", "##b", ".", "do"],
            " ab. do",
            true,
        );
        check(json!({"type": "WordPiece", "prefix": "##", "cleanup": false}), &["a", "."], " a .", true);
        let llama = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]});
        check(llama, &["▁a", "<0xC3>", "<0xA4>", "<0xG0>"], " aä<0xG0>", true);
    }

    #[test]
    fn what_cannot_be_done_token_by_token_is_refused_by_name() {
        let check = |decoder: Value, reason: &str| {
            let fault = Decoder::read(Some(&decoder)).expect_err(reason);
            assert!(fault.contains(reason), "{fault:?}");
        };
        check(json!({"type": "CTC"}), "CTC is not supported");
        check(json!({"type": "BPEDecoder", "suffix": "</w>"}), "BPEDecoder is not supported");
        check(json!({"type": "Strip", "content": "_", "start": 1, "stop": 0}), "Strip is not supported");
        check(json!({"type": "Replace", "pattern": {"Regex": "a"}, "content": ""}), "regular expression");
        check(json!({}), "no type");
        let late = json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]});
        check(late, "ByteFallback behind Fuse");
    }
}

//! Whether text survives the tokenizer, and control tokens are made by nobody's text.

use std::collections::BTreeSet;

use sf_core::Token;

use super::{Outcome, failed, first, quoted, same};
use crate::codec::Codec;
use crate::vocab::Kind;

/// What people write, in no form that a normalizer of Unicode changes.
const TEXTS: [&str; 9] = [
    "Hello, world! It's 12:30 on 2024-02-29, isn't it?",
    "naïve café, Ünïcode, groß – “quoted”",
    "日本語と中文、한국어",
    "👩‍👩‍👧‍👦 👍🏽 🇫🇷 ☕",
    "3.14159 1234567890 00 1,000,000 -7e+12",
    " lead  two\t\ttabs\n\n\nlines\r\n    indent\n trail ",
    "fn main() { println!(\"{}\", a[0] != b->c); } // <br/> && 'x' || `y`",
    "\u{1}\u{1b}[0m\u{7f}\u{8}",
    "Привет, мир! مرحبا שלום हिन्दी",
];
/// Tokens of the vocabulary that are looked at one by one.
const PIECES_MAX: u32 = 256;
/// Control tokens whose spelling is looked at.
const CONTROLS_MAX: usize = 64;

/// How much of a text must come back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// All of it.
    Exact,
    /// All but case and white space: a `tokenizer.json` may fold either.
    Folded,
    /// What came back once comes back again: the tokenizer normalizes, or knows no bytes.
    Stable,
}

fn promise(codec: &Codec) -> Promise {
    match (codec.model.kind_name(), codec.model.name.as_str()) {
        (_, "whitespace") => Promise::Stable,
        ("BPE" | "SPM", _) => Promise::Exact,
        ("tokenizer.json", "BPE") => Promise::Folded,
        _ => Promise::Stable,
    }
}

fn encoded(codec: &Codec, text: &str) -> Vec<Token> {
    // Short texts are never refused.
    codec.encode(text, false).unwrap_or_default()
}

fn and_back(codec: &Codec, text: &str) -> Outcome {
    let tokens = encoded(codec, text);
    let back = codec.decode(&tokens);
    // Behind a user-defined token some tokenizers put a space that nobody can tell from a real one.
    let marked = tokens.iter().any(|token| codec.vocab.kind(token.0) == Kind::UserDefined);
    let squeezed = |text: &str| -> String { text.chars().filter(|c| !c.is_whitespace()).collect() };
    match promise(codec) {
        Promise::Exact if !marked => same(quoted(text), text, &back),
        Promise::Exact if squeezed(text) == squeezed(&back) => Outcome::Passed,
        Promise::Folded if squeezed(&text.to_lowercase()) == squeezed(&back.to_lowercase()) => {
            Outcome::Passed
        }
        Promise::Exact | Promise::Folded => failed(quoted(text), quoted(text), quoted(&back)),
        Promise::Stable => {
            let again = codec.decode(&encoded(codec, &back));
            // White space at the ends goes and comes with unknown words.
            match squeezed(&again) == squeezed(&back) {
                true => Outcome::Passed,
                false => failed(quoted(&back), quoted(&back), quoted(&again)),
            }
        }
    }
}

pub(super) fn text(codec: &Codec) -> Outcome {
    first(TEXTS.into_iter().map(|text| and_back(codec, text)))
}

/// One character or more for every byte that assigned characters have. Control characters are left out: published
/// vocabularies lack tokens for some.
fn characters() -> impl Iterator<Item = char> {
    let ascii = ('\t'..='\n').chain(['\r']).chain(' '..='~');
    // All bytes that follow, and those that lead two; nothing that a normalizer changes.
    let latin = '\u{a1}'..='\u{ff}';
    let two = (0x100..0x800).step_by(64).map(|first| match first {
        0x300 => 0x30F,
        0x340 => 0x37B,
        other => other,
    });
    let three = [0x905_u32].into_iter().chain((1..14).map(|lead| lead * 0x1000 + 0x100)).chain([0xFF21]);
    let others = two.chain(three).chain([0x1_F600]).filter_map(char::from_u32);
    ascii.chain(latin).chain(others)
}

pub(super) fn bytes(codec: &Codec) -> Outcome {
    let has_bytes = (0..codec.vocab()).any(|id| codec.vocab.kind(id) == Kind::Byte);
    let spells_bytes = has_bytes || codec.model.kind_name() == "BPE";
    if promise(codec) != Promise::Exact || !spells_bytes {
        return Outcome::Skipped("the tokenizer does not promise every byte");
    }
    first(characters().map(|character| and_back(codec, character.encode_utf8(&mut [0; 4]))))
}

pub(super) fn pieces(codec: &Codec) -> Outcome {
    if promise(codec) == Promise::Stable {
        return Outcome::Skipped("the tokenizer normalizes text");
    }
    let step = (codec.vocab() / PIECES_MAX).max(1) as usize;
    let normal = (0..codec.vocab()).step_by(step).filter(|&id| codec.vocab.kind(id) == Kind::Normal);
    let texts = normal.filter_map(|id| std::str::from_utf8(codec.token_bytes(Token(id))).ok());
    first(texts.filter(|text| !text.is_empty()).map(|text| and_back(codec, text)))
}

pub(super) fn controls(codec: &Codec) -> Outcome {
    let steers =
        |id: u32| codec.vocab.is_eog(id) || matches!(codec.vocab.kind(id), Kind::Control | Kind::Channel);
    let controls: Vec<u32> = (0..codec.vocab()).filter(|&id| steers(id)).collect();
    let step = (controls.len() / CONTROLS_MAX).max(1);
    let some: BTreeSet<u32> =
        controls.iter().copied().step_by(step).chain(codec.vocab.eog().iter().copied()).collect();
    if some.is_empty() {
        return Outcome::Skipped("there are no control tokens");
    }
    first(some.into_iter().map(|id| {
        let name = codec.vocab.text(id);
        let made = encoded(codec, name).into_iter().find(|token| steers(token.0));
        made.map_or(Outcome::Passed, |token| {
            let found = format!("token {} {}", token.0, quoted(codec.token_name(token)));
            failed(quoted(name), "tokens of text only", found)
        })
    }))
}

pub(super) fn ends(codec: &Codec) -> Outcome {
    if codec.model.kind_name() == "WordPiece" {
        return Outcome::Skipped("the model writes no text");
    }
    let is_text = |id: &&u32| matches!(codec.vocab.kind(**id), Kind::Normal | Kind::Byte);
    let (text, ends): (Vec<&u32>, Vec<&u32>) = codec.vocab.eog().iter().partition(is_text);
    if ends.is_empty() {
        let found = match text.first() {
            None => "none".to_owned(),
            Some(id) => format!("only {}, which is text", quoted(codec.vocab.text(**id))),
        };
        return failed(format!("{} tokens", codec.vocab()), "one at least that ends an answer", found);
    }
    Outcome::Passed
}

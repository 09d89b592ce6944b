//! WordPiece, the tokenizer of BERT (`tokenizer.ggml.model` = `bert`): plain words, each cut into the longest known pieces.
//!
//! The rules are BERT's own: control characters go, Chinese characters and punctuation stand alone, accents are
//! non-spacing marks of the decomposed text. llama.cpp decomposes a character into its first part only and drops spacing
//! marks too, which for Korean and for Indic scripts gives other tokens than the model was trained with.

use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_properties::CodePointMapData;
use icu_properties::props::GeneralCategory;
use sf_artifact::gguf::Gguf;
use sf_core::Token;

use crate::error::CodecError;
use crate::table::Table;
use crate::vocab::{Vocab, flag};

/// A converted vocabulary marks the start of a word, where the original one marks what goes on.
const START: &str = "\u{2581}";
/// A longer word is unknown: the value of every published BERT, and no file says another.
const WORD_CHARACTERS_MAX: usize = 100;

#[derive(Debug)]
pub(crate) struct WordPiece {
    table: Table,
    unknown: u32,
    /// Longest token, bytes: no longer piece needs to be looked up.
    longest: usize,
    lowercase: bool,
    strip_accents: bool,
}

impl WordPiece {
    pub(crate) fn read(gguf: &Gguf, vocab: &Vocab) -> Result<WordPiece, CodecError> {
        let key = "tokenizer.ggml.unknown_token_id";
        // A word must not become a token that opens, parts or closes a text.
        let steers = |id: u32| [vocab.bos, vocab.eos, vocab.last].contains(&Some(id)) || vocab.is_eog(id);
        let unknown = vocab.unknown.filter(|&id| !steers(id)).ok_or(CodecError::MissingKey { key })?;
        let mut table = Table::with_capacity(vocab.len() as usize);
        let mut longest = 0;
        for id in (0..vocab.len()).filter(|&id| !vocab.kind(id).is_control()) {
            table.insert(&vocab.texts, id).map_err(|first| CodecError::DuplicateToken {
                first,
                second: id,
                text: vocab.text(id).to_owned(),
            })?;
            longest = longest.max(vocab.texts.get(id).len());
        }
        let lowercase = flag(gguf, "tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
        let strip_accents = flag(gguf, "tokenizer.ggml.normalizer.strip_accents")?.unwrap_or(lowercase);
        Ok(WordPiece { table, unknown, longest, lowercase, strip_accents })
    }

    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<Token>) {
        let mut word = START.to_owned();
        self.normalized(text, |character| {
            let alone = is_punctuation(character);
            if (alone || character.is_whitespace()) && word.len() > START.len() {
                self.encode_word(vocab, &word, out);
                word.truncate(START.len());
            }
            if !character.is_whitespace() {
                word.push(character);
            }
            if alone {
                self.encode_word(vocab, &word, out);
                word.truncate(START.len());
            }
        });
        if word.len() > START.len() {
            self.encode_word(vocab, &word, out);
        }
    }

    /// Calls `each` with the characters that count.
    fn normalized(&self, text: &str, mut each: impl FnMut(char)) {
        let cleaned = text.chars().filter(|&character| !is_dropped(character)).flat_map(|character| {
            let alone = is_chinese(character).then_some(' ');
            alone.into_iter().chain([character]).chain(alone)
        });
        let mut lower = |character: char| {
            if self.lowercase {
                character.to_lowercase().for_each(&mut each);
            } else {
                each(character);
            }
        };
        if self.strip_accents {
            let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize_iter(cleaned);
            decomposed.filter(|&c| category(c) != GeneralCategory::NonspacingMark).for_each(&mut lower);
        } else {
            cleaned.for_each(&mut lower);
        }
    }

    /// `word` starts with [`START`].
    fn encode_word(&self, vocab: &Vocab, word: &str, out: &mut Vec<Token>) {
        let before = out.len();
        // The mark alone is no piece.
        let (mut start, mut least) = (0, START.len());
        if word.chars().count() > WORD_CHARACTERS_MAX + 1 {
            out.push(Token(self.unknown));
            return;
        }
        while start < word.len() {
            // Inside a word the mark is a character of the text, which no piece that goes on starts with.
            let is_text = start > 0 && word[start..].starts_with(START);
            let ends = (start + least + 1..=word.len().min(start + self.longest)).rev();
            let found = (!is_text).then_some(ends).into_iter().flatten();
            let found = found.filter(|&end| word.is_char_boundary(end)).find_map(|end| {
                let id = self.table.find(&vocab.texts, &word.as_bytes()[start..end])?;
                Some((end, id))
            });
            let Some((end, id)) = found else {
                out.truncate(before);
                out.push(Token(self.unknown));
                return;
            };
            out.push(Token(id));
            (start, least) = (end, 0);
        }
    }
}

fn category(character: char) -> GeneralCategory {
    CodePointMapData::<GeneralCategory>::new().get(character)
}

/// Neither text nor a space.
fn is_dropped(character: char) -> bool {
    if matches!(character, '\t' | '\n' | '\r') {
        return false;
    }
    let is_control = matches!(
        category(character),
        GeneralCategory::Control | GeneralCategory::Format | GeneralCategory::PrivateUse
    );
    is_control || character == char::REPLACEMENT_CHARACTER
}

fn is_punctuation(character: char) -> bool {
    character.is_ascii_punctuation()
        || matches!(
            category(character),
            GeneralCategory::ConnectorPunctuation
                | GeneralCategory::DashPunctuation
                | GeneralCategory::OpenPunctuation
                | GeneralCategory::ClosePunctuation
                | GeneralCategory::InitialPunctuation
                | GeneralCategory::FinalPunctuation
                | GeneralCategory::OtherPunctuation
        )
}

/// The blocks that BERT calls Chinese. Extension E starts later than in Unicode, as the implementations in use have it.
fn is_chinese(character: char) -> bool {
    matches!(
        u32::from(character),
        0x4e00..=0x9fff
            | 0x3400..=0x4dbf
            | 0x20000..=0x2a6df
            | 0x2a700..=0x2b73f
            | 0x2b740..=0x2b81f
            | 0x2b920..=0x2ceaf
            | 0xf900..=0xfaff
            | 0x2f800..=0x2fa1f
    )
}

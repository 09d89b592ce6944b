//! SentencePiece's unigram model (`tokenizer.ggml.model` = `t5`): of all ways to cut a text into tokens, the likeliest.

use sf_artifact::gguf::{Gguf, ValueType};
use sf_core::Token;

use crate::bpe::byte_tokens;
use crate::charsmap::Charsmap;
use crate::error::CodecError;
use crate::merge::NONE;
use crate::trie::Trie;
use crate::vocab::{Kind, Vocab, array, flag};

const SPACE: &str = "\u{2581}";
/// How much worse than the worst token an unknown character is.
const UNKNOWN_PENALTY: f64 = 10.0;

#[derive(Debug)]
pub(crate) struct Unigram {
    trie: Trie,
    scores: Vec<f32>,
    unknown_score: f64,
    /// Stands for a stretch of unknown characters, where their bytes have no tokens.
    unknown: u32,
    /// Token of each byte; empty unless all have one.
    bytes: Vec<u32>,
    charsmap: Charsmap,
    /// A text starts with a space.
    space_first: bool,
    /// One space between two words, none at the ends.
    merge_spaces: bool,
}

/// The best way to reach a place of the text.
#[derive(Clone, Copy, Debug)]
struct Step {
    score: f64,
    from: u32,
    token: u32,
}

impl Unigram {
    pub(crate) fn read(gguf: &Gguf, vocab: &Vocab) -> Result<Unigram, CodecError> {
        let key = "tokenizer.ggml.scores";
        let scores = array(gguf, key, ValueType::F32)?.ok_or(CodecError::MissingKey { key })?;
        if scores.len() < vocab.len() as usize {
            return Err(CodecError::VocabularyLength {
                key,
                value: scores.len(),
                limit: vocab.len() as usize,
            });
        }
        let scores: Vec<f32> = scores.f32s().into_iter().flatten().take(vocab.len() as usize).collect();
        let usable = |&id: &u32| matches!(vocab.kind(id), Kind::Normal | Kind::UserDefined | Kind::Unused);
        let tokens = (0..vocab.len()).filter(usable).map(|id| (vocab.texts.get(id), id)).collect();
        let normal = (0..vocab.len()).filter(|&id| vocab.kind(id) == Kind::Normal);
        let worst = normal.map(|id| f64::from(scores[id as usize])).fold(f64::from(f32::MAX), f64::min);
        let mut bytes = byte_tokens(vocab);
        if bytes.contains(&NONE) {
            bytes.clear();
        }
        // An unknown character must not become a token that opens or closes a text.
        let steers = |id: u32| [vocab.bos, vocab.eos].contains(&Some(id)) || vocab.is_eog(id);
        let unknown = vocab.unknown.filter(|&id| !steers(id));
        let key = "tokenizer.ggml.unknown_token_id";
        if unknown.is_none() && bytes.is_empty() {
            return Err(CodecError::MissingKey { key });
        }
        Ok(Unigram {
            trie: Trie::new(tokens),
            scores,
            unknown_score: worst - UNKNOWN_PENALTY,
            unknown: unknown.unwrap_or(NONE),
            bytes,
            charsmap: charsmap(gguf)?,
            space_first: flag(gguf, "tokenizer.ggml.add_space_prefix")?.unwrap_or(false),
            merge_spaces: flag(gguf, "tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(false),
        })
    }

    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<Token>) {
        let text = self.normalized(text);
        let bytes = text.as_bytes();
        let nowhere = Step { score: f64::NEG_INFINITY, from: 0, token: NONE };
        let mut steps = vec![nowhere; bytes.len() + 1];
        steps[0].score = 0.0;
        for (at, character) in text.char_indices() {
            let here = steps[at].score;
            let mut reach = |length: usize, score: f64, token: u32| {
                let step = &mut steps[at + length];
                if here + score > step.score {
                    *step = Step { score: here + score, from: at as u32, token };
                }
            };
            let mut is_known = false;
            self.trie.prefixes(&bytes[at..], |length, token| {
                is_known |= length == character.len_utf8();
                let given = vocab.kind(token) == Kind::UserDefined;
                // Scores are logarithms of what is likely, so a given token wins.
                reach(length, if given { 0.0 } else { self.scores[token as usize].into() }, token);
            });
            if !is_known {
                reach(character.len_utf8(), self.unknown_score, NONE);
            }
        }
        let mut path = Vec::new();
        let mut end = bytes.len();
        while end > 0 {
            let step = steps[end];
            path.push((step.from as usize..end, step.token));
            end = step.from as usize;
        }
        let mut in_unknown = false;
        for (range, token) in path.into_iter().rev() {
            let is_unknown = token == NONE;
            if !is_unknown {
                out.push(Token(token));
            } else if !self.bytes.is_empty() {
                out.extend(bytes[range].iter().map(|&byte| Token(self.bytes[byte as usize])));
            } else if !in_unknown {
                out.push(Token(self.unknown));
            }
            in_unknown = is_unknown;
        }
    }

    pub(crate) fn puts_space_first(&self) -> bool {
        self.space_first || self.merge_spaces
    }

    /// The text as the model was trained to see it.
    fn normalized(&self, text: &str) -> String {
        let mut normalized = String::with_capacity(text.len() * 2);
        let (mut in_word, mut has_first) = (false, false);
        let mut at = 0;
        while let Some(character) = text[at..].chars().next() {
            let own = &text[at..at + character.len_utf8()];
            let (length, replacement) = self.charsmap.longest(&text[at..]).unwrap_or((own.len(), own));
            at += length;
            for character in replacement.chars() {
                if character == ' ' {
                    in_word = false;
                    if !self.merge_spaces {
                        normalized.push_str(SPACE);
                    }
                    continue;
                }
                if !in_word && (self.merge_spaces || self.space_first && !has_first) {
                    normalized.push_str(SPACE);
                    has_first = true;
                }
                in_word = true;
                normalized.push(character);
            }
        }
        normalized
    }
}

fn charsmap(gguf: &Gguf) -> Result<Charsmap, CodecError> {
    let key = "tokenizer.ggml.precompiled_charsmap";
    let Some(value) = gguf.get(key) else { return Ok(Charsmap::default()) };
    let blob = value.as_array().and_then(|array| array.u8s());
    let found = value.as_array().map_or(value.kind().name(), |_| "an array of another type");
    let blob = blob.ok_or(CodecError::KeyType { key, expected: "an array of u8", found })?;
    Charsmap::parse(blob).map_err(|reason| CodecError::TokenizerPart { part: key.to_owned(), reason })
}

//! SentencePiece's byte-pair encoding by scores, with a token for every byte (`tokenizer.ggml.model` = `llama`).

use sf_artifact::gguf::{Gguf, ValueType};
use sf_core::Token;

use crate::error::CodecError;
use crate::merge::{Merger, Merges, NONE, Symbol};
use crate::table::Table;
use crate::vocab::{Kind, Vocab, array, byte_of, flag};

#[derive(Debug)]
pub(crate) struct Spm {
    table: Table,
    /// Rank of each token: the better its score, the lower.
    ranks: Vec<u32>,
    /// Token of each byte, or the unknown token, or [`NONE`].
    bytes: Vec<u32>,
    /// Longest token, bytes: no longer pair needs to be looked up.
    longest: u32,
    /// A text starts with a space.
    pub space_first: bool,
}

/// A vocabulary and its merges, together for the time of one encoding.
struct Pairs<'a>(&'a Spm, &'a Vocab);

impl Merges for Pairs<'_> {
    fn merge(&self, text: &[u8], left: &Symbol, right: &Symbol) -> Option<(u32, u32)> {
        let Pairs(spm, vocab) = self;
        if right.end - left.start > spm.longest {
            return None;
        }
        let id = spm.table.find(&vocab.texts, &text[left.start as usize..right.end as usize])?;
        Some((spm.ranks[id as usize], id))
    }
}

impl Spm {
    pub(crate) fn read(gguf: &Gguf, vocab: &Vocab) -> Result<Spm, CodecError> {
        let count = vocab.len();
        let mut table = Table::with_capacity(count as usize);
        // A control token is never made from text, not even where a file calls one its unknown token.
        let unknown = vocab.unknown.filter(|&id| vocab.kind(id) == Kind::Unknown);
        let mut bytes = vec![unknown.unwrap_or(NONE); 256];
        let mut longest = 0;
        for id in 0..count {
            match vocab.kind(id) {
                // Neither is made by merging text: `<0x0A>` written out is six characters.
                Kind::Control | Kind::Unknown | Kind::Channel => continue,
                Kind::Byte => {
                    if let Some(byte) = byte_of(vocab.texts.get(id)) {
                        bytes[byte as usize] = id;
                    }
                    continue;
                }
                _ => {}
            }
            table.insert(&vocab.texts, id).map_err(|first| CodecError::DuplicateToken {
                first,
                second: id,
                text: vocab.text(id).to_owned(),
            })?;
            longest = longest.max(vocab.texts.get(id).len() as u32);
        }
        let space_first = flag(gguf, "tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        Ok(Spm { table, ranks: ranks(gguf, count as usize)?, bytes, longest, space_first })
    }

    /// `after_marker`: the text starts the prompt or follows a control token.
    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        text: &str,
        after_marker: bool,
        merger: &mut Merger,
        out: &mut Vec<Token>,
    ) {
        let mut escaped = String::with_capacity(text.len() + text.len() / 2 + 3);
        if self.space_first && after_marker {
            escaped.push('\u{2581}');
        }
        escaped.extend(text.chars().map(|character| if character == ' ' { '\u{2581}' } else { character }));
        let bytes = escaped.as_bytes();
        merger.clear();
        for (start, character) in escaped.char_indices() {
            let end = start + character.len_utf8();
            let id = self.table.find(&vocab.texts, &bytes[start..end]).unwrap_or(NONE);
            merger.push(id, start as u32, end as u32);
        }
        merger.run(bytes, &Pairs(self, vocab), |symbol| {
            if symbol.id != NONE {
                out.push(Token(symbol.id));
                return;
            }
            let lone = &bytes[symbol.start as usize..symbol.end as usize];
            let ids = lone.iter().map(|&byte| self.bytes[byte as usize]);
            out.extend(ids.filter(|&id| id != NONE).map(Token));
        });
    }
}

fn ranks(gguf: &Gguf, count: usize) -> Result<Vec<u32>, CodecError> {
    let key = "tokenizer.ggml.scores";
    let Some(scores) = array(gguf, key, ValueType::F32)? else { return Ok(vec![0; count]) };
    if scores.len() < count {
        return Err(CodecError::VocabularyLength { key, value: scores.len(), limit: count });
    }
    Ok(scores.f32s().into_iter().flatten().take(count).map(rank).collect())
}

/// Turns a score round into a number: better scores are lower.
fn rank(score: f32) -> u32 {
    // -0 and 0 are the same score.
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::rank;

    #[test]
    fn a_better_score_has_a_lower_rank() {
        let falling = [f32::INFINITY, 12.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1000.0, f32::NEG_INFINITY];
        assert!(falling.windows(2).all(|pair| rank(pair[0]) < rank(pair[1])));
        assert_eq!(rank(0.0), rank(-0.0));
    }
}

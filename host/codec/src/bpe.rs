//! Byte-pair encoding by ranked merges (`tokenizer.ggml.model` = `gpt2`), over bytes or, where the vocabulary spells its
//! tokens in plain UTF-8, over characters.

use std::borrow::Cow;
use std::collections::HashMap;

use sf_artifact::gguf::{Gguf, ValueType};
use sf_core::Token;

use crate::bytelevel;
use crate::error::CodecError;
use crate::families::Family;
use crate::merge::{Merger, Merges, NONE, Symbol};
use crate::pretokens::PreTokenizer;
use crate::table::{Blob, Table};
use crate::vocab::{Kind, Spelling, Vocab, array, byte_of, flag};

#[derive(Debug)]
pub(crate) struct Bpe {
    /// The bytes of every symbol: first the vocabulary's (empty for tokens that no text makes), then intermediate ones.
    symbols: Blob,
    table: Table,
    /// Symbol of each byte; where texts are plain, the token of a byte that no other token carries, or [`NONE`].
    bytes: Vec<u32>,
    spelling: Spelling,
    /// Rank and result of each pair.
    merges: HashMap<(u32, u32), (u32, u32)>,
    vocab: u32,
    /// A word that is a token is that token, whatever the merges say.
    whole_words: bool,
    /// As `whole_words`, for words of line breaks only.
    whole_lines: bool,
    lowercase: bool,
    words: PreTokenizer,
}

impl Merges for Bpe {
    fn merge(&self, _: &[u8], left: &Symbol, right: &Symbol) -> Option<(u32, u32)> {
        self.merges.get(&(left.id, right.id)).copied()
    }
}

impl Bpe {
    pub(crate) fn read(gguf: &Gguf, vocab: &Vocab, family: &Family) -> Result<Bpe, CodecError> {
        let key = "tokenizer.ggml.merges";
        let list = array(gguf, key, ValueType::String)?.ok_or(CodecError::MissingKey { key })?;
        let count = vocab.len();
        let mut symbols = Blob::with_capacity(count as usize + 256, count as usize * 8);
        let mut table = Table::with_capacity(count as usize + 256);
        for id in 0..count {
            // A control token is never made from text, so text must not find it.
            let usable = !vocab.kind(id).is_control() && vocab.kind(id) != Kind::Byte;
            let text = Some(vocab.text(id)).filter(|_| usable);
            let text = text.and_then(|text| spelled(text, family.spelling));
            symbols.push(text.as_deref().unwrap_or_default());
            if !symbols.get(id).is_empty() {
                table.insert(&symbols, id).map_err(|first| CodecError::DuplicateToken {
                    first,
                    second: id,
                    text: vocab.text(id).to_owned(),
                })?;
            }
        }
        let mut bpe = Bpe {
            symbols,
            table,
            bytes: Vec::with_capacity(256),
            merges: HashMap::with_capacity(list.len()),
            vocab: count,
            spelling: family.spelling,
            whole_words: family.whole_words,
            whole_lines: family.whole_lines,
            lowercase: family.spelling == Spelling::Plain
                && flag(gguf, "tokenizer.ggml.normalizer.lowercase")?.unwrap_or(false),
            words: PreTokenizer::new(family),
        };
        bpe.bytes = match family.spelling {
            Spelling::ByteLevel => (0..=255).map(|byte: u8| bpe.symbol(&[byte])).collect(),
            Spelling::Metaspace | Spelling::Plain => byte_tokens(vocab),
        };
        let mut pair = Vec::new();
        for (rank, line) in list.strings().into_iter().flatten().enumerate() {
            bpe.add_merge(line, rank as u32, &mut pair);
        }
        Ok(bpe)
    }

    /// Files `left right`; the first of equal lines counts, and a line that no text can reach is left out.
    fn add_merge(&mut self, line: &[u8], rank: u32, pair: &mut Vec<u8>) {
        // The first symbol may itself start with a space's stand-in, never with a space: look from the second byte on.
        let Some(gap) = line.iter().skip(1).position(|&byte| byte == b' ') else { return };
        let (left, right) = (&line[..=gap], &line[gap + 2..]);
        let spelling = self.spelling;
        let decoded = |text| std::str::from_utf8(text).ok().and_then(|text| spelled(text, spelling));
        let (Some(left), Some(right)) = (decoded(left), decoded(right)) else { return };
        pair.clear();
        pair.extend_from_slice(&left);
        let middle = pair.len();
        pair.extend_from_slice(&right);
        let (left, right) = (self.symbol(&pair[..middle]), self.symbol(&pair[middle..]));
        let merged = self.symbol(pair);
        self.merges.entry((left, right)).or_insert((rank, merged));
    }

    /// The symbol of these bytes, made if there is none.
    fn symbol(&mut self, bytes: &[u8]) -> u32 {
        if let Some(id) = self.table.find(&self.symbols, bytes) {
            return id;
        }
        let id = self.symbols.len() as u32;
        self.symbols.push(bytes);
        // It was not found a moment ago, so it cannot be a duplicate.
        let _ = self.table.insert(&self.symbols, id);
        id
    }

    pub(crate) fn puts_space_first(&self) -> bool {
        self.words.metaspace
    }

    pub(crate) fn encode(&self, text: &str, merger: &mut Merger, out: &mut Vec<Token>) {
        let text = match self.spelling {
            Spelling::ByteLevel => Cow::Borrowed(text),
            Spelling::Metaspace => Cow::Owned(text.replace(' ', "\u{2581}")),
            Spelling::Plain if self.lowercase => {
                // One character each, as llama.cpp's table has them.
                Cow::Owned(text.chars().map(|c| c.to_lowercase().next().unwrap_or(c)).collect())
            }
            Spelling::Plain => Cow::Borrowed(text),
        };
        self.words.each(&text, |word| self.encode_word(word, merger, out));
    }

    fn encode_word(&self, text: &str, merger: &mut Merger, out: &mut Vec<Token>) {
        let word = text.as_bytes();
        let whole = self.whole_words || self.whole_lines && word.iter().all(|&byte| byte == b'\n');
        let token = || self.table.find(&self.symbols, word).filter(|&id| id < self.vocab);
        if let Some(id) = whole.then(token).flatten() {
            out.push(Token(id));
            return;
        }
        merger.clear();
        match self.spelling {
            Spelling::ByteLevel => {
                for (at, &byte) in word.iter().enumerate() {
                    merger.push(self.bytes[byte as usize], at as u32, at as u32 + 1);
                }
            }
            Spelling::Metaspace | Spelling::Plain => {
                for (start, character) in text.char_indices() {
                    let end = start + character.len_utf8();
                    let id = self.table.find(&self.symbols, &word[start..end]).unwrap_or(NONE);
                    merger.push(id, start as u32, end as u32);
                }
            }
        }
        merger.run(word, self, |symbol| {
            if symbol.id < self.vocab {
                out.push(Token(symbol.id));
                return;
            }
            // A merge led to something that is no token: its bytes are. A byte without a token is left out, as llama.cpp
            // does; the unknown token would be worse, because many vocabularies name their end of text so.
            let bytes = &word[symbol.start as usize..symbol.end as usize];
            let ids = bytes.iter().map(|&byte| self.bytes[byte as usize]);
            out.extend(ids.filter(|&id| id < self.vocab).map(Token));
        });
    }
}

/// The bytes that the text of a token stands for; `None` when it is outside the alphabet.
fn spelled(text: &str, spelling: Spelling) -> Option<Cow<'_, [u8]>> {
    match spelling {
        Spelling::ByteLevel => bytelevel::try_decode(text).map(|bytes| Cow::Owned(bytes.collect())),
        Spelling::Metaspace | Spelling::Plain => Some(Cow::Borrowed(text.as_bytes())),
    }
}

/// The token of each byte, or [`NONE`].
pub(crate) fn byte_tokens(vocab: &Vocab) -> Vec<u32> {
    let mut bytes = vec![NONE; 256];
    for id in (0..vocab.len()).filter(|&id| !vocab.kind(id).is_control()) {
        if let Some(byte) = byte_of(vocab.texts.get(id)) {
            bytes[byte as usize] = id;
        }
    }
    bytes
}

//! Byte-pair encoding by ranked merges over bytes (`tokenizer.ggml.model` = `gpt2`).

use std::collections::HashMap;

use sf_artifact::gguf::{Gguf, ValueType};
use sf_core::Token;

use crate::bytelevel;
use crate::error::CodecError;
use crate::merge::{Merger, Merges, Symbol};
use crate::pretokens::{Family, PreTokenizer};
use crate::table::{Blob, Table};
use crate::vocab::{Kind, Vocab, array};

#[derive(Debug)]
pub(crate) struct Bpe {
    /// The bytes of every symbol: first the vocabulary's (empty for tokens that no text makes), then intermediate ones.
    symbols: Blob,
    table: Table,
    /// Symbol of each byte.
    bytes: Vec<u32>,
    /// Rank and result of each pair.
    merges: HashMap<(u32, u32), (u32, u32)>,
    vocab: u32,
    /// A word that is a token is that token, whatever the merges say.
    whole_words: bool,
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
            let usable = !matches!(vocab.kind(id), Kind::Control | Kind::Unknown | Kind::Byte);
            symbols.push_with(|out| {
                out.extend(
                    usable.then(|| bytelevel::try_decode(vocab.text(id))).flatten().into_iter().flatten(),
                );
            });
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
            whole_words: family.whole_words,
            words: PreTokenizer::new(family),
        };
        bpe.bytes = (0..=255).map(|byte: u8| bpe.symbol(&[byte])).collect();
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
        let decoded = |text| std::str::from_utf8(text).ok().and_then(bytelevel::try_decode);
        let (Some(left), Some(right)) = (decoded(left), decoded(right)) else { return };
        pair.clear();
        pair.extend(left);
        let middle = pair.len();
        pair.extend(right);
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

    pub(crate) fn encode(&self, text: &str, merger: &mut Merger, out: &mut Vec<Token>) {
        self.words.each(text, |word| self.encode_word(word.as_bytes(), merger, out));
    }

    fn encode_word(&self, word: &[u8], merger: &mut Merger, out: &mut Vec<Token>) {
        if self.whole_words
            && let Some(id) = self.table.find(&self.symbols, word).filter(|&id| id < self.vocab)
        {
            out.push(Token(id));
            return;
        }
        merger.clear();
        for (at, &byte) in word.iter().enumerate() {
            merger.push(self.bytes[byte as usize], at as u32, at as u32 + 1);
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

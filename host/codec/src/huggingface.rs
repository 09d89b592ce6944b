//! A Hugging Face `tokenizer.json` with the files beside it, through the `tokenizers` crate.
//!
//! The crate normalizes, cuts and tokenizes; which added tokens count where is decided here, because its own way makes
//! control tokens of a message's text: it looks for them everywhere or nowhere, and some of its models also find them in
//! their vocabulary. What a token stands for is worked out once, so that decoding and streaming are those of every other
//! tokenizer.

use std::str::FromStr;

use sf_artifact::TokenizerFiles;
use sf_core::Token;
use tokenizers::normalizer::Range as Span;
use tokenizers::{
    Model, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
    Tokenizer,
};

use crate::added::{Allowed, Matcher};
use crate::error::CodecError;
use crate::markers::Trust;
use crate::tokenizerjson::{Config, Described, check};
use crate::vocab::Vocab;

pub(crate) struct HuggingFace {
    tokenizer: Tokenizer,
    /// Looked for in the text as it is.
    plain: Matcher,
    /// Looked for in the normalized text.
    normalized: Matcher,
    /// Tokens that no text becomes, by id.
    steers: Vec<bool>,
    /// A text starts with a space that it does not have.
    pub strips_space: bool,
}

type Part = (NormalizedString, Option<Vec<tokenizers::Token>>);

impl HuggingFace {
    /// The vocabulary, the tokenizer, and what kind of model it has.
    pub(crate) fn read(files: &TokenizerFiles) -> Result<(Vocab, HuggingFace, String), CodecError> {
        let described = check(&files.tokenizer)?;
        let tokenizer = tokenizer(&files.tokenizer)?;
        let config = Config::read(files)?;
        let Described { vocab, added, strips_space, name } = described.vocabulary(&tokenizer, &config)?;
        let steers = (0..vocab.len()).map(|id| {
            let is_unknown = vocab.unknown == Some(id);
            vocab.kind(id).is_control() && !is_unknown
        });
        let steers = steers.collect();
        let (normalized, plain) = added.into_iter().partition(|token| token.normalized);
        let (plain, normalized) = (Matcher::new(plain), Matcher::new(normalized));
        let model = HuggingFace { tokenizer, plain, normalized, steers, strips_space };
        Ok((vocab, model, name))
    }

    /// Tokens of `text`; control tokens only where it is trusted.
    pub(crate) fn encode(
        &self,
        text: &str,
        trust: Trust<'_>,
        out: &mut Vec<Token>,
    ) -> Result<(), CodecError> {
        let string = self.pieces(text, trust).map_err(|fault| unusable(&fault))?;
        // The crate would keep a string for every token: they are made and forgotten one word at a time.
        for (word, _, tokens) in string.get_splits(OffsetReferential::Original, OffsetType::None) {
            match tokens {
                Some(tokens) => out.extend(tokens.iter().map(|token| Token(token.id))),
                None => {
                    let tokens = self.tokens(word).map_err(|fault| unusable(&fault))?;
                    out.extend(tokens.iter().map(|token| Token(token.id)));
                }
            }
        }
        Ok(())
    }

    /// The words of a text, and the added tokens between them.
    fn pieces(&self, text: &str, trust: Trust<'_>) -> tokenizers::Result<PreTokenizedString> {
        let mut string = PreTokenizedString::from(text);
        string.split(|_, part| {
            let allows = |range, is_character| trust.allows(&range, is_character);
            Ok(cut(&part, &self.plain, &allowed(trust, &allows)))
        })?;
        string.split(|_, mut part| {
            if let Some(normalizer) = self.tokenizer.get_normalizer() {
                normalizer.normalize(&mut part)?;
            }
            let shift = part.offsets_original().0;
            let allows = |range, is_character| {
                let original = part.convert_offsets(Span::Normalized(range));
                original.is_some_and(|range| {
                    trust.allows(&(shift + range.start..shift + range.end), is_character)
                })
            };
            let parts = cut(&part, &self.normalized, &allowed(trust, &allows)).into_iter();
            // What only the normalizer makes a control token of is text.
            Ok(parts.map(|(slice, tokens)| {
                let made = |token: &tokenizers::Token| {
                    let spelled = self.tokenizer.id_to_token(token.id);
                    self.is_control(token) && spelled.as_deref() != Some(slice.get_original().trim())
                };
                let tokens = tokens.filter(|tokens| !tokens.iter().any(made));
                (slice, tokens)
            }))
        })?;
        if let Some(pre_tokenizer) = self.tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut string)?;
        }
        Ok(string)
    }

    /// Tokens of a word. Where the model finds a control token in it, the word is cut inside and each part taken alone.
    fn tokens(&self, word: &str) -> tokenizers::Result<Vec<tokenizers::Token>> {
        let model = self.tokenizer.get_model();
        let mut tokens = model.tokenize(word)?;
        if !tokens.iter().any(|token| self.is_control(token)) {
            return Ok(tokens);
        }
        tokens.clear();
        let mut open = vec![word];
        while let Some(part) = open.pop() {
            let found = model.tokenize(part)?;
            let mut cuts: Vec<usize> = found
                .iter()
                .filter(|token| self.is_control(token))
                .filter_map(|token| {
                    let inside = (token.offsets.0 + 1..part.len()).find(|&at| part.is_char_boundary(at))?;
                    (inside < token.offsets.1).then_some(inside)
                })
                .collect();
            if cuts.is_empty() {
                tokens.extend(found.into_iter().filter(|token| !self.is_control(token)));
                continue;
            }
            cuts.push(part.len());
            cuts.sort_unstable();
            cuts.dedup();
            let starts = std::iter::once(0).chain(cuts.iter().copied());
            let parts: Vec<&str> = starts
                .zip(&cuts)
                .map(|(start, &end)| &part[start..end])
                .filter(|part| !part.is_empty())
                .collect();
            open.extend(parts.into_iter().rev());
        }
        Ok(tokens)
    }

    fn is_control(&self, token: &tokenizers::Token) -> bool {
        self.steers.get(token.id as usize).copied().unwrap_or(true)
    }
}

fn allowed<'a>(trust: Trust<'_>, allows: &'a dyn Fn(std::ops::Range<usize>, bool) -> bool) -> Allowed<'a> {
    match trust {
        Trust::Nothing => Allowed::Nothing,
        Trust::Except(_) => Allowed::Where(allows),
    }
}

/// The parts of a stretch of text that has no tokens yet.
fn cut(part: &NormalizedString, matcher: &Matcher, allowed: &Allowed<'_>) -> Vec<Part> {
    let parts = matcher.split(part.get(), allowed).into_iter();
    let parts = parts.filter_map(|(range, id)| {
        let slice = part.slice(Span::Normalized(range.clone()))?;
        let token = |id| vec![tokenizers::Token::new(id, String::new(), (0, range.len()))];
        Some((slice, id.map(token)))
    });
    parts.collect()
}

/// The crate's reading of a file. It expects here and there what no file has to hold, and panics where it is wrong.
fn tokenizer(text: &str) -> Result<Tokenizer, CodecError> {
    let read = std::panic::catch_unwind(|| Tokenizer::from_str(text));
    let read = read.map_err(|_| unusable(&"the tokenizers crate gave up on this file"))?;
    read.map_err(|fault| unusable(&fault))
}

fn unusable(fault: &dyn std::fmt::Display) -> CodecError {
    CodecError::TokenizerPart { part: "tokenizer.json".to_owned(), reason: fault.to_string() }
}

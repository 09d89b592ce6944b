//! Which tokenizer a model has, read from its header or from the files beside its weights.

use sf_artifact::TokenizerFiles;
use sf_artifact::gguf::{Gguf, Value};
use sf_core::Token;

use crate::bpe::Bpe;
use crate::error::CodecError;
use crate::families::family;
use crate::huggingface::HuggingFace;
use crate::markers::{Markers, Part, Trust};
use crate::merge::Merger;
use crate::spm::Spm;
use crate::unigram::Unigram;
use crate::vocab::{Defaults, Kind as TokenKind, Spelling, Vocab};
use crate::wordpiece::WordPiece;

enum Kind {
    Bpe(Bpe),
    Spm(Spm),
    WordPiece(WordPiece),
    Unigram(Unigram),
    HuggingFace(Box<HuggingFace>),
}

/// Turns text into tokens; the way back is the vocabulary's.
pub(crate) struct Model {
    kind: Kind,
    markers: Markers,
    /// As the file calls it: a pre-tokenizer, or a kind of model.
    pub name: String,
}

impl Model {
    /// The tokenizer of a GGUF header.
    pub(crate) fn read(gguf: &Gguf) -> Result<(Vocab, Model), CodecError> {
        let text = |key: &'static str| match gguf.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(&**text)),
            Some(other) => Err(CodecError::KeyType { key, expected: "string", found: other.kind().name() }),
        };
        let key = "tokenizer.ggml.model";
        let model = text(key)?.ok_or(CodecError::MissingKey { key })?;
        let pre = text("tokenizer.ggml.pre")?.unwrap_or("");
        let (vocab, kind) = match model {
            "gpt2" => bpe(gguf, pre)?,
            // Its converter names no pre-tokenizer, or this one.
            "gemma4" | "whitespace" => bpe(gguf, model)?,
            "llama" => {
                let (bos, eos, unknown) = (Some(1), Some(2), Some(0));
                let spelling = Spelling::Metaspace;
                let defaults = Defaults { spelling, bos, eos, unknown, add_bos: true, ..Defaults::NONE };
                let vocab = Vocab::read(gguf, &defaults)?;
                let spm = Spm::read(gguf, &vocab)?;
                (vocab, Kind::Spm(spm))
            }
            "bert" => {
                let (bos, unknown, separator) = (Some(101), Some(100), Some(102));
                let spelling = Spelling::Metaspace;
                let defaults =
                    Defaults { spelling, bos, unknown, separator, add_bos: true, ..Defaults::NONE };
                let vocab = Vocab::read(gguf, &defaults)?;
                let pieces = WordPiece::read(gguf, &vocab)?;
                (vocab, Kind::WordPiece(pieces))
            }
            "t5" => {
                let (eos, unknown, spelling) = (Some(1), Some(2), Spelling::Metaspace);
                let defaults = Defaults { spelling, eos, unknown, add_eos: true, ..Defaults::NONE };
                let vocab = Vocab::read(gguf, &defaults)?;
                let unigram = Unigram::read(gguf, &vocab)?;
                (vocab, Kind::Unigram(unigram))
            }
            other => return Err(CodecError::TokenizerModel { name: other.to_owned() }),
        };
        let name = if pre.is_empty() { "default" } else { pre };
        let markers = Markers::new(&vocab);
        Ok((vocab, Model { kind, markers, name: name.to_owned() }))
    }

    /// The tokenizer of a model directory.
    pub(crate) fn from_files(files: &TokenizerFiles) -> Result<(Vocab, Model), CodecError> {
        let (vocab, model, name) = HuggingFace::read(files)?;
        let kind = Kind::HuggingFace(Box::new(model));
        let markers = Markers::new(&vocab);
        Ok((vocab, Model { kind, markers, name }))
    }

    /// Tokens of `text`; control tokens only where it is trusted.
    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        text: &str,
        trust: Trust<'_>,
    ) -> Result<Vec<Token>, CodecError> {
        let mut tokens = Vec::with_capacity(text.len() / 3 + 8);
        if let Kind::HuggingFace(model) = &self.kind {
            model.encode(text, trust, &mut tokens)?;
            return Ok(tokens);
        }
        let mut merger = Merger::default();
        let mut after_marker = true;
        for part in self.markers.split(text, trust) {
            let range = match part {
                Part::Marker(id) => {
                    tokens.push(Token(id));
                    after_marker = true;
                    continue;
                }
                Part::Text(range) => range,
            };
            let part = &text[range];
            match &self.kind {
                Kind::Bpe(bpe) => bpe.encode(part, &mut merger, &mut tokens),
                Kind::Spm(spm) => spm.encode(vocab, part, after_marker, &mut merger, &mut tokens),
                Kind::WordPiece(pieces) => pieces.encode(vocab, part, &mut tokens),
                Kind::Unigram(unigram) => unigram.encode(vocab, part, &mut tokens),
                Kind::HuggingFace(_) => {}
            }
            after_marker = false;
        }
        Ok(tokens)
    }

    /// Whether the first space of a text was put there, when its first token is of this kind.
    pub(crate) fn puts_space_first(&self, first: TokenKind) -> bool {
        let puts = match &self.kind {
            Kind::Bpe(bpe) => bpe.puts_space_first(),
            Kind::Spm(spm) => spm.space_first,
            Kind::WordPiece(_) => true,
            Kind::Unigram(unigram) => unigram.puts_space_first(),
            Kind::HuggingFace(model) => return model.strips_space,
        };
        puts && first != TokenKind::UserDefined
    }

    /// For the start-up report.
    pub(crate) fn kind_name(&self) -> &'static str {
        match &self.kind {
            Kind::Bpe(_) => "BPE",
            Kind::Spm(_) => "SPM",
            Kind::WordPiece(_) => "WordPiece",
            Kind::Unigram(_) => "unigram",
            Kind::HuggingFace(_) => "tokenizer.json",
        }
    }
}

fn bpe(gguf: &Gguf, pre: &str) -> Result<(Vocab, Kind), CodecError> {
    let family = family(pre).ok_or_else(|| CodecError::PreTokenizer { name: pre.to_owned() })?;
    // GPT-2's only special token, for files that name none; models that spell otherwise came later and name theirs.
    let gpt2 = Some(11).filter(|_| family.spelling == Spelling::ByteLevel);
    let bos = gpt2.filter(|_| !family.no_bos);
    let (spelling, add_bos) = (family.spelling, family.add_bos);
    let defaults = Defaults { spelling, bos, eos: gpt2, add_bos, ..Defaults::NONE };
    let mut vocab = Vocab::read(gguf, &defaults)?;
    vocab.add_bos |= family.always_bos;
    let bpe = Bpe::read(gguf, &vocab, family)?;
    Ok((vocab, Kind::Bpe(bpe)))
}

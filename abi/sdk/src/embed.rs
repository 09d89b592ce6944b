//! A request for vectors, checked: texts of the vocabulary's tokens, none empty and none longer than the model takes.
#![expect(unsafe_code, reason = "copies the caller's arrays")]

use sf_abi::*;

use crate::fault::{Code, Fault};
use crate::open::Control;
use crate::wire::Span;

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// As the model's own files say.
    Model,
    /// Their mean.
    Mean,
    /// The first token's.
    First,
    /// The last token's.
    Last,
}

/// Whether a vector gets a length of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalize {
    /// As the model's own files say.
    Model,
    /// It does.
    Yes,
    /// It stays as it is.
    No,
}

/// Texts that want vectors.
#[derive(Debug)]
pub struct EmbedPlan<'a> {
    texts: &'a Texts,
    pooling: Pooling,
    normalize: Normalize,
    control: Control,
}

impl EmbedPlan<'_> {
    /// How many texts there are; never 0.
    pub fn count(&self) -> usize {
        self.texts.count()
    }

    /// The tokens of all texts, back to back.
    pub fn tokens(&self) -> &[u32] {
        &self.texts.tokens
    }

    /// Tokens of each text, 1 or more.
    pub fn lengths(&self) -> &[u32] {
        &self.texts.lengths
    }

    /// How tokens become one vector.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Whether vectors get a length of one.
    pub fn normalize(&self) -> Normalize {
        self.normalize
    }

    /// How vectors are made, of a model whose own files say `pooling` and `normalized`.
    pub fn pooled(&self, pooling: Pooling, normalized: bool) -> Pooled {
        Pooled {
            pooling: if self.pooling == Pooling::Model { pooling } else { self.pooling },
            normalized: match self.normalize {
                Normalize::Model => normalized,
                Normalize::Yes => true,
                Normalize::No => false,
            },
        }
    }

    /// The host's shared words: look at them between layers or texts.
    pub fn control(&self) -> &Control {
        &self.control
    }
}

/// How the vectors of a text's tokens become one, decided.
#[derive(Clone, Copy, Debug)]
pub struct Pooled {
    pooling: Pooling,
    normalized: bool,
}

impl Pooled {
    /// Makes a text's vector of the rows of its tokens, `[tokens, stride]`, of which the first `out.len()` columns count.
    pub fn vector(self, rows: &[f32], stride: usize, out: &mut [f32]) {
        let tokens = rows.len() / stride;
        match self.pooling {
            Pooling::First => out.copy_from_slice(&rows[..out.len()]),
            Pooling::Last => out.copy_from_slice(&rows[(tokens - 1) * stride..][..out.len()]),
            // A model's own files name one of the three; the mean is what they mean by saying nothing.
            Pooling::Mean | Pooling::Model => {
                for (column, to) in out.iter_mut().enumerate() {
                    let sum: f64 = rows.chunks_exact(stride).map(|row| f64::from(row[column])).sum();
                    *to = (sum / tokens as f64) as f32;
                }
            }
        }
        if self.normalized {
            let length = out.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
            // A vector of zeros has no direction and stays as it is.
            let factor = if length > 0.0 { 1.0 / length } else { 1.0 };
            out.iter_mut().for_each(|value| *value = (f64::from(*value) * factor) as f32);
        }
    }
}

/// Room for the texts of a request, kept for the next one.
#[derive(Debug)]
pub(crate) struct Texts {
    tokens: Vec<u32>,
    lengths: Vec<u32>,
    choices: (Pooling, Normalize),
}

impl Texts {
    /// Room for texts.
    pub(crate) fn new() -> Texts {
        let choices = (Pooling::Model, Normalize::Model);
        Texts { tokens: Vec::new(), lengths: Vec::new(), choices }
    }

    /// Copies and checks a request.
    ///
    /// # Safety
    /// The arrays of `request` follow the header.
    pub(crate) unsafe fn load(&mut self, request: &SfrEmbed, vocab: u32, longest: u32) -> Result<(), Fault> {
        if request.flags != 0 {
            return Err(Fault::newer("flags", format_args!("unknown bits {:#x}", request.flags)));
        }
        self.choices = (pooling(request.pooling)?, normalize(request.normalize)?);
        for (array, into, what) in
            [(request.tokens, &mut self.tokens, "tokens"), (request.lengths, &mut self.lengths, "lengths")]
        {
            into.clear();
            if array.count > 0 && array.stride != 4 {
                return Err(Fault::layout(what, format_args!("a stride of {}, words have 4", array.stride)));
            }
            let span = Span::at_address::<u32>(array, what)?;
            // SAFETY: the caller's promise.
            unsafe { span.append_words(into) };
        }
        if self.lengths.is_empty() {
            return Err(Fault::new(Code::Arg, "there are no texts").field("lengths"));
        }
        let mut sum = 0;
        for (number, &length) in self.lengths.iter().enumerate() {
            if length == 0 || length > longest {
                let words = format!("text {number} has {length} tokens, the model takes 1 to {longest}");
                return Err(Fault::new(Code::Arg, words).field("lengths"));
            }
            sum += u64::from(length);
        }
        if sum != self.tokens.len() as u64 {
            let words = format_args!("they sum to {sum}, there are {} tokens", self.tokens.len());
            return Err(Fault::layout("lengths", words));
        }
        if let Some(token) = self.tokens.iter().find(|&&token| token >= vocab) {
            let words = format!("token {token} is outside of the vocabulary of {vocab}");
            return Err(Fault::new(Code::Arg, words).field("tokens"));
        }
        Ok(())
    }

    pub(crate) fn count(&self) -> usize {
        self.lengths.len()
    }

    /// What was loaded last.
    pub(crate) fn plan(&self, control: Control) -> EmbedPlan<'_> {
        let (pooling, normalize) = self.choices;
        EmbedPlan { texts: self, pooling, normalize, control }
    }
}

fn pooling(word: u32) -> Result<Pooling, Fault> {
    match word {
        SFR_POOLING_MODEL => Ok(Pooling::Model),
        SFR_POOLING_MEAN => Ok(Pooling::Mean),
        SFR_POOLING_FIRST => Ok(Pooling::First),
        SFR_POOLING_LAST => Ok(Pooling::Last),
        word => Err(Fault::newer("pooling", format_args!("{word} is no pooling of this ABI"))),
    }
}

fn normalize(word: u32) -> Result<Normalize, Fault> {
    match word {
        SFR_NORMALIZE_MODEL => Ok(Normalize::Model),
        SFR_NORMALIZE_YES => Ok(Normalize::Yes),
        SFR_NORMALIZE_NO => Ok(Normalize::No),
        word => Err(Fault::newer("normalize", format_args!("{word} is no answer of this ABI"))),
    }
}

//! Texts that are turned into vectors: as a client orders them, as an engine gets them, and what comes back.

use crate::ids::Token;
use crate::turn::Input;

/// What a client wants vectors of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmbedOrder {
    /// As in [`crate::Turn::model`].
    pub model: Option<String>,
    /// Texts or tokens, no chats; at least one.
    pub inputs: Vec<Input>,
    /// The client gave a list, so that a complaint names the place in it.
    pub is_list: bool,
    /// Elements that vectors must have.
    pub dimensions: Option<u32>,
}

/// The vectors of an order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embedded {
    /// The model that made them.
    pub model: String,
    /// Tokens of all inputs.
    pub prompt_tokens: u64,
    /// Elements of a vector.
    pub dims: usize,
    /// A vector per input, in their order, one after the other.
    pub vectors: Vec<f32>,
}

/// The vectors that an open model makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedShape {
    /// Elements of a vector.
    pub dims: u32,
    /// Tokens of the longest text.
    pub tokens_max: u32,
}

/// Several texts, ragged and without padding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmbedBatch {
    /// The tokens of all texts, back to back.
    pub tokens: Vec<Token>,
    /// Tokens of each text; none is 0, their sum is the number of tokens.
    pub lengths: Vec<u32>,
}

impl EmbedBatch {
    /// Forgets the texts and keeps the memory.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.lengths.clear();
    }

    /// Adds a text.
    pub fn push(&mut self, text: &[Token]) {
        self.tokens.extend_from_slice(text);
        self.lengths.push(text.len() as u32);
    }
}

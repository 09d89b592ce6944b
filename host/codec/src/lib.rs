//! Text to tokens and back, chat templates, stop strings; pure.
//!
//! Owns what a model's text means in tokens, both ways: what renders the prompt also decodes the answer. It reads the
//! tokenizer from the model file's header, or from `tokenizer.json` beside the weights, and asks no runtime. Invariant:
//! nothing that a client sends can become a control token. The way of a prompt: `template` (through `source`, `parts`,
//! `given`, `guard` and `python`) → `model` → `markers` → `pretokens` and `bpe`, or `spm`, `wordpiece`, `unigram`; a directory's: `huggingface`
//! with `added`. The way of an answer: `stream`, then `wire`.

mod added;
mod bpe;
mod bytelevel;
mod charsmap;
mod codec;
mod conversation;
mod ends;
mod error;
mod families;
mod given;
mod guard;
mod huggingface;
mod markers;
mod measures;
mod merge;
mod model;
mod parts;
mod pretokens;
mod python;
mod selftest;
mod source;
mod spelling;
mod spm;
mod stream;
mod surroundings;
mod table;
mod template;
mod tokenizerjson;
mod trie;
mod unigram;
mod vocab;
pub mod wire;
mod wordpiece;

pub use codec::{Codec, CodecOptions, Dialect, TEXT_BYTES_MAX, UnknownDialect, WireChoice};
pub use conversation::{Appended, Conversation};
pub use error::CodecError;
pub use selftest::{Check, Checked, Finding, Outcome, SelfTest};
pub use stream::{Piece, TextStream};

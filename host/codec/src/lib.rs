//! Text to tokens and back, chat templates, stop strings; pure.
//!
//! Owns what a model's text means in tokens, both ways: what renders the prompt also decodes the answer. It reads the
//! tokenizer from the model file's header and asks no runtime. Invariant: the content of a message can never become a
//! control token. The way of a prompt: `template` (through `source`, `guard` and `python`) → `markers` → `pretokens` and `bpe`, or `spm`.

mod bpe;
mod bytelevel;
mod codec;
mod error;
mod guard;
mod markers;
mod merge;
mod pretokens;
mod python;
mod source;
mod spm;
mod stream;
mod table;
mod template;
mod vocab;
pub mod wire;

pub use codec::{Codec, CodecOptions, Dialect, TEXT_BYTES_MAX, UnknownDialect, WireChoice};
pub use error::CodecError;
pub use stream::{Piece, TextStream};

//! Why text could not become tokens, with a stable code and a way out.

use sf_core::{Fault, FaultKind};

/// A failure of the codec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The model's directory or bundle has no tokenizer.
    #[error("the {format} has no tokenizer.json (codec.no_tokenizer)")]
    NoTokenizer {
        /// The format.
        format: String,
    },
    /// A key of the tokenizer is missing.
    #[error("the model has no key {key:?} (codec.missing_key)")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A key of the tokenizer has another type than its meaning asks for.
    #[error("key {key:?} is {found}, expected {expected} (codec.key_type)")]
    KeyType {
        /// The key.
        key: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// Two arrays that describe the same tokens differ in length.
    #[error("key {key:?} has {value} entries, the vocabulary has {limit} (codec.vocabulary)")]
    VocabularyLength {
        /// The key.
        key: &'static str,
        /// Its length.
        value: usize,
        /// Tokens of the vocabulary.
        limit: usize,
    },
    /// Two tokens with the same text: nothing could tell which one is meant.
    #[error("tokens {first} and {second} have the same text {text:?} (codec.duplicate_token)")]
    DuplicateToken {
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
        /// Their text.
        text: String,
    },
    /// A tokenizer model that is not implemented.
    #[error(
        "tokenizer model {name:?} is not supported, supported are gpt2, gemma4 and whitespace (BPE), llama (SPM), bert (WordPiece) and t5 (unigram) (codec.tokenizer_unsupported)"
    )]
    TokenizerModel {
        /// `tokenizer.ggml.model`.
        name: String,
    },
    /// A pre-tokenizer that is not implemented.
    #[error("pre-tokenizer {name:?} is not supported (codec.pre_tokenizer_unsupported)")]
    PreTokenizer {
        /// `tokenizer.ggml.pre`.
        name: String,
    },
    /// A part of the tokenizer that is not implemented or contradicts itself.
    #[error("tokenizer, {part}: {reason} (codec.tokenizer_part)")]
    TokenizerPart {
        /// Which part: a key, a file, or a place in a file.
        part: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The chat template does not compile.
    #[error("chat template, line {line}: {message} (codec.template)")]
    Template {
        /// Line, from 1; 0 = unknown.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A template was asked for, but the model has none.
    #[error("the model has no chat template (codec.no_template)")]
    NoTemplate,
    /// The chat template failed on these messages.
    #[error("chat template failed in line {line}: {message} (codec.render)")]
    Render {
        /// Line, from 1; 0 = unknown.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// The chat template refused these messages, in its own words.
    #[error("the model's chat template refuses these messages: {0} (codec.refused)")]
    Refused(String),
    /// Tools were given to a chat template that never looks at them.
    #[error("the model's chat template shows no tools to the model (codec.no_tools)")]
    NoTools,
    /// A message has an image, and the chat template has no place for one.
    #[error("the model's chat template has no place for images (codec.no_images)")]
    NoImages,
    /// The last message cannot be gone on with.
    #[error(
        "the model's chat template does not write the last message as it is, or it has no text (codec.not_continued)"
    )]
    NotContinued,
    /// The model cannot chat.
    #[error("this model has no chat template, it only continues text (codec.no_chat)")]
    NoChat,
    /// More text than one call takes.
    #[error("text of {bytes} bytes, the limit is {limit} (codec.too_long)")]
    TooLong {
        /// Size of the text.
        bytes: usize,
        /// The most that is taken.
        limit: usize,
    },
    /// The messages use every private character there is, so none is left to keep their text apart from the template's.
    #[error("the messages use all 71934 private-use characters, one must be free (codec.no_sentinel)")]
    NoSentinel,
}

impl CodecError {
    /// The stable code, e.g. `codec.no_chat`.
    pub fn code(&self) -> &'static str {
        match self {
            CodecError::NoTokenizer { .. } => "codec.no_tokenizer",
            CodecError::MissingKey { .. } => "codec.missing_key",
            CodecError::KeyType { .. } => "codec.key_type",
            CodecError::VocabularyLength { .. } => "codec.vocabulary",
            CodecError::DuplicateToken { .. } => "codec.duplicate_token",
            CodecError::TokenizerModel { .. } => "codec.tokenizer_unsupported",
            CodecError::PreTokenizer { .. } => "codec.pre_tokenizer_unsupported",
            CodecError::TokenizerPart { .. } => "codec.tokenizer_part",
            CodecError::Template { .. } => "codec.template",
            CodecError::NoTemplate => "codec.no_template",
            CodecError::Render { .. } => "codec.render",
            CodecError::Refused(_) => "codec.refused",
            CodecError::NoTools => "codec.no_tools",
            CodecError::NoImages => "codec.no_images",
            CodecError::NotContinued => "codec.not_continued",
            CodecError::NoChat => "codec.no_chat",
            CodecError::TooLong { .. } => "codec.too_long",
            CodecError::NoSentinel => "codec.no_sentinel",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            CodecError::NoTokenizer { .. } => {
                "use a GGUF file of this model, or put its tokenizer.json beside its weights; a bundle is packed from there"
            }
            CodecError::TokenizerModel { .. }
            | CodecError::PreTokenizer { .. }
            | CodecError::TokenizerPart { .. } => "use another model, or a runtime that tokenizes by itself",
            CodecError::Template { .. } => "pass a corrected template with --chat-template FILE",
            CodecError::NoTemplate => "pass one with --chat-template FILE, or use --dialect chatml or raw",
            CodecError::Render { .. } | CodecError::Refused(_) => {
                "check the order and the roles of the messages against what the model expects"
            }
            CodecError::NoTools => {
                "leave the tools out, or pass a template that reads `tools` with --chat-template FILE"
            }
            CodecError::NoImages => "send text only, or use a model whose template takes images",
            CodecError::NotContinued => "end with a message of text, or leave out `continue_final_message`",
            CodecError::NoChat => "use /v1/completions, or pass a template with --chat-template FILE",
            CodecError::TooLong { .. } => "send less text",
            CodecError::NoSentinel => "leave out private-use characters",
            _ => "the file is damaged or was written by a faulty converter; fetch or convert it again",
        }
    }
}

impl From<CodecError> for Fault {
    /// What a request gets that the codec cannot serve: the same words, the code without its `codec.`.
    fn from(error: CodecError) -> Fault {
        let kind = match error {
            CodecError::Refused(_)
            | CodecError::Render { .. }
            | CodecError::NoSentinel
            | CodecError::NotContinued => FaultKind::Invalid,
            CodecError::NoChat | CodecError::NoTools | CodecError::NoImages => FaultKind::Unsupported,
            CodecError::TooLong { .. } => FaultKind::TooLarge,
            _ => FaultKind::Internal,
        };
        let code = error.code();
        let message = error.to_string();
        let message = message.strip_suffix(&format!(" ({code})")).unwrap_or(&message);
        Fault::new(kind, code.strip_prefix("codec.").unwrap_or(code), message).hint(error.hint())
    }
}

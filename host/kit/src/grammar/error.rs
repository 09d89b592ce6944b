//! Why answers cannot be held to a grammar.

use sf_core::limits::GRAMMAR_BYTES_MAX;
use thiserror::Error;

/// Why answers cannot be held to a grammar.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GrammarError {
    /// Nothing could end such an answer.
    #[error("the model has no end-of-text token, so nothing could end such an answer (grammar.no_end)")]
    NoEnd,
    /// The model's tokens are of no use to the automaton.
    #[error("no grammar works with this model's vocabulary: {why} (grammar.vocabulary)")]
    Vocabulary {
        /// In the automaton's words.
        why: String,
    },
    /// Longer than accepted.
    #[error("it has {bytes} bytes, accepted are {GRAMMAR_BYTES_MAX} (grammar.size)")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The system has no thread to compile it on.
    #[error("the system refuses a thread to compile it on; try again later (grammar.thread)")]
    NoThread,
    /// A schema that is not JSON, or no schema.
    #[error("the schema is not one: {why} (grammar.json)")]
    NotASchema {
        /// What is wrong with it.
        why: String,
    },
    /// It cannot be compiled.
    #[error("the {what} is refused{}: {reason} (grammar.refused)", place(.at))]
    Refused {
        /// `schema`, `regular expression` or `grammar`.
        what: &'static str,
        /// JSON pointer to the part of a schema that is at fault; empty = all of it.
        at: String,
        /// In the compiler's words.
        reason: String,
    },
    /// A keyword of JSON Schema that answers cannot be held to.
    #[error("the schema is refused{}: the keyword `{keyword}` is not supported, {instead} (grammar.keyword)", place(.at))]
    Keyword {
        /// JSON pointer to the part of the schema that says it; empty = the schema itself.
        at: String,
        /// The keyword.
        keyword: String,
        /// What to do about it.
        instead: &'static str,
    },
}

fn place(at: &str) -> String {
    if at.is_empty() { String::new() } else { format!(" at {at}") }
}

//! Compiles grammars against a model's vocabulary and keeps what was compiled last.
//!
//! The automaton is llguidance's; what is ours is its vocabulary, its limits, and errors that say where a schema is at
//! fault. Nothing here samples, and nothing here knows where a grammar came from.

mod beside;
mod error;
mod guide;
mod keywords;
mod schema;
mod soon;

pub use error::GrammarError;
pub use guide::Walk;
pub use keywords::ignored_keywords;

pub(crate) use beside::{MaskCost, Masks};
pub(crate) use guide::Guide;
pub(crate) use soon::{Compiler, Soon};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use sf_core::{Grammar, Vocabulary, limits};

/// Compiled grammars that are kept: the sets of tools and schemas that one server sees at a time are few.
const KEPT_MAX: usize = 32;
/// Stack of a thread that compiles, bytes of address space: the compiler calls itself once per link of a chain of references
/// or rules, and a grammar of the largest size has ten thousand.
const STACK_BYTES: usize = 512 << 20;
/// Bytes with this first one are control tokens to llguidance; as a token of its own it is in no valid text.
const CONTROL_MARK: u8 = 0xff;

/// The grammars of one model. What they share is built at the first one that is asked for.
pub struct Grammars {
    vocabulary: Arc<Vocabulary>,
    factory: OnceLock<Result<ParserFactory, GrammarError>>,
    /// The one used last stands at the end.
    kept: Mutex<Vec<(Grammar, Matcher)>>,
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars").field("tokens", &self.vocabulary.len()).finish_non_exhaustive()
    }
}

impl Grammars {
    /// For a model with these tokens.
    pub fn new(vocabulary: Arc<Vocabulary>) -> Grammars {
        Grammars { vocabulary, factory: OnceLock::new(), kept: Mutex::new(Vec::new()) }
    }

    /// Says whether answers can be held to a grammar.
    ///
    /// # Errors
    /// Why not: it is too long, malformed, or asks for what the automaton cannot do.
    pub fn check(&self, grammar: &Grammar) -> Result<(), GrammarError> {
        self.matcher(grammar).map(drop)
    }

    /// Makes what all grammars share, which the first one would wait for otherwise: about a second for a vocabulary of
    /// 256 Ki tokens on one CPU.
    pub fn prepare(&self) {
        let _ = self.factory();
    }

    /// A guide for one answer.
    pub(crate) fn guide(&self, grammar: &Grammar) -> Result<Guide, GrammarError> {
        self.matcher(grammar).map(Guide::new)
    }

    /// Walks through answers of a grammar.
    ///
    /// # Errors
    /// As [`Grammars::check`].
    pub fn walk(&self, grammar: &Grammar) -> Result<Walk, GrammarError> {
        self.guide(grammar).map(Walk::new)
    }

    fn matcher(&self, grammar: &Grammar) -> Result<Matcher, GrammarError> {
        if let Some(known) = self.known(grammar) {
            return Ok(known);
        }
        // Nobody waits for it who asks for another one.
        let matcher = self.compile(grammar)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.iter().any(|(known, _)| known == grammar) {
            return Ok(matcher);
        }
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        kept.push((grammar.clone(), matcher.deep_clone()));
        Ok(matcher)
    }

    fn known(&self, grammar: &Grammar) -> Option<Matcher> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == grammar)?;
        let found = kept.remove(at);
        // Of its own: what one answer does to the automaton's caches must not reach another's.
        let matcher = found.1.deep_clone();
        kept.push(found);
        Some(matcher)
    }

    fn factory(&self) -> Result<&ParserFactory, GrammarError> {
        self.factory.get_or_init(|| factory(&self.vocabulary)).as_ref().map_err(GrammarError::clone)
    }

    fn compile(&self, grammar: &Grammar) -> Result<Matcher, GrammarError> {
        let bytes = grammar.source().len();
        if bytes > limits::GRAMMAR_BYTES_MAX {
            return Err(GrammarError::TooLong { bytes });
        }
        let factory = self.factory()?;
        let work = || match grammar {
            Grammar::JsonSchema(text) => schema::compile(factory, text),
            Grammar::Regex(text) => parse(factory, "regular expression", TopLevelGrammar::from_regex(text)),
            Grammar::Lark(text) => parse(factory, "grammar", TopLevelGrammar::from_lark(text.to_string())),
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("sf-compile".to_owned()).stack_size(STACK_BYTES);
            let thread = thread.spawn_scoped(scope, work).map_err(|_| GrammarError::NoThread)?;
            thread.join().unwrap_or(Err(GrammarError::NoThread))
        })
    }
}

/// What all grammars of a vocabulary share: its tokens as a tree, and the masks of common pieces of JSON.
fn factory(vocabulary: &Vocabulary) -> Result<ParserFactory, GrammarError> {
    let Some(end) = vocabulary.eog().first() else { return Err(GrammarError::NoEnd) };
    // Whoever wrote the vocabulary is not trusted; the tree asserts what it expects of one.
    let built = catch_unwind(AssertUnwindSafe(|| {
        let words: Vec<Vec<u8>> = vocabulary
            .tokens()
            .map(|bytes| if bytes.first() == Some(&CONTROL_MARK) { Vec::new() } else { bytes.to_vec() })
            .collect();
        let info = TokRxInfo::new(vocabulary.len() as u32, end.0);
        let eog: Vec<u32> = vocabulary.eog().iter().map(|token| token.0).collect();
        let tree = TokTrie::from(&info, &words).with_eos_tokens(&eog);
        let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(tree));
        ParserFactory::new(&tokens, InferenceCapabilities::default(), &SlicedBiasComputer::json_slices())
    }));
    let unfit = |why: String| GrammarError::Vocabulary { why };
    let mut factory = built
        .map_err(|_| unfit("it breaks the token tree".to_owned()))?
        .map_err(|error| unfit(error.to_string()))?;
    factory.quiet();
    factory.limits_mut().verbose_errors = false;
    Ok(factory)
}

/// Makes the automaton of a grammar, in its first state.
fn parse(
    factory: &ParserFactory,
    what: &'static str,
    grammar: TopLevelGrammar,
) -> Result<Matcher, GrammarError> {
    let parsed = catch_unwind(AssertUnwindSafe(|| Matcher::new(factory.create_parser(grammar))));
    let refused = |reason: &str| GrammarError::Refused { what, at: String::new(), reason: one_line(reason) };
    let matcher = parsed.map_err(|_| refused("it breaks the compiler"))?;
    match matcher.get_error() {
        None => Ok(matcher),
        Some(error) => Err(refused(&error)),
    }
}

/// An error's text without the lines that show the grammar again.
fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.next().unwrap_or("it is refused without a reason");
    line[..line.floor_char_boundary(300)].to_owned()
}

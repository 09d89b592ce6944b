//! Every way in which a command line can be refused, and how the refusal reads.

use std::fmt;

/// A refused command line: what is wrong, and what to do.
///
/// `Display` is one phrase with a stable code and, when there is one, a `hint:` line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UsageError {
    /// What is wrong.
    pub problem: Problem,
    /// What to do.
    pub hint: Option<String>,
}

/// What is wrong with a command line. `flag` is the spelling that was used: `--port`, or `SUPERFLUID_PORT`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum Problem {
    #[error("no verb (usage.no_verb)")]
    NoVerb,
    #[error("{verb} is not a verb of superfluid (usage.unknown_verb)")]
    UnknownVerb { verb: String },
    #[error("superfluid {verb} is not in this build yet: {about} (usage.not_yet)")]
    VerbNotYet { verb: &'static str, about: &'static str },
    #[error("{flag} is not a flag of superfluid {verb} (usage.unknown_flag)")]
    UnknownFlag { flag: String, verb: &'static str },
    #[error("{flag} is not in this build yet: {about} (usage.not_yet)")]
    FlagNotYet { flag: String, about: String },
    #[error("{flag} {value} is not in this build yet (usage.not_yet)")]
    ValueNotYet { flag: String, value: String },
    #[error("{flag} needs a value: {accepts} (usage.no_value)")]
    NoValue { flag: String, accepts: String },
    #[error("{flag} takes no value, and got {value:?} (usage.value_not_taken)")]
    ValueNotTaken { flag: String, value: String },
    #[error("{flag} is {value:?}; accepted is {accepts} (usage.bad_value)")]
    BadValue { flag: String, value: String, accepts: String },
    #[error(
        "{flag} has a value that is not accepted: {accepts}; the value is a secret and not shown (usage.bad_value)"
    )]
    BadSecret { flag: String, accepts: String },
    #[error("{flag} is given twice (usage.given_twice)")]
    GivenTwice { flag: String },
    #[error("{value:?} is given twice (usage.given_twice)")]
    OperandTwice { value: String },
    #[error("{first} contradicts {second}: {why} (usage.contradiction)")]
    Contradiction { first: String, second: String, why: &'static str },
    #[error("superfluid {verb} needs {what} (usage.missing)")]
    Missing { verb: &'static str, what: &'static str },
    #[error("superfluid {verb} takes no argument {value:?} (usage.extra_argument)")]
    ExtraArgument { verb: &'static str, value: String },
    #[error("--runtime names the model {model:?}, which is not among the models given (usage.unknown_model)")]
    UnknownModel { model: String },
    #[error("argument {argument:?} is not UTF-8 (usage.not_utf8)")]
    NotUtf8 { argument: String },
}

impl UsageError {
    /// Exit code of every refused command line.
    pub const EXIT_CODE: u8 = 2;

    pub(crate) fn hint(problem: Problem, hint: impl Into<String>) -> Self {
        UsageError { problem, hint: Some(hint.into()) }
    }
}

impl From<Problem> for UsageError {
    fn from(problem: Problem) -> Self {
        UsageError { problem, hint: None }
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// The candidate nearest to what was typed, if it is near enough to be what was meant: at most a third of the
/// characters differ, and never more than four.
pub(crate) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let reach = (typed.chars().count() / 3).clamp(1, 4);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(typed, name), name))
        .filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

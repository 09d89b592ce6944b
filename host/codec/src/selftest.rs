//! What a model's text is put through once when it is loaded: tokenizer, chat template and wire on known input.
//!
//! It finds what a damaged file, a faulty conversion or a template that does not fit does to prompts and answers, before a
//! client sees it. A failed check says with which input, what was expected, what it means and what helps; it stops nothing.

mod template;
mod tokenizer;
mod wire;

use std::fmt;

use crate::codec::Codec;

/// One thing that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// Texts become tokens and the same texts again.
    TokenizerText,
    /// Every byte that UTF-8 has, has a token.
    TokenizerBytes,
    /// What single tokens stand for becomes tokens and the same text again.
    TokenizerPieces,
    /// Text that spells control tokens is text.
    TokenizerControls,
    /// A token ends answers.
    TokenizerEnds,
    /// One message renders.
    TemplateTurn,
    /// A question, its answer and another question render.
    TemplateTurns,
    /// A system message reaches the prompt, where the template takes one.
    TemplateSystem,
    /// The prompt opens the assistant's turn, where the template does that at all.
    TemplatePrompt,
    /// The prompt starts with one BOS at most.
    TemplateBos,
    /// A token that ends answers stands behind an assistant's message.
    TemplateEnds,
    /// A message that spells the template's marks does not become them.
    TemplateContent,
    /// A second later the prompt is the same.
    TemplateSteady,
    /// Marks that count only as tokens are tokens.
    WireMarks,
    /// A call as the template writes it is read as that call.
    WireCall,
}

impl Check {
    /// All of them, in the order in which they run.
    pub const ALL: [Check; 15] = [
        Check::TokenizerText,
        Check::TokenizerBytes,
        Check::TokenizerPieces,
        Check::TokenizerControls,
        Check::TokenizerEnds,
        Check::TemplateTurn,
        Check::TemplateTurns,
        Check::TemplateSystem,
        Check::TemplatePrompt,
        Check::TemplateBos,
        Check::TemplateEnds,
        Check::TemplateContent,
        Check::TemplateSteady,
        Check::WireMarks,
        Check::WireCall,
    ];

    /// Stable, e.g. `tokenizer.text`.
    pub fn name(self) -> &'static str {
        match self {
            Check::TokenizerText => "tokenizer.text",
            Check::TokenizerBytes => "tokenizer.bytes",
            Check::TokenizerPieces => "tokenizer.pieces",
            Check::TokenizerControls => "tokenizer.controls",
            Check::TokenizerEnds => "tokenizer.ends",
            Check::TemplateTurn => "template.turn",
            Check::TemplateTurns => "template.turns",
            Check::TemplateSystem => "template.system",
            Check::TemplatePrompt => "template.generation_prompt",
            Check::TemplateBos => "template.bos",
            Check::TemplateEnds => "template.ends",
            Check::TemplateContent => "template.content",
            Check::TemplateSteady => "template.steady",
            Check::WireMarks => "wire.marks",
            Check::WireCall => "wire.call",
        }
    }

    /// What a failure means for those who use the model.
    pub fn consequence(self) -> &'static str {
        match self {
            Check::TokenizerText | Check::TokenizerPieces => "prompts and answers lose or change text",
            Check::TokenizerBytes => "rare characters, emoji among them, are lost",
            Check::TokenizerControls => "a client's text can end a turn or pose as another role",
            Check::TokenizerEnds => "answers end at their token limit only",
            Check::TemplateTurn => "every chat request is refused",
            Check::TemplateTurns => "a chat ends after its first answer",
            Check::TemplateSystem => "system messages are refused or lost",
            Check::TemplatePrompt => "the model goes on with the user's message instead of answering it",
            Check::TemplateBos => "answers get worse: the model was trained with one BOS",
            Check::TemplateEnds => "answers may run on behind their end",
            Check::TemplateContent => "a client's message can pose as another role",
            Check::TemplateSteady => "prompts that begin alike are computed anew every second",
            Check::WireMarks => "tool calls are never seen: they stay text or vanish",
            Check::WireCall => "tool calls stay text",
        }
    }

    /// What helps.
    pub fn hint(self) -> &'static str {
        match self {
            Check::TokenizerText
            | Check::TokenizerBytes
            | Check::TokenizerPieces
            | Check::TokenizerControls => "fetch or convert the model again, its vocabulary is faulty",
            Check::TokenizerEnds => {
                "convert the model again with its end token, or let clients give stop strings"
            }
            Check::TemplateTurn | Check::TemplateTurns | Check::TemplateSystem => {
                "pass a corrected template with --chat-template FILE, or use --dialect chatml or raw"
            }
            Check::TemplatePrompt | Check::TemplateBos | Check::TemplateSteady => {
                "pass a corrected template with --chat-template FILE"
            }
            Check::TemplateEnds => {
                "pass the template that the model was trained with: --chat-template FILE or --dialect chatml"
            }
            Check::TemplateContent => {
                "convert the model again with its marks as control tokens; until then let no stranger write messages"
            }
            Check::WireMarks | Check::WireCall => {
                "name the right wire with --tool-call-parser, or pass the model's template with --chat-template FILE"
            }
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// With what a check failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What went in.
    pub input: String,
    /// What had to come out.
    pub expected: String,
    /// What came out.
    pub found: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {}: expected {}, found {}", self.input, self.expected, self.found)
    }
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It has no meaning for this model, and why.
    Skipped(&'static str),
    /// It does not hold.
    Failed(Finding),
}

/// One check and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Which one.
    pub check: Check,
    /// How it ended.
    pub outcome: Outcome,
}

/// Everything that was checked of one model, in the order of [`Check::ALL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfTest {
    /// One entry per check.
    pub checks: Vec<Checked>,
}

impl SelfTest {
    /// The checks that do not hold.
    pub fn failures(&self) -> impl Iterator<Item = (Check, &Finding)> {
        self.checks.iter().filter_map(|checked| match &checked.outcome {
            Outcome::Failed(finding) => Some((checked.check, finding)),
            Outcome::Passed | Outcome::Skipped(_) => None,
        })
    }

    /// Whether every check holds that has a meaning for the model.
    pub fn passed(&self) -> bool {
        self.failures().next().is_none()
    }

    /// How many checks hold.
    pub fn count_passed(&self) -> usize {
        self.checks.iter().filter(|checked| checked.outcome == Outcome::Passed).count()
    }
}

impl fmt::Display for SelfTest {
    /// `passed`, or `failed: ` and the names of the checks that do not hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.failures().map(|(check, _)| check.name());
        let Some(first) = names.next() else { return f.write_str("passed") };
        write!(f, "failed: {first}")?;
        names.try_for_each(|name| write!(f, ", {name}"))
    }
}

impl Codec {
    /// Puts the model's text through every check. Takes milliseconds; the same model gives the same report.
    pub fn self_test(&self) -> SelfTest {
        let run = |check| Checked { check, outcome: self.check(check) };
        SelfTest { checks: Check::ALL.map(run).into() }
    }

    fn check(&self, check: Check) -> Outcome {
        match check {
            Check::TokenizerText => tokenizer::text(self),
            Check::TokenizerBytes => tokenizer::bytes(self),
            Check::TokenizerPieces => tokenizer::pieces(self),
            Check::TokenizerControls => tokenizer::controls(self),
            Check::TokenizerEnds => tokenizer::ends(self),
            Check::TemplateTurn => template::turn(self),
            Check::TemplateTurns => template::turns(self),
            Check::TemplateSystem => template::system(self),
            Check::TemplatePrompt => template::generation_prompt(self),
            Check::TemplateBos => template::bos(self),
            Check::TemplateEnds => template::ends(self),
            Check::TemplateContent => template::content(self),
            Check::TemplateSteady => template::steady(self),
            Check::WireMarks => wire::marks(self),
            Check::WireCall => wire::call(self),
        }
    }
}

/// The outcome of a comparison.
fn same(input: impl fmt::Display, expected: &str, found: &str) -> Outcome {
    if expected == found {
        return Outcome::Passed;
    }
    failed(input, quoted(expected), quoted(found))
}

fn failed(input: impl fmt::Display, expected: impl fmt::Display, found: impl fmt::Display) -> Outcome {
    Outcome::Failed(Finding {
        input: input.to_string(),
        expected: expected.to_string(),
        found: found.to_string(),
    })
}

/// Most characters of a text in a report.
const QUOTE_CHARACTERS_MAX: usize = 120;

/// A text on one line, cut where it is long.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTE_CHARACTERS_MAX) {
        None => format!("{text:?}"),
        Some((at, _)) => format!("{:?}…", &text[..at]),
    }
}

/// The first outcome that is no pass.
fn first(mut outcomes: impl Iterator<Item = Outcome>) -> Outcome {
    outcomes.find(|outcome| *outcome != Outcome::Passed).unwrap_or(Outcome::Passed)
}

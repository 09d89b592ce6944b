//! What a row of the flag table says: name, group, kind of value, status, help.

use crate::verbs::Verb;

/// Heading under which `--help` shows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Which models.
    Models,
    /// Which runtime and its options.
    Runtime,
    /// In-process or worker.
    Process,
    /// Window, lanes, precision of the KV.
    Context,
    /// Operator overrides of sampling.
    Sampling,
    /// Where it listens and who may talk.
    Http,
    /// OpenAI files store.
    Files,
    /// Durable sessions.
    Sessions,
    /// KV on disk.
    Parking,
    /// How steps are shared out.
    Scheduling,
    /// Drafts.
    Speculation,
    /// Inline completion (FIM).
    Completion,
    /// Templates and tool wires.
    Text,
    /// Logs, traces, metrics, dashboard.
    Telemetry,
    /// Several nodes.
    Fleet,
    /// What the load generator sends.
    Load,
    /// What a model becomes.
    Conversion,
    /// Form of the output.
    Output,
    /// Accepted, no effect.
    Retired,
}

impl Group {
    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Models => "models",
            Group::Runtime => "runtime",
            Group::Process => "process",
            Group::Context => "context",
            Group::Sampling => "sampling (overrides what requests and models ask for)",
            Group::Http => "http",
            Group::Files => "files",
            Group::Sessions => "sessions",
            Group::Parking => "parking",
            Group::Scheduling => "scheduling",
            Group::Speculation => "speculation",
            Group::Completion => "completion (FIM)",
            Group::Text => "text",
            Group::Telemetry => "telemetry",
            Group::Fleet => "fleet",
            Group::Load => "load",
            Group::Conversion => "conversion",
            Group::Output => "output",
            Group::Retired => "retired",
        }
    }
}

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Nothing: it is there or not.
    Switch,
    /// Nothing; `--no-<name>` is its opposite.
    Toggle,
    /// Nothing; given several times it counts.
    Count,
    /// A whole number, or the given word.
    Int {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
        /// A word accepted in its place, e.g. `auto`.
        word: Option<&'static str>,
    },
    /// A number.
    Float {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// One of some words.
    Choice {
        /// Accepted.
        words: &'static [&'static str],
        /// Known, and not in this build yet.
        later: &'static [&'static str],
    },
    /// Any text that is not empty.
    Text,
    /// A path.
    Path,
    /// `HOST:PORT`.
    Address,
    /// Visible ASCII that is never shown again.
    Secret,
    /// A family of flags whose names begin with the row's name up to `<`.
    Family,
}

/// What happens to the value of a retired flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetiredValue {
    /// It never had one.
    None,
    /// It takes the next argument.
    Taken,
    /// It takes the next argument if that is a number.
    Number,
    /// It takes the next argument if that ends so.
    Ending(&'static str),
}

/// Whether this build honours a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Parsed into a setting.
    Ready,
    /// Refused by name; never ignored.
    NotYet,
    /// Accepted with one line that says what took its place.
    Retired {
        /// That line.
        replacement: &'static str,
        /// Its value.
        value: RetiredValue,
    },
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flag {
    /// Without the dashes.
    pub name: &'static str,
    /// Another name for the same.
    pub alias: Option<&'static str>,
    /// One-letter name.
    pub short: Option<char>,
    /// Heading in `--help`.
    pub group: Group,
    /// Verbs that take it.
    pub verbs: &'static [Verb],
    /// What it takes.
    pub kind: Kind,
    /// What stands for the value in help, e.g. `N`.
    pub placeholder: &'static str,
    /// Value when not given, in words; empty = none.
    pub default: &'static str,
    /// May be given several times.
    pub repeatable: bool,
    /// Whether this build honours it.
    pub status: Status,
    /// One or two lines.
    pub help: &'static str,
}

const SERVE: &[Verb] = &[Verb::Serve];

/// A `serve` flag that is ready; the methods below change it.
pub(crate) const fn flag(name: &'static str, group: Group, kind: Kind, help: &'static str) -> Flag {
    let placeholder = match kind {
        Kind::Switch | Kind::Toggle | Kind::Count => "",
        Kind::Int { word: None, .. } => "N",
        Kind::Int { .. } => "N|auto",
        Kind::Float { .. } => "X",
        Kind::Choice { .. } => "WORD",
        Kind::Text => "TEXT",
        Kind::Path => "PATH",
        Kind::Address => "HOST:PORT",
        Kind::Secret => "KEY",
        Kind::Family => "[V]",
    };
    Flag {
        name,
        alias: None,
        short: None,
        group,
        verbs: SERVE,
        kind,
        placeholder,
        default: "",
        repeatable: false,
        status: Status::Ready,
        help,
    }
}

/// A `serve` flag of a later build; its value is not looked at.
pub(crate) const fn later(name: &'static str, group: Group, kind: Kind, help: &'static str) -> Flag {
    let mut row = flag(name, group, kind, help);
    row.status = Status::NotYet;
    row
}

/// A retired `serve` flag.
pub(crate) const fn retired(name: &'static str, value: RetiredValue, replacement: &'static str) -> Flag {
    let mut row = flag(name, Group::Retired, Kind::Switch, replacement);
    row.status = Status::Retired { replacement, value };
    row
}

impl Flag {
    pub(crate) const fn on(mut self, verbs: &'static [Verb]) -> Self {
        self.verbs = verbs;
        self
    }

    pub(crate) const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }

    pub(crate) const fn short(mut self, short: char) -> Self {
        self.short = Some(short);
        self
    }

    pub(crate) const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    pub(crate) const fn shown_as(mut self, placeholder: &'static str) -> Self {
        self.placeholder = placeholder;
        self
    }

    pub(crate) const fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// The environment variable that stands for it: `SUPERFLUID_MAX_CONTEXT`.
    pub fn env(&self) -> String {
        env_name(self.name)
    }

    /// Whether it needs a value on the command line.
    pub fn takes_value(&self) -> bool {
        !matches!(self.kind, Kind::Switch | Kind::Toggle | Kind::Count | Kind::Family)
    }

    /// What values it accepts, for messages and help; empty for a flag without a value.
    pub fn accepts(&self) -> String {
        match self.kind {
            Kind::Switch | Kind::Toggle | Kind::Family => String::new(),
            Kind::Count => "a number from 0 to 9".into(),
            Kind::Int { min, max, word: None } => format!("a whole number from {min} to {max}"),
            Kind::Int { min, max, word: Some(word) } => {
                format!("a whole number from {min} to {max}, or {word}")
            }
            Kind::Float { min, max } => format!("a number from {min} to {max}"),
            Kind::Choice { words, .. } => format!("one of {}", words.join(", ")),
            Kind::Text => "a text that is not empty".into(),
            Kind::Path => "a path".into(),
            Kind::Address => "HOST:PORT, e.g. 127.0.0.1:8453 or [::1]:8453".into(),
            Kind::Secret => "1 to 512 visible ASCII characters without spaces".into(),
        }
    }
}

/// The environment variable of a flag.
pub(crate) fn env_name(flag: &str) -> String {
    let tail: String =
        flag.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    format!("SUPERFLUID_{tail}")
}

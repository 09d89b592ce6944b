//! From words to matched rows: which flag each argument is, its value, and what contradicts what.

use std::ffi::OsString;

use crate::Env;
use crate::error::{Problem, UsageError, nearest};
use crate::flags::FLAGS;
use crate::runtime_options::{RuntimeFlag, RuntimeOption, RuntimeOptions, RuntimeValue};
use crate::table::{Flag, Kind, RetiredValue, Status};
use crate::value::{Value, on_off, read};
use crate::verbs::Verb;

/// A row that was given.
struct Given {
    flag: &'static Flag,
    /// As written: `--port`, `SUPERFLUID_PORT`.
    spelled: String,
    value: Value,
    from_env: bool,
}

/// What the words after the verb say.
pub(crate) struct Matches {
    verb: Verb,
    given: Vec<Given>,
    /// Options of runtimes, in the order given.
    pub(crate) runtime: Vec<RuntimeFlag>,
    /// Bare arguments and, in `serve`, `--model`, in the order given.
    pub(crate) operands: Vec<String>,
    /// One line per retired flag.
    pub(crate) notices: Vec<String>,
}

/// Pairs that cannot both be given.
const EXCLUSIVE: &[(&str, &str, &str)] = &[
    ("http", "host", "--http already names the host"),
    ("http", "port", "--http already names the port"),
    ("no-http", "http", "there is nothing to listen on"),
    ("no-http", "host", "there is nothing to listen on"),
    ("no-http", "port", "there is nothing to listen on"),
    ("no-http", "api-key", "there is nobody to ask for a key"),
    ("no-http", "http-default-qos", "there is nothing to listen on"),
    ("no-http", "no-http-qos-header", "there is nothing to listen on"),
    ("clients", "rate", "a loop is closed or open"),
];

/// What a flag's name stands for.
enum Found<'a> {
    Row { flag: &'static Flag, on: bool },
    Option(&'a RuntimeOption),
}

/// The rows of one verb.
pub(crate) fn rows(verb: Verb) -> impl Iterator<Item = &'static Flag> {
    FLAGS.iter().filter(move |flag| flag.verbs.contains(&verb))
}

/// The UTF-8 text of each argument.
pub(crate) fn texts(args: &[OsString]) -> Result<Vec<&str>, UsageError> {
    args.iter()
        .map(|arg| {
            let refused = || Problem::NotUtf8 { argument: arg.to_string_lossy().into_owned() };
            arg.to_str().ok_or_else(|| refused().into())
        })
        .collect()
}

/// Whether help is asked for before anything else counts.
pub(crate) fn asks_for_help(words: &[&str]) -> bool {
    words.iter().take_while(|word| **word != "--").any(|word| matches!(*word, "--help" | "-h"))
}

/// Matches the words after the verb, then the environment.
pub(crate) fn matches(
    verb: Verb,
    words: &[&str],
    env: Env<'_>,
    options: &dyn RuntimeOptions,
) -> Result<Matches, UsageError> {
    let mut reader = Reader {
        options: if takes_runtime_options(verb) { options.options() } else { &[] },
        found: Matches { verb, given: vec![], runtime: vec![], operands: vec![], notices: vec![] },
        words,
    };
    reader.arguments()?;
    reader.environment(env)?;
    reader.found.contradictions()?;
    Ok(reader.found)
}

/// Verbs that load a model take the options of its runtime.
pub(crate) fn takes_runtime_options(verb: Verb) -> bool {
    matches!(verb, Verb::Serve | Verb::Run)
}

struct Reader<'a> {
    options: &'a [RuntimeOption],
    found: Matches,
    /// What is still to be read.
    words: &'a [&'a str],
}

impl<'a> Reader<'a> {
    fn arguments(&mut self) -> Result<(), UsageError> {
        while let Some((word, rest)) = self.words.split_first() {
            self.words = rest;
            if *word == "--" {
                self.found.operands.extend(rest.iter().map(|word| (*word).to_owned()));
                break;
            } else if let Some(long) = word.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (long, None),
                };
                self.long(name, value)?;
            } else if word.len() > 1 && word.starts_with('-') {
                self.short(word)?;
            } else {
                self.found.operands.push((*word).to_owned());
            }
        }
        Ok(())
    }

    fn long(&mut self, name: &str, value: Option<&str>) -> Result<(), UsageError> {
        let spelled = format!("--{name}");
        match self.look_up(name) {
            None => Err(self.unknown(&spelled, name)),
            Some(Found::Option(option)) => self.option(option, &spelled, value),
            Some(Found::Row { flag, on }) => self.row(flag, on, spelled, value),
        }
    }

    fn look_up(&self, name: &str) -> Option<Found<'a>> {
        let verb = self.found.verb;
        let exact = |flag: &&Flag| flag.name == name || flag.alias == Some(name);
        if let Some(flag) = rows(verb).find(exact) {
            return Some(Found::Row { flag, on: true });
        }
        let negated = name.strip_prefix("no-");
        if let Some(flag) = rows(verb).find(|flag| flag.kind == Kind::Toggle && Some(flag.name) == negated) {
            return Some(Found::Row { flag, on: false });
        }
        if let Some(option) = self.options.iter().find(|option| option.flag() == name) {
            return Some(Found::Option(option));
        }
        let family = |flag: &&Flag| {
            let stem = flag.name.split('<').next().unwrap_or_default();
            flag.kind == Kind::Family && name.len() > stem.len() && name.starts_with(stem)
        };
        rows(verb).find(family).map(|flag| Found::Row { flag, on: true })
    }

    fn unknown(&self, spelled: &str, name: &str) -> UsageError {
        let verb = self.found.verb;
        let mut known: Vec<String> = Vec::new();
        for flag in rows(verb).filter(|flag| !matches!(flag.status, Status::Retired { .. })) {
            known.push(flag.name.into());
            known.extend(flag.alias.map(str::to_owned));
            if flag.kind == Kind::Toggle {
                known.push(format!("no-{}", flag.name));
            }
        }
        known.extend(self.options.iter().map(RuntimeOption::flag));
        let problem = Problem::UnknownFlag { flag: spelled.into(), verb: verb.name() };
        let rows = FLAGS.iter().filter(|flag| flag.name == name);
        let elsewhere: Vec<Verb> = rows.flat_map(|flag| flag.verbs.iter().copied()).collect();
        let hint = match (nearest(name, known.iter().map(String::as_str)), elsewhere.as_slice()) {
            (Some(near), _) => format!("did you mean --{near}?"),
            (None, verbs @ [_, ..]) => {
                let verbs: Vec<_> = verbs.iter().map(|verb| format!("superfluid {}", verb.name())).collect();
                format!("it is a flag of {}", verbs.join(" and "))
            }
            (None, []) if takes_runtime_options(verb) => format!(
                "superfluid help {} lists them all; a runtime's own options are known once superfluid runtimes shows it",
                verb.name()
            ),
            (None, []) => format!("superfluid help {} lists them all", verb.name()),
        };
        UsageError::hint(problem, hint)
    }

    fn short(&mut self, word: &str) -> Result<(), UsageError> {
        for letter in word[1..].chars() {
            let found = rows(self.found.verb).find(|flag| flag.short == Some(letter));
            let flag = found.ok_or_else(|| self.unknown(word, &word[1..]))?;
            self.row(flag, true, format!("-{letter}"), None)?;
        }
        Ok(())
    }

    /// The next word, taken as a value. A word that begins with `--` is a flag, never a value.
    fn next_value(&mut self) -> Option<&'a str> {
        let (value, rest) = self.words.split_first()?;
        if value.starts_with("--") {
            return None;
        }
        self.words = rest;
        Some(value)
    }

    fn next_value_if(&mut self, accepted: impl Fn(&str) -> bool) -> Option<&'a str> {
        let value = self.words.first().copied().filter(|value| accepted(value))?;
        self.words = &self.words[1..];
        Some(value)
    }

    fn row(
        &mut self,
        flag: &'static Flag,
        on: bool,
        spelled: String,
        value: Option<&str>,
    ) -> Result<(), UsageError> {
        match flag.status {
            Status::NotYet => return Err(not_yet(flag, spelled)),
            Status::Retired { replacement, value: shape } => {
                if value.is_none() {
                    self.skip_retired_value(shape, &spelled)?;
                }
                self.found.notices.push(retired_line(&spelled, replacement));
                return Ok(());
            }
            Status::Ready => {}
        }
        let value = match (flag.takes_value(), value) {
            (true, Some(value)) => read(flag, &spelled, value)?,
            (true, None) => {
                let missing = Problem::NoValue { flag: spelled.clone(), accepts: flag.accepts() };
                read(flag, &spelled, self.next_value().ok_or(missing)?)?
            }
            (false, Some(value)) => {
                let value = value.to_owned();
                return Err(Problem::ValueNotTaken { flag: spelled, value }.into());
            }
            (false, None) if flag.kind == Kind::Count => Value::Int(1),
            (false, None) => Value::On(on),
        };
        self.found.add(Given { flag, spelled, value, from_env: false })
    }

    fn skip_retired_value(&mut self, shape: RetiredValue, spelled: &str) -> Result<(), UsageError> {
        match shape {
            RetiredValue::None => {}
            RetiredValue::Taken => {
                let missing =
                    Problem::NoValue { flag: spelled.into(), accepts: "any; it has no effect".into() };
                self.next_value().ok_or(missing)?;
            }
            RetiredValue::Number => {
                self.next_value_if(|value| value.parse::<f64>().is_ok());
            }
            RetiredValue::Ending(ending) => {
                self.next_value_if(|value| value.ends_with(ending));
            }
        }
        Ok(())
    }

    fn option(
        &mut self,
        option: &RuntimeOption,
        spelled: &str,
        value: Option<&str>,
    ) -> Result<(), UsageError> {
        let value = match (option.value, value) {
            (_, Some(value)) => value,
            (RuntimeValue::Bool, None) => self.next_value_if(|value| on_off(value).is_some()).unwrap_or("on"),
            (_, None) => {
                let accepts = match option.accepts.as_str() {
                    "" => option.placeholder(),
                    accepts => accepts,
                };
                let missing = Problem::NoValue { flag: spelled.into(), accepts: accepts.into() };
                self.next_value().ok_or(missing)?
            }
        };
        let same = |given: &RuntimeFlag| given.runtime == option.runtime && given.key == option.key;
        if self.found.runtime.iter().any(same) {
            return Err(Problem::GivenTwice { flag: spelled.into() }.into());
        }
        let (runtime, key) = (option.runtime.clone(), option.key.clone());
        self.found.runtime.push(RuntimeFlag { runtime, key, value: value.into() });
        Ok(())
    }

    /// Variables of flags that were not given. Empty = not set.
    fn environment(&mut self, env: Env<'_>) -> Result<(), UsageError> {
        for flag in rows(self.found.verb).filter(|flag| flag.kind != Kind::Family) {
            if self.found.has(flag) || self.found.overruled(flag.name) {
                continue;
            }
            let spelled = flag.env();
            let Some(text) = env(&spelled).filter(|text| !text.is_empty()) else { continue };
            match flag.status {
                Status::NotYet => return Err(not_yet(flag, spelled)),
                Status::Retired { replacement, .. } => {
                    self.found.notices.push(retired_line(&spelled, replacement));
                }
                Status::Ready => {
                    let value = read(flag, &spelled, &text)?;
                    self.found.add(Given { flag, spelled, value, from_env: true })?;
                }
            }
        }
        for option in self.options {
            let given = |given: &RuntimeFlag| given.runtime == option.runtime && given.key == option.key;
            if self.found.runtime.iter().any(given) {
                continue;
            }
            if let Some(value) = env(&option.env()).filter(|text| !text.is_empty()) {
                let (runtime, key) = (option.runtime.clone(), option.key.clone());
                self.found.runtime.push(RuntimeFlag { runtime, key, value });
            }
        }
        Ok(())
    }
}

fn not_yet(flag: &'static Flag, spelled: String) -> UsageError {
    let hint = "leave it out; --help lists what this build takes";
    let about = flag.help.trim_end_matches('.');
    // A sentence in help, a phrase here; abbreviations keep their capitals.
    let phrase = match about.as_bytes() {
        [_, second, ..] if second.is_ascii_uppercase() => about.to_owned(),
        [first, ..] => format!("{}{}", first.to_ascii_lowercase() as char, &about[1..]),
        [] => String::new(),
    };
    UsageError::hint(Problem::FlagNotYet { flag: spelled, about: phrase }, hint)
}

fn retired_line(spelled: &str, replacement: &str) -> String {
    format!("{spelled} has no effect any more: {replacement}")
}

impl Matches {
    /// The verb whose rows these are.
    pub(crate) fn verb(&self) -> Verb {
        self.verb
    }

    fn add(&mut self, given: Given) -> Result<(), UsageError> {
        if given.flag.name == "model" && self.verb == Verb::Serve {
            if let Value::Text(model) = given.value {
                self.operands.push(model);
            }
            return Ok(());
        }
        let Some(index) = self.given.iter().position(|earlier| earlier.flag == given.flag) else {
            self.given.push(given);
            return Ok(());
        };
        let earlier = &mut self.given[index];
        match (&mut earlier.value, &given.value) {
            _ if given.flag.repeatable => self.given.push(given),
            (Value::Int(count), Value::Int(more)) if given.flag.kind == Kind::Count => *count += more,
            (Value::On(before), Value::On(now)) if before != now => {
                let (first, second) = (earlier.spelled.clone(), given.spelled);
                return Err(Problem::Contradiction { first, second, why: "they are opposites" }.into());
            }
            _ => return Err(Problem::GivenTwice { flag: given.spelled }.into()),
        }
        Ok(())
    }

    /// Whether the command line gives this row. A served model may also be a bare argument.
    fn has(&self, flag: &Flag) -> bool {
        let bare = flag.name == "model" && self.verb == Verb::Serve && !self.operands.is_empty();
        bare || self.given.iter().any(|given| given.flag == flag)
    }

    /// Whether a flag of the command line excludes this one, so that its variable does not count.
    fn overruled(&self, name: &str) -> bool {
        EXCLUSIVE.iter().any(|(a, b, _)| {
            let by = |other: &str| self.given.iter().any(|given| !given.from_env && given.flag.name == other);
            (*a == name && by(b)) || (*b == name && by(a))
        })
    }

    fn contradictions(&self) -> Result<(), UsageError> {
        let given = |name: &str| self.given.iter().find(|given| given.flag.name == name && self.is_on(name));
        for (a, b, why) in EXCLUSIVE {
            if let (Some(first), Some(second)) = (given(a), given(b)) {
                let (first, second) = (first.spelled.clone(), second.spelled.clone());
                return Err(Problem::Contradiction { first, second, why }.into());
            }
        }
        Ok(())
    }

    /// False for a switch that a variable sets to off.
    fn is_on(&self, name: &str) -> bool {
        !matches!(self.value(name), Some(Value::On(false)))
    }

    fn value(&self, name: &str) -> Option<&Value> {
        debug_assert!(rows(self.verb).any(|flag| flag.name == name), "{name} is a row of this verb");
        self.given.iter().find(|given| given.flag.name == name).map(|given| &given.value)
    }

    /// How a row was written, for messages; `--name` when it was not given.
    pub(crate) fn spelled(&self, name: &str) -> String {
        let given = self.given.iter().find(|given| given.flag.name == name);
        given.map_or_else(|| format!("--{name}"), |given| given.spelled.clone())
    }

    /// A switch or toggle.
    pub(crate) fn on(&self, name: &str) -> Option<bool> {
        match self.value(name)? {
            Value::On(on) => Some(*on),
            _ => None,
        }
    }

    /// A whole number or count. Rows keep numbers within `u32`.
    pub(crate) fn int(&self, name: &str) -> Option<u32> {
        match self.value(name)? {
            Value::Int(int) => {
                Some(u32::try_from(*int).expect("ranges of ready rows lie in u32; a test holds it"))
            }
            _ => None,
        }
    }

    /// A number.
    pub(crate) fn float(&self, name: &str) -> Option<f32> {
        match self.value(name)? {
            Value::Float(float) => Some(*float as f32),
            _ => None,
        }
    }

    /// A word of a choice, or the word in a number's place.
    pub(crate) fn word(&self, name: &str) -> Option<&'static str> {
        match self.value(name)? {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The texts of a repeatable flag.
    pub(crate) fn texts(&self, name: &str) -> Vec<&str> {
        let same = self.given.iter().filter(|given| given.flag.name == name);
        same.filter_map(|given| match &given.value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
    }
}

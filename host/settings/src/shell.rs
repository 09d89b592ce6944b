//! Completion scripts and the manual page, generated from the tables.

use std::fmt::Write as _;

use crate::flags::FLAGS;
use crate::help::{description, groups, spelling};
use crate::parse::{rows, takes_runtime_options};
use crate::runtime_options::{RuntimeOptions, RuntimeValue};
use crate::settings::Shell;
use crate::table::{Flag, Kind, Status};
use crate::verbs::{VERBS, Verb};

/// One flag as a shell completes it.
struct Word {
    /// With dashes.
    flag: String,
    help: String,
    takes_value: bool,
    /// Its values, if they are words.
    words: Vec<&'static str>,
    /// Its value is a file.
    file: bool,
}

/// A completion script for the verbs and flags of this build and the options of the given runtimes.
pub fn completions(shell: Shell, options: &dyn RuntimeOptions) -> String {
    match shell {
        Shell::Bash => bash(options),
        Shell::Zsh => zsh(options),
        Shell::Fish => fish(options),
    }
}

fn verbs() -> impl Iterator<Item = (Verb, &'static str, &'static str)> {
    VERBS.iter().filter_map(|row| row.verb.map(|verb| (verb, row.name, row.about)))
}

fn words(verb: Verb, options: &dyn RuntimeOptions) -> Vec<Word> {
    let mut all: Vec<Word> = Vec::new();
    for flag in rows(verb).filter(|flag| flag.status == Status::Ready) {
        let word = |name: String| Word {
            flag: name,
            help: flag.help.replace(['\'', '"', '`', '$', '[', ']', ':', '\\'], ""),
            takes_value: flag.takes_value(),
            words: match flag.kind {
                Kind::Choice { words, .. } => words.to_vec(),
                Kind::Int { word, .. } => word.into_iter().collect(),
                _ => Vec::new(),
            },
            file: matches!(flag.kind, Kind::Path) || matches!(flag.name, "model" | "runtime"),
        };
        all.push(word(format!("--{}", flag.name)));
        all.extend(flag.alias.map(|alias| word(format!("--{alias}"))));
        all.extend(flag.short.map(|short| word(format!("-{short}"))));
        if flag.kind == Kind::Toggle {
            all.push(word(format!("--no-{}", flag.name)));
        }
    }
    if takes_runtime_options(verb) {
        all.extend(options.options().iter().map(|option| Word {
            flag: format!("--{}", option.flag()),
            help: option.help.replace(['\'', '"', '`', '$', '[', ']', ':', '\\', '\n'], ""),
            takes_value: option.value != RuntimeValue::Bool,
            words: Vec::new(),
            file: false,
        }));
    }
    all.push(Word {
        flag: "--help".into(),
        help: "Print help.".into(),
        takes_value: false,
        words: vec![],
        file: false,
    });
    all
}

/// What a verb's bare arguments complete to: words, or files.
fn operand_words(verb: Verb) -> &'static str {
    match verb {
        Verb::Completions => "bash zsh fish",
        Verb::Help => "serve run runtimes completions man version",
        _ => "",
    }
}

fn bash(options: &dyn RuntimeOptions) -> String {
    let mut cases = String::new();
    for (verb, name, _) in verbs() {
        let words = words(verb, options);
        let flags: Vec<&str> = words.iter().map(|word| word.flag.as_str()).collect();
        let _ = writeln!(cases, "    '{name}')\n      flags='{}'", flags.join(" "));
        let _ = writeln!(cases, "      operands='{}'", operand_words(verb));
        cases.push_str("      case \"$prev\" in\n");
        for word in words.iter().filter(|word| word.takes_value) {
            let reply = match (word.words.as_slice(), word.file) {
                ([], true) => "COMPREPLY=($(compgen -f -- \"$cur\"))".to_owned(),
                ([], false) => "COMPREPLY=()".to_owned(),
                (words, _) => format!("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", words.join(" ")),
            };
            let _ = writeln!(cases, "        {}) {reply}; return ;;", word.flag);
        }
        cases.push_str("      esac ;;\n");
    }
    let names: Vec<&str> = verbs().map(|(_, name, _)| name).filter(|name| !name.contains(' ')).collect();
    let names = names.join(" ");
    format!(
        r#"# bash completion for superfluid, generated from its flag table
_superfluid() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" verb="${{COMP_WORDS[1]}}" flags='' operands=''
  if [[ $COMP_CWORD -eq 1 ]]; then
    COMPREPLY=($(compgen -W '{names} --help --version' -- "$cur"))
    return
  fi
  [[ $verb == runtimes && ${{COMP_WORDS[2]}} == verify && $COMP_CWORD -gt 2 ]] && verb='runtimes verify'
  case "$verb" in
{cases}  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ -n $operands ]]; then
    COMPREPLY=($(compgen -W "$operands" -- "$cur"))
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -o filenames -F _superfluid superfluid
"#
    )
}

fn zsh(options: &dyn RuntimeOptions) -> String {
    let mut list = String::new();
    let mut cases = String::new();
    for (verb, name, about) in verbs() {
        if !name.contains(' ') {
            let _ = writeln!(list, "    '{name}:{}'", about.replace([':', '\''], ""));
        }
        let _ = writeln!(cases, "    '{name}')\n      _arguments \\");
        for word in words(verb, options) {
            let value = match (word.takes_value, word.words.as_slice(), word.file) {
                (false, ..) => String::new(),
                (true, [], true) => ":file:_files".into(),
                (true, [], false) => ":value:".into(),
                (true, words, _) => format!(":value:({})", words.join(" ")),
            };
            let _ = writeln!(cases, "        '*{}[{}]{value}' \\", word.flag, word.help);
        }
        match operand_words(verb) {
            "" => cases.push_str("        '*:file:_files' ;;\n"),
            words => {
                let _ = writeln!(cases, "        '*:word:({words})' ;;");
            }
        }
    }
    format!(
        r#"#compdef superfluid
# zsh completion for superfluid, generated from its flag table
_superfluid() {{
  local -a verbs=(
{list}  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  local verb="$words[2]"
  shift words; (( CURRENT-- ))
  if [[ $verb == runtimes && $words[2] == verify && $CURRENT -gt 2 ]]; then
    verb='runtimes verify'
    shift words; (( CURRENT-- ))
  fi
  case "$verb" in
{cases}  esac
}}
compdef _superfluid superfluid
"#
    )
}

fn fish(options: &dyn RuntimeOptions) -> String {
    let mut out = String::from("# fish completion for superfluid, generated from its flag table\n");
    for (verb, name, about) in verbs() {
        let about = about.replace('\'', "");
        let when = match name.split_once(' ') {
            None => {
                let _ = writeln!(
                    out,
                    "complete -c superfluid -n __fish_use_subcommand -f -a {name} -d '{about}'"
                );
                name
            }
            Some((first, second)) => {
                let _ = writeln!(
                    out,
                    "complete -c superfluid -n '__fish_seen_subcommand_from {first}' -a {second} -d '{about}'"
                );
                second
            }
        };
        let condition = format!("__fish_seen_subcommand_from {when}");
        for word in words(verb, options) {
            let name = match word.flag.strip_prefix("--") {
                Some(long) => format!("-l {long}"),
                None => format!("-s {}", &word.flag[1..]),
            };
            let value = match (word.takes_value, word.words.as_slice(), word.file) {
                (false, ..) => String::new(),
                (true, [], true) => " -r -F".into(),
                (true, [], false) => " -x".into(),
                (true, words, _) => format!(" -x -a '{}'", words.join(" ")),
            };
            let _ = writeln!(out, "complete -c superfluid -n '{condition}' {name}{value} -d '{}'", word.help);
        }
        if !operand_words(verb).is_empty() {
            let _ = writeln!(out, "complete -c superfluid -n '{condition}' -f -a '{}'", operand_words(verb));
        }
    }
    out
}

/// The manual page in roff.
pub fn manual() -> String {
    let mut out = String::from(
        ".TH SUPERFLUID 1\n.SH NAME\nsuperfluid \\- serve language models on any runtime\n.SH SYNOPSIS\n.B superfluid\n\
         .I verb\n[arguments] [flags]\n.SH VERBS\n",
    );
    for row in VERBS {
        let missing = if row.verb.is_none() { " (not in this build yet)" } else { "" };
        let name = roff(format!("{} {}", row.name, row.operands).trim_end());
        let _ = writeln!(out, ".TP\n.B {name}\n{}{missing}", roff(row.about));
    }
    for group in groups() {
        let _ = writeln!(out, ".SH FLAGS: {}", roff(&group.title().to_uppercase()));
        for flag in FLAGS.iter().filter(|flag| flag.group == group) {
            let _ = writeln!(out, ".TP\n.B {}\n{}", roff(&spelling(flag)), roff(&manual_text(flag)));
        }
    }
    out.push_str(".SH ENVIRONMENT\n");
    out.push_str(&roff(
        "SUPERFLUID_<NAME> stands for --<name>, in capitals and with underscores; a flag on the command line wins. \
         SUPERFLUID_RUNTIMES replaces the places where runtimes are looked for, SUPERFLUID_RUNTIMES_ADD adds to them.",
    ));
    out.push_str("\n.SH EXIT STATUS\n");
    for (code, meaning) in [
        ("0", "done"),
        ("1", "failed along the way"),
        ("2", "usage, or a request that this runtime or model cannot honour"),
        ("4", "a runtime that is not installed here or cannot run here"),
    ] {
        let _ = writeln!(out, ".TP\n.B {code}\n{meaning}");
    }
    out
}

fn manual_text(flag: &Flag) -> String {
    let verbs: Vec<&str> = flag.verbs.iter().map(|verb| verb.name()).collect();
    let verbs = verbs.join(", ");
    match flag.status {
        Status::Ready => format!("{} ({verbs})", description(flag)),
        Status::NotYet => format!("{} ({verbs}; not in this build yet)", flag.help),
        Status::Retired { replacement, .. } => format!("No effect any more: {replacement}."),
    }
}

fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

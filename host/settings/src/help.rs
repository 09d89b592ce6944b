//! Help text from the tables, wrapped at [`WIDTH`] columns.

use std::fmt::Write as _;

use crate::flags::FLAGS;
use crate::parse::{rows, takes_runtime_options};
use crate::runtime_options::{RuntimeOption, RuntimeOptions};
use crate::table::{Flag, Group, Kind, Status};
use crate::verbs::{VERBS, Verb};

/// Columns of every help text.
pub(crate) const WIDTH: usize = 100;
/// Column at which descriptions begin.
const TEXT_AT: usize = 34;

/// `superfluid help`: the verbs, what is still missing, where to go on.
pub fn overview() -> String {
    let mut out =
        String::from("superfluid - serve language models on any runtime\n\nusage: superfluid <verb> ...\n\n");
    for row in VERBS.iter().filter(|row| row.verb.is_some()) {
        let line = format!("{} {}", row.name, row.operands);
        entry(&mut out, line.trim_end(), row.about);
    }
    out.push_str("\nnot in this build yet\n");
    let missing: Vec<&str> = VERBS.iter().filter(|row| row.verb.is_none()).map(|row| row.name).collect();
    paragraph(&mut out, &missing.join(", "), 2);
    out.push_str("\nsuperfluid help <verb> shows its flags.\n");
    paragraph(
        &mut out,
        "Exit codes: 0 done; 1 failed along the way; 2 usage, or what this runtime or model cannot do; 4 a runtime that \
         is not installed here or cannot run here.",
        0,
    );
    out
}

/// `superfluid help <verb>`: usage, examples, flags by group, the options of each runtime, what is missing.
pub fn help(verb: Verb, options: &dyn RuntimeOptions) -> String {
    let row = verb.row();
    let mut out = String::new();
    paragraph(&mut out, &format!("superfluid {} - {}", row.name, row.about), 0);
    let _ = write!(out, "\nusage: superfluid {}", row.name);
    if !row.operands.is_empty() {
        let _ = write!(out, " {}", row.operands);
    }
    let ready: Vec<&Flag> = rows(verb).filter(|flag| flag.status == Status::Ready).collect();
    out.push_str(if ready.is_empty() { "\n" } else { " [flags]\n" });
    out.push_str("\nexamples\n");
    for example in row.examples {
        let _ = writeln!(out, "  {example}");
    }
    let mut group = None;
    for flag in ready {
        if group != Some(flag.group) {
            let _ = write!(out, "\n{}\n", flag.group.title());
            group = Some(flag.group);
        }
        entry(&mut out, &spelling(flag), &description(flag));
    }
    if takes_runtime_options(verb) {
        runtime_sections(&mut out, options.options());
    }
    names(
        &mut out,
        "not in this build yet (refused)",
        rows(verb).filter(|flag| flag.status == Status::NotYet),
    );
    let retired = rows(verb).filter(|flag| matches!(flag.status, Status::Retired { .. }));
    names(&mut out, "retired (accepted; a line says what took their place)", retired);
    if group.is_some() {
        out.push('\n');
        paragraph(
            &mut out,
            "Each flag can be set by the environment: SUPERFLUID_MAX_CONTEXT for --max-context, and so on; a flag on the \
             command line wins. --flag VALUE and --flag=VALUE are the same; -- ends the flags.",
            0,
        );
    }
    out
}

fn runtime_sections(out: &mut String, options: &[RuntimeOption]) {
    let mut runtime = None;
    for option in options {
        if runtime != Some(&option.runtime) {
            let _ = write!(out, "\noptions of the runtime {}\n", option.runtime);
            runtime = Some(&option.runtime);
        }
        let mut text = option.help.clone();
        let facts = [("accepts: ", &option.accepts), ("default: ", &option.default)];
        append_facts(&mut text, &facts.map(|(name, fact)| (name, fact.as_str())));
        entry(out, &format!("--{} {}", option.flag(), option.placeholder()), &text);
    }
    if options.is_empty() {
        out.push_str("\noptions of runtimes\n");
        paragraph(
            out,
            "--<runtime>-<option> V, once superfluid runtimes shows a runtime that declares some",
            2,
        );
    }
}

/// How a flag is written: `-v, --verbose`, `--[no-]worker-process`, `--max-batch N`.
pub(crate) fn spelling(flag: &Flag) -> String {
    let mut text = flag.short.map(|short| format!("-{short}, ")).unwrap_or_default();
    text.push_str(if flag.kind == Kind::Toggle { "--[no-]" } else { "--" });
    text.push_str(flag.name);
    if flag.takes_value() {
        text.push(' ');
        text.push_str(flag.placeholder);
    }
    text
}

/// Help, accepted values, other name, default, repetition.
pub(crate) fn description(flag: &Flag) -> String {
    let mut text = flag.help.to_owned();
    let accepts = match flag.kind {
        Kind::Int { .. } | Kind::Float { .. } => flag.accepts(),
        _ => String::new(),
    };
    let also = flag.alias.map(|alias| format!("--{alias}")).unwrap_or_default();
    append_facts(&mut text, &[("accepts: ", &accepts), ("same as: ", &also), ("default: ", flag.default)]);
    if flag.repeatable {
        text.push_str(" [repeatable]");
    }
    text
}

fn append_facts(text: &mut String, facts: &[(&str, &str)]) {
    for (name, fact) in facts.iter().filter(|(_, fact)| !fact.is_empty()) {
        let _ = write!(text, " [{name}{fact}]");
    }
}

fn names<'a>(out: &mut String, title: &str, flags: impl Iterator<Item = &'a Flag>) {
    let list: Vec<String> = flags
        .map(|flag| match flag.kind {
            Kind::Toggle => format!("--[no-]{}", flag.name),
            _ => format!("--{}", flag.name),
        })
        .collect();
    if !list.is_empty() {
        let _ = write!(out, "\n{title}\n");
        paragraph(out, &list.join(", "), 2);
    }
}

/// One table line: what is written at the left, its description wrapped at the right.
fn entry(out: &mut String, left: &str, text: &str) {
    let _ = write!(out, "  {left}");
    let used = 2 + left.chars().count();
    if used + 2 > TEXT_AT {
        let _ = write!(out, "\n{:TEXT_AT$}", "");
    } else {
        let _ = write!(out, "{:1$}", "", TEXT_AT - used);
    }
    wrap(out, text, TEXT_AT);
}

fn paragraph(out: &mut String, text: &str, indent: usize) {
    let _ = write!(out, "{:indent$}", "");
    wrap(out, text, indent);
}

/// Writes words up to [`WIDTH`] columns; the first line is already indented.
fn wrap(out: &mut String, text: &str, indent: usize) {
    let mut column = indent;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            let _ = write!(out, "\n{:indent$}", "");
            column = indent;
        }
        if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}

/// Groups in the order of the table, for the manual.
pub(crate) fn groups() -> Vec<Group> {
    let mut groups: Vec<Group> = FLAGS.iter().map(|flag| flag.group).collect();
    groups.dedup();
    groups
}

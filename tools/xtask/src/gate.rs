//! Decides whether one version of the C header may follow another.
//!
//! Legal: a struct grows at its tail with a new minor, new structs, new defines, new declarations. Everything else
//! breaks a library that someone built against the older header. Struct layouts come from clang, not from reading C.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::error::TaskError;
use crate::shell;

/// Embedded by value everywhere: these may not even grow (rule L5 of the header).
const LEAVES: &[&str] = &["sfr_str", "sfr_buf", "sfr_array"];

/// The major has a rule of its own, the minor is what growth must raise.
const MINOR: &str = "SFR_ABI_MINOR";

/// What others depend on in a header.
#[derive(Debug)]
pub(crate) struct Header {
    structs: BTreeMap<String, Layout>,
    /// By name with its parameters; several values when platforms differ.
    defines: BTreeMap<String, Vec<String>>,
    /// Typedefs, prototypes and includes, one canonical line each.
    declarations: Vec<String>,
}

#[derive(Debug, Default, PartialEq)]
struct Layout {
    size: u64,
    /// Offset, and type with name as clang spells them.
    fields: Vec<(u64, String)>,
}

/// `cargo xtask gate OLD NEW`.
pub(crate) fn run(args: &[&str]) -> Result<(), TaskError> {
    let [old, new] = args else {
        return Err(TaskError::Usage("gate takes the older and the newer header".into()));
    };
    let breaks = compare(&Header::read(Path::new(old))?, &Header::read(Path::new(new))?);
    for what in &breaks {
        println!("break: {what}");
    }
    if breaks.is_empty() { Ok(()) } else { Err(TaskError::Findings(breaks.len())) }
}

impl Header {
    /// Reads a header with clang's help.
    pub(crate) fn read(path: &Path) -> Result<Self, TaskError> {
        let text = fs::read_to_string(path).map_err(TaskError::io(path))?;
        let args = ["-x", "c", "-std=c99", "-fsyntax-only", "-Xclang", "-fdump-record-layouts-complete"];
        let dump = shell::output(Command::new("clang").args(args).arg(path))?;
        let (defines, declarations) = read_text(&text);
        Ok(Self { structs: read_layouts(&dump), defines, declarations })
    }

    fn minor(&self) -> Option<u32> {
        self.defines.get(MINOR)?.first()?.trim_end_matches('u').parse().ok()
    }
}

/// What in `new` would break a library or host built against `old`; empty = nothing.
pub(crate) fn compare(old: &Header, new: &Header) -> Vec<String> {
    let mut breaks = Vec::new();
    let mut grown = Vec::new();
    for (name, before) in &old.structs {
        match new.structs.get(name) {
            None => breaks.push(format!("{name} was removed")),
            Some(after) => compare_struct(name, before, after, &mut breaks, &mut grown),
        }
    }
    if !grown.is_empty() && new.minor() <= old.minor() {
        breaks.push(format!("{} grew without a new {MINOR}", grown.join(", ")));
    }
    if new.minor() < old.minor() {
        breaks.push(format!("{MINOR} went back"));
    }
    for (name, value) in old.defines.iter().filter(|(name, _)| *name != MINOR) {
        match new.defines.get(name) {
            None => breaks.push(format!("#define {name} was removed")),
            Some(now) if now != value => breaks.push(format!("#define {name} was {value:?} and is {now:?}")),
            Some(_) => {}
        }
    }
    for line in old.declarations.iter().filter(|line| !new.declarations.contains(line)) {
        breaks.push(format!("changed or removed: {line}"));
    }
    for line in
        new.declarations.iter().filter(|line| line.starts_with('#') && !old.declarations.contains(line))
    {
        breaks.push(format!("the header stands alone, but gained {line}"));
    }
    breaks
}

fn compare_struct(
    name: &str,
    before: &Layout,
    after: &Layout,
    breaks: &mut Vec<String>,
    grown: &mut Vec<String>,
) {
    for (i, (offset, field)) in before.fields.iter().enumerate() {
        match after.fields.get(i) {
            Some((now, same)) if now == offset && same == field => {}
            Some((now, other)) => {
                breaks.push(format!("{name}: {field} at {offset} became {other} at {now}"));
                return;
            }
            None => breaks.push(format!("{name}: {field} was removed")),
        }
    }
    for (offset, field) in after.fields.iter().skip(before.fields.len()) {
        if *offset < before.size {
            breaks.push(format!("{name}: {field} lies inside the old {} bytes", before.size));
        }
    }
    if after.size > before.size {
        grown.push(name.to_owned());
    }
    if after.size < before.size || (after.size != before.size && LEAVES.contains(&name)) {
        breaks.push(format!("{name} went from {} to {} bytes", before.size, after.size));
    }
}

/// Reads clang's record dump: `offset | type name` lines, own fields indented by two, then `[sizeof=N`.
fn read_layouts(dump: &str) -> BTreeMap<String, Layout> {
    let mut layouts: BTreeMap<String, Layout> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in dump.lines() {
        let Some((offset, body)) = line.split_once(" | ") else { continue };
        if let Some(size) = body.trim().strip_prefix("[sizeof=") {
            let size = size.split(',').next().and_then(|size| size.parse().ok());
            if let (Some(name), Some(size)) = (current.take(), size) {
                layouts.entry(name).or_default().size = size;
            }
            continue;
        }
        let Ok(offset) = offset.trim().parse() else { continue };
        match body.len() - body.trim_start().len() {
            0 => {
                current =
                    body.strip_prefix("struct ").filter(|name| name.starts_with("sfr_")).map(str::to_owned);
            }
            2 => {
                if let Some(name) = &current {
                    layouts.entry(name.clone()).or_default().fields.push((offset, body.trim().to_owned()));
                }
            }
            _ => {} // a field of an embedded struct
        }
    }
    layouts
}

/// Defines and declarations of the text; comments and what is for C++ only do not count.
fn read_text(text: &str) -> (BTreeMap<String, Vec<String>>, Vec<String>) {
    let mut defines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut declarations = Vec::new();
    let mut code = String::new();
    let mut cpp_only = false;
    for line in without_comments(text).lines() {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.as_str() {
            "#ifdef __cplusplus" => cpp_only = true,
            "#endif" if cpp_only => cpp_only = false,
            _ if cpp_only => {}
            _ if line.starts_with("#define ") => {
                let (name, value) = split_define(&line["#define ".len()..]);
                defines.entry(name).or_default().push(value);
            }
            _ if line.starts_with("#include") => declarations.push(line),
            _ if line.starts_with('#') => {}
            _ => {
                code.push_str(&line);
                code.push(' ');
            }
        }
    }
    let mut depth = 0_u32;
    let mut statement = String::new();
    for c in code.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c == ';' && depth == 0 {
            if !statement.contains('{') {
                declarations.push(statement.trim().to_owned()); // struct bodies are clang's affair
            }
            statement.clear();
        } else {
            statement.push(c);
        }
    }
    (defines, declarations)
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, rest)| rest);
    }
    out + rest
}

/// `NAME(a, b) value` → name with its parameters, value.
fn split_define(text: &str) -> (String, String) {
    let end = match (text.find('('), text.find(' ')) {
        (Some(open), space) if space.is_none_or(|space| open < space) => {
            text.find(')').map_or(text.len(), |at| at + 1)
        }
        (_, Some(space)) => space,
        (_, None) => text.len(),
    };
    (text[..end].to_owned(), text[end..].trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEED_TAIL: &str = "  uint32_t tree; /* index into plan.trees (\"sf.spec/1\"), SFR_NONE = a plain run */\n  \
                             uint32_t reserved0;\n} sfr_feed;";

    /// Compares the header with a copy in which each `from` became `to`; expects a break with these words, or none.
    fn check(edits: &[(&str, &str)], expect: Option<&str>) {
        let dir = tempfile::tempdir().unwrap();
        let mut text = sf_abi::HEADER.to_owned();
        for (from, to) in edits {
            assert!(text.contains(from), "the header has no {from}");
            text = text.replacen(from, to, 1);
        }
        let [old, new] = ["old.h", "new.h"].map(|name| dir.path().join(name));
        fs::write(&old, sf_abi::HEADER).unwrap();
        fs::write(&new, text).unwrap();
        let breaks = compare(&Header::read(&old).unwrap(), &Header::read(&new).unwrap());
        match expect {
            None => assert!(breaks.is_empty(), "{edits:?}: {breaks:?}"),
            Some(words) => assert!(breaks.iter().any(|line| line.contains(words)), "{edits:?}: {breaks:?}"),
        }
    }

    const NEW_MINOR: (&str, &str) = ("#define SFR_ABI_MINOR 2u", "#define SFR_ABI_MINOR 3u");

    #[test]
    fn growth_that_no_old_library_sees_is_legal() {
        let grown = FEED_TAIL.replace("} sfr_feed", "uint64_t more; } sfr_feed");
        check(&[], None);
        check(&[("/* The only exported symbol.", "/* The one exported symbol.")], None);
        check(&[NEW_MINOR, (FEED_TAIL, &grown)], None);
        check(&[("#define SFR_T_STR 4u", "#define SFR_T_STR 4u\n#define SFR_T_BYTES 5u")], None);
        check(
            &[(
                "typedef struct sfr_opt {",
                "typedef struct sfr_new { uint64_t a; } sfr_new;\ntypedef struct sfr_opt {",
            )],
            None,
        );
    }

    #[test]
    fn every_illegal_change_of_a_struct_is_caught() {
        let grown = FEED_TAIL.replace("} sfr_feed", "uint64_t more; } sfr_feed");
        check(&[(FEED_TAIL, &grown)], Some("sfr_feed grew without a new SFR_ABI_MINOR"));
        check(
            &[NEW_MINOR, ("  uint32_t pos0; ", "  uint64_t more; uint32_t pos0; ")],
            Some("pos0 at 16 became"),
        );
        check(
            &[NEW_MINOR, ("  uint32_t row_off; ", "  int32_t row_off; ")],
            Some("row_off at 24 became int32_t"),
        );
        check(
            &[NEW_MINOR, ("  uint32_t row_off; ", "  uint32_t rows_from; ")],
            Some("became uint32_t rows_from"),
        );
        check(&[NEW_MINOR, ("  uint64_t device_ns;", "  ")], Some("device_ns was removed"));
        check(&[NEW_MINOR, ("  uint64_t needed;", "  uint64_t more; uint64_t needed;")], Some("sfr_buf"));
        check(
            &[NEW_MINOR, ("  uint64_t n;    /* bytes */", "  uint64_t n, m;")],
            Some("sfr_str went from 16 to 24"),
        );
        check(&[NEW_MINOR, ("uint64_t reserved[6];", "uint64_t reserved[5];")], Some("sfr_control"));
        check(
            &[(
                "(SFR_CALL *lane_create)(sfr_model *model, uint64_t *lane",
                "(SFR_CALL *lane_create)(sfr_model *model, uint32_t *lane",
            )],
            Some("lane_create"),
        );
    }

    #[test]
    fn every_illegal_change_outside_structs_is_caught() {
        check(&[("#define SFR_E_ARG (-2)", "#define SFR_E_ARG (-3)")], Some("#define SFR_E_ARG"));
        check(&[("#define SFR_OPT_MUST 1u", "")], Some("#define SFR_OPT_MUST was removed"));
        check(&[("#define SFR_ABI_MAJOR 0u", "#define SFR_ABI_MAJOR 1u")], Some("SFR_ABI_MAJOR"));
        check(&[("#define SFR_ABI_MINOR 2u", "#define SFR_ABI_MINOR 1u")], Some("SFR_ABI_MINOR went back"));
        check(
            &[("typedef int32_t sfr_status;", "typedef int64_t sfr_status;")],
            Some("typedef int32_t sfr_status"),
        );
        check(
            &[("superfluid_runtime_v1(const sfr_query *query);", "superfluid_runtime_v1(void);")],
            Some("superfluid_runtime_v1"),
        );
        check(&[("#include <stddef.h>", "#include <stddef.h>\n#include <stdio.h>")], Some("<stdio.h>"));
        check(&[("#define SFR_HAS(p, T, f) (", "#define SFR_HAS(p, T, f) !(")], Some("SFR_HAS"));
    }
}

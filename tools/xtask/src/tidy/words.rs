//! Words that are fine while writing and must not land: debugging macros, and wishes without an issue.

use super::{Finding, RustFile};

const MACROS: &[&str] = &["dbg!", "todo!", "unimplemented!"];
const WISHES: &[&str] = &["TODO", "FIXME", "XXX"];

pub(super) fn check(file: &RustFile) -> Vec<Finding> {
    let at = |line: usize, words: String| {
        Finding::Broken(format!("{}:{}: {words}", file.path.display(), line + 1))
    };
    let mut findings = Vec::new();
    for (number, line) in file.code.lines().enumerate() {
        for word in MACROS.iter().filter(|word| line.contains(*word)) {
            findings.push(at(number, format!("{word} cannot land")));
        }
    }
    for (number, line) in file.text.lines().enumerate() {
        let Some((_, comment)) = line.split_once("// ") else { continue };
        for word in WISHES.iter().filter(|word| comment.starts_with(**word)) {
            if !comment[word.len()..].starts_with("(#") {
                findings.push(at(number, format!("{word} needs an issue: {word}(#12)")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_code_is_named() {
        let check = |text: &str, expect: usize| {
            assert_eq!(check(&RustFile::new("a.rs", text.into())).len(), expect, "{text}");
        };
        check("let x = dbg!(1);", 1);
        check("todo!()", 1);
        check("let s = \"dbg!\"; // todo! is a macro", 0);
        check(&["//", "TODO later"].join(" "), 1);
        check(&["//", "TODO(#12) later"].join(" "), 0);
        check("let todos = 1;", 0);
    }
}

//! The first line of every file says in one sentence what the file decides or owns.

use super::{Finding, RustFile};

/// Fewest words that can be a sentence rather than a label.
const WORDS_MIN: usize = 3;

pub(super) fn check(file: &RustFile) -> Option<Finding> {
    let first = file.text.lines().next().unwrap_or_default();
    let sentence = first.strip_prefix("//! ").map(|text| text.split_whitespace().count());
    let words = match sentence {
        Some(words) if words >= WORDS_MIN => return None,
        Some(words) => format!("its first line has {words} words, at least {WORDS_MIN} make a sentence"),
        None => "its first line is not `//! ` and a sentence".to_owned(),
    };
    Some(Finding::Broken(format!("{}: {words}", file.path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_starts_with_a_sentence() {
        let check = |text: &str, fine: bool| {
            assert_eq!(check(&RustFile::new("a.rs", text.into())).is_none(), fine, "{text:?}");
        };
        check("//! Decides what runs next.\n", true);
        check("//! Utilities.\n", false);
        check("// Decides what runs next.\n", false);
        check("\n//! Decides what runs next.\n", false);
        check("use std::fs;\n", false);
        check("", false);
    }
}

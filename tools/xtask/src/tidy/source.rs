//! Blanks out comments and literals of Rust source, so that rules about code see code only.

/// The same lines, with comments and the content of strings and characters replaced by nothing.
///
/// Good enough for formatted code: raw strings, nested comments, lifetimes and byte strings are understood.
pub(crate) fn code_only(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < bytes.len() {
        let rest = &bytes[i..];
        let skipped = if rest.starts_with(&['/', '/']) {
            rest.iter().take_while(|c| **c != '\n').count()
        } else if rest.starts_with(&['/', '*']) {
            block_comment(rest)
        } else if rest[0] == '"' {
            string(rest)
        } else if rest[0] == 'r' && !after_word(&out) && raw_hashes(&rest[1..]).is_some() {
            raw_string(rest)
        } else if rest[0] == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            out.push(rest[0]);
            i += 1;
        } else {
            out.extend(rest[..skipped].iter().filter(|c| **c == '\n'));
            out.push(' ');
            i += skipped;
        }
    }
    out
}

fn after_word(out: &str) -> bool {
    // `br"…"` is a raw string too: its b is the only letter before.
    let word: String = out.chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    !word.is_empty() && word != "b" && word != "c"
}

fn block_comment(text: &[char]) -> usize {
    let mut depth = 0;
    let mut i = 0;
    while i < text.len() {
        if text[i..].starts_with(&['/', '*']) {
            depth += 1;
            i += 2;
        } else if text[i..].starts_with(&['*', '/']) {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    i
}

fn string(text: &[char]) -> usize {
    let mut i = 1;
    while i < text.len() && text[i] != '"' {
        i += if text[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(text.len())
}

fn raw_hashes(after_r: &[char]) -> Option<usize> {
    let hashes = after_r.iter().take_while(|c| **c == '#').count();
    (after_r.get(hashes) == Some(&'"')).then_some(hashes)
}

fn raw_string(text: &[char]) -> usize {
    let hashes = raw_hashes(&text[1..]).unwrap_or(0);
    let mut end = vec!['"'];
    end.extend(std::iter::repeat_n('#', hashes));
    let start = hashes + 2;
    let close = (start..text.len()).find(|at| text[*at..].starts_with(&end));
    close.map_or(text.len(), |at| at + end.len())
}

/// Length of a character literal, 0 for a lifetime.
fn character(text: &[char]) -> usize {
    match text {
        ['\'', '\\', ..] => 3 + text.iter().skip(3).take_while(|c| **c != '\'').count(),
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::code_only;

    #[test]
    fn literals_and_comments_vanish_and_lines_stay() {
        let check = |text: &str, gone: &[&str], kept: &[&str]| {
            let code = code_only(text);
            assert_eq!(code.lines().count(), text.lines().count(), "{text}");
            gone.iter().for_each(|word| assert!(!code.contains(word), "{word} in {code}"));
            kept.iter().for_each(|word| assert!(code.contains(word), "no {word} in {code}"));
        };
        check("a // one\nb", &["one"], &["a", "b"]);
        check("a /* one /* two */ three */ b", &["one", "two", "three"], &["a", "b"]);
        check("a(\"one \\\" two\", b)", &["one", "two"], &["a(", ", b)"]);
        check("a(r#\"one \" two\"#, br\"three\\\", b)", &["one", "two", "three"], &["a(", ", b)"]);
        check("fn f<'a>(x: &'a str) -> char { '\\'' }", &[], &["'a>", "&'a str", "{", "}"]);
        check("let r = for_r\"x\";\nlet y = '\"'; one", &["x"], &["let r", "one"]);
        check("\"one\ntwo\"\nb", &["one", "two"], &["b"]);
    }
}

//! Writes strings of compact JSON and reads them back; knows what a number is. One place decides the canonical form.

/// Appends `c` as it stands inside a JSON string.
pub(crate) fn push_char(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        _ => out.push(c),
    }
}

/// Appends `text` as a JSON string.
pub(super) fn push_text(text: &str, out: &mut String) {
    out.push('"');
    text.chars().for_each(|c| push_char(c, out));
    out.push('"');
}

/// The text that a JSON string stands for.
pub(super) fn unquote(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}

/// JSON's grammar of numbers.
pub(super) fn is_number(word: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let word = word.strip_prefix('-').unwrap_or(word);
    let (word, exponent) = match word.split_once(['e', 'E']) {
        Some((word, exponent)) => (word, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (word, None),
    };
    let (whole, fraction) = match word.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (word, None),
    };
    let whole_fits = digits(whole) && (whole == "0" || !whole.starts_with('0'));
    whole_fits && fraction.is_none_or(digits) && exponent.is_none_or(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_is_read_back() {
        for text in ["", "a\"b\\c", "\n\r\t\u{8}\u{c}\u{1}", "é😀\\n"] {
            let mut json = String::new();
            push_text(text, &mut json);
            assert_eq!(unquote(&json).as_deref(), Some(text));
            assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), text);
        }
    }

    #[test]
    fn a_number_is_what_json_says() {
        let check = |word: &str, expect: bool| assert_eq!(is_number(word), expect, "{word:?}");
        for word in ["0", "-0", "10", "1.5", "-2.50e+3", "1E9", "1e-9"] {
            check(word, true);
        }
        for word in ["", "-", "01", "1.", ".5", "+1", "1e", "e5", "1.e5", "0x1", "1_000", "--1"] {
            check(word, false);
        }
    }
}

//! Cuts a text into words before byte-pair encoding, as the family of the vocabulary does.
//!
//! A word never reaches over a cut, so equality with llama.cpp starts here.

use std::ops::Range;

use fancy_regex::Regex;

use crate::families::{Cut, Family};

/// What U+2581 stands for a space with.
const SPACE: &str = "\u{2581}";
/// Lengths that [`Cut::Ladder`] cuts runs of spaces into.
const LADDER: [usize; 8] = [512, 256, 128, 64, 32, 16, 8, 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spaces {
    /// As the pattern says.
    AsMatched,
    /// The last one goes to the word that follows.
    GiveBack,
    /// As [`Spaces::GiveBack`], in powers of two.
    Ladder,
}

#[derive(Debug)]
struct Pattern {
    regex: Regex,
    /// What becomes of a match of the last alternative, a plain `\s+`.
    spaces: Spaces,
    /// `\s*[\r\n]+` stands before it: spaces that end with a line break were matched by that.
    lines_first: bool,
    /// What lies between matches is dropped.
    only: bool,
}

#[derive(Debug)]
enum Step {
    Pattern(Pattern),
    NumberedText,
    Thousands,
}

/// Cuts texts into words.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    steps: Vec<Step>,
    /// U+2581 starts a word.
    pub metaspace: bool,
}

impl PreTokenizer {
    pub(crate) fn new(family: &Family) -> PreTokenizer {
        let step = |cut: &Cut| match *cut {
            Cut::Pattern(pattern) if pattern.ends_with(r"|\s+") => {
                Some(Step::Pattern(Pattern::new(pattern, Spaces::GiveBack)))
            }
            Cut::Pattern(pattern) => Some(Step::Pattern(Pattern::new(pattern, Spaces::AsMatched))),
            Cut::Ladder(pattern) => Some(Step::Pattern(Pattern::new(pattern, Spaces::Ladder))),
            Cut::Only(pattern) => {
                Some(Step::Pattern(Pattern { only: true, ..Pattern::new(pattern, Spaces::AsMatched) }))
            }
            Cut::NumberedText => Some(Step::NumberedText),
            Cut::Thousands => Some(Step::Thousands),
            Cut::Metaspace => None,
        };
        let metaspace = family.cuts.iter().any(|cut| matches!(cut, Cut::Metaspace));
        PreTokenizer { steps: family.cuts.iter().filter_map(step).collect(), metaspace }
    }

    /// Calls `word` with every word of `text`, in order; together they are the text, but for the spaces that a family
    /// drops or puts first.
    pub(crate) fn each(&self, text: &str, mut word: impl FnMut(&str)) {
        let whole = 0..text.len();
        let mut pieces = vec![whole];
        for step in &self.steps {
            let mut cut = Vec::with_capacity(pieces.len() * 2);
            for piece in pieces {
                step.cut(&text[piece.clone()], |part| {
                    cut.push(piece.start + part.start..piece.start + part.end);
                });
            }
            pieces = cut;
        }
        for piece in pieces {
            let piece = &text[piece];
            if self.metaspace {
                metaspace(piece, &mut word);
            } else {
                word(piece);
            }
        }
    }
}

impl Step {
    fn cut(&self, text: &str, each: impl FnMut(Range<usize>)) {
        match self {
            Step::Pattern(pattern) => pattern.cut(text, each),
            Step::NumberedText => numbered_text(text, each),
            Step::Thousands => thousands(text, each),
        }
    }
}

impl Pattern {
    fn new(pattern: &str, spaces: Spaces) -> Pattern {
        Pattern {
            regex: Regex::new(pattern).expect("every row of the table compiles, a test builds them all"),
            spaces,
            lines_first: pattern.contains(r"|\s*[\r\n]"),
            only: false,
        }
    }

    /// Matches and what lies between them, in order; never empty.
    fn cut(&self, text: &str, mut each: impl FnMut(Range<usize>)) {
        let mut done = 0;
        let mut from = 0;
        // The table has no look-around, so a search cannot run out of steps; if it did, the rest would be one word.
        while let Ok(Some(found)) = self.regex.find_from_pos(text, from) {
            let (start, end) = (found.start(), self.end(text, found.start(), found.end()));
            if end == start {
                break;
            }
            if done < start && !self.only {
                each(done..start);
            }
            match self.spaces {
                Spaces::Ladder if end - start > 1 && is_space(&text[start..end]) => {
                    rungs(text, start..end, &mut each);
                }
                _ => each(start..end),
            }
            (done, from) = (end, end);
        }
        if done < text.len() && !self.only {
            each(done..text.len());
        }
    }

    /// Where a match really ends: spaces before a word leave it the last one.
    fn end(&self, text: &str, start: usize, end: usize) -> usize {
        let matched = &text[start..end];
        if self.spaces == Spaces::AsMatched || end == text.len() || !matched.starts_with(char::is_whitespace)
        {
            return end;
        }
        let mut characters = matched.char_indices();
        let Some((last, character)) = characters.next_back() else { return end };
        let by_line = self.lines_first && matches!(character, '\r' | '\n');
        // A match of spaces alone is the last alternative's; one that only starts with a space is a word's.
        if last == 0 || by_line || !character.is_whitespace() || !characters.all(|(_, c)| c.is_whitespace()) {
            return end;
        }
        start + last
    }
}

/// Spaces without a line break at their end, which another alternative takes whole.
fn is_space(matched: &str) -> bool {
    !matched.ends_with(['\r', '\n']) && matched.chars().all(char::is_whitespace)
}

/// Cuts a run of spaces as `\s{512}(?!\S)|…|\s{4}(?!\S)|\s{1,2}(?!\S)|\s` does. The one that goes to the word behind it
/// is no longer part of the run, so every rung in it is followed by a space or the end.
fn rungs(text: &str, run: Range<usize>, each: &mut impl FnMut(Range<usize>)) {
    let ends: Vec<usize> =
        text[run.clone()].char_indices().map(|(at, c)| run.start + at + c.len_utf8()).collect();
    let (mut start, mut done) = (run.start, 0);
    while done < ends.len() {
        let left = ends.len() - done;
        let rung = LADDER.into_iter().find(|&rung| rung <= left).unwrap_or(left.min(2));
        done += rung;
        each(start..ends[done - 1]);
        start = ends[done - 1];
    }
}

/// [`Cut::NumberedText`].
fn numbered_text(text: &str, mut each: impl FnMut(Range<usize>)) {
    let mut start = 0;
    let mut number: Vec<usize> = Vec::new();
    let mut flush = |number: &mut Vec<usize>| {
        let first = number.len() % 3;
        for (index, &end) in number.iter().enumerate() {
            if (index + 1) % 3 == first % 3 {
                each(start..end);
                start = end;
            }
        }
        number.clear();
        start
    };
    let mut done = 0;
    for (at, character) in text.char_indices() {
        if character.is_numeric() {
            number.push(at + character.len_utf8());
        } else if !number.is_empty() {
            done = flush(&mut number);
        }
    }
    if !number.is_empty() {
        done = flush(&mut number);
    }
    if done < text.len() {
        each(done..text.len());
    }
}

/// [`Cut::Thousands`].
fn thousands(text: &str, mut each: impl FnMut(Range<usize>)) {
    let mut start = 0;
    let mut at = 0;
    let digits =
        |from: usize| text.as_bytes()[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    while at < text.len() {
        let count = digits(at);
        for left in (3..=count).rev().filter(|left| left % 3 == 0) {
            let cut = at + count - left;
            if start < cut {
                each(start..cut);
                start = cut;
            }
        }
        at += count.max(1);
    }
    if start < text.len() {
        each(start..text.len());
    }
}

/// [`Cut::Metaspace`].
fn metaspace(piece: &str, word: &mut impl FnMut(&str)) {
    if piece.bytes().all(|byte| byte == b'\n') {
        return word(piece);
    }
    let mut rest = piece;
    if !piece.starts_with(SPACE) {
        let end = piece.find(SPACE).unwrap_or(piece.len());
        word(&format!("{SPACE}{}", &piece[..end]));
        rest = &piece[end..];
    }
    while let Some(behind) = rest.strip_prefix(SPACE) {
        let end = behind.find(SPACE).map_or(rest.len(), |at| at + SPACE.len());
        word(&rest[..end]);
        rest = &rest[end..];
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::families::{FAMILIES, family};

    fn check(name: &str, text: &str, expect: &[&str]) {
        let words = PreTokenizer::new(family(name).expect("a known name"));
        let mut found = Vec::new();
        words.each(text, |word| found.push(word.to_owned()));
        assert_eq!(found, expect, "{name}: {text:?}");
    }

    #[test]
    fn every_row_compiles_and_gives_back_the_whole_text() {
        let text = "Hi there,  you're  3.14159 e.g. 日本語\n\n  x\t\u{a0}é'S 한국 don't\r\n `a|b` \u{2028}١٢٣٤ 12345 ";
        let puts_or_drops = |cut: &Cut| matches!(cut, Cut::Metaspace | Cut::Only(_));
        for family in FAMILIES {
            let words = PreTokenizer::new(family);
            if family.cuts.iter().any(puts_or_drops) {
                continue;
            }
            let mut whole = String::new();
            words.each(text, |word| {
                assert!(!word.is_empty(), "{:?}", family.names);
                whole.push_str(word);
            });
            assert_eq!(whole, text, "{:?}", family.names);
        }
    }

    #[test]
    fn every_name_is_in_one_row() {
        let mut names: Vec<_> = FAMILIES.iter().flat_map(|family| family.names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn words_are_cut_as_the_family_does() {
        check("gpt-2", "Hello world", &["Hello", " world"]);
        check("gpt-2", "a   b", &["a", "  ", " b"]);
        check("gpt-2", "a\n\n\nb  ", &["a", "\n\n", "\n", "b", "  "]);
        check("gpt-2", "I'll it's 'S", &["I", "'ll", " it", "'s", " '", "S"]);
        check("smollm", "x  12", &["x", "  ", "1", "2"]);
        check("llama-bpe", "  \n  x 12345", &["  \n", " ", " x", " ", "123", "45"]);
        check("llama-bpe", "IT'S\tme!!\n\n", &["IT", "'S", "\tme", "!!\n\n"]);
        check("qwen2", "a 123", &["a", " ", "1", "2", "3"]);
        check("default", "a+b  c1234", &["a", "+", "b", " ", " c", "123", "4"]);
        check("deepseek-llm", " Hi there\n 中文 123", &[" Hi", " there", "\n", " ", "中文", " ", "123"]);
        check("deepseek-v3", "a 1234 中b", &["a", " ", "123", "4", " ", "中", "b"]);
        check("tekken", "HelloWorld don't", &["Hello", "World", " don", "'t"]);
        check("gpt-4o", "HelloWorld don't", &["Hello", "World", " don't"]);
        check("bloom", "a b. c", &["a", " b", ".", " c"]);
    }

    #[test]
    fn spaces_are_put_first_and_dropped_where_the_family_does() {
        check("mmbert", "a▁b▁▁c", &["▁a", "▁b", "▁", "▁c"]);
        check("mmbert", "▁a\n\nb", &["▁a", "\n\n", "▁b"]);
        check("mmbert", "▁", &["▁"]);
        check("whitespace", " a  b\u{3000}c\n", &["a", "b", "c"]);
        check("gemma4", "a▁b\n\n▁c", &["a▁b", "\n\n", "▁c"]);
    }

    #[derive(Deserialize)]
    struct Expected {
        texts: Vec<String>,
        /// Per family and text: the lengths of the words in characters.
        families: BTreeMap<String, Vec<String>>,
    }

    /// Written by `tests/data/words.py` with another engine, from the patterns as they were published.
    #[test]
    fn words_equal_those_of_an_independent_engine() {
        let expected: Expected =
            serde_json::from_str(include_str!("../tests/data/words.json")).expect("valid JSON");
        let mut count = 0;
        for (name, lengths) in &expected.families {
            let words = PreTokenizer::new(family(name).expect("a known name"));
            for (text, expect) in expected.texts.iter().zip(lengths) {
                let mut found = Vec::new();
                words.each(text, |word| found.push(word.chars().count().to_string()));
                assert_eq!(found.join(" "), *expect, "{name}: {text:?}");
                count += 1;
            }
        }
        println!("{count} texts cut, {} families", expected.families.len());
        assert!(count >= 900 && expected.families.len() >= 30, "{count}");
    }

    #[test]
    fn every_family_is_compared_or_checked_above() {
        let expected: Expected =
            serde_json::from_str(include_str!("../tests/data/words.json")).expect("valid JSON");
        let cut_alike =
            |one: &Family, other: &Family| format!("{:?}", one.cuts) == format!("{:?}", other.cuts);
        let compared: Vec<_> = expected.families.keys().filter_map(|name| family(name)).collect();
        // DeepSeek LLM's letters are those of an older Unicode, in llama.cpp's digests; mmBERT puts spaces first.
        let apart = ["deepseek-llm", "mmbert"];
        for family in FAMILIES.iter().filter(|family| !apart.contains(&family.names[0])) {
            assert!(compared.iter().any(|other| cut_alike(family, other)), "{:?}", family.names);
        }
    }
}

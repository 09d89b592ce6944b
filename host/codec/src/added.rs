//! Finds the added tokens of a `tokenizer.json` in a text.
//!
//! Leftmost first, of several that start together the longest, as the reference does. A special token counts only where
//! the caller says that the text there is the template's own.

use std::ops::Range;

use fancy_regex::Regex;

use crate::trie::Trie;

/// A token that stands in a text as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddedToken {
    pub id: u32,
    pub content: String,
    /// What is looked for: the content, or what the normalizer makes of it.
    pub sought: String,
    /// Steers the model: no message can hold it.
    pub special: bool,
    /// Looked for in the normalized text.
    pub normalized: bool,
    /// Not inside a word.
    pub single_word: bool,
    /// Swallows the spaces before it.
    pub lstrip: bool,
    /// Swallows the spaces behind it.
    pub rstrip: bool,
}

/// Where special tokens may stand.
pub(crate) enum Allowed<'a> {
    /// Nowhere.
    Nothing,
    /// Where this says so; also told whether the token is one character.
    Where(&'a dyn Fn(Range<usize>, bool) -> bool),
}

/// Added tokens that are looked for together.
#[derive(Debug)]
pub(crate) struct Matcher {
    trie: Trie,
    tokens: Vec<AddedToken>,
    word: Regex,
}

impl Matcher {
    pub(crate) fn new(tokens: Vec<AddedToken>) -> Matcher {
        let texts = tokens.iter().zip(0..).map(|(token, index)| (token.sought.as_bytes(), index)).collect();
        let word = Regex::new(r"\w").expect("it is valid");
        Matcher { trie: Trie::new(texts), tokens, word }
    }

    /// Cuts `text` into added tokens and the rest; together they are the text, and none is empty.
    pub(crate) fn split(&self, text: &str, allowed: &Allowed<'_>) -> Vec<(Range<usize>, Option<u32>)> {
        let mut parts = Vec::new();
        let (mut at, mut done) = (0, 0);
        let mut found = Vec::new();
        while at < text.len() {
            found.clear();
            self.trie.prefixes(&text.as_bytes()[at..], |length, index| found.push((length, index as usize)));
            let Some(&(longest, index)) = found.last() else {
                at += 1;
                continue;
            };
            let (length, token) = match allowed {
                // The reference goes on behind a special token that it does not take.
                Allowed::Nothing if self.tokens[index].special => {
                    at += longest;
                    continue;
                }
                Allowed::Nothing => (longest, &self.tokens[index]),
                Allowed::Where(allows) => {
                    let is_allowed = |&&(length, index): &&(usize, usize)| {
                        let token = &self.tokens[index];
                        !token.special || allows(at..at + length, token.content.chars().nth(1).is_none())
                    };
                    // What a message starts must not hide what the template starts inside it.
                    let Some(&(length, index)) = found.iter().rev().find(is_allowed) else {
                        at += 1;
                        continue;
                    };
                    (length, &self.tokens[index])
                }
            };
            if token.single_word && !self.stands_alone(text, at..at + length) {
                at += length;
                continue;
            }
            let mut range = at..at + length;
            if token.lstrip {
                range.start = text[..at].trim_end().len().max(done);
            }
            if token.rstrip {
                range.end = text.len() - text[range.end..].trim_start().len();
            }
            if done < range.start {
                parts.push((done..range.start, None));
            }
            parts.push((range.clone(), Some(token.id)));
            (at, done) = (range.end, range.end);
        }
        if done < text.len() {
            parts.push((done..text.len(), None));
        }
        parts
    }

    fn stands_alone(&self, text: &str, range: Range<usize>) -> bool {
        let before = text[..range.start].char_indices().next_back().map(|(at, _)| at..range.start);
        let behind = text[range.end..].chars().next().map(|c| range.end..range.end + c.len_utf8());
        let is_word = |range: Option<Range<usize>>| {
            range.is_some_and(|range| self.word.is_match(&text[range]).unwrap_or(false))
        };
        !is_word(before) && !is_word(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(content: &str, id: u32) -> AddedToken {
        let content = content.to_owned();
        let (special, normalized, single_word, lstrip, rstrip) = (false, false, false, false, false);
        let sought = content.clone();
        AddedToken { id, content, sought, special, normalized, single_word, lstrip, rstrip }
    }

    fn matcher() -> Matcher {
        let tokens = [
            AddedToken { special: true, ..token("<s>", 0) },
            AddedToken { special: true, ..token("<s><e>", 1) },
            AddedToken { lstrip: true, rstrip: true, ..token("<mask>", 2) },
            AddedToken { single_word: true, ..token("day", 3) },
            token("ab", 4),
            token("bcd", 5),
            AddedToken { special: true, ..token("<e>", 6) },
        ];
        Matcher::new(tokens.to_vec())
    }

    fn check(text: &str, allowed: &Allowed<'_>, expect: &[(&str, Option<u32>)]) {
        let parts = matcher().split(text, allowed);
        let parts: Vec<_> = parts.into_iter().map(|(range, id)| (&text[range], id)).collect();
        assert_eq!(parts, expect, "{text:?}");
    }

    #[test]
    fn the_leftmost_and_longest_counts_with_its_spaces() {
        let all = Allowed::Where(&|_, _| true);
        check("", &all, &[]);
        check("x<s>", &all, &[("x", None), ("<s>", Some(0))]);
        check("<s><e>", &all, &[("<s><e>", Some(1))]);
        check("abcd", &all, &[("ab", Some(4)), ("cd", None)]);
        check("a \t<mask>\n b", &all, &[("a", None), (" \t<mask>\n ", Some(2)), ("b", None)]);
        check("day days aday_", &all, &[("day", Some(3)), (" days aday_", None)]);
        check("<mask> <mask>", &all, &[("<mask> ", Some(2)), ("<mask>", Some(2))]);
    }

    #[test]
    fn a_special_token_counts_only_where_it_is_allowed() {
        check("<s>ab", &Allowed::Nothing, &[("<s>", None), ("ab", Some(4))]);
        let not_over_3 = |range: Range<usize>, _: bool| !(range.start < 3 && range.end > 3);
        let cut = Allowed::Where(&not_over_3);
        check("<s><e>", &cut, &[("<s>", Some(0)), ("<e>", Some(6))]);
        let not_over_1 = |range: Range<usize>, _: bool| !(range.start < 1 && range.end > 1);
        check("<s><e>", &Allowed::Where(&not_over_1), &[("<s>", None), ("<e>", Some(6))]);
    }
}

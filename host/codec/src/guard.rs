//! Keeps the text of messages apart from the template's own, through whatever the template does with it.
//!
//! A character that occurs nowhere else, the sentinel, is put into the messages' text: behind every character that could
//! start a control token, and before the first one, because the template's literal in front of a message may be the first
//! half of a marker. It passes unharmed through trimming, splitting, joining and replacing. When the prompt is rendered
//! the sentinels are taken out again and their places kept: a control token that spans one is not one.
//!
//! Texts that the template looks for in a message, such as `</think>`, are left whole, so that it still finds them.
//! Wrapping each message in markers instead would hide its edges from `trim` and `startswith`.

use std::collections::HashSet;

use crate::error::CodecError;
use crate::vocab::Vocab;

/// Decides where sentinels go.
#[derive(Debug)]
pub(crate) struct Guard {
    /// First characters of control tokens, in either case, sorted; and whether that is all of the token.
    starts: Vec<(char, bool)>,
    /// What the template may look for in a message; none of these can be, hold or be a part of a control token.
    wanted: Vec<String>,
    /// Private-use characters of the template and of control tokens.
    taken: HashSet<char>,
}

/// A rendered prompt.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Prompt {
    /// Without sentinels.
    pub text: String,
    /// Where they stood: byte positions, ascending, some twice.
    pub cuts: Vec<u32>,
}

fn is_private(character: char) -> bool {
    matches!(character, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{ffffd}')
}

impl Guard {
    pub(crate) fn new(vocab: &Vocab, template: &str) -> Guard {
        let controls: Vec<&str> = vocab.controls().map(|id| vocab.text(id)).collect();
        let mut starts = Vec::new();
        for control in &controls {
            let mut characters = control.chars();
            let Some(start) = characters.next() else { continue };
            let is_whole = characters.next().is_none();
            // A template may change the case of a message.
            let cases = start.to_lowercase().chain(start.to_uppercase()).chain([start]);
            starts.extend(cases.map(|start| (start, is_whole)));
        }
        starts.sort_unstable_by_key(|&(start, is_whole)| (start, !is_whole));
        starts.dedup_by_key(|&mut (start, _)| start);
        let mut wanted = literals(template);
        wanted.retain(|text| {
            let meets = |control: &&str| text.contains(control) || control.contains(&**text);
            !text.is_empty() && !controls.iter().any(meets)
        });
        let template = template.chars().filter(|&character| is_private(character));
        let taken = controls.iter().flat_map(|text| text.chars()).filter(|&character| is_private(character));
        Guard { starts, wanted, taken: taken.chain(template).collect() }
    }

    /// A private-use character that occurs neither here nor there.
    pub(crate) fn sentinel<'a>(&self, texts: impl Iterator<Item = &'a str>) -> Result<char, CodecError> {
        let mut taken: HashSet<char> = texts.flat_map(str::chars).filter(|&c| is_private(c)).collect();
        taken.extend(&self.taken);
        let mut candidates = ('\u{e000}'..='\u{f8ff}').chain('\u{f0000}'..='\u{ffffd}');
        candidates.find(|candidate| !taken.contains(candidate)).ok_or(CodecError::NoSentinel)
    }

    /// The text of a message, made safe.
    pub(crate) fn content(&self, text: &str, sentinel: char) -> String {
        let mut safe = String::with_capacity(text.len() + 8);
        let mut is_first = true;
        for (at, character) in text.char_indices() {
            let leads = is_first && !character.is_whitespace();
            is_first &= character.is_whitespace();
            if leads && !self.is_wanted(&text[at..]) {
                safe.push(sentinel);
            }
            safe.push(character);
            let start = self.starts.binary_search_by_key(&character, |&(start, _)| start);
            if let Ok(start) = start
                && !self.is_wanted(&text[at..])
            {
                safe.push(sentinel);
                // Nothing fits inside a marker of one character, so two behind it say the same.
                safe.extend(self.starts[start].1.then_some(sentinel));
            }
        }
        safe
    }

    /// A short field, such as a name, that a template may set right inside a marker: no part of it can belong to one.
    pub(crate) fn field(text: &str, sentinel: char) -> String {
        let sealed = text.chars().flat_map(|character| [sentinel, character, sentinel]);
        sealed.collect()
    }

    fn is_wanted(&self, rest: &str) -> bool {
        self.wanted.iter().any(|text| rest.starts_with(&**text))
    }
}

/// Takes the sentinels out of a rendered prompt.
pub(crate) fn unseal(rendered: &str, sentinel: char) -> Prompt {
    let mut prompt = Prompt { text: String::with_capacity(rendered.len()), cuts: Vec::new() };
    for (index, part) in rendered.split(sentinel).enumerate() {
        if index > 0 {
            prompt.cuts.push(prompt.text.len() as u32);
        }
        prompt.text.push_str(part);
    }
    prompt
}

/// The string literals of a template's tags.
fn literals(template: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        rest = &rest[open + 2..];
        let mut literal: Option<(char, String)> = None;
        let mut characters = rest.char_indices();
        let mut end = rest.len();
        while let Some((at, character)) = characters.next() {
            match &mut literal {
                None if matches!(character, '\'' | '"') => literal = Some((character, String::new())),
                None if rest[at..].starts_with("}}") || rest[at..].starts_with("%}") => {
                    end = at;
                    break;
                }
                None => {}
                Some((quote, text)) if character == *quote => {
                    found.push(std::mem::take(text));
                    literal = None;
                }
                Some((_, text)) if character == '\\' => match characters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, escaped)) => text.push(escaped),
                    None => {}
                },
                Some((_, text)) => text.push(character),
            }
        }
        rest = &rest[end..];
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_read_inside_tags_only() {
        let template = r#"don't {{ 'a' + "b\"'c" }} it's {% if x == '\n</t>' %} "no" {{ 'a' }}{{ 'open"#;
        assert_eq!(literals(template), ["\n</t>", "a", "b\"'c"]);
    }

    #[test]
    fn unsealing_keeps_the_text_and_the_places() {
        let check = |rendered: &str, text: &str, cuts: &[u32]| {
            let expect = Prompt { text: text.to_owned(), cuts: cuts.to_vec() };
            assert_eq!(unseal(rendered, 'S'), expect);
        };
        check("", "", &[]);
        check("<S|x", "<|x", &[1]);
        check("äSSb", "äb", &[2, 2]);
    }
}

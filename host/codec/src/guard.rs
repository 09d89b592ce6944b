//! Keeps the text of messages apart from the template's own, through whatever the template does with it.
//!
//! A character that occurs nowhere else, the sentinel, is put into the messages' text: behind every character that could
//! start a control token, and before the first one, because the template's literal in front of a message may be the first
//! half of a marker. It passes unharmed through trimming, splitting, joining and replacing. When the prompt is rendered
//! the sentinels are taken out again and their places kept: a control token that spans one is not one.
//!
//! Texts that the template looks for in a message, such as `</think>`, are left whole, so that it still finds them; but only
//! where neither they nor the template's own text in front of them could begin a control token that they go on.
//! Wrapping each message in markers instead would hide its edges from `trim` and `startswith`.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use sf_core::Chat;

use crate::source::Source;
use crate::vocab::Vocab;

/// Texts that a template writes without spelling them: roles, kinds, words and digits of values that are not the client's.
const GIVEN: &str = "system user assistant tool function text image true false none 0 1 2 3 4 5 6 7 8 9";

/// Longest control token whose parts are looked at one by one; real ones have a few dozen bytes.
const CONTROL_BYTES_MAX: usize = 256;

/// Parts of all control tokens together that are looked at; real vocabularies have one or two million.
const LOOKS_MAX: usize = 1 << 24;

/// Decides where sentinels go.
#[derive(Debug)]
pub(crate) struct Guard {
    /// First characters of control tokens, in either case, sorted; and whether that is all of the token.
    starts: Vec<(char, bool)>,
    /// What the template may look for in a message; none of these can begin, end or hold a control token.
    wanted: Vec<String>,
    /// Private-use characters of the template and of control tokens.
    taken: HashSet<char>,
}

/// A rendered prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    pub(crate) fn new(vocab: &Vocab, template: &Source) -> Guard {
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
        let mut wanted = template.literals.clone();
        let lower: Vec<String> = controls.iter().map(|control| control.to_lowercase()).collect();
        // What is not looked at is not left whole.
        let looked_at: usize = controls.iter().map(|control| control.len().saturating_pow(2)).sum();
        let readable =
            looked_at <= LOOKS_MAX && controls.iter().all(|control| control.len() <= CONTROL_BYTES_MAX);
        let ends = if readable { completions(&lower, template) } else { HashSet::from([String::new()]) };
        wanted.retain(|text| {
            let text = text.to_lowercase();
            let meets = |end: &String| text.starts_with(&**end) || end.starts_with(&*text);
            let holds = |control: &String| text.contains(&**control);
            !text.is_empty() && !ends.iter().any(meets) && !lower.iter().any(holds)
        });
        let literals = template.literals.iter().map(String::as_str);
        let texts = literals.chain([&*template.text]).chain(controls);
        let taken = texts.flat_map(str::chars).filter(|&character| is_private(character));
        Guard { starts, wanted, taken: taken.collect() }
    }

    /// Private-use characters that occur neither here nor there.
    pub(crate) fn free(&self, chat: &Chat) -> impl Iterator<Item = char> + use<> {
        let mut taken = self.taken.clone();
        chat.for_each_text(&mut |text| taken.extend(text.chars().filter(|&character| is_private(character))));
        let candidates = ('\u{e000}'..='\u{f8ff}').chain('\u{f0000}'..='\u{ffffd}');
        candidates.filter(move |candidate| !taken.contains(candidate))
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
        // In any case, for a template may change a text's case before it compares.
        let starts = |text: &String| {
            let start = rest.as_bytes().get(..text.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(text.as_bytes()))
        };
        self.wanted.iter().any(starts)
    }
}

/// The ends of control tokens that a message could supply: all of a token, and what is left of it behind a beginning that the
/// template's own text may supply. All in lower case, for a template may change the case of either.
fn completions(controls: &[String], template: &Source) -> HashSet<String> {
    let own = template.literals.iter().chain(&template.texts).map(String::as_str).chain(GIVEN.split(' '));
    let own = own.map(str::to_lowercase);
    let own: HashSet<String> = own.flat_map(|text| [text.trim_end().to_owned(), text]).collect();
    let longest = controls.iter().map(|control| control.len()).max().unwrap_or(0);
    let tails = own.iter().flat_map(|text| {
        let starts = text.char_indices().map(|(at, _)| at).filter(|at| text.len() - at <= longest);
        starts.map(|at| &text[at..])
    });
    let tails: HashSet<&str> = tails.collect();
    let mut ends = HashSet::new();
    for control in controls {
        let places: Vec<usize> = control.char_indices().map(|(at, _)| at).collect();
        // Where a beginning that the template supplies ends.
        let begun = places.iter().skip(1).filter(|&&at| tails.contains(&control[..at]));
        let begun: Vec<usize> = begun.copied().collect();
        // From there it may go on with whole texts of its own: where the last one that ends by `at` begins.
        let mut last = None;
        let mut latest = BTreeMap::new();
        for &at in &places {
            let own_ending_here = places.iter().rev().skip_while(|&&from| from >= at);
            let from = own_ending_here.copied().find(|&from| own.contains(&control[from..at]));
            last = last.max(from);
            latest.insert(at, last);
        }
        let fills = |from: usize, until: usize| latest.get(&until).is_some_and(|last| *last >= Some(from));
        let supplied = |at: usize| begun.iter().any(|&from| from == at || from < at && fills(from, at));
        ends.extend(places.iter().filter(|&&at| at == 0 || supplied(at)).map(|&at| control[at..].to_owned()));
    }
    ends
}

impl Prompt {
    /// A part of it, by bytes of the text.
    pub(crate) fn part(&self, range: Range<usize>) -> Prompt {
        let from = self.cuts.partition_point(|&cut| (cut as usize) < range.start);
        let until = self.cuts.partition_point(|&cut| cut as usize <= range.end);
        let cuts = self.cuts[from..until].iter().map(|cut| cut - range.start as u32).collect();
        Prompt { text: self.text[range].to_owned(), cuts }
    }

    /// Whether `other` begins like this, up to what stands right at this one's end.
    pub(crate) fn starts(&self, other: &Prompt) -> bool {
        let before_end = |cuts: &[u32]| cuts.partition_point(|&cut| (cut as usize) < self.text.len());
        other.text.starts_with(&self.text)
            && self.cuts[..before_end(&self.cuts)] == other.cuts[..before_end(&other.cuts)]
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

#[cfg(test)]
mod tests {
    use super::*;

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

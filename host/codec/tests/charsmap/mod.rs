//! Builds a compiled normalization (a double array over UTF-8) from a short list, for both implementations to read.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::{BTreeMap, BTreeSet};

/// What becomes of what: all kinds of spaces, width, ligatures, control characters.
fn rules() -> BTreeMap<String, &'static str> {
    let mut rules: BTreeMap<String, &'static str> = BTreeMap::new();
    let spaces = (0..=0x3000_u32).filter_map(char::from_u32).filter(|c| c.is_whitespace() && *c != ' ');
    rules.extend(spaces.map(|space| (space.to_string(), " ")));
    let pairs = [
        ("ﬁ", "fi"),
        ("ﬂ", "fl"),
        ("①", "1"),
        ("Ⅳ", "IV"),
        ("™", "TM"),
        ("…", "..."),
        ("１", "1"),
        ("２", "2"),
        ("！", "!"),
    ];
    rules.extend(pairs.map(|(from, to)| (from.to_owned(), to)));
    rules.extend(["\u{1}", "\u{7}", "\u{8}", "\u{200b}", "\u{feff}"].map(|gone| (gone.to_owned(), "")));
    rules
}

/// Whether the reference, which looks at what is written as one character, sees what SentencePiece sees.
pub(crate) fn is_comparable(text: &str) -> bool {
    let rules = rules();
    let is_rule = |c: char| rules.contains_key(c.encode_utf8(&mut [0; 4]) as &str);
    let joins = |c: char| matches!(c, '\u{200d}' | '\u{300}'..='\u{36f}' | '\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0020}'..='\u{e007f}');
    let characters: Vec<char> = text.chars().collect();
    characters.windows(2).all(|pair| !(is_rule(pair[0]) && joins(pair[1])))
}

#[derive(Default)]
struct Node {
    children: BTreeMap<u8, Node>,
    place: Option<u32>,
}

pub(crate) fn build() -> Vec<u8> {
    let mut root = Node::default();
    let mut replacements = Vec::new();
    for (from, to) in rules() {
        let node = from.bytes().fold(&mut root, |node, byte| node.children.entry(byte).or_default());
        node.place = Some(replacements.len() as u32);
        replacements.extend(to.bytes());
        replacements.push(0);
    }
    let mut units = vec![0_u32; 256];
    let mut used = vec![false; 256];
    used[0] = true;
    place(&root, 0, &mut units, &mut used, &mut BTreeSet::new());
    let mut blob = ((units.len() * 4) as u32).to_le_bytes().to_vec();
    blob.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    blob.extend(replacements);
    blob
}

/// Gives the children of the node at `at` a free block and writes where it is.
fn place(node: &Node, at: u32, units: &mut Vec<u32>, used: &mut Vec<bool>, bases: &mut BTreeSet<u32>) {
    let labels: Vec<u8> = node.place.map(|_| 0).into_iter().chain(node.children.keys().copied()).collect();
    let mut base = 1;
    // No two nodes share a base: the label of a unit would not tell whose child it is. The distance is written in 21 bits; the list is short enough for that.
    while labels.iter().any(|&label| used.get((base ^ u32::from(label)) as usize) == Some(&true))
        || base == at
        || bases.contains(&base)
    {
        base += 1;
    }
    bases.insert(base);
    let size = ((base | 0xff) + 1) as usize;
    if units.len() < size {
        units.resize(size, 0);
        used.resize(size, false);
    }
    units[at as usize] |= (at ^ base) << 10;
    if let Some(place) = node.place {
        units[at as usize] |= 1 << 8;
        units[base as usize] = 1 << 31 | place;
    }
    for &label in &labels {
        used[(base ^ u32::from(label)) as usize] = true;
    }
    for (&label, child) in &node.children {
        let below = base ^ u32::from(label);
        units[below as usize] = label.into();
        place(child, below, units, used, bases);
    }
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().chain([&0, &0]).take(3).fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
        for index in 0..4 {
            let letter = ALPHABET[(word >> (18 - 6 * index)) as usize & 63];
            text.push(if index <= chunk.len() { letter.into() } else { '=' });
        }
    }
    text
}

//! Finds the tokens that stand in a text as they are: control tokens and user-defined ones.
//!
//! Longer tokens go before shorter ones over the whole text, then left before right, as llama.cpp does. A control token
//! counts only where the caller says that the text there is the template's own.

use std::ops::Range;

use crate::vocab::{Kind, Vocab};

/// A stretch of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A token that stands there as it is.
    Marker(u32),
    /// Anything else; never empty.
    Text(Range<usize>),
}

/// Where control tokens may stand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trust<'a> {
    /// Nowhere: it is somebody's text.
    Nothing,
    /// Where no cut lies inside: sorted byte positions. Two cuts right behind it forbid a token of one character.
    Except(&'a [u32]),
}

impl Trust<'_> {
    pub(crate) fn allows(self, at: &Range<usize>, is_character: bool) -> bool {
        let Trust::Except(cuts) = self else { return false };
        let (inside, most) = if is_character { (at.end, 1) } else { (at.start + 1, 0) };
        let from = cuts.partition_point(|&cut| (cut as usize) < inside);
        let until = if is_character { at.end + 1 } else { at.end };
        cuts[from..].iter().take_while(|&&cut| (cut as usize) < until).count() <= most
    }
}

#[derive(Debug)]
struct Marker {
    id: u32,
    text: Box<[u8]>,
    control: bool,
    is_character: bool,
    eats_space: bool,
    /// Swallows the spaces before it.
    eats_before: bool,
}

#[derive(Debug, Default)]
struct Node {
    /// Index of the marker that ends here.
    marker: Option<u32>,
    /// Sorted by byte.
    children: Vec<(u8, u32)>,
}

#[derive(Debug)]
pub(crate) struct Markers {
    /// Longest first, then by id: the order in which they are looked for.
    markers: Vec<Marker>,
    /// A tree of their bytes; the root is node 0.
    nodes: Vec<Node>,
    /// Bytes that start one.
    starts: Vec<bool>,
}

/// Matches that overlap each other, still to be decided.
#[derive(Default)]
struct Knot {
    range: Range<usize>,
    found: Vec<u32>,
    matches: usize,
}

impl Markers {
    pub(crate) fn new(vocab: &Vocab) -> Markers {
        let mut markers: Vec<Marker> = (0..vocab.len())
            .filter(|&id| vocab.kind(id).is_control() || vocab.kind(id) == Kind::UserDefined)
            .map(|id| Marker {
                id,
                text: vocab.texts.get(id).into(),
                control: vocab.kind(id).is_control(),
                is_character: vocab.text(id).chars().nth(1).is_none(),
                eats_space: vocab.markers_eat_space
                    && !matches!(vocab.text(id), "<unk>" | "<s>" | "<|endoftext|>"),
                eats_before: vocab.eats_before == Some(id),
            })
            .collect();
        markers.sort_by_key(|marker| (std::cmp::Reverse(marker.text.len()), marker.id));
        let mut tree =
            Markers { markers: Vec::new(), nodes: vec![Node::default()], starts: vec![false; 256] };
        for (index, marker) in markers.iter().enumerate() {
            tree.plant(&marker.text, index as u32);
        }
        tree.markers = markers;
        tree
    }

    fn plant(&mut self, text: &[u8], index: u32) {
        let Some(&first) = text.first() else { return };
        self.starts[first as usize] = true;
        let mut node = 0;
        for &byte in text {
            let found = self.nodes[node].children.binary_search_by_key(&byte, |child| child.0);
            node = match found {
                Ok(at) => self.nodes[node].children[at].1 as usize,
                Err(at) => {
                    let new = self.nodes.len();
                    self.nodes.push(Node::default());
                    self.nodes[node].children.insert(at, (byte, new as u32));
                    new
                }
            };
        }
        self.nodes[node].marker.get_or_insert(index);
    }

    /// Cuts `text` into markers and the rest.
    pub(crate) fn split(&self, text: &str, trust: Trust<'_>) -> Vec<Part> {
        let bytes = text.as_bytes();
        let mut accepted: Vec<(usize, u32)> = Vec::new();
        let mut knot = Knot::default();
        // Last start at which each marker was seen in this knot, to list it once.
        let mut listed = vec![u32::MAX; self.markers.len()];
        let mut knots = 0;
        for at in 0..bytes.len() {
            if !self.starts[bytes[at] as usize] {
                continue;
            }
            if at >= knot.range.end && knot.matches > 0 {
                self.untie(bytes, trust, &mut knot, &mut accepted);
                knots += 1;
            }
            let mut node = 0;
            for (length, &byte) in bytes[at..].iter().enumerate() {
                let Ok(child) = self.nodes[node].children.binary_search_by_key(&byte, |child| child.0) else {
                    break;
                };
                node = self.nodes[node].children[child].1 as usize;
                let Some(index) = self.nodes[node].marker else { continue };
                let range = at..at + length + 1;
                if self.allowed(index, trust, &range) {
                    knot.add(index, &range, &mut listed[index as usize], knots);
                }
            }
        }
        self.untie(bytes, trust, &mut knot, &mut accepted);
        self.parts(bytes, &accepted)
    }

    fn allowed(&self, index: u32, trust: Trust<'_>, range: &Range<usize>) -> bool {
        let marker = &self.markers[index as usize];
        !marker.control || trust.allows(range, marker.is_character)
    }

    /// Decides a knot: each marker in its order takes what earlier ones left.
    fn untie(&self, bytes: &[u8], trust: Trust<'_>, knot: &mut Knot, accepted: &mut Vec<(usize, u32)>) {
        let before = accepted.len();
        if knot.matches == 1 {
            accepted.push((knot.range.start, knot.found[0]));
        } else {
            knot.found.sort_unstable();
            let mut free = vec![knot.range.clone()];
            for &index in &knot.found {
                let text = &self.markers[index as usize].text;
                let mut left_over = Vec::with_capacity(free.len());
                for mut gap in free {
                    let mut at = gap.start;
                    while at + text.len() <= gap.end {
                        let range = at..at + text.len();
                        if bytes[at..].starts_with(text) && self.allowed(index, trust, &range) {
                            accepted.push((at, index));
                            left_over.extend(Some(gap.start..at).filter(|gap| !gap.is_empty()));
                            gap.start = range.end;
                            at = range.end;
                        } else {
                            at += 1;
                        }
                    }
                    left_over.extend(Some(gap).filter(|gap| !gap.is_empty()));
                }
                free = left_over;
            }
        }
        accepted[before..].sort_unstable();
        knot.matches = 0;
        knot.found.clear();
    }

    fn parts(&self, bytes: &[u8], accepted: &[(usize, u32)]) -> Vec<Part> {
        let mut parts = Vec::with_capacity(accepted.len() * 2 + 1);
        let mut text_from = 0;
        for &(at, index) in accepted {
            let marker = &self.markers[index as usize];
            let space = |byte: &&u8| byte.is_ascii_whitespace() || **byte == 0x0b;
            let mut gap = text_from..at;
            if marker.eats_before {
                gap.end -= bytes[gap.clone()].iter().rev().take_while(space).count();
            }
            parts.extend(Some(gap).filter(|gap| !gap.is_empty()).map(Part::Text));
            parts.push(Part::Marker(marker.id));
            text_from = at + marker.text.len();
            if marker.eats_space {
                text_from += bytes[text_from..].iter().take_while(space).count();
            }
        }
        parts.extend(Some(text_from..bytes.len()).filter(|gap| !gap.is_empty()).map(Part::Text));
        parts
    }
}

impl Knot {
    fn add(&mut self, index: u32, range: &Range<usize>, listed: &mut u32, knots: u32) {
        if self.matches == 0 {
            self.range = range.clone();
        }
        self.range.end = self.range.end.max(range.end);
        self.matches += 1;
        if *listed != knots {
            *listed = knots;
            self.found.push(index);
        }
    }
}

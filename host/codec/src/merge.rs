//! Merges neighbours of a text, best pair first, until no pair is left: the heart of both tokenizers.
//!
//! Among equal pairs the leftmost is merged first, as the reference tokenizers do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No neighbour, no token.
pub(crate) const NONE: u32 = u32::MAX;

/// A stretch of the text that is one symbol. Merged away when empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    pub id: u32,
    pub start: u32,
    pub end: u32,
    prev: u32,
    next: u32,
}

/// Says what two neighbours become.
pub(crate) trait Merges {
    /// Rank (lowest first) and symbol of the union; `None` when they do not merge.
    fn merge(&self, text: &[u8], left: &Symbol, right: &Symbol) -> Option<(u32, u32)>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    right: u32,
    /// End of `right` when the pair was seen; another one now means that the pair is gone.
    end: u32,
    id: u32,
}

/// Buffers of one encoding, reused from word to word.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    candidates: BinaryHeap<Reverse<Candidate>>,
}

impl Merger {
    /// Starts a new text.
    pub(crate) fn clear(&mut self) {
        self.symbols.clear();
        self.candidates.clear();
    }

    /// Appends a first symbol; they must follow each other without gaps.
    pub(crate) fn push(&mut self, id: u32, start: u32, end: u32) {
        let index = self.symbols.len() as u32;
        if let Some(last) = self.symbols.last_mut() {
            last.next = index;
        }
        self.symbols.push(Symbol { id, start, end, prev: index.checked_sub(1).unwrap_or(NONE), next: NONE });
    }

    /// Merges until nothing merges, then hands over what is left, in order.
    pub(crate) fn run(&mut self, text: &[u8], merges: &impl Merges, mut each: impl FnMut(&Symbol)) {
        for right in 1..self.symbols.len() as u32 {
            self.consider(text, merges, right - 1, right);
        }
        while let Some(Reverse(best)) = self.candidates.pop() {
            let (left, right) = (self.symbols[best.left as usize], self.symbols[best.right as usize]);
            let both_alive = left.end > left.start && right.end > right.start;
            if !both_alive || left.end != right.start || right.end != best.end {
                continue;
            }
            self.symbols[best.right as usize].end = right.start;
            if let Some(after) = self.symbols.get_mut(right.next as usize) {
                after.prev = best.left;
            }
            let merged = &mut self.symbols[best.left as usize];
            (merged.id, merged.end, merged.next) = (best.id, right.end, right.next);
            self.consider(text, merges, left.prev, best.left);
            self.consider(text, merges, best.left, right.next);
        }
        self.symbols.iter().filter(|symbol| symbol.end > symbol.start).for_each(&mut each);
    }

    fn consider(&mut self, text: &[u8], merges: &impl Merges, left: u32, right: u32) {
        let pair = (self.symbols.get(left as usize), self.symbols.get(right as usize));
        let (Some(before), Some(after)) = pair else { return };
        if let Some((rank, id)) = merges.merge(text, before, after) {
            self.candidates.push(Reverse(Candidate { rank, left, right, end: after.end, id }));
        }
    }
}

//! What a lane has seen: every token it holds, and which of them were drawn here.

/// Set on tokens that were drawn; ids stay below it.
const DRAWN: u32 = 1 << 31;

/// The tokens of one lane, prompt and generated, with counts of the generated ones.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// One word per position: the token, [`DRAWN`] when it was generated.
    words: Vec<u32>,
    /// The token drawn last; it counts as generated once it is fed.
    pending: Option<u32>,
    /// Whether occurrences are counted; only penalties need them.
    counting: bool,
    /// Token and occurrences among the generated ones, by token.
    counts: Vec<(u32, u32)>,
}

impl History {
    /// Largest token id plus one that a history can hold.
    pub const TOKENS_MAX: u32 = DRAWN;

    /// Forgets everything, keeps the memory and makes room for `room` positions.
    pub fn reset(&mut self, counting: bool, room: usize) {
        self.words.clear();
        self.counts.clear();
        self.pending = None;
        self.counting = counting;
        self.words.reserve(room);
        if counting {
            self.counts.reserve(room.min(4096));
        }
    }

    /// Positions held.
    pub fn len(&self) -> u32 {
        self.words.len() as u32
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Takes a run that was fed. Its first token counts as generated when it is the one drawn last.
    pub fn fed(&mut self, run: &[u32]) {
        let mut rest = run;
        if let (Some(drawn), Some((first, others))) = (self.pending, run.split_first()) {
            self.pending = None;
            if drawn == *first {
                self.words.push(first | DRAWN);
                self.count(*first);
                rest = others;
            }
        }
        self.words.extend(rest.iter().map(|token| token & !DRAWN));
    }

    /// Notes the token that was drawn to follow the last one.
    pub fn drew(&mut self, token: u32) {
        self.pending = Some(token);
    }

    /// Cuts to at most `len` positions.
    pub fn truncate(&mut self, len: u32) {
        let len = len as usize;
        if len >= self.words.len() {
            return;
        }
        self.pending = None;
        while self.words.len() > len {
            match self.words.pop() {
                Some(word) if word & DRAWN != 0 => self.uncount(word & !DRAWN),
                _ => {}
            }
        }
    }

    /// Takes over the first `upto` positions of another history.
    pub fn copy_from(&mut self, other: &History, upto: u32) {
        let upto = (upto as usize).min(other.words.len());
        self.words.clear();
        self.counts.clear();
        self.words.extend_from_slice(&other.words[..upto]);
        self.pending = other.pending.filter(|_| upto == other.words.len());
        for at in 0..upto {
            let word = self.words[at];
            if word & DRAWN != 0 {
                self.count(word & !DRAWN);
            }
        }
    }

    /// The last `n` tokens, prompt included, oldest first.
    pub fn recent(&self, n: u32) -> impl Iterator<Item = u32> + '_ {
        let from = self.words.len().saturating_sub(n as usize);
        self.words[from..].iter().map(|word| word & !DRAWN)
    }

    /// Generated tokens with their occurrences, by token; empty unless they are counted.
    pub fn generated(&self) -> &[(u32, u32)] {
        &self.counts
    }

    fn count(&mut self, token: u32) {
        if !self.counting {
            return;
        }
        match self.counts.binary_search_by_key(&token, |entry| entry.0) {
            Ok(at) => self.counts[at].1 += 1,
            Err(at) => self.counts.insert(at, (token, 1)),
        }
    }

    fn uncount(&mut self, token: u32) {
        if let Ok(at) = self.counts.binary_search_by_key(&token, |entry| entry.0) {
            self.counts[at].1 -= 1;
            if self.counts[at].1 == 0 {
                self.counts.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history of prompt `[5, 5]` and generated `[7, 8, 7]`.
    fn history() -> History {
        let mut history = History::default();
        history.reset(true, 16);
        history.fed(&[5, 5]);
        for token in [7, 8, 7] {
            history.drew(token);
            history.fed(&[token]);
        }
        history
    }

    #[test]
    fn only_drawn_tokens_count_as_generated() {
        assert_eq!(history().generated(), [(7, 2), (8, 1)]);
        let mut forced = history();
        forced.drew(9);
        forced.fed(&[8, 9]);
        assert_eq!(forced.generated(), [(7, 2), (8, 1)], "another token was fed than was drawn");
        assert_eq!(forced.recent(4).collect::<Vec<_>>(), [8, 7, 8, 9]);
    }

    #[test]
    fn a_cut_takes_back_what_it_cuts() {
        let check = |len: u32, expect: &[(u32, u32)]| {
            let mut cut = history();
            cut.truncate(len);
            assert_eq!((cut.generated(), cut.len()), (expect, len.min(5)));
        };
        check(9, &[(7, 2), (8, 1)]);
        check(4, &[(7, 1), (8, 1)]);
        check(3, &[(7, 1)]);
        check(0, &[]);
    }

    #[test]
    fn a_fork_knows_its_parents_tokens_up_to_its_point() {
        let mut child = History::default();
        child.reset(true, 16);
        child.copy_from(&history(), 4);
        assert_eq!((child.len(), child.generated()), (4, &[(7, 1), (8, 1)][..]));
        let mut silent = History::default();
        silent.reset(false, 16);
        silent.copy_from(&history(), 4);
        assert_eq!((silent.len(), silent.generated()), (4, &[][..]));
    }
}

//! The stretch of output that is not decided yet, and which marks stand in it.

/// A text that opens, closes or separates something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) text: &'static str,
    /// Only the control token of this text counts; the same text spelled out is text.
    pub(super) token: bool,
}

/// A mark that counts however it is written.
pub(super) const fn plain(text: &'static str) -> Mark {
    Mark { text, token: false }
}

/// A mark that counts only as one control token.
pub(super) const fn token(text: &'static str) -> Mark {
    Mark { text, token: true }
}

/// What follows the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Unknown: more text may join.
    Open,
    /// A marker token, or the window is one: nothing joins.
    Marker,
    /// Nothing, ever.
    Output,
}

/// What stands at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Here {
    /// The longest mark there; `set` is the index of its list.
    Mark {
        set: usize,
        length: usize,
    },
    /// The start of a mark, cut by the end of an open window.
    Maybe,
    Nothing,
}

/// The first place where a mark stands or may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Mark {
        at: usize,
        set: usize,
        length: usize,
    },
    /// From here on it may be a mark; before it is none.
    Maybe(usize),
    Nothing,
}

#[derive(Debug)]
pub(super) struct Window {
    text: String,
    at: usize,
    marker: bool,
    end: End,
}

impl Window {
    pub(super) fn new() -> Window {
        Window { text: String::new(), at: 0, marker: false, end: End::Open }
    }

    /// More text joins an open window.
    pub(super) fn push(&mut self, text: &str) {
        self.text.drain(..self.at);
        self.at = 0;
        self.text.push_str(text);
        self.marker = false;
        self.end = End::Open;
    }

    /// The window becomes one marker token; what was in it must be used up.
    pub(super) fn put_marker(&mut self, text: &str) {
        self.push(text);
        self.marker = true;
        self.end = End::Marker;
    }

    pub(super) fn close(&mut self, end: End) {
        self.end = end;
    }

    pub(super) fn end(&self) -> End {
        self.end
    }

    /// Whether it is a marker token, all of it.
    pub(super) fn is_marker(&self) -> bool {
        self.marker && self.at == 0
    }

    pub(super) fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.text.len()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Moves `bytes` of it, whole characters, to the end of `to`.
    pub(super) fn take(&mut self, bytes: usize, to: &mut String) {
        to.push_str(&self.text[self.at..self.at + bytes]);
        self.at += bytes;
    }

    /// Bytes of white space from here on.
    pub(super) fn space(&self) -> usize {
        self.rest().len() - self.rest().trim_start().len()
    }

    /// What stands at the start.
    pub(super) fn starts(&self, sets: &[&[Mark]]) -> Here {
        self.mark_at(0, sets)
    }

    /// What stands `at` bytes from the start. Of several marks the longest counts, so one that another continues waits.
    pub(super) fn mark_at(&self, at: usize, sets: &[&[Mark]]) -> Here {
        let tail = &self.rest().as_bytes()[at..];
        let whole_marker = self.is_marker() && at == 0;
        let mut best: Option<(usize, usize)> = None;
        for (set, marks) in sets.iter().enumerate() {
            for mark in *marks {
                let text = mark.text.as_bytes();
                if mark.token && !(whole_marker && tail == text) {
                    continue;
                }
                if tail.starts_with(text) {
                    best = best.max(Some((text.len(), set)));
                } else if self.end == End::Open && text.starts_with(tail) {
                    return Here::Maybe;
                }
            }
        }
        best.map_or(Here::Nothing, |(length, set)| Here::Mark { set, length })
    }

    /// The first mark of any list.
    pub(super) fn find(&self, sets: &[&[Mark]]) -> Found {
        for (at, _) in self.rest().char_indices() {
            match self.mark_at(at, sets) {
                Here::Mark { set, length } => return Found::Mark { at, set, length },
                Here::Maybe => return Found::Maybe(at),
                Here::Nothing => {}
            }
        }
        Found::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: &[&[Mark]] = &[&[plain("<a>"), plain("<a>b")], &[token("[X]"), plain("\u{ff5c}e")]];

    #[test]
    fn the_longest_mark_counts_and_what_may_become_one_waits() {
        let check = |text: &str, end: End, expect: Found| {
            let mut window = Window::new();
            window.push(text);
            window.close(end);
            assert_eq!(window.find(MARKS), expect, "{text:?} {end:?}");
        };
        check("x<a>c", End::Open, Found::Mark { at: 1, set: 0, length: 3 });
        check("x<a>", End::Open, Found::Maybe(1));
        check("x<a>", End::Output, Found::Mark { at: 1, set: 0, length: 3 });
        check("x<a>b", End::Open, Found::Mark { at: 1, set: 0, length: 4 });
        check("<<a", End::Open, Found::Maybe(1));
        check("<<a", End::Marker, Found::Nothing);
        check("é\u{ff5c}", End::Open, Found::Maybe(2));
        check("\u{ff5d}", End::Open, Found::Nothing);
        check("[X]", End::Output, Found::Nothing);
        check("", End::Open, Found::Nothing);
    }

    #[test]
    fn a_control_mark_counts_only_as_the_token_itself() {
        let check = |text: &str, taken: usize, expect: Here| {
            let mut window = Window::new();
            window.put_marker(text);
            window.take(taken, &mut String::new());
            assert_eq!(window.starts(MARKS), expect, "{text:?}");
        };
        check("[X]", 0, Here::Mark { set: 1, length: 3 });
        check("[X] ", 0, Here::Nothing);
        check("<a>", 0, Here::Mark { set: 0, length: 3 });
        check("-[X]", 1, Here::Nothing);
    }
}

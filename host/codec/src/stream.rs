//! Turns tokens into text as they come: whole characters only, and nothing of or after a stop string.

use std::sync::Arc;

use sf_core::Token;

use crate::codec::Codec;

/// What one token brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Text that is certain now; often empty, never ends inside a character.
    pub text: String,
    /// A stop string is complete: this is the end, and later tokens bring nothing.
    pub stopped: bool,
}

/// Streaming detokenizer of one answer. It continues a prompt, so a leading space is part of the answer.
///
/// The pieces of all tokens and of [`TextStream::finish`] together are the text of all tokens up to the first stop
/// string to be completed, however the tokens cut it.
#[derive(Debug)]
pub struct TextStream {
    codec: Arc<Codec>,
    /// None is empty.
    stops: Vec<String>,
    /// Bytes of a character still arriving; less than four between two calls.
    partial: Vec<u8>,
    /// Whole characters that may still turn out to start a stop string.
    held: String,
    stopped: bool,
}

impl TextStream {
    /// A stream that ends at any of `stops`; empty ones are ignored.
    pub fn new(codec: Arc<Codec>, mut stops: Vec<String>) -> TextStream {
        stops.retain(|stop| !stop.is_empty());
        TextStream { codec, stops, partial: Vec::new(), held: String::new(), stopped: false }
    }

    /// Takes the next token. Control tokens bring no text.
    pub fn push(&mut self, token: Token) -> Piece {
        if self.stopped {
            return Piece { text: String::new(), stopped: true };
        }
        let bytes = self.codec.token_bytes(token);
        if bytes.is_empty() {
            return Piece::default();
        }
        if self.partial.is_empty() {
            // The common case: whole characters, no copy through the buffer.
            let left = push_whole(bytes, &mut self.held);
            self.partial.extend_from_slice(left);
        } else {
            self.partial.extend_from_slice(bytes);
            let left = push_whole(&self.partial, &mut self.held).len();
            self.partial.drain(..self.partial.len() - left);
        }
        self.release()
    }

    /// Something that is no text stands here: hands out what was held back, and goes on behind it.
    pub fn part(&mut self) -> String {
        if self.stopped {
            return String::new();
        }
        if !self.partial.is_empty() {
            self.partial.clear();
            self.held.push(char::REPLACEMENT_CHARACTER);
        }
        std::mem::take(&mut self.held)
    }

    /// The answer is over: hands out what was held back. A character that never became whole is one U+FFFD.
    pub fn finish(&mut self) -> String {
        if self.stopped {
            return String::new();
        }
        if !self.partial.is_empty() {
            self.partial.clear();
            self.held.push(char::REPLACEMENT_CHARACTER);
        }
        let mut text = self.release().text;
        if !self.stopped {
            text.push_str(&std::mem::take(&mut self.held));
        }
        self.stopped = true;
        text
    }

    /// Whether a stop string ended the answer or [`TextStream::finish`] was called.
    pub fn is_over(&self) -> bool {
        self.stopped
    }

    fn release(&mut self) -> Piece {
        if self.stops.is_empty() {
            return Piece { text: std::mem::take(&mut self.held), stopped: false };
        }
        // The stop that is complete first counts; of several that end together, the longest.
        let ends =
            self.stops.iter().filter_map(|stop| self.held.find(&**stop).map(|at| (at + stop.len(), at)));
        if let Some((_, start)) = ends.min() {
            self.stopped = true;
            self.held.truncate(start);
            return Piece { text: std::mem::take(&mut self.held), stopped: true };
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let tail = self.held.split_off(self.held.len() - keep);
        Piece { text: std::mem::replace(&mut self.held, tail), stopped: false }
    }
}

/// Bytes at the end of `text` that are the longest proper start of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let (text, stop) = (text.as_bytes(), stop.as_bytes());
    let longest = text.len().min(stop.len() - 1);
    (1..=longest).rev().find(|&length| text.ends_with(&stop[..length])).unwrap_or(0)
}

/// Appends the characters of `bytes`, U+FFFD for each broken one; returns the start of one that is not complete yet.
fn push_whole<'a>(mut bytes: &'a [u8], out: &mut String) -> &'a [u8] {
    loop {
        let fault = match std::str::from_utf8(bytes) {
            Ok(text) => {
                out.push_str(text);
                return &[];
            }
            Err(fault) => fault,
        };
        let (valid, rest) = bytes.split_at(fault.valid_up_to());
        out.push_str(std::str::from_utf8(valid).expect("valid up to there"));
        let Some(broken) = fault.error_len() else { return rest };
        out.push(char::REPLACEMENT_CHARACTER);
        bytes = &rest[broken..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_bytes_become_one_mark_per_maximal_part_and_open_ones_wait() {
        let check = |bytes: &[u8], text: &str, left: usize| {
            let mut out = String::new();
            assert_eq!(push_whole(bytes, &mut out).len(), left, "{bytes:x?}");
            assert_eq!(out, text, "{bytes:x?}");
        };
        check("aä€😀".as_bytes(), "aä€😀", 0);
        check(b"a\xf0\x9f\x98", "a", 3);
        check(b"a\xf0\x9f\x98b", "a\u{fffd}b", 0);
        check(b"\xff\xfe\xc3", "\u{fffd}\u{fffd}", 1);
        check(b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}", 0);
        check(b"\xe2\x82\xe2\x82\xac", "\u{fffd}€", 0);
    }

    #[test]
    fn the_longest_start_of_a_stop_is_held_back() {
        let check = |text, stop, expect| assert_eq!(overlap(text, stop), expect, "{text:?} {stop:?}");
        check("hello", "lox", 2);
        check("aaa", "aaaa", 3);
        check("abab", "abac", 2);
        check("x", "y", 0);
        check("", "abc", 0);
        check("\u{20ac}", "\u{20ac}\u{20ac}", 3);
    }
}

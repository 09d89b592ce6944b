//! Lengths of a vocabulary's tokens and merges, read without keeping them: the crate that runs a `tokenizer.json` copies
//! merges into a buffer of the longest token's size and does not look whether they fit.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Bytes of the longest token; 0 for a vocabulary that is a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LongestToken(pub usize);

/// Bytes of the longest pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LongestMerge(pub usize);

/// Bytes of one pair: `"left right"` or `["left", "right"]`.
struct Merge(usize);

struct TokenVisitor;
struct MergesVisitor;
struct MergeVisitor;

impl<'de> Deserialize<'de> for LongestToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TokenVisitor)
    }
}

impl<'de> Deserialize<'de> for LongestMerge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(MergesVisitor)
    }
}

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MergeVisitor)
    }
}

impl<'de> Visitor<'de> for TokenVisitor {
    type Value = LongestToken;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a vocabulary")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LongestToken, A::Error> {
        let mut longest = 0;
        while let Some((token, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
            longest = longest.max(token.len());
        }
        Ok(LongestToken(longest))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<LongestToken, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(LongestToken(0))
    }
}

impl<'de> Visitor<'de> for MergesVisitor {
    type Value = LongestMerge;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<LongestMerge, A::Error> {
        let mut longest = 0;
        while let Some(Merge(length)) = list.next_element()? {
            longest = longest.max(length);
        }
        Ok(LongestMerge(longest))
    }
}

impl<'de> Visitor<'de> for MergeVisitor {
    type Value = Merge;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("two tokens")
    }

    fn visit_str<E: Error>(self, pair: &str) -> Result<Merge, E> {
        // The crate leaves out a first line that names a version, and takes a pair at its only space.
        let is_pair = !pair.starts_with("#version");
        Ok(Merge(if is_pair { pair.len().saturating_sub(1) } else { 0 }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Merge, A::Error> {
        let mut length = 0;
        while let Some(token) = pair.next_element::<String>()? {
            length += token.len();
        }
        Ok(Merge(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_found_in_either_form() {
        let tokens =
            |text: &str| serde_json::from_str::<LongestToken>(text).map_err(|fault| fault.to_string());
        assert_eq!(tokens(r#"{"a": 0, "bcd": 1, "é": 2}"#), Ok(LongestToken(3)));
        assert_eq!(tokens(r#"[["abc", 0.5]]"#), Ok(LongestToken(0)));
        assert!(tokens("7").is_err());
        let merges =
            |text: &str| serde_json::from_str::<LongestMerge>(text).map_err(|fault| fault.to_string());
        assert_eq!(merges(r##"["#version: 0.2000", "a b", "abc d"]"##), Ok(LongestMerge(4)));
        assert_eq!(merges(r#"[["a", "b"], ["ab", "cd e"]]"#), Ok(LongestMerge(6)));
        assert!(merges("[7]").is_err());
    }
}

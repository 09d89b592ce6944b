//! Mixes: lengths and classes drawn by weight, as the user writes them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::LoadError;
use crate::rng::Rng;

/// Most entries of a mix.
const ENTRIES_MAX: usize = 64;
/// Largest length, tokens.
const TOKENS_MAX: u32 = 1 << 20;
/// Largest weight.
const WEIGHT_MAX: u32 = 1_000_000;

/// Lengths in tokens: `512`, `64-512` (each equally likely), or weighted entries of both, `64:3,500-2000:1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    entries: Vec<Entry<(u32, u32)>>,
}

/// QoS classes by weight: `agent:6,interactive:1`; one name alone is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    entries: Vec<Entry<Arc<str>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry<T> {
    what: T,
    weight: u32,
}

impl Lengths {
    /// Always the same.
    pub fn fixed(tokens: u32) -> Self {
        Lengths { entries: vec![Entry { what: (tokens, tokens), weight: 1 }] }
    }

    /// Reads a mix; `setting` names it in errors.
    ///
    /// # Errors
    /// Anything but numbers, ranges and weights.
    pub fn read(text: &str, setting: &'static str) -> Result<Self, LoadError> {
        let length = |text: &str| number(text, TOKENS_MAX);
        let range = |text: &str| match text.split_once('-') {
            Some((least, most)) => {
                Some((length(least)?, length(most)?)).filter(|(least, most)| least <= most)
            }
            None => length(text).map(|tokens| (tokens, tokens)),
        };
        let accepts = "tokens as N, N-M, or a list with weights, e.g. 64-128:3,2000:1; N from 1 to 1048576";
        let entries = read(text, range).ok_or_else(|| LoadError::Setting {
            setting,
            value: text.to_owned(),
            accepts,
        })?;
        Ok(Lengths { entries })
    }

    /// One of them.
    pub(crate) fn draw(&self, rng: &mut Rng) -> u32 {
        let (least, most) = draw(&self.entries, rng).copied().unwrap_or((1, 1));
        least + rng.below(u64::from(most - least) + 1) as u32
    }

    /// The mean of what is drawn.
    pub fn mean(&self) -> f64 {
        let weights: f64 = self.entries.iter().map(|entry| f64::from(entry.weight)).sum();
        let sum = |entry: &Entry<(u32, u32)>| {
            let (least, most) = entry.what;
            f64::from(entry.weight) * (f64::from(least) + f64::from(most)) / 2.0
        };
        self.entries.iter().map(sum).sum::<f64>() / weights
    }
}

impl Classes {
    /// Reads a mix of classes.
    ///
    /// # Errors
    /// Anything but names and weights.
    pub fn read(text: &str) -> Result<Self, LoadError> {
        let name = |text: &str| {
            let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (!text.is_empty() && text.bytes().all(fine)).then(|| text.into())
        };
        let (setting, accepts) = ("--class", "class names with weights, e.g. agent:6,interactive:1");
        let entries = read(text, name).ok_or_else(|| LoadError::Setting {
            setting,
            value: text.to_owned(),
            accepts,
        })?;
        Ok(Classes { entries })
    }

    /// One of them; `None` = there are none.
    pub(crate) fn draw(&self, rng: &mut Rng) -> Option<Arc<str>> {
        draw(&self.entries, rng).cloned()
    }
}

fn number(text: &str, most: u32) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|number| (1..=most).contains(number))
}

fn read<T>(text: &str, what: impl Fn(&str) -> Option<T>) -> Option<Vec<Entry<T>>> {
    let entry = |part: &str| {
        let (name, weight) = match part.rsplit_once(':') {
            Some((name, weight)) => (name, number(weight, WEIGHT_MAX)?),
            None => (part, 1),
        };
        Some(Entry { what: what(name)?, weight })
    };
    let entries: Vec<Entry<T>> = text.split(',').map(|part| entry(part.trim())).collect::<Option<_>>()?;
    (entries.len() <= ENTRIES_MAX).then_some(entries)
}

fn draw<'a, T>(entries: &'a [Entry<T>], rng: &mut Rng) -> Option<&'a T> {
    let sum: u64 = entries.iter().map(|entry| u64::from(entry.weight)).sum();
    if sum == 0 {
        return None;
    }
    let mut left = rng.below(sum);
    entries
        .iter()
        .find(|entry| {
            let found = left < u64::from(entry.weight);
            left = left.saturating_sub(entry.weight.into());
            found
        })
        .map(|entry| &entry.what)
}

impl FromStr for Lengths {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Self, LoadError> {
        Lengths::read(text, "a length mix")
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Entry { what: (least, most), weight }) in self.entries.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{least}")?;
            if most > least {
                write!(f, "-{most}")?;
            }
            if self.entries.len() > 1 {
                write!(f, ":{weight}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.entries.iter().map(|Entry { what, weight }| format!("{what}:{weight}")).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_mixes_are_read_or_refused() {
        let check = |text: &str, expect: Option<&str>| {
            let read = text.parse::<Lengths>().ok().map(|lengths| lengths.to_string());
            assert_eq!(read.as_deref(), expect, "{text}");
        };
        check("512", Some("512"));
        check("64-512", Some("64-512"));
        check("64:3,2000:1", Some("64:3,2000:1"));
        check("64-128:3, 2000", Some("64-128:3,2000:1"));
        check("7-7", Some("7"));
        check("", None);
        check("0", None);
        check("-5", None);
        check("5-", None);
        check("512-64", None);
        check("64:0,1:1", None);
        check("64:", None);
        check("64,,65", None);
        check("+4", None);
        check("1048577", None);
        check("sixty", None);
    }

    #[test]
    fn class_mixes_are_read_or_refused() {
        let check = |text: &str, expect: Option<&str>| {
            let read = Classes::read(text).ok().map(|classes| classes.to_string());
            assert_eq!(read.as_deref(), expect, "{text}");
        };
        check("agent", Some("agent:1"));
        check("agent:6,interactive:1", Some("agent:6,interactive:1"));
        check("agent:6:1", None);
        check("agent\r\nX: y", None);
        check("", None);
        check(":3", None);
    }

    #[test]
    fn draws_follow_the_weights() {
        let lengths: Lengths = "10:3,20-29:1".parse().unwrap();
        assert!((lengths.mean() - 13.625).abs() < 1e-9);
        let mut rng = Rng::new(1, 0);
        let drawn: Vec<u32> = (0..4000).map(|_| lengths.draw(&mut rng)).collect();
        assert!(drawn.iter().all(|tokens| *tokens == 10 || (20..30).contains(tokens)));
        let tens = drawn.iter().filter(|tokens| **tokens == 10).count();
        assert!((2850..3150).contains(&tens), "{tens} of 3000");
        assert_eq!(Classes::default().draw(&mut rng), None);
        assert_eq!(Classes::read("a").unwrap().draw(&mut rng).as_deref(), Some("a"));
    }
}

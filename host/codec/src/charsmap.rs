//! SentencePiece's compiled normalization: which characters become which others, as a double array over UTF-8 bytes.
//!
//! Layout: size of the array in bytes (u32), the array of u32 units, then replacement texts closed by zero bytes. A unit
//! holds the byte that leads to it (bits 0 to 7), whether a text may end there (bit 8), and the distance to its children
//! (bits 10 to 30, times 256 where bit 9 is set); a unit with bit 31 is the end itself and holds the place of the
//! replacement. Everything that a walk can reach is checked once, when it is read.

use std::collections::HashSet;

#[derive(Debug, Default)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: String,
}

fn distance(unit: u32) -> u32 {
    (unit >> 10) << ((unit & (1 << 9)) >> 6)
}

fn has_end(unit: u32) -> bool {
    unit >> 8 & 1 == 1
}

impl Charsmap {
    /// `Err` says what is wrong with it.
    pub(crate) fn parse(blob: &[u8]) -> Result<Charsmap, String> {
        let (size, rest) = blob.split_first_chunk().ok_or("it has no size")?;
        let size = u32::from_le_bytes(*size) as usize;
        if size == 0 || !size.is_multiple_of(4) || size >= rest.len() {
            return Err(format!("an array of {size} bytes in {} bytes", rest.len()));
        }
        let (units, replacements) = rest.split_at(size);
        let words = units.chunks_exact(4).map(|word| word.try_into().expect("chunks of four"));
        let replacements = std::str::from_utf8(replacements)
            .map_err(|fault| format!("replacements are not UTF-8 from byte {} on", fault.valid_up_to()))?;
        if !replacements.ends_with('\0') {
            return Err("the last replacement is not closed".to_owned());
        }
        let map = Charsmap {
            units: words.map(u32::from_le_bytes).collect(),
            replacements: replacements.to_owned(),
        };
        map.check()?;
        Ok(map)
    }

    /// Walks everything that can be reached.
    fn check(&self) -> Result<(), String> {
        let root = distance(self.units[0]);
        let mut seen = HashSet::from([root]);
        let mut open = vec![root];
        while let Some(base) = open.pop() {
            // Children lie within the 256 units around the base.
            if (base | 0xff) as usize >= self.units.len() {
                return Err(format!("a node leads to unit {base} of {}", self.units.len()));
            }
            for label in 1..=0xff {
                let at = base ^ label;
                let unit = self.units[at as usize];
                if unit & (1 << 31 | 0xff) != label {
                    continue;
                }
                let below = at ^ distance(unit);
                if has_end(unit) {
                    let end = self.units.get(below as usize).ok_or("an end lies outside the array")?;
                    let place = (end & !(1 << 31)) as usize;
                    if place >= self.replacements.len() || !self.replacements.is_char_boundary(place) {
                        return Err(format!("a replacement at byte {place} of {}", self.replacements.len()));
                    }
                }
                if seen.insert(below) {
                    open.push(below);
                }
            }
        }
        Ok(())
    }

    /// What the longest known start of `text` becomes, and its length in bytes.
    pub(crate) fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let mut at = distance(*self.units.first()?);
        let mut found = None;
        for (index, &byte) in text.as_bytes().iter().enumerate() {
            at ^= u32::from(byte);
            let Some(&unit) = self.units.get(at as usize) else { break };
            if byte == 0 || unit & (1 << 31 | 0xff) != u32::from(byte) {
                break;
            }
            at ^= distance(unit);
            if has_end(unit) && text.is_char_boundary(index + 1) {
                let place = self.units.get(at as usize)? & !(1 << 31);
                found = Some((index + 1, place as usize));
            }
        }
        let (length, place) = found?;
        let behind = self.replacements.get(place..)?;
        Some((length, behind.split('\0').next().unwrap_or("")))
    }
}

#[cfg(test)]
mod tests {
    use super::Charsmap;

    #[test]
    fn a_map_that_leads_nowhere_is_refused_with_the_reason() {
        let check = |units: &[u32], replacements: &[u8], reason: &str| {
            let mut blob = ((units.len() * 4) as u32).to_le_bytes().to_vec();
            blob.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
            blob.extend(replacements);
            let fault = Charsmap::parse(&blob).expect_err(reason);
            assert!(fault.contains(reason), "{fault:?}, expected {reason:?}");
        };
        assert!(Charsmap::parse(b"ab").expect_err("short").contains("no size"));
        check(&[0], b"", "an array of 4 bytes");
        check(&[0; 256], b"a", "not closed");
        check(&[0; 256], b"\xff\0", "not UTF-8 from byte 0");
        check(&[0x3ff << 10], b"a\0", "leads to unit");
        let mut units = [0; 256];
        // The root's children lie around 1, the end of "a" at 5.
        units[0] = 1 << 10;
        units[0x60] = 0x61 | 1 << 8 | (0x60 ^ 5) << 10;
        units[5] = 1 << 31 | 7;
        check(&units, b"a\0", "a replacement at byte 7");
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut random = 0x9e37_79b9_u32;
        for round in 0..200 {
            let mut blob = (256_u32 * 4).to_le_bytes().to_vec();
            for _ in 0..256 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                blob.extend((random >> (round % 24)).to_le_bytes());
            }
            blob.extend(b"xy\0z\0");
            if let Ok(map) = Charsmap::parse(&blob) {
                for text in ["abc", "é", "\u{0}", "日本"] {
                    let _ = map.longest(text);
                }
            }
        }
    }
}

//! Byte strings by number, and numbers by byte string: compact storage for vocabularies of a quarter of a million tokens.

use std::hash::{BuildHasher, RandomState};

/// Many byte strings in one allocation, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blob {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Blob {
    pub(crate) fn with_capacity(count: usize, bytes: usize) -> Blob {
        Blob { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(count) }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Appends one byte string built by `write`, which must only append.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        let end = u32::try_from(self.bytes.len());
        self.ends.push(end.expect("a file has at most 128 MiB, and its readers bound what pieces grow to"));
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.push_with(|all| all.extend_from_slice(bytes));
    }

    /// The byte string at `index`; empty past the end.
    pub(crate) fn get(&self, index: u32) -> &[u8] {
        let index = index as usize;
        let Some(&end) = self.ends.get(index) else { return &[] };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..end as usize]
    }
}

/// Finds the index of a byte string of a [`Blob`]. Open addressing; at most half full.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Upper half of the hash, then index + 1; 0 = free.
    slots: Vec<u64>,
    hasher: RandomState,
    used: usize,
}

impl Table {
    pub(crate) fn with_capacity(count: usize) -> Table {
        let slots = vec![0; (count.max(8) * 2).next_power_of_two()];
        Table { slots, hasher: RandomState::new(), used: 0 }
    }

    /// Where `key` is or would be: its slot, its tag, its index.
    fn probe(&self, blob: &Blob, key: &[u8]) -> (usize, u64, Option<u32>) {
        let hash = self.hasher.hash_one(key);
        let mask = self.slots.len() - 1;
        let tag = hash >> 32 << 32;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return (at, tag, None);
            }
            if slot & !0xffff_ffff == tag {
                let index = (slot as u32) - 1;
                if blob.get(index) == key {
                    return (at, tag, Some(index));
                }
            }
            at = (at + 1) & mask;
        }
    }

    pub(crate) fn find(&self, blob: &Blob, key: &[u8]) -> Option<u32> {
        self.probe(blob, key).2
    }

    /// Files the byte string that `blob` holds at `index`; `Err` with the index that has the same bytes already.
    pub(crate) fn insert(&mut self, blob: &Blob, index: u32) -> Result<(), u32> {
        if (self.used + 1) * 2 > self.slots.len() {
            self.grow(blob);
        }
        let (at, tag, found) = self.probe(blob, blob.get(index));
        if let Some(first) = found {
            return Err(first);
        }
        self.slots[at] = tag | (u64::from(index) + 1);
        self.used += 1;
        Ok(())
    }

    fn grow(&mut self, blob: &Blob) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![0; old.len() * 2];
        for slot in old.into_iter().filter(|&slot| slot != 0) {
            let (at, tag, _) = self.probe(blob, blob.get((slot as u32) - 1));
            self.slots[at] = tag | (slot & 0xffff_ffff);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filed_is_found_and_nothing_else() {
        let mut blob = Blob::default();
        let mut table = Table::with_capacity(0);
        for number in 0..10_000_u32 {
            blob.push(number.to_string().as_bytes());
            assert_eq!(table.insert(&blob, number), Ok(()));
        }
        for number in 0..10_000_u32 {
            assert_eq!(table.find(&blob, number.to_string().as_bytes()), Some(number));
        }
        assert_eq!(table.find(&blob, b"10000"), None);
        blob.push(b"77");
        assert_eq!(table.insert(&blob, 10_000), Err(77));
        assert_eq!(blob.get(10_001), b"");
    }
}

//! Little-endian reading and writing of flat records.

use super::WireError;

/// Appends fields to a buffer that is kept between records.
pub(crate) struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Empties the buffer and starts a record.
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        bytes.clear();
        Writer { bytes }
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Bit for bit, NaNs included.
    pub(crate) fn f32(&mut self, value: f32) {
        self.u32(value.to_bits());
    }

    /// A flag and the value, which is 0 when there is none.
    pub(crate) fn optional(&mut self, value: Option<u32>) {
        self.u32(value.is_some().into());
        self.u32(value.unwrap_or_default());
    }

    /// A count. Counts beyond `u32` cannot fit into an area, which is refused by size later.
    pub(crate) fn count(&mut self, value: usize) {
        self.u32(u32::try_from(value).unwrap_or(u32::MAX));
    }

    /// Length and bytes of `text`, cut to at most `max` bytes at a character border.
    pub(crate) fn text(&mut self, text: &str, max: usize) {
        let text = &text[..text.floor_char_boundary(max)];
        self.count(text.len());
        self.bytes.extend_from_slice(text.as_bytes());
    }
}

/// Takes fields from a record.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        match self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<N>) {
            Some(field) => {
                self.at += N;
                Ok(*field)
            }
            None => Err(WireError::Short { need: self.at + N, have: self.bytes.len() }),
        }
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, WireError> {
        self.array().map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn f32(&mut self) -> Result<f32, WireError> {
        self.u32().map(f32::from_bits)
    }

    /// A flag word: 0 or 1.
    pub(crate) fn flag(&mut self, what: &'static str) -> Result<bool, WireError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(WireError::Tag { what, value }),
        }
    }

    pub(crate) fn optional(&mut self, what: &'static str) -> Result<Option<u32>, WireError> {
        match (self.flag(what)?, self.u32()?) {
            (true, value) => Ok(Some(value)),
            (false, 0) => Ok(None),
            (false, value) => Err(WireError::Tag { what, value }),
        }
    }

    /// A count of records that take at least `record` bytes each: one that cannot fit in what is left is refused
    /// before anything is reserved for it.
    pub(crate) fn count(&mut self, record: usize) -> Result<usize, WireError> {
        let count = self.u32()? as usize;
        let need = self.at.saturating_add(count.saturating_mul(record));
        if need > self.bytes.len() {
            return Err(WireError::Short { need, have: self.bytes.len() });
        }
        Ok(count)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, WireError> {
        let len = self.count(1)?;
        let text = &self.bytes[self.at..self.at + len];
        self.at += len;
        std::str::from_utf8(text).map_err(|_| WireError::Text)
    }

    /// Refuses bytes that no field took.
    pub(crate) fn end(self) -> Result<(), WireError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            extra => Err(WireError::Long { extra }),
        }
    }
}

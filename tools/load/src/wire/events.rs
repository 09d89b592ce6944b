//! Finds the events of a `text/event-stream` body as its bytes arrive, without copying those that come whole.

use memchr::memchr;

use super::WireError;

/// Longest event, bytes.
const EVENT_BYTES_MAX: usize = 4 << 20;

/// Hands out the data of each event. Lines may end in `\n` or `\r\n`.
#[derive(Debug, Default)]
pub struct EventScanner {
    /// A line whose end has not come yet.
    line: Vec<u8>,
    /// Data of an event whose end has not come yet.
    data: Vec<u8>,
    /// There is such data, perhaps empty.
    has_data: bool,
}

impl EventScanner {
    /// Forgets what is incomplete; keeps the buffers.
    pub fn clear(&mut self) {
        self.line.clear();
        self.data.clear();
        self.has_data = false;
    }

    /// Takes bytes and hands out the data of each event that they complete.
    ///
    /// # Errors
    /// A line or event that is too long.
    pub fn feed(&mut self, bytes: &[u8], event: &mut impl FnMut(&[u8])) -> Result<(), WireError> {
        let mut rest = bytes;
        // The data of an event that lies whole in `bytes` so far.
        let mut whole: Option<&[u8]> = None;
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            rest = after;
            if !self.line.is_empty() {
                self.room(line.len())?;
                self.line.extend_from_slice(line);
                let line = std::mem::take(&mut self.line);
                self.keep(&mut whole);
                self.line(unended(&line), event);
                self.line = line;
                self.line.clear();
                continue;
            }
            let line = unended(line);
            match (line, whole, self.has_data) {
                ([], Some(data), _) => {
                    event(data);
                    whole = None;
                }
                (line, None, false) => whole = data_of(line),
                (line, ..) => {
                    self.room(line.len())?;
                    self.keep(&mut whole);
                    self.line(line, event);
                }
            }
        }
        self.keep(&mut whole);
        self.room(rest.len())?;
        self.line.extend_from_slice(rest);
        Ok(())
    }

    /// The body has ended: an event whose blank line is missing counts.
    pub fn finish(&mut self, event: &mut impl FnMut(&[u8])) {
        let line = std::mem::take(&mut self.line);
        self.line(unended(&line), event);
        self.line(b"", event);
        self.clear();
    }

    fn room(&self, more: usize) -> Result<(), WireError> {
        if self.line.len() + self.data.len() + more > EVENT_BYTES_MAX {
            return Err(WireError("an event is too long"));
        }
        Ok(())
    }

    /// Moves data that was only borrowed into the buffer.
    fn keep(&mut self, whole: &mut Option<&[u8]>) {
        if let Some(data) = whole.take() {
            self.push_data(data);
        }
    }

    fn push_data(&mut self, data: &[u8]) {
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(data);
    }

    /// One whole line without its end, with data in the buffer.
    fn line(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) {
        if let Some(data) = data_of(line) {
            self.push_data(data);
        } else if line.is_empty() && self.has_data {
            event(&self.data);
            self.data.clear();
            self.has_data = false;
        }
    }
}

/// A line without the one `\r` that belongs to its end.
fn unended(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The data of a `data:` line; other fields and comments carry nothing that is needed.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let data = line.strip_prefix(b"data")?;
    match data.strip_prefix(b":") {
        Some(data) => Some(data.strip_prefix(b" ").unwrap_or(data)),
        // The standard: a line without a colon is a field without a value.
        None => data.is_empty().then_some(data),
    }
}

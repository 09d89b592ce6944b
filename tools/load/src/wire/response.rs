//! Takes one HTTP/1.1 response apart as its bytes arrive, in pieces of any size.

use memchr::memmem;

use super::WireError;

/// Longest head (status line and headers), bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Most headers.
const HEADERS_MAX: usize = 64;
/// Longest chunk-size line and longest trailer, bytes.
const CHUNK_LINE_BYTES_MAX: u32 = 8 << 10;

/// What the head of a response says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// The connection may carry another request afterwards, as far as the server says.
    pub keep_alive: bool,
    /// The body is `text/event-stream`.
    pub event_stream: bool,
}

/// Where the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Head,
    /// Body of known length: bytes left.
    Length(u64),
    /// Body that ends with the connection.
    UntilClose,
    /// In a chunk-size line: its value so far, and bytes of the line so far.
    Size {
        value: u64,
        line: u32,
        digits: bool,
    },
    /// In a chunk: bytes left.
    Chunk(u64),
    /// At the line end after a chunk.
    ChunkEnd,
    /// After the last chunk: bytes so far, and whether the current line is still empty.
    Trailer {
        bytes: u32,
        empty: bool,
    },
    Done,
}

/// Reads one response; [`ResponseReader::clear`] makes it ready for the next one on the same connection.
#[derive(Debug)]
pub struct ResponseReader {
    at: At,
    /// Bytes of the head as far as they have come.
    head_bytes: Vec<u8>,
    head: Head,
}

impl Default for ResponseReader {
    fn default() -> Self {
        ResponseReader { at: At::Head, head_bytes: Vec::new(), head: Head::default() }
    }
}

impl ResponseReader {
    /// Forgets the response; keeps the buffer.
    pub fn clear(&mut self) {
        self.at = At::Head;
        self.head_bytes.clear();
        self.head = Head::default();
    }

    /// The head, once it is complete.
    pub fn head(&self) -> Option<Head> {
        (self.at != At::Head).then_some(self.head)
    }

    /// Whether no byte has come yet.
    pub fn is_untouched(&self) -> bool {
        self.at == At::Head && self.head_bytes.is_empty()
    }

    /// Whether the response is complete.
    pub fn is_done(&self) -> bool {
        self.at == At::Done
    }

    /// Takes bytes and hands out the parts of the body. Stops at the end of the response and at the end of its head;
    /// returns how many bytes it took.
    ///
    /// # Errors
    /// Bytes that are not an HTTP/1.1 response; nothing more can be read from this connection.
    pub fn feed(&mut self, bytes: &[u8], body: &mut impl FnMut(&[u8])) -> Result<usize, WireError> {
        if self.at == At::Head {
            return self.feed_head(bytes);
        }
        let mut rest = bytes;
        while !rest.is_empty() && self.at != At::Done {
            rest = self.step(rest, body)?;
        }
        Ok(bytes.len() - rest.len())
    }

    /// The connection was closed by the server.
    ///
    /// # Errors
    /// The response is not complete.
    pub fn closed(&mut self) -> Result<(), WireError> {
        match self.at {
            At::Done => Ok(()),
            At::UntilClose => {
                self.at = At::Done;
                Ok(())
            }
            _ => Err(WireError("the connection ends in the middle of the response")),
        }
    }

    fn feed_head(&mut self, bytes: &[u8]) -> Result<usize, WireError> {
        let known = self.head_bytes.len();
        let room = (HEAD_BYTES_MAX - known).min(bytes.len());
        self.head_bytes.extend_from_slice(&bytes[..room]);
        let from = known.saturating_sub(3);
        let Some(end) = memmem::find(&self.head_bytes[from..], b"\r\n\r\n") else {
            return if self.head_bytes.len() < HEAD_BYTES_MAX {
                Ok(bytes.len())
            } else {
                Err(WireError("the head of the response is too long"))
            };
        };
        let end = from + end + 4;
        let (head, at) = read_head(&self.head_bytes[..end])?;
        self.head_bytes.clear();
        (self.head, self.at) = (head, at);
        Ok(end - known)
    }

    /// Takes at least one byte.
    fn step<'a>(&mut self, bytes: &'a [u8], body: &mut impl FnMut(&[u8])) -> Result<&'a [u8], WireError> {
        let (next, rest) = match self.at {
            At::Head | At::Done => (self.at, bytes),
            At::UntilClose => {
                body(bytes);
                (At::UntilClose, &[][..])
            }
            At::Length(left) | At::Chunk(left) => {
                let take = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let (part, rest) = bytes.split_at(take);
                body(part);
                let left = left - take as u64;
                let next = match (self.at, left) {
                    (At::Length(_), 0) => At::Done,
                    (At::Length(_), left) => At::Length(left),
                    (_, 0) => At::ChunkEnd,
                    (_, left) => At::Chunk(left),
                };
                (next, rest)
            }
            At::Size { .. } | At::ChunkEnd | At::Trailer { .. } => (self.frame(bytes[0])?, &bytes[1..]),
        };
        self.at = next;
        Ok(rest)
    }

    /// One byte between chunks.
    fn frame(&self, byte: u8) -> Result<At, WireError> {
        let size = At::Size { value: 0, line: 0, digits: true };
        match self.at {
            At::ChunkEnd => match byte {
                b'\r' => Ok(At::ChunkEnd),
                b'\n' => Ok(size),
                _ => Err(WireError("a chunk is longer than its size")),
            },
            At::Trailer { empty: true, .. } if byte == b'\n' => Ok(At::Done),
            At::Trailer { bytes, empty } => {
                if bytes >= CHUNK_LINE_BYTES_MAX {
                    return Err(WireError("the trailer is too long"));
                }
                let empty = byte == b'\n' || (empty && byte == b'\r');
                Ok(At::Trailer { bytes: bytes + 1, empty })
            }
            At::Size { value, line, digits } => size_byte(byte, value, line, digits),
            other => Ok(other),
        }
    }
}

/// One byte of a chunk-size line: hex digits, then anything up to the line's end.
fn size_byte(byte: u8, value: u64, line: u32, digits: bool) -> Result<At, WireError> {
    const BAD: WireError = WireError("a chunk size is not a number");
    if line >= CHUNK_LINE_BYTES_MAX {
        return Err(WireError("a chunk-size line is too long"));
    }
    match (byte, digits) {
        (b'\n', _) if line == 0 => Err(BAD),
        (b'\n', _) if value == 0 => Ok(At::Trailer { bytes: 0, empty: true }),
        (b'\n', _) => Ok(At::Chunk(value)),
        (b'\r' | b';' | b' ' | b'\t', _) if line > 0 => Ok(At::Size { value, line: line + 1, digits: false }),
        (_, true) => {
            let digit = (byte as char).to_digit(16).ok_or(BAD)?;
            let value = value.checked_mul(16).and_then(|value| value.checked_add(digit.into())).ok_or(BAD)?;
            Ok(At::Size { value, line: line + 1, digits })
        }
        (_, false) => Ok(At::Size { value, line: line + 1, digits }),
    }
}

/// What a complete head says, and what follows it. An interim response (1xx) is followed by another head.
fn read_head(bytes: &[u8]) -> Result<(Head, At), WireError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) | Err(_) => return Err(WireError("the head is not an HTTP response")),
    }
    let status = response.code.unwrap_or(0);
    if (100..200).contains(&status) {
        return if status == 101 {
            Err(WireError("the server wants to switch protocols"))
        } else {
            Ok((Head::default(), At::Head))
        };
    }
    let mut head = Head { status, keep_alive: response.version == Some(1), event_stream: false };
    let mut length = None;
    let mut chunked = false;
    for header in response.headers.iter() {
        let has = |word: &str| {
            header
                .value
                .split(|byte| *byte == b',')
                .any(|part| part.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
        };
        if header.name.eq_ignore_ascii_case("content-length") {
            let value = std::str::from_utf8(header.value)
                .ok()
                .filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            let value = value.and_then(|text| text.parse::<u64>().ok());
            let value = value.ok_or(WireError("the content length is not a number"))?;
            if length.is_some_and(|length| length != value) {
                return Err(WireError("two content lengths"));
            }
            length = Some(value);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            chunked |= has("chunked");
        } else if header.name.eq_ignore_ascii_case("connection") {
            head.keep_alive = (head.keep_alive || has("keep-alive")) && !has("close");
        } else if header.name.eq_ignore_ascii_case("content-type") {
            let kind = header.value.split(|byte| *byte == b';').next().unwrap_or_default();
            head.event_stream = kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream");
        }
    }
    let at = match (status, chunked, length) {
        (204 | 304, ..) | (_, false, Some(0)) => At::Done,
        (_, true, _) => At::Size { value: 0, line: 0, digits: true },
        (_, false, Some(length)) => At::Length(length),
        (_, false, None) => {
            head.keep_alive = false;
            At::UntilClose
        }
    };
    Ok((head, at))
}

//! Just enough HTTP/1.1 to talk to our own server on the loopback: one request per connection, chunked or not.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest line that is accepted, in bytes.
const LINE_MAX: u64 = 1 << 20;

/// Sends one request and hands each line of the answer's body to `line`; returns the status.
pub(crate) fn send(
    address: &str,
    method: &str,
    path: &str,
    body: &str,
    mut line: impl FnMut(&str),
) -> io::Result<u16> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    let head = format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    (&stream).write_all(head.as_bytes())?;
    (&stream).write_all(body.as_bytes())?;

    let mut answer = BufReader::new(stream);
    let status = read_line(&mut answer)?;
    let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("the answer has no status line"))?;
    let mut chunked = false;
    loop {
        let header = read_line(&mut answer)?.to_ascii_lowercase();
        match header.as_str() {
            "" => break,
            "transfer-encoding: chunked" => chunked = true,
            _ => {}
        }
    }
    let body: Box<dyn BufRead> = if chunked {
        Box::new(BufReader::new(Chunks { inner: answer, left: 0, done: false }))
    } else {
        Box::new(answer)
    };
    let mut body = body;
    loop {
        let mut text = Vec::new();
        if body.by_ref().take(LINE_MAX).read_until(b'\n', &mut text)? == 0 {
            return Ok(status);
        }
        line(String::from_utf8_lossy(&text).trim_end());
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut text = String::new();
    from.by_ref().take(LINE_MAX).read_line(&mut text)?;
    Ok(text.trim_end().to_owned())
}

/// The content of a chunked body.
struct Chunks<R> {
    inner: R,
    left: u64,
    done: bool,
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.done {
            let mut size = read_line(&mut self.inner)?;
            if size.is_empty() {
                size = read_line(&mut self.inner)?; // the line end after the chunk before
            }
            let size = size.split(';').next().unwrap_or_default();
            self.left = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
            self.done = self.left == 0;
        }
        if self.done {
            return Ok(0);
        }
        let n = self.inner.by_ref().take(self.left).read(buffer)?;
        self.left -= n as u64;
        if n == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(n) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_wherever_they_are_cut() {
        let check = |wire: &str, expect: Option<&str>| {
            let mut text = String::new();
            let read = Chunks { inner: wire.as_bytes(), left: 0, done: false }.read_to_string(&mut text);
            assert_eq!(read.ok().map(|_| text.as_str()), expect, "{wire:?}");
        };
        check("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", Some("abcde"));
        check("A;x=1\r\n0123456789\r\n0\r\n\r\n", Some("0123456789"));
        check("3\r\nab", None);
        check("zz\r\n", None);
    }
}

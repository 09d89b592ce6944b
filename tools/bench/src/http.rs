//! The bytes of one HTTP exchange: a request out, a status and a body back, chunked or not. One connection per request.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Silence after which a server counts as stuck. Long prompts queue behind each other for minutes on a slow machine.
const READ_TIMEOUT: Duration = Duration::from_secs(300);

/// An answer whose body is still to be read. Dropping it closes the connection.
pub(crate) struct Response {
    pub(crate) status: u16,
    body: Body,
}

/// Sends a request and reads the head of its answer.
pub(crate) fn send(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Response> {
    receive(start(port, method, path, headers, body)?)
}

/// Sends a request and leaves the answer unread.
pub(crate) fn start(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if method == "POST" {
        head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    stream.write_all(&bytes)?;
    Ok(stream)
}

/// Reads the head of an answer.
pub(crate) fn receive(stream: TcpStream) -> io::Result<Response> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| invalid(&format!("a status line, not {line:?}")))?;
    let mut frame = Frame::ToTheEnd;
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        let (name, value) = line.trim_end().split_once(':').unwrap_or((&line, ""));
        match name.to_ascii_lowercase().as_str() {
            "transfer-encoding" if value.trim().eq_ignore_ascii_case("chunked") => {
                frame = Frame::Chunked { left: 0, first: true };
            }
            "content-length" => {
                let left = value.trim().parse().map_err(|_| invalid(&format!("a length, not {value:?}")))?;
                frame = Frame::Sized { left };
            }
            _ => {}
        }
    }
    Ok(Response { status, body: Body { reader, frame } })
}

impl Response {
    /// The whole body as text.
    pub(crate) fn text(mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.body.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The body line by line.
    pub(crate) fn lines(self) -> impl BufRead {
        BufReader::with_capacity(16 << 10, self.body)
    }
}

/// How the end of a body is told.
enum Frame {
    Chunked { left: u64, first: bool },
    Sized { left: u64 },
    ToTheEnd,
}

struct Body {
    reader: BufReader<TcpStream>,
    frame: Frame,
}

impl Read for Body {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = match &mut self.frame {
            Frame::ToTheEnd => return self.reader.read(out),
            Frame::Sized { left } => left,
            Frame::Chunked { left, first } => {
                if *left == 0 {
                    match next_chunk(&mut self.reader, *first)? {
                        0 => {
                            self.frame = Frame::Sized { left: 0 };
                            return Ok(0);
                        }
                        size => (*left, *first) = (size, false),
                    }
                }
                left
            }
        };
        if *left == 0 || out.is_empty() {
            return Ok(0);
        }
        let most = out.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        let read = self.reader.read(&mut out[..most])?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended inside a body"));
        }
        *left -= read as u64;
        Ok(read)
    }
}

/// Size of the next chunk, 0 at the end; `first` chunks have no line end of their predecessor before them.
fn next_chunk(reader: &mut impl BufRead, first: bool) -> io::Result<u64> {
    let mut line = String::new();
    if !first {
        reader.read_line(&mut line)?;
        line.clear();
    }
    if reader.read_line(&mut line)? == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended between two chunks"));
    }
    let digits = line.trim_end().split(';').next().unwrap_or_default();
    u64::from_str_radix(digits, 16).map_err(|_| invalid(&format!("the size of a chunk, not {line:?}")))
}

fn invalid(expected: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("expected {expected}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn answer_with(bytes: &'static str) -> io::Result<(u16, String)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let mut request = [0; 1024];
            let read = stream.read(&mut request)?;
            assert!(request[..read].starts_with(b"GET /x HTTP/1.1\r\n"));
            stream.write_all(bytes.as_bytes())
        });
        let response = send(port, "GET", "/x", &[], &[]);
        server.join().expect("the server does not panic")?;
        let response = response?;
        Ok((response.status, response.text()?))
    }

    #[test]
    fn every_framing_of_a_body_reads_the_same() {
        let check = |bytes, expect: &str| {
            let (status, text) = answer_with(bytes).expect("a whole answer");
            assert_eq!((status, text.as_str()), (200, expect), "{bytes:?}");
        };
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello");
        check("HTTP/1.1 200 OK\r\n\r\nhello", "hello");
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
            "hello",
        );
    }

    #[test]
    fn a_cut_body_is_an_error() {
        let check = |bytes| assert!(answer_with(bytes).is_err(), "{bytes:?}");
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel");
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n");
        check("nonsense\r\n\r\n");
    }
}

//! A streaming HTTP client for benchmarks: one connection per request, a time stamp per token.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::error::BenchError;

const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// What one streamed answer looked like from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// From the request to the first text.
    pub(crate) ttft: Duration,
    /// Between two chunks with text.
    pub(crate) gaps: Vec<Duration>,
    /// From the request to the end.
    pub(crate) total: Duration,
    /// As the server counted.
    pub(crate) completion_tokens: usize,
    /// The text.
    pub(crate) text: String,
}

/// Status of a plain GET; `None` when nobody listens.
pub(crate) fn get_status(port: u16, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(READ_TIMEOUT)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    line.split(' ').nth(1)?.parse().ok()
}

/// Streams one `/v1/completions` answer.
pub(crate) fn stream_completion(
    port: u16,
    server: &str,
    body: &serde_json::Value,
) -> Result<Answer, BenchError> {
    let fail = |what: String| BenchError::Server { server: server.to_owned(), what };
    let io = |what: &'static str| BenchError::io(format!("{what} {server}"));
    let body = body.to_string();
    let begun = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(io("connect to"))?;
    stream.set_nodelay(true).map_err(io("configure"))?;
    stream.set_read_timeout(Some(READ_TIMEOUT)).map_err(io("configure"))?;
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).map_err(io("send to"))?;
    stream.write_all(body.as_bytes()).map_err(io("send to"))?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).map_err(io("read from"))?;
    if line.split(' ').nth(1) != Some("200") {
        let mut rest = String::new();
        drop(reader.read_to_string(&mut rest));
        return Err(fail(format!("answered {line}{rest}")));
    }
    let mut answer = Answer::default();
    let mut last: Option<Instant> = None;
    loop {
        line.clear();
        if reader.read_line(&mut line).map_err(io("read from"))? == 0 {
            return Err(fail("closed the stream before [DONE]".to_owned()));
        }
        // Chunk sizes and headers stand on lines of their own and never begin with "data: ".
        let Some(data) = line.trim_end().strip_prefix("data: ") else { continue };
        if data == "[DONE]" {
            answer.total = begun.elapsed();
            return Ok(answer);
        }
        let now = Instant::now();
        let chunk: serde_json::Value =
            serde_json::from_str(data).map_err(|error| fail(format!("sent {data:?}: {error}")))?;
        if let Some(error) = chunk.get("error") {
            return Err(fail(format!("failed mid-stream: {error}")));
        }
        if let Some(tokens) = chunk["usage"]["completion_tokens"].as_u64() {
            answer.completion_tokens = tokens as usize;
        }
        let text = chunk["choices"][0]["text"].as_str().unwrap_or_default();
        if text.is_empty() {
            continue;
        }
        answer.text.push_str(text);
        match last.replace(now) {
            None => answer.ttft = now - begun,
            Some(last) => answer.gaps.push(now - last),
        }
    }
}

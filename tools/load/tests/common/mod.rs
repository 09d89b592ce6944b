//! A server of a few lines: one thread per connection, and a script that answers each request.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sf_load::Target;

/// One request as the server sees it.
pub(crate) struct Asked {
    /// Which request of this connection, from 0.
    pub(crate) nth: usize,
    pub(crate) line: String,
    pub(crate) headers: String,
    pub(crate) body: String,
}

/// A running server; it ends with the test's process.
pub(crate) struct Server {
    pub(crate) target: Target,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// `answer` writes what it likes and says whether the connection is kept.
    pub(crate) fn start(answer: impl Fn(&Asked, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::local(listener.local_addr().unwrap().port());
        let connections = Arc::new(AtomicUsize::new(0));
        let (answer, counter) = (Arc::new(answer), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                counter.fetch_add(1, Ordering::SeqCst);
                let answer = Arc::clone(&answer);
                std::thread::spawn(move || serve(stream.unwrap(), &*answer));
            }
        });
        Server { target, connections }
    }

    /// How many connections were made to it.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&Asked, &mut TcpStream) -> bool) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for nth in 0.. {
        let (mut line, mut headers) = (String::new(), String::new());
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        while reader.read_line(&mut headers).unwrap_or(0) > 2 {}
        let length = headers.to_ascii_lowercase();
        let length = length
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |n| n.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        if !answer(&Asked { nth, line, headers, body }, &mut stream) {
            return;
        }
    }
}

/// Writes; a client that went away is its own business.
pub(crate) fn put(stream: &mut TcpStream, text: &str) -> bool {
    stream.write_all(text.as_bytes()).is_ok()
}

/// Writes one event as one chunk.
pub(crate) fn event(stream: &mut TcpStream, data: &str) -> bool {
    let event = format!("data: {data}\n\n");
    put(stream, &format!("{:x}\r\n{event}\r\n", event.len()))
}

pub(crate) const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n";

/// A completion of so many words, streamed as OpenAI does.
pub(crate) fn words(stream: &mut TcpStream, count: usize) -> bool {
    let mut fine = put(stream, STREAM);
    for index in 0..count {
        fine = fine
            && event(
                stream,
                &format!(r#"{{"choices":[{{"text":" w{index}","finish_reason":null}}],"usage":null}}"#),
            );
    }
    let usage = format!(
        r#"{{"prompt_tokens":7,"completion_tokens":{count},"prompt_tokens_details":{{"cached_tokens":3}}}}"#
    );
    fine && event(stream, r#"{"choices":[{"text":"","finish_reason":"length"}],"usage":null}"#)
        && event(stream, &format!(r#"{{"choices":[],"usage":{usage}}}"#))
        && event(stream, "[DONE]")
        && put(stream, "0\r\n\r\n")
}

/// A whole answer.
pub(crate) fn whole(stream: &mut TcpStream, status: &str, body: &str) -> bool {
    put(
        stream,
        &format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ),
    )
}

//! What one token costs the client: streams of a trivial source in this process, CPU time of the client's thread.
//!
//! `cargo run --release -p sf-load --example cost [streams] [tokens per second]`
#![allow(clippy::print_stdout, reason = "it is what it is for")]

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use sf_load::{Plan, Quiet, RunOptions, Shot, Target, Window, run, summarize};

const TOKENS: usize = 1000;
const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(event: &str) -> Vec<u8> {
    format!("{:x}\r\ndata: {event}\n\n\r\n", event.len() + 8).into_bytes()
}

/// One token for every stream in turn, at the given rate.
fn source(listener: &TcpListener, streams: usize, per_second: f64) -> io::Result<()> {
    let mut all: Vec<TcpStream> = Vec::new();
    for stream in listener.incoming().take(streams) {
        let mut stream = stream?;
        stream.set_nodelay(true)?;
        let mut request = [0; 4096];
        let _ = stream.read(&mut request)?;
        stream.write_all(HEAD)?;
        all.push(stream);
    }
    let token = chunk(
        r#"{"id":"cmpl-0123456789abcdef0123456789abcdef","object":"text_completion","created":1700000000,"model":"org/model","system_fingerprint":"superfluid-0.1.0","choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null}],"usage":null}"#,
    );
    let begun = Instant::now();
    for tick in 0..TOKENS {
        for stream in &mut all {
            stream.write_all(&token)?;
        }
        let due = Duration::from_secs_f64((tick * streams) as f64 / per_second);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
    }
    let end = chunk("[DONE]");
    for stream in &mut all {
        stream.write_all(&end)?;
        stream.write_all(b"0\r\n\r\n")?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let streams = args.next().map_or(Ok(256), |arg| arg.parse())?;
    let per_second = args.next().map_or(Ok(100_000.0), |arg| arg.parse())?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = Target::local(listener.local_addr()?.port());
    let server = std::thread::spawn(move || source(&listener, streams, per_second));
    let shots = (0..streams)
        .map(|_| Shot { tokens_hint: TOKENS as u32, ..Shot::streamed(0, "/v1/completions", *b"{}") });
    let run = run(&target, &mut Plan::burst(shots), &RunOptions::default(), &mut Quiet)?;
    server.join().map_err(|_| "the source panicked")??;
    let summary = summarize(&run.records, Window::of(&run));
    let tokens = summary.tokens.completion;
    println!(
        "{streams} streams: {} ok, {tokens} tokens, {:.0} tokens/s, client {:.2} µs CPU per token",
        summary.requests.ok,
        summary.tokens.completion_per_s,
        run.client_cpu.as_secs_f64() * 1e6 / tokens,
    );
    Ok(())
}

//! The real listener: disconnects, pipelining, large bodies, draining.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use sf_api::{ApiSettings, serve};
use sf_core::{FinishReason, limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::fake::{Fake, delta, end, hi, within};

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

pub(crate) fn start(fake: &Arc<Fake>) -> Server {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async move {
        let _ = stopped.await;
    };
    let task = tokio::spawn(serve(listener, fake.clone(), ApiSettings::default(), shutdown));
    Server { address, stop, task }
}

pub(crate) fn request(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

pub(crate) fn chat(stream: bool) -> String {
    let body = json!({"messages": [{"role": "user", "content": "x"}], "stream": stream}).to_string();
    request("POST", "/v1/chat/completions", &body)
}

pub(crate) async fn read_until(stream: &mut TcpStream, mark: &str) -> String {
    let mut got = Vec::new();
    let mut block = [0; 4096];
    loop {
        let count = within(stream.read(&mut block)).await.unwrap();
        got.extend_from_slice(&block[..count]);
        let text = String::from_utf8_lossy(&got);
        if text.contains(mark) {
            return text.into_owned();
        }
        assert!(count > 0, "closed before {mark}: {text}");
    }
}

#[tokio::test]
async fn requests_sent_in_one_go_are_answered_in_order_on_one_connection() {
    let server = start(&Fake::playing(hi()));
    let mut client = TcpStream::connect(server.address).await.unwrap();
    let all = request("GET", "/health", "") + &chat(false) + &chat(true) + &request("GET", "/v1/models", "");
    client.write_all(all.as_bytes()).await.unwrap();
    let got = read_until(&mut client, "\"object\":\"list\"").await;
    let order = ["\"ok\"", "\"chat.completion\"", "[DONE]", "\"list\""].map(|mark| got.find(mark).unwrap());
    assert!(order.is_sorted(), "{got}");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_the_server_goes_on() {
    let server = start(&Fake::playing(hi()));
    let head = |length: String| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
        )
    };
    // Announced: answered before any of it is sent.
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(head(format!("content-length: {}", 1u64 << 40)).as_bytes()).await.unwrap();
    assert!(read_until(&mut client, "body_too_large").await.starts_with("HTTP/1.1 413"));
    // Not announced, and sent to the end before the answer is read.
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(head("transfer-encoding: chunked".to_owned()).as_bytes()).await.unwrap();
    let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
    for _ in 0..=limits::BODY_BYTES_MAX >> 20 {
        within(client.write_all(chunk.as_bytes())).await.unwrap();
    }
    client.write_all(b"0\r\n\r\n").await.unwrap();
    assert!(read_until(&mut client, "body_too_large").await.starts_with("HTTP/1.1 413"));
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(request("GET", "/health", "").as_bytes()).await.unwrap();
    read_until(&mut client, "\"ok\"").await;
}

#[tokio::test]
async fn a_large_body_within_the_limit_is_answered() {
    let server = start(&Fake::playing(hi()));
    let body = json!({"messages": [{"role": "user", "content": "x".repeat(8 << 20)}]}).to_string();
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(request("POST", "/v1/chat/completions", &body).as_bytes()).await.unwrap();
    assert!(read_until(&mut client, "\"Hi!\"").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_wrong_content_type_with_a_large_body_is_told_so() {
    let server = start(&Fake::playing(hi()));
    let body = " ".repeat(8 << 20);
    let text = request("POST", "/v1/chat/completions", &body).replace("application/json", "text/plain");
    let mut client = TcpStream::connect(server.address).await.unwrap();
    within(client.write_all(text.as_bytes())).await.unwrap();
    assert!(read_until(&mut client, "unsupported_media_type").await.starts_with("HTTP/1.1 415"));
}

#[tokio::test]
async fn a_name_that_was_pointed_here_is_refused_on_loopback() {
    let server = start(&Fake::playing(hi()));
    let mut client = TcpStream::connect(server.address).await.unwrap();
    let text = request("GET", "/v1/models", "").replace("localhost", "rebound.example");
    client.write_all(text.as_bytes()).await.unwrap();
    assert!(read_until(&mut client, "host_refused").await.starts_with("HTTP/1.1 403"));
}

#[tokio::test]
async fn a_drain_finishes_what_runs_closes_what_idles_and_takes_nothing_new() {
    let (fake, events) = Fake::live();
    let server = start(&fake);
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(request("GET", "/health", "").as_bytes()).await.unwrap();
    read_until(&mut idle, "\"ok\"").await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(chat(true).as_bytes()).await.unwrap();
    events.send(delta(0, "first")).unwrap();
    read_until(&mut client, "first").await;
    server.stop.send(()).unwrap();
    assert_eq!(within(idle.read(&mut [0; 16])).await.unwrap(), 0);
    assert!(TcpStream::connect(server.address).await.is_err());
    assert!(!server.task.is_finished());
    events.send(end(0, FinishReason::Stop, 1)).unwrap();
    read_until(&mut client, "[DONE]").await;
    within(server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn dropping_the_server_cuts_its_connections() {
    let (fake, events) = Fake::live();
    let server = start(&fake);
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(chat(true).as_bytes()).await.unwrap();
    events.send(delta(0, "first")).unwrap();
    read_until(&mut client, "first").await;
    server.task.abort();
    fake.dropped(1).await;
}

//! Single questions to a server before and beside a run: is it ready, which model, how does it count tokens.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::LoadError;
use crate::prompt::Writer;
use crate::target::{Request, Target};
use crate::traffic::Calibration;
use crate::wire::ResponseReader;

/// Time to connect, and for each read and write.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest answer, bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Words of the text that is counted: enough to average, too few to matter.
const SAMPLE_WORDS: usize = 400;

/// Asks one thing and waits: status and body.
///
/// # Errors
/// No answer, or none that can be read.
pub fn ask(
    target: &Target,
    method: &'static str,
    path: &str,
    body: &[u8],
) -> Result<(u16, Vec<u8>), LoadError> {
    let io = || LoadError::io(format!("ask {}{path}", target.url()));
    let mut stream = TcpStream::connect_timeout(&target.address, PATIENCE).map_err(io())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(io())?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(io())?;
    let mut out = Vec::new();
    let headers = "Connection: close\r\n";
    target.write_request(&mut out, &Request { method, path, headers, body });
    stream.write_all(&out).map_err(io())?;
    let mut reader = ResponseReader::default();
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    let refused =
        |why: &str| LoadError::Server { what: format!("{}{path} answers badly: {why}", target.url()) };
    while !reader.is_done() {
        let length = stream.read(&mut buffer).map_err(io())?;
        if length == 0 {
            reader.closed().map_err(|error| refused(error.0))?;
            break;
        }
        let mut rest = &buffer[..length];
        while !rest.is_empty() && !reader.is_done() {
            let taken = reader.feed(rest, &mut |part| answer.extend_from_slice(part));
            rest = &rest[taken.map_err(|error| refused(error.0))?..];
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(refused("it does not end"));
        }
    }
    Ok((reader.head().unwrap_or_default().status, answer))
}

/// Whether the server says that it is ready.
pub fn is_ready(target: &Target) -> bool {
    matches!(ask(target, "GET", "/ready", b""), Ok((200, _)))
}

/// The first model that the server names.
///
/// # Errors
/// It does not answer, or asks for a key.
pub fn first_model(target: &Target) -> Result<Option<String>, LoadError> {
    let (status, body) = ask(target, "GET", "/v1/models", b"")?;
    if matches!(status, 401 | 403) {
        let what = format!("{} asks for a key: give --api-key or SUPERFLUID_API_KEY", target.url());
        return Err(LoadError::Server { what });
    }
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    Ok(answer["data"][0]["id"].as_str().map(str::to_owned))
}

/// Lets the server count a text, if it can: by `/v1/tokenize`, else by llama.cpp's `/tokenize`. Nothing known is no
/// error.
pub fn calibrate(target: &Target, model: Option<&str>, writer: &Writer) -> Calibration {
    let text = writer.words(u64::MAX, SAMPLE_WORDS);
    let count = |path: &str, mut body: Value| {
        if let Some(model) = model {
            body["model"] = model.into();
        }
        let answer = ask(target, "POST", path, body.to_string().as_bytes());
        let (_, answer) = answer.ok().filter(|(status, _)| *status == 200)?;
        let answer: Value = serde_json::from_slice(&answer).ok()?;
        let listed = answer["tokens"].as_array().map(Vec::len).filter(|count| *count > 0);
        listed.or_else(|| answer["count"].as_u64().map(|count| count as usize))
    };
    let ours = count("/v1/tokenize", json!({"prompt": text}));
    let Some(tokens) = ours.or_else(|| count("/tokenize", json!({"content": text, "prompt": text}))) else {
        return Calibration::default();
    };
    let chat =
        ours.and_then(|_| count("/v1/tokenize", json!({"messages": [{"role": "user", "content": text}]})));
    let overhead = chat.map_or(0, |chat| chat.saturating_sub(tokens));
    Calibration {
        tokens_per_word: Some(tokens as f64 / SAMPLE_WORDS as f64),
        chat_overhead: u32::try_from(overhead).unwrap_or(0),
    }
}

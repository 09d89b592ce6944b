//! Control frames on the socket: an eight-byte head (magic, protocol, length) and a postcard body.
//!
//! The head stands outside the body so that another version is recognised before anything of it is parsed.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sf_core::{EngineOption, OptionValue, Token, Vocabulary, limits};

use super::fault::WireFault;
use super::{PROTOCOL, WireError};
use crate::link::OpenSpec;

const MAGIC: [u8; 2] = *b"sf";
const HEAD: usize = 8;

/// Longest body, bytes: a description of a runtime or a vocabulary, and room for names.
const BODY_MAX: usize = limits::RUNTIME_JSON_BYTES_MAX + 2 * limits::VOCABULARY_BYTES_MAX + (64 << 10);

/// What the server sends. One [`ToWorker::Open`]; then the shared memory carries the rest.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    Open(WireOpen),
}

/// What the worker sends.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum FromWorker {
    /// The library is loaded and initialised.
    Hello { pid: u32 },
    /// The model is open; from here on the shared memory is served.
    Opened { description: String, interfaces: Vec<String>, fork: bool, stash: bool },
    /// Neither; the worker ends.
    Failed(WireFault),
}

/// An [`OpenSpec`] on the wire. Its environment is the process's own by then.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireOpen {
    library: PathBuf,
    models: Vec<PathBuf>,
    options: Vec<(String, WireValue, bool)>,
    lanes_max: u32,
    /// The parts of a vocabulary: bytes, ends, tokens that end an answer.
    vocabulary: Option<(Vec<u8>, Vec<u32>, Vec<u32>)>,
    /// `SFR_LOG_…` up to which the server's log takes lines.
    pub(crate) log_level: i32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum WireValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
}

impl From<&OpenSpec> for WireOpen {
    fn from(spec: &OpenSpec) -> Self {
        let value = |value: &OptionValue| match value {
            OptionValue::Bool(value) => WireValue::Bool(*value),
            OptionValue::Int(value) => WireValue::Int(*value),
            OptionValue::Float(value) => WireValue::Float(*value),
            OptionValue::Str(value) => WireValue::Str(value.clone()),
        };
        WireOpen {
            library: spec.library.clone(),
            models: spec.models.clone(),
            options: spec.options.iter().map(|o| (o.key.clone(), value(&o.value), o.must)).collect(),
            lanes_max: spec.lanes_max,
            vocabulary: spec.vocabulary.as_deref().filter(|all| fits(all)).map(|all| {
                let (bytes, ends, eog) = all.parts();
                (bytes.to_vec(), ends.to_vec(), eog.iter().map(|token| token.0).collect())
            }),
            log_level: crate::log_level(),
        }
    }
}

impl From<WireOpen> for OpenSpec {
    fn from(open: WireOpen) -> Self {
        let value = |value| match value {
            WireValue::Bool(value) => OptionValue::Bool(value),
            WireValue::Int(value) => OptionValue::Int(value),
            WireValue::Float(value) => OptionValue::Float(value),
            WireValue::Str(value) => OptionValue::Str(value),
        };
        let option = |(key, wire, must)| EngineOption { key, value: value(wire), must };
        OpenSpec {
            library: open.library,
            env: Vec::new(),
            models: open.models,
            options: open.options.into_iter().map(option).collect(),
            lanes_max: open.lanes_max,
            vocabulary: open.vocabulary.and_then(|(bytes, ends, eog)| {
                let eog = eog.into_iter().map(Token).collect();
                Vocabulary::from_parts(bytes, ends, eog).map(Arc::new)
            }),
        }
    }
}

/// A vocabulary beyond every known one does not travel; grammars are refused then, and say so.
fn fits(vocabulary: &Vocabulary) -> bool {
    let (bytes, ends, _) = vocabulary.parts();
    bytes.len().max(5 * ends.len()) <= limits::VOCABULARY_BYTES_MAX
}

/// Writes one frame.
pub(crate) fn send(to: &mut impl Write, frame: &impl Serialize) -> io::Result<()> {
    let body = postcard::to_stdvec(frame).map_err(io::Error::other)?;
    let Some(len) = u32::try_from(body.len()).ok().filter(|_| body.len() <= BODY_MAX) else {
        return Err(io::Error::other(WireError::Size { bytes: body.len(), max: BODY_MAX }));
    };
    let mut bytes = Vec::with_capacity(HEAD + body.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&PROTOCOL.to_le_bytes());
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&body);
    to.write_all(&bytes)
}

/// Reads one frame; `Ok(None)` at a clean end of the stream.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut head = [0; HEAD];
    let mut have = 0;
    while have < HEAD {
        match from.read(&mut head[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => have += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let [a, b, p0, p1, len @ ..] = head;
    let len = u32::from_le_bytes(len) as usize;
    let protocol = u16::from_le_bytes([p0, p1]);
    let refuse = |reason: String| Err(io::Error::other(WireError::Frame { reason }));
    if [a, b] != MAGIC {
        return refuse(format!("it begins with {a:#04x} {b:#04x}"));
    }
    if protocol != PROTOCOL {
        return refuse(format!("the other side speaks {protocol}"));
    }
    if len > BODY_MAX {
        return refuse(format!("{len} bytes exceed the limit of {BODY_MAX}"));
    }
    let mut body = vec![0; len];
    from.read_exact(&mut body)?;
    match postcard::take_from_bytes(&body) {
        Ok((frame, [])) => Ok(Some(frame)),
        Ok((_, rest)) => refuse(format!("{} bytes follow the body", rest.len())),
        Err(error) => refuse(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(frame: &FromWorker) -> Vec<u8> {
        let mut bytes = Vec::new();
        send(&mut bytes, frame).unwrap();
        bytes
    }

    #[test]
    fn frames_arrive_in_order_and_the_end_is_clean() {
        let frames = [
            FromWorker::Hello { pid: 7 },
            FromWorker::Opened {
                description: "{}".into(),
                interfaces: vec!["sf.kv/1".into()],
                fork: true,
                stash: false,
            },
        ];
        let stream: Vec<u8> = frames.iter().flat_map(bytes).collect();
        let mut stream = stream.as_slice();
        for frame in &frames {
            assert_eq!(receive::<FromWorker>(&mut stream).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(receive::<FromWorker>(&mut stream).unwrap(), None);
    }

    #[test]
    fn a_frame_that_is_not_ours_is_refused_with_its_reason() {
        let check = |damage: &dyn Fn(&mut Vec<u8>), expect: &str| {
            let mut bytes = bytes(&FromWorker::Hello { pid: 7 });
            damage(&mut bytes);
            let error = receive::<FromWorker>(&mut bytes.as_slice()).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(&|b| b[0] = b'x', "begins with 0x78 0x66");
        check(&|b| b[2] = 99, "the other side speaks 99");
        check(&|b| b[7] = 0xFF, "exceed the limit");
        check(&|b| b[8] = 77, "(engine.wire)");
        check(&|b| b.truncate(9), "fill whole buffer");
        check(&|b| b.truncate(3), "unexpected end of file");
        check(
            &|b| {
                b.push(0);
                b[4] += 1;
            },
            "1 bytes follow the body",
        );
    }

    #[test]
    fn an_open_request_keeps_every_option_as_it_was() {
        let option = |key: &str, value| EngineOption { key: key.into(), value, must: key.len() > 1 };
        let spec = OpenSpec {
            library: "/lib/x.so".into(),
            env: Vec::new(),
            models: vec!["/m/a.gguf".into(), "/m/b.gguf".into()],
            options: vec![
                option("a", OptionValue::Bool(true)),
                option("bb", OptionValue::Int(-3)),
                option("c", OptionValue::Float(0.5)),
                option("dd", OptionValue::Str("q8_0".into())),
            ],
            lanes_max: 8,
            vocabulary: Some(Arc::new(Vocabulary::new([&b"a"[..], b"", b"bc"].into_iter(), &[Token(1)]))),
        };
        let mut bytes = Vec::new();
        send(&mut bytes, &ToWorker::Open(WireOpen::from(&spec))).unwrap();
        let Some(ToWorker::Open(open)) = receive(&mut bytes.as_slice()).unwrap() else { panic!() };
        assert_eq!(OpenSpec::from(open), spec);
    }
}

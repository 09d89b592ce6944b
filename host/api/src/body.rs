//! Turns a request's bytes into one JSON value, within limits of size, time, depth and number of values.
//!
//! It does not know any field. A name that stands twice in one object is refused: which one was meant is a guess.

use std::cell::{Cell, RefCell};
use std::fmt;

use axum::body::Body;
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body::Body as _;
use http_body_util::BodyExt;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use sf_core::limits::{BODY_BYTES_MAX, BODY_READ_MAX, DISCARD_MAX, JSON_VALUES_MAX};
use sf_core::{Fault, FaultKind};

/// Bodies larger than this are handled off the event loop, so that other streams do not wait.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// The JSON of a request, read and parsed by `parse`.
pub(crate) async fn read<T: Send + 'static>(
    request: Request,
    parse: impl FnOnce(Value) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    if let Err(fault) = media_type(request.headers()) {
        discard(request.into_body());
        return Err(fault);
    }
    let declared = declared_length(request.headers());
    let bytes = tokio::time::timeout(BODY_READ_MAX, collect(request.into_body(), declared)).await.map_err(
        |_| {
            let message = format!("body was not complete after {} s", BODY_READ_MAX.as_secs());
            Fault::new(FaultKind::Invalid, "body_timeout", message)
        },
    )??;
    let whole = move || json(&bytes).and_then(parse);
    if declared.is_some_and(|length| length <= INLINE_BYTES_MAX as u64) {
        return whole();
    }
    off_the_loop(whole).await
}

/// Runs what takes long on a thread where nobody waits for it.
pub(crate) async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(Fault::new(FaultKind::Internal, "panicked", "handling the request panicked")),
    }
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn media_type(headers: &HeaderMap) -> Result<(), Fault> {
    let refuse = |message: String| {
        Fault::new(FaultKind::Invalid, "unsupported_media_type", message)
            .hint("send UTF-8 JSON with content-type: application/json and no content-encoding")
    };
    if let Some(encoding) = headers.get(CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(refuse(format!("content-encoding {encoding:?} is not accepted")));
    }
    let Some(given) = headers.get(CONTENT_TYPE) else {
        return Err(refuse("content-type is missing".to_owned()));
    };
    let essence = given.as_bytes().split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/json") {
        return Ok(());
    }
    Err(refuse(format!("content-type {given:?} is not application/json")))
}

async fn collect(mut body: Body, declared: Option<u64>) -> Result<Bytes, Fault> {
    if declared.is_some_and(|length| length > BODY_BYTES_MAX as u64) {
        discard(body);
        return Err(too_large());
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|_| Fault::new(FaultKind::Invalid, "body_incomplete", "body ended early"))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > BODY_BYTES_MAX {
            drop(whole);
            discard(body);
            return Err(too_large());
        }
        if whole.is_empty() && declared == Some(data.len() as u64) {
            return Ok(data);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Reads a refused body on for a while, beside the answer: a client that is still writing when the connection closes
/// would not see it.
pub(crate) fn discard(mut body: Body) {
    if body.is_end_stream() {
        return;
    }
    let rest = async move {
        let mut left = BODY_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    tokio::spawn(tokio::time::timeout(DISCARD_MAX, rest));
}

fn too_large() -> Fault {
    let message = format!("body is larger than {BODY_BYTES_MAX} bytes");
    Fault::new(FaultKind::TooLarge, "body_too_large", message)
}

/// One JSON value and nothing after it.
pub(crate) fn json(bytes: &[u8]) -> Result<Value, Fault> {
    let invalid = |message: String| Fault::new(FaultKind::Invalid, "invalid_json", message);
    let text = std::str::from_utf8(bytes)
        .map_err(|e| invalid(format!("body is not UTF-8 at byte {}", e.valid_up_to())))?;
    if text.trim_ascii().is_empty() {
        return Err(invalid("body is empty, expected a JSON object".to_owned()));
    }
    let budget = Budget::default();
    parse(text, &budget).map_err(|e| match budget.twice.take() {
        Some(name) => Fault::invalid("duplicate_field", name, format!("{e}")),
        None if budget.is_spent() => Fault::new(FaultKind::TooLarge, "too_many_values", format!("{e}")),
        None => invalid(format!("body is not valid JSON: {e}")),
    })
}

/// One JSON value and nothing after it, out of a text that came inside a body.
pub(crate) fn parse(text: &str, budget: &Budget) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    Strict(budget).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value))
}

/// The values that may still be built, over any number of texts.
pub(crate) struct Budget {
    left: Cell<usize>,
    twice: RefCell<Option<String>>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: Cell::new(JSON_VALUES_MAX), twice: RefCell::new(None) }
    }
}

impl Budget {
    /// Whether a text was refused because it had too many.
    pub(crate) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }
}

/// Builds a value like `serde_json` does, but counts values and refuses a name that stands twice.
#[derive(Clone, Copy)]
struct Strict<'a>(&'a Budget);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        let left = self.0.left.get();
        if left == 0 {
            return Err(D::Error::custom(format!("more than {JSON_VALUES_MAX} JSON values")));
        }
        self.0.left.set(left - 1);
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number is not finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            if map.contains_key(&name) {
                let error = A::Error::custom(format!("field `{}` stands twice", clipped(&name)));
                self.0.twice.replace(Some(clipped(&name).to_owned()));
                return Err(error);
            }
            map.insert(name, entries.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }
}

/// What of a client's word is fit for a message.
pub(crate) fn clipped(word: &str) -> &str {
    &word[..word.floor_char_boundary(64)]
}

#[cfg(test)]
mod tests {
    use super::json;
    use sf_core::limits::JSON_VALUES_MAX;

    fn check(body: impl AsRef<[u8]>, code: &str, words: &str) {
        let fault = json(body.as_ref()).expect_err(words);
        assert_eq!(fault.code, code, "{}", fault.message);
        assert!(fault.message.contains(words), "{} lacks {words}", fault.message);
    }

    #[test]
    fn a_body_that_is_no_json_says_where() {
        check("", "invalid_json", "empty");
        check(" \n ", "invalid_json", "empty");
        check(b"{\"a\":\"\xff\"}", "invalid_json", "not UTF-8 at byte 6");
        check("{\n  \"a\": 1,,}", "invalid_json", "line 2 column 10");
        check("{\"a\":NaN}", "invalid_json", "line 1 column 6");
        check("{\"a\":1e999}", "invalid_json", "out of range");
        check("{\"a\":\"\\ud800\"}", "invalid_json", "line 1");
        check("{} {}", "invalid_json", "trailing");
        check("\u{feff}{}", "invalid_json", "line 1 column 1");
        check("[".repeat(100_000), "invalid_json", "recursion limit");
        check("{\"a\":{\"b\":1,\"c\":2,\"b\":3}}", "duplicate_field", "`b` stands twice at line 1");
        check(format!("[{}0]", "0,".repeat(JSON_VALUES_MAX)), "too_many_values", "more than");
    }

    #[test]
    fn numbers_and_text_come_through_as_given() {
        let body = r#"{"z":1,"a":[18446744073709551615,-9223372036854775808,0.1,null,true,"\u00e9\n"]}"#;
        let plain: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(json(body.as_bytes()).unwrap(), plain);
    }
}

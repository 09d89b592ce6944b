//! Says what of a request is not taken as it was given: in a header, in whole answers, or as a refusal.

use axum::response::Response;
use bytes::BytesMut;
use http::{HeaderMap, HeaderValue};
use sf_core::Fault;
use sf_core::ports::{WARNINGS_TOLD_MAX, Warning};

use crate::answer::json;
use crate::body::clipped;

/// Turns warnings into a refusal.
const STRICT: &str = "x-superfluid-strict";
const HEADER: &str = "x-superfluid-warnings";

/// Whether a client wants to be refused rather than warned.
pub(crate) fn strict(headers: &HeaderMap) -> Result<bool, Fault> {
    match headers.get(STRICT).map(HeaderValue::as_bytes) {
        None | Some(b"0") => Ok(false),
        Some(b"1") => Ok(true),
        Some(other) => {
            let shown = clipped(&String::from_utf8_lossy(other)).escape_default().to_string();
            Err(Fault::invalid(
                "invalid_value",
                STRICT,
                format!("`{STRICT}` is \"{shown}\", accepted is 0 or 1"),
            ))
        }
    }
}

/// The warning about a field or header that nobody reads.
pub(crate) fn ignored(name: &str) -> Warning {
    Warning { param: name.to_owned(), message: "it is not read by this server".to_owned() }
}

/// Refuses where the client is strict and there is something to warn of.
pub(crate) fn refuse(strict: bool, warnings: &[Warning]) -> Result<(), Fault> {
    Warning::refusal(warnings).filter(|_| strict).map_or(Ok(()), Err)
}

/// Names them in the response's header.
pub(crate) fn head(response: &mut Response, warnings: &[Warning]) {
    if warnings.is_empty() {
        return;
    }
    let mut lines: Vec<String> = warnings.iter().take(WARNINGS_TOLD_MAX).map(Warning::to_string).collect();
    if warnings.len() > WARNINGS_TOLD_MAX {
        lines.push(format!("and {} more", warnings.len() - WARNINGS_TOLD_MAX));
    }
    let text = lines.join("; ");
    if let Ok(value) = HeaderValue::from_str(&text.escape_default().to_string()) {
        response.headers_mut().insert(HEADER, value);
    }
}

/// `,"warnings":[{"param":…,"message":…}]`, or nothing.
pub(crate) fn write(out: &mut BytesMut, warnings: &[Warning]) {
    if warnings.is_empty() {
        return;
    }
    json::put(out, r#","warnings":["#);
    for (at, warning) in warnings.iter().enumerate() {
        json::comma(out, at);
        json::put(out, r#"{"param":"#);
        json::string(out, &warning.param);
        json::put(out, r#","message":"#);
        json::string(out, &warning.message);
        json::put(out, "}");
    }
    json::put(out, "]");
}

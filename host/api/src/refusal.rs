//! The one mapping from a [`Fault`] to an HTTP status, headers and an OpenAI error body.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::json;
use sf_core::{Fault, FaultKind, limits};

/// A fault on its way to a client.
pub(crate) struct Refusal(pub(crate) Fault);

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Refusal(fault)
    }
}

/// The status of a fault: by kind, and for what only HTTP can get wrong by code.
pub(crate) fn status(fault: &Fault) -> StatusCode {
    match (fault.kind, fault.code) {
        (FaultKind::Invalid, "method_not_allowed") => StatusCode::METHOD_NOT_ALLOWED,
        (FaultKind::Invalid, "unsupported_media_type") => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        (FaultKind::Invalid, "body_timeout") => StatusCode::REQUEST_TIMEOUT,
        (FaultKind::Unauthorized, "host_refused" | "origin_refused") => StatusCode::FORBIDDEN,
        (FaultKind::Unsupported, "not_in_this_build") => StatusCode::NOT_IMPLEMENTED,
        (FaultKind::Invalid | FaultKind::Unsupported, _) => StatusCode::BAD_REQUEST,
        (FaultKind::Unauthorized, _) => StatusCode::UNAUTHORIZED,
        (FaultKind::NotFound, _) => StatusCode::NOT_FOUND,
        (FaultKind::TooLarge, _) => StatusCode::PAYLOAD_TOO_LARGE,
        (FaultKind::Busy, _) => StatusCode::TOO_MANY_REQUESTS,
        (FaultKind::Unavailable, _) => StatusCode::SERVICE_UNAVAILABLE,
        (FaultKind::Deadline, _) => StatusCode::GATEWAY_TIMEOUT,
        (FaultKind::Engine | FaultKind::Internal, _) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// OpenAI's coarse classes, which clients switch on.
fn class(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Invalid
        | FaultKind::Unauthorized
        | FaultKind::NotFound
        | FaultKind::Unsupported
        | FaultKind::TooLarge => "invalid_request_error",
        FaultKind::Busy => "rate_limit_error",
        FaultKind::Unavailable | FaultKind::Engine | FaultKind::Deadline | FaultKind::Internal => {
            "server_error"
        }
    }
}

/// `{"error":{…}}`, for a body and for a frame of a stream alike.
pub(crate) fn error_json(fault: &Fault) -> String {
    let message = match &fault.hint {
        Some(hint) => format!("{} (hint: {hint})", fault.message),
        None => fault.message.clone(),
    };
    json!({"error": {"message": message, "type": class(fault.kind), "param": fault.param, "code": fault.code}})
        .to_string()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Refusal(fault) = self;
        if matches!(fault.kind, FaultKind::Engine | FaultKind::Internal) {
            tracing::error!(code = fault.code, "{}", fault.message);
        }
        let mut response = Response::new(Body::from(error_json(&fault)));
        *response.status_mut() = status(&fault);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(fault.kind, FaultKind::Busy | FaultKind::Unavailable) {
            headers.insert(RETRY_AFTER, HeaderValue::from(limits::RETRY_AFTER.as_secs()));
        }
        if status(&fault) == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"superfluid\""));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::{error_json, status};
    use sf_core::{Fault, FaultKind};

    #[test]
    fn every_kind_has_its_status() {
        for (kind, code, expect) in [
            (FaultKind::Invalid, "x", 400),
            (FaultKind::Unauthorized, "x", 401),
            (FaultKind::Unauthorized, "host_refused", 403),
            (FaultKind::NotFound, "x", 404),
            (FaultKind::Unsupported, "x", 400),
            (FaultKind::Unsupported, "not_in_this_build", 501),
            (FaultKind::TooLarge, "x", 413),
            (FaultKind::Busy, "x", 429),
            (FaultKind::Unavailable, "x", 503),
            (FaultKind::Engine, "x", 500),
            (FaultKind::Deadline, "x", 504),
            (FaultKind::Internal, "x", 500),
            (FaultKind::Invalid, "method_not_allowed", 405),
            (FaultKind::Invalid, "unsupported_media_type", 415),
            (FaultKind::Invalid, "body_timeout", 408),
        ] {
            assert_eq!(status(&Fault::new(kind, code, "")).as_u16(), expect, "{kind:?} {code}");
        }
    }

    #[test]
    fn the_hint_is_part_of_the_message() {
        let fault = Fault::invalid("c", "p", "m").hint("h");
        let expect =
            r#"{"error":{"message":"m (hint: h)","type":"invalid_request_error","param":"p","code":"c"}}"#;
        assert_eq!(error_json(&fault), expect);
    }
}

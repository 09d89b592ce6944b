//! What every request passes first and every response last: request id, span, browser guard, key, count.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue};
use sf_core::limits::REQUEST_ID_BYTES_MAX;
use sf_core::{Fault, FaultKind};
use tokio::time::Instant;
use tracing::Instrument;

use crate::answer::Timing;
use crate::body;
use crate::refusal::Refusal;
use crate::routes::{Exposure, Surface};
use crate::settings::ApiKey;

const REQUEST_ID: &str = "x-request-id";

/// The outermost layer of all routes.
pub(crate) async fn pass(State(surface): State<Arc<Surface>>, mut request: Request, next: Next) -> Response {
    let arrived = Instant::now();
    let deadline = surface.settings.request_timeout.map(|time| arrived + time);
    request.extensions_mut().insert(Timing { arrived, deadline });
    let id = request_id(request.headers()).unwrap_or_else(|| {
        HeaderValue::from_str(&format!("req-{}", surface.ids.next())).expect("hex digits")
    });
    // A path that no route knows could be anything: as a label it would have no bound.
    let route = request.extensions().get::<MatchedPath>().map_or("unknown", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("http", request = ?id, method = %request.method(), route);
    let mut count = Count { route, code: 499 };
    let answer = async {
        if let Err(fault) = admit(&surface, &request) {
            body::discard(request.into_body());
            return Refusal(fault).into_response();
        }
        // A panic is our bug and fails this request only.
        AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(|_| {
            Refusal(Fault::new(FaultKind::Internal, "panicked", "handling the request panicked"))
                .into_response()
        })
    };
    let mut response = answer.instrument(span.clone()).await;
    count.code = response.status().as_u16();
    let ms = arrived.elapsed().as_millis();
    span.in_scope(|| tracing::info!(status = count.code, ms, "answered"));
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Counts a request when it is over; 499 = the client left before there was a response.
struct Count {
    route: String,
    code: u16,
}

impl Drop for Count {
    fn drop(&mut self) {
        let route = std::mem::take(&mut self.route);
        metrics::counter!("superfluid_requests_total", "route" => route, "code" => self.code.to_string())
            .increment(1);
    }
}

/// The client's own id, when it is short and plain.
fn request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(REQUEST_ID)?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte);
    let fits = (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(plain);
    fits.then(|| id.clone())
}

fn admit(surface: &Surface, request: &Request) -> Result<(), Fault> {
    if surface.exposure == Exposure::Loopback {
        guard(request)?;
    }
    match &surface.settings.api_key {
        Some(key) if request.uri().path() != "/health" => {
            if candidates(request.headers()).any(|candidate| key.admits(candidate)) {
                return Ok(());
            }
            let given = candidates(request.headers()).next().is_some();
            let words = if given { "the api key is wrong" } else { "no api key was given" };
            Err(Fault::new(FaultKind::Unauthorized, "invalid_api_key", words)
                .hint("send the header `authorization: Bearer KEY`"))
        }
        _ => Ok(()),
    }
}

/// The key that a request presents; with several, the one that admitted it.
pub(crate) fn presented<'a>(headers: &'a HeaderMap, key: Option<&ApiKey>) -> Option<&'a [u8]> {
    let mut given = candidates(headers).filter(|candidate| !candidate.is_empty());
    given.find(|candidate| key.is_none_or(|key| key.admits(candidate)))
}

/// What the client presents as a key.
fn candidates(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer.into_iter().chain(headers.get("x-api-key").map(HeaderValue::as_bytes))
}

/// On a loopback listener nobody but this machine is expected: a web page must not reach it through the user's
/// browser, neither from its own origin nor under a name that it points here (DNS rebinding).
fn guard(request: &Request) -> Result<(), Fault> {
    let refuse = |code, what: &str, value: &HeaderValue| {
        let message = format!("{what} {value:?} is not this machine");
        Fault::new(FaultKind::Unauthorized, code, message).hint("use localhost or an IP address")
    };
    let hosts = request.headers().get_all(HOST);
    if let Some(other) = hosts.iter().find(|host| !host.to_str().is_ok_and(is_address_or_localhost)) {
        return Err(refuse("host_refused", "host", other));
    }
    let origins = request.headers().get_all(ORIGIN);
    if let Some(other) = origins.iter().find(|origin| !origin.to_str().is_ok_and(is_local_origin)) {
        return Err(refuse("origin_refused", "origin", other));
    }
    Ok(())
}

/// A name can be pointed anywhere by its owner; an address cannot.
fn is_address_or_localhost(authority: &str) -> bool {
    is_localhost(authority) || address(authority).is_some()
}

fn is_local_origin(origin: &str) -> bool {
    let Some((_, authority)) = origin.split_once("://") else { return false };
    is_localhost(authority) || address(authority).is_some_and(|address| address.is_loopback())
}

fn is_localhost(authority: &str) -> bool {
    host(authority).is_some_and(|host| host.eq_ignore_ascii_case("localhost"))
}

fn address(authority: &str) -> Option<IpAddr> {
    let host = host(authority)?;
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

/// An authority without its port.
fn host(authority: &str) -> Option<&str> {
    let end = if authority.starts_with('[') {
        authority.find(']')? + 1
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, port) = authority.split_at(end);
    let port_fits =
        port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    port_fits.then_some(host)
}

#[cfg(test)]
mod tests {
    use super::{is_address_or_localhost, is_local_origin, request_id};
    use http::{HeaderMap, HeaderValue};

    #[test]
    fn a_host_is_an_address_or_localhost() {
        for (host, local) in [
            ("localhost", true),
            ("LOCALHOST:8453", true),
            ("127.0.0.1:8453", true),
            ("[::1]:8453", true),
            ("[::1]", true),
            ("192.0.2.7", true),
            ("attacker.example", false),
            ("localhost.attacker.example", false),
            ("127.0.0.1.attacker.example:80", false),
            ("localhost:80@attacker.example", false),
            ("[::1", false),
            ("", false),
        ] {
            assert_eq!(is_address_or_localhost(host), local, "{host}");
        }
    }

    #[test]
    fn an_origin_is_this_machine() {
        for (origin, local) in [
            ("http://localhost:3000", true),
            ("http://127.0.0.1", true),
            ("https://[::1]:1", true),
            ("http://192.0.2.7", false),
            ("https://attacker.example", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(is_local_origin(origin), local, "{origin}");
        }
    }

    #[test]
    fn a_clients_request_id_is_taken_when_it_is_plain() {
        for (id, taken) in
            [("a-1_b.c", true), ("", false), ("a b", false), ("a\"b", false), (&"x".repeat(129), false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert("x-request-id", HeaderValue::from_str(id).unwrap());
            assert_eq!(request_id(&headers).is_some(), taken, "{id}");
        }
    }
}

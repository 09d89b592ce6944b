//! What the operator decides about the HTTP surface.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sf_core::QosClass;
use sha2::{Digest, Sha256};

/// Renders all metrics as Prometheus text.
pub type MetricsText = Arc<dyn Fn() -> String + Send + Sync>;

/// What the operator decides about the HTTP surface. The default: no key, no time limit, no metrics; clients may name
/// their class, and who names none is an agent.
#[derive(Clone)]
pub struct ApiSettings {
    /// When set, everything but `/health` needs it.
    pub api_key: Option<ApiKey>,
    /// Time from a request's arrival to the end of its answer, body and queue included.
    pub request_timeout: Option<Duration>,
    /// Behind `/metrics`; `None` = that route answers 404.
    pub metrics: Option<MetricsText>,
    /// The class of requests that name none.
    pub default_class: QosClass,
    /// Whether a client may name its class; if not, its header is ignored and named in the answer's.
    pub qos_header: bool,
}

impl Default for ApiSettings {
    fn default() -> Self {
        ApiSettings {
            api_key: None,
            request_timeout: None,
            metrics: None,
            default_class: QosClass::default(),
            qos_header: true,
        }
    }
}

/// The key that clients must present. Only its digest is kept, so it cannot be printed.
#[derive(Clone)]
pub struct ApiKey([u8; 32]);

impl ApiKey {
    /// Takes the key as the operator wrote it.
    pub fn new(key: &str) -> ApiKey {
        ApiKey(digest(key.as_bytes()))
    }

    /// Whether a client presented the key. The time it takes depends on the length of `candidate` only.
    pub(crate) fn admits(&self, candidate: &[u8]) -> bool {
        let candidate = digest(candidate);
        let difference =
            self.0.iter().zip(&candidate).fold(0u8, |sum, (a, b)| std::hint::black_box(sum | (a ^ b)));
        difference == 0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(hidden)")
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::ApiKey;

    #[test]
    fn only_the_very_key_is_admitted() {
        let key = ApiKey::new("sesame");
        for (candidate, admitted) in
            [("sesame", true), ("sesam", false), ("sesame ", false), ("Sesame", false), ("", false)]
        {
            assert_eq!(key.admits(candidate.as_bytes()), admitted, "{candidate:?}");
        }
    }

    #[test]
    fn a_key_is_never_printed() {
        assert_eq!(format!("{:?}", ApiKey::new("sesame")), "ApiKey(hidden)");
    }
}

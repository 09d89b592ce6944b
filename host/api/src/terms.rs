//! Reads the terms of a request out of its headers: its class, its deadline, its pin, and whose it is.
//!
//! They say how a request is served and never what is answered; that stands in the body.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use sf_core::limits::{DEADLINE_MAX, PIN_MAX};
use sf_core::{Fault, QosClass};
use sha2::{Digest, Sha256};

use crate::body::clipped;
use crate::gate;
use crate::settings::ApiSettings;
use crate::warnings;

const CLASS: &str = "x-superfluid-qos";
const DEADLINE: &str = "x-superfluid-deadline-ms";
const PIN: &str = "x-superfluid-pin";

/// How a request wants to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) class: QosClass,
    /// From its arrival.
    pub(crate) deadline: Option<Duration>,
    /// Never zero.
    pub(crate) pin: Option<Duration>,
    /// Refuse it rather than take it otherwise than given.
    pub(crate) strict: bool,
    /// Headers that were there and not read.
    pub(crate) ignored: Option<&'static str>,
    /// Digest of the key that it presents.
    key: Option<[u8; 32]>,
}

impl Terms {
    /// The terms in `headers`, where each may stand once.
    pub(crate) fn read(headers: &HeaderMap, settings: &ApiSettings) -> Result<Terms, Fault> {
        let ignored = (!settings.qos_header && headers.contains_key(CLASS)).then_some(CLASS);
        let class = if settings.qos_header { class(headers)? } else { None };
        let deadline = number(headers, DEADLINE, 1, DEADLINE_MAX.as_millis())?;
        let pin = number(headers, PIN, 0, PIN_MAX.as_secs().into())?.filter(|seconds| *seconds > 0);
        Ok(Terms {
            class: class.unwrap_or(settings.default_class),
            deadline: deadline.map(Duration::from_millis),
            pin: pin.map(Duration::from_secs),
            strict: warnings::strict(headers)?,
            ignored,
            key: gate::presented(headers, settings.api_key.as_ref()).map(|key| Sha256::digest(key).into()),
        })
    }

    /// Whose request it is: one number per key and `user`; 0 = nobody in particular.
    pub(crate) fn party(&self, user: Option<&str>) -> u64 {
        if self.key.is_none() && user.is_none() {
            return 0;
        }
        let mut digest = Sha256::new();
        digest.update(self.key.unwrap_or_default());
        digest.update(user.unwrap_or_default());
        let digest: [u8; 32] = digest.finalize().into();
        let (head, _) = digest.split_first_chunk().expect("32 bytes hold 8");
        u64::from_le_bytes(*head).max(1)
    }
}

fn class(headers: &HeaderMap) -> Result<Option<QosClass>, Fault> {
    let Some(value) = single(headers, CLASS)? else { return Ok(None) };
    let class = value.to_str().ok().and_then(QosClass::parse);
    class.map(Some).ok_or_else(|| {
        let message = format!("`{CLASS}` is {}, which is no class", shown(value));
        Fault::invalid("invalid_value", CLASS, message)
            .hint("accepted are interactive, completion, agent and background, or 0 to 3")
    })
}

/// A whole number from `low` to `high`.
fn number(headers: &HeaderMap, name: &'static str, low: u128, high: u128) -> Result<Option<u64>, Fault> {
    let Some(value) = single(headers, name)? else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim_ascii();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let message = format!("`{name}` is {}, expected a whole number", shown(value));
        return Err(Fault::invalid("invalid_type", name, message));
    }
    let number = text.parse::<u64>().ok().filter(|number| (low..=high).contains(&u128::from(*number)));
    number.map(Some).ok_or_else(|| {
        let message = format!("`{name}` is {}, accepted is {low} to {high}", shown(value));
        Fault::invalid("out_of_range", name, message)
    })
}

/// The one value of a header: which of two was meant is a guess.
fn single<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a HeaderValue>, Fault> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Fault::invalid("duplicate_header", name, format!("header `{name}` stands twice")));
    }
    Ok(first)
}

/// A value as a message quotes it.
fn shown(value: &HeaderValue) -> String {
    format!("\"{}\"", clipped(&String::from_utf8_lossy(value.as_bytes())).escape_default())
}

#[cfg(test)]
mod tests {
    use super::Terms;
    use crate::settings::ApiSettings;
    use http::{HeaderMap, HeaderName, HeaderValue};
    use sf_core::QosClass;
    use std::time::Duration;

    fn headers(rows: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn read(rows: &[(&str, &str)]) -> Terms {
        Terms::read(&headers(rows), &ApiSettings::default()).unwrap()
    }

    #[test]
    fn terms_are_read_as_given_and_missing_ones_are_the_operators() {
        let none = read(&[]);
        assert_eq!((none.class, none.deadline, none.pin), (QosClass::Agent, None, None));
        let all = read(&[
            ("X-Superfluid-QoS", "Interactive-Chat"),
            ("X-Superfluid-Deadline-Ms", "86400000"),
            ("X-Superfluid-Pin", "86400"),
        ]);
        assert_eq!(all.class, QosClass::Interactive);
        assert_eq!((all.deadline, all.pin), (Some(Duration::from_hours(24)), Some(Duration::from_hours(24))));
        assert_eq!(read(&[("x-superfluid-pin", "0")]).pin, None);
        let settings = ApiSettings { default_class: QosClass::Background, ..ApiSettings::default() };
        assert_eq!(Terms::read(&headers(&[]), &settings).unwrap().class, QosClass::Background);
    }

    #[test]
    fn a_class_that_clients_may_not_name_is_not_read() {
        let settings = ApiSettings { qos_header: false, ..ApiSettings::default() };
        let terms = Terms::read(&headers(&[("x-superfluid-qos", "no class at all")]), &settings).unwrap();
        assert_eq!((terms.class, terms.ignored), (QosClass::Agent, Some("x-superfluid-qos")));
    }

    #[test]
    fn a_party_is_a_key_and_a_user() {
        let (nobody, ann) = (read(&[]), read(&[("authorization", "Bearer ann")]));
        let all = [nobody.party(Some("u")), ann.party(None), ann.party(Some("u")), ann.party(Some("v"))];
        assert_eq!(nobody.party(None), 0);
        for (at, party) in all.iter().enumerate() {
            assert!(*party != 0 && !all[..at].contains(party), "{all:?}");
        }
        assert_eq!(read(&[("x-api-key", "ann")]).party(Some("u")), ann.party(Some("u")));
    }
}

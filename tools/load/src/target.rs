//! Which server is loaded: its address, and what every request to it carries.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::error::LoadError;

/// A server that speaks the OpenAI dialect over plain HTTP.
#[derive(Clone)]
pub struct Target {
    /// Where to connect.
    pub address: SocketAddr,
    /// `host:port`, as the `Host` header says it.
    authority: String,
    /// What stands before `/v1/...`; empty, or `/prefix` without a slash at its end.
    prefix: String,
    /// Header lines of every request, each with its line end.
    headers: String,
}

impl Target {
    /// Reads `http://host:port[/prefix][/v1]` and resolves the name.
    ///
    /// # Errors
    /// Another scheme, no host, or a name that does not resolve.
    pub fn new(url: &str) -> Result<Self, LoadError> {
        let refused = |why| LoadError::Url { url: url.to_owned(), why };
        if url.starts_with("https://") {
            return Err(refused("only http:// is spoken here"));
        }
        let rest = url.strip_prefix("http://").ok_or_else(|| refused("it does not begin with http://"))?;
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let unprintable = |text: &str| text.bytes().any(|byte| !byte.is_ascii_graphic());
        if authority.is_empty() || authority.contains('@') || unprintable(rest) {
            return Err(refused("http://HOST:PORT is needed"));
        }
        if path.contains(['?', '#']) {
            return Err(refused("a query has no meaning here"));
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        let resolved = authority.to_socket_addrs().map_err(LoadError::io(format!("resolve {authority}")))?;
        // A name like localhost often resolves to ::1 first, where few servers listen.
        let mut addresses: Vec<SocketAddr> = resolved.collect();
        addresses.sort_by_key(|address| !address.is_ipv4());
        let address = addresses.first().copied().ok_or_else(|| refused("its name resolves to nothing"))?;
        let path = path.trim_end_matches('/');
        let prefix = path.strip_suffix("/v1").unwrap_or(path).to_owned();
        Ok(Target { address, authority, prefix, headers: String::new() })
    }

    /// A server on this machine.
    pub fn local(port: u16) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Target { address, authority: address.to_string(), prefix: String::new(), headers: String::new() }
    }

    /// Sends a bearer key with every request.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        self.headers.push_str(&format!("Authorization: Bearer {key}\r\n"));
        self
    }

    /// Sends a header with every request.
    ///
    /// # Errors
    /// A text that is not `Name: value` in visible ASCII.
    pub fn with_header(mut self, line: &str) -> Result<Self, LoadError> {
        let (setting, accepts) = ("--header", "Name: value");
        let refused = || LoadError::Setting { setting, value: line.to_owned(), accepts };
        let (name, value) = line.split_once(':').ok_or_else(refused)?;
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let visible = |byte: u8| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t';
        if name.is_empty() || !name.bytes().all(token) || !value.bytes().all(visible) {
            return Err(refused());
        }
        self.headers.push_str(&format!("{name}: {}\r\n", value.trim()));
        Ok(self)
    }

    /// `http://host:port/prefix`, for reports.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.prefix)
    }

    /// Writes a request into `out`. `headers` are whole lines of this request alone.
    pub(crate) fn write_request(&self, out: &mut Vec<u8>, request: &Request<'_>) {
        let Request { method, path, headers, body } = request;
        let Target { authority, prefix, headers: common, .. } = self;
        out.extend_from_slice(
            format!(
                "{method} {prefix}{path} HTTP/1.1\r\nHost: {authority}\r\n{common}{headers}Content-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n",
                body.len()
            )
            .as_bytes(),
        );
        out.extend_from_slice(body);
    }
}

/// One request as it goes out.
pub(crate) struct Request<'a> {
    pub(crate) method: &'static str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a str,
    pub(crate) body: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused() {
        let check = |url: &str, expect: Option<(&str, &str)>| {
            let read = Target::new(url).ok().map(|target| (target.authority, target.prefix));
            let read = read.as_ref().map(|(authority, prefix)| (authority.as_str(), prefix.as_str()));
            assert_eq!(read, expect, "{url}");
        };
        check("http://127.0.0.1:8453", Some(("127.0.0.1:8453", "")));
        check("http://127.0.0.1:8453/", Some(("127.0.0.1:8453", "")));
        check("http://127.0.0.1:8453/v1", Some(("127.0.0.1:8453", "")));
        check("http://127.0.0.1:8453/v1/", Some(("127.0.0.1:8453", "")));
        check("http://[::1]:8453/llm/v1", Some(("[::1]:8453", "/llm")));
        check("http://127.0.0.1", Some(("127.0.0.1:80", "")));
        check("https://127.0.0.1", None);
        check("127.0.0.1:8453", None);
        check("http://", None);
        check("http:///v1", None);
        check("http://127.0.0.1:1/v1?x", None);
        check("http://127.0.0.1:1\r\nX: y", None);
        check("http://user:word@127.0.0.1:1", None);
    }

    #[test]
    fn header_lines_are_read_or_refused() {
        let check = |line: &str, expect: Option<&str>| {
            let read = Target::local(1).with_header(line).ok().map(|target| target.headers);
            assert_eq!(read.as_deref(), expect, "{line}");
        };
        check("X-Team: a b", Some("X-Team: a b\r\n"));
        check("X-Team:", Some("X-Team: \r\n"));
        check("X-Team", None);
        check("X Team: a", None);
        check("X-Team: a\r\nEvil: b", None);
    }
}

//! URLs of targets, as far as a load client needs them. The path is sent as it was written: a client that
//! normalizes it cannot test how a server treats `/a/../b`.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use url::Host;

/// The URL of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    /// `true` if the scheme is `https`.
    pub secure: bool,
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// The port; the scheme's default if the URL names none.
    pub port: u16,
    /// Path and query, from the first slash.
    pub path: String,
}

/// The reason why a text is not the URL of a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The scheme is neither `http` nor `https`.
    #[error("unsupported scheme `{0}`: use http or https")]
    Scheme(String),
    /// The host is missing or invalid.
    #[error("no valid host: write http://HOST[:PORT]/PATH")]
    Host,
    /// The port is invalid.
    #[error("`{0}` is not a port")]
    Port(String),
    /// The URL contains user information.
    #[error("credentials in the URL are not sent: use -A USER:PASSWORD")]
    User,
    /// The path contains bytes that a request line cannot hold.
    #[error("spaces and control characters must be percent-encoded")]
    Path,
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(UrlError::Scheme(scheme.to_owned())),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(UrlError::User);
        }
        let (host, port) = host_and_port(authority)?;
        // A fragment is never sent.
        let path = path.split('#').next().unwrap_or_default();
        if path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(UrlError::Path);
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { secure, host, port: port.unwrap_or(if secure { 443 } else { 80 }), path })
    }
}

/// Parses `HOST[:PORT]`. An IPv6 address is in brackets, which the returned host has not. A name is returned
/// in the form that DNS has: in lower case, and in Punycode if it is not ASCII.
pub(crate) fn host_and_port(authority: &str) -> Result<(String, Option<u16>), UrlError> {
    let name_end = if authority.starts_with('[') {
        authority.find(']').ok_or(UrlError::Host)? + 1
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, port) = authority.split_at(name_end);
    let host = match Host::parse(host).map_err(|_| UrlError::Host)? {
        Host::Domain(name) => name,
        Host::Ipv4(ip) => ip.to_string(),
        Host::Ipv6(ip) => ip.to_string(),
    };
    if port.is_empty() {
        return Ok((host, None));
    }
    let digits = port.strip_prefix(':').ok_or(UrlError::Host)?;
    match digits.parse() {
        Ok(port) if port > 0 && !digits.starts_with('+') => Ok((host, Some(port))),
        _ => Err(UrlError::Port(digits.to_owned())),
    }
}

impl Url {
    /// The host in the form it has in a URL: an IPv6 address in brackets.
    pub fn bracketed_host(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }

    /// The value of `Host`. Omits the scheme's default port.
    pub fn authority(&self) -> String {
        let default = if self.secure { 443 } else { 80 };
        if self.port == default {
            self.bracketed_host()
        } else {
            format!("{}:{}", self.bracketed_host(), self.port)
        }
    }

    /// The addresses of the host, in the system's order.
    pub fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        resolve(&self.host, self.port)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

/// The addresses of a host.
pub(crate) fn resolve(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    match host.parse::<IpAddr>() {
        Ok(ip) => Ok(vec![SocketAddr::new(ip, port)]),
        Err(_) => Ok((host, port).to_socket_addrs()?.collect()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_has_four_parts_and_defaults() {
        for (text, printed, port, path) in [
            ("http://a/b?c=d", "http://a/b?c=d", 80, "/b?c=d"),
            ("https://a:8443/", "https://a:8443/", 8443, "/"),
            ("HTTPS://a", "https://a/", 443, "/"),
            ("localhost:8080/x", "http://localhost:8080/x", 8080, "/x"),
            ("http://[::1]:9000/x#y", "http://[::1]:9000/x", 9000, "/x"),
            ("http://a?q", "http://a/?q", 80, "/?q"),
            ("http://a:80/", "http://a/", 80, "/"),
            ("http://Example.TEST:8080/A", "http://example.test:8080/A", 8080, "/A"),
            ("http://b\u{fc}cher.test/", "http://xn--bcher-kva.test/", 80, "/"),
            ("http://XN--bcher-kva.test/", "http://xn--bcher-kva.test/", 80, "/"),
            ("http://a--b-.test/", "http://a--b-.test/", 80, "/"),
            ("http://a_b.test/", "http://a_b.test/", 80, "/"),
            ("http://[0:0::1]/", "http://[::1]/", 80, "/"),
            ("http://a/x/../y//%7e%2F", "http://a/x/../y//%7e%2F", 80, "/x/../y//%7e%2F"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.to_string().as_str(), url.port, url.path.as_str()), (printed, port, path));
        }
    }

    #[test]
    fn a_malformed_url_is_refused_with_the_reason() {
        for (text, error) in [
            ("ftp://a/", UrlError::Scheme("ftp".into())),
            ("http:///x", UrlError::Host),
            ("http://a b/", UrlError::Host),
            ("http://[::1/", UrlError::Host),
            ("http://[a]/", UrlError::Host),
            ("http://[::1]x/", UrlError::Host),
            ("http://a\\b/", UrlError::Host),
            ("http://a\tb/", UrlError::Host),
            ("http://1.2.3.4.5/", UrlError::Host),
            ("http://xn--/", UrlError::Host),
            ("http://xn--a.test/", UrlError::Host),
            ("http://a:/", UrlError::Port(String::new())),
            ("http://a:+1/", UrlError::Port("+1".into())),
            ("http://a:b/", UrlError::Port("b".into())),
            ("http://a:0/", UrlError::Port("0".into())),
            ("http://a:65536/", UrlError::Port("65536".into())),
            ("http://u:p@a/", UrlError::User),
            ("http://a/b c", UrlError::Path),
            ("http://a/b\r\nHost: c", UrlError::Path),
        ] {
            assert_eq!(text.parse::<Url>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_url_is_printed_as_one_that_means_the_same(
            secure: bool,
            // No two hyphens follow each other: a label with `xn--` is valid only if Punycode follows.
            host in "[a-z](-?[a-z0-9]){0,10}(\\.test)?|127\\.0\\.0\\.1|\\[::1\\]",
            port in prop::option::of(1_u16..),
            path in "(/[!-~]{0,20})?",
        ) {
            let scheme = if secure { "https" } else { "http" };
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            let text = format!("{scheme}://{host}{port}{path}");
            let url: Url = text.parse().unwrap();
            prop_assert_eq!(url.to_string().parse::<Url>(), Ok(url.clone()));
            prop_assert_eq!(url.secure, secure);
            prop_assert_eq!(url.bracketed_host(), host);
            let path = path.split('#').next().unwrap_or_default();
            prop_assert_eq!(&url.path, if path.is_empty() { "/" } else { path });
        }
    }

    #[test]
    fn an_address_resolves_to_itself() {
        let url: Url = "http://[::1]:81/".parse().unwrap();
        assert_eq!(url.resolve().unwrap(), ["[::1]:81".parse().unwrap()]);
    }
}

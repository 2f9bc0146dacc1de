//! The `host[:port]` of `Host`, of an absolute-form target and of a CONNECT target.

use crate::span::Span;
use crate::syntax::{decimal, is_host_name};

/// A validated host and optional port (RFC 3986 §3.2, without user information).
///
/// Stricter than the RFC where parsers disagree: no empty host, no empty port, no percent-encoding, no
/// delimiters in a name, no zone in an IPv6 address. The host may not exist, and the egress policy may forbid
/// it; neither is checked here.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AuthoritySpan {
    /// The host within the bytes parsed; an IPv6 address without its brackets.
    pub host: Span,
    /// The port, if one is given.
    pub port: Option<u16>,
}

impl AuthoritySpan {
    /// Parses `host[:port]`. Returns `None` if it is not valid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.first() == Some(&b'[') {
            return Self::parse_ipv6(bytes);
        }
        // A name holds no colon and a port has up to five digits, so the colon is among the last six bytes.
        let tail = bytes.len().saturating_sub(1 + MAX_PORT_DIGITS);
        match bytes[tail..].iter().position(|&byte| byte == b':').map(|colon| tail + colon) {
            None => is_host_name(bytes).then(|| Self { host: Span::new(0, bytes.len()), port: None }),
            Some(colon) if is_host_name(&bytes[..colon]) => {
                Some(Self { host: Span::new(0, colon), port: Some(port(&bytes[colon + 1..])?) })
            }
            Some(_) => None,
        }
    }

    fn parse_ipv6(bytes: &[u8]) -> Option<Self> {
        let close = bytes.iter().position(|&byte| byte == b']')?;
        let address = std::str::from_utf8(&bytes[1..close]).ok()?;
        address.parse::<std::net::Ipv6Addr>().ok()?;
        let port = match &bytes[close + 1..] {
            [] => None,
            [b':', digits @ ..] => Some(port(digits)?),
            _ => return None,
        };
        Some(Self { host: Span::new(1, close), port })
    }
}

/// Maximum digits of a port, leading zeros included.
const MAX_PORT_DIGITS: usize = 5;

fn port(digits: &[u8]) -> Option<u16> {
    if digits.len() > MAX_PORT_DIGITS {
        return None;
    }
    decimal(digits).and_then(|number| u16::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parsed = Option<(&'static str, Option<u16>)>;

    #[test]
    fn hosts_and_ports_rfc_9112_section_3_2() {
        let rows: &[(&str, Parsed)] = &[
            ("example.com", Some(("example.com", None))),
            ("Example.COM.:8080", Some(("Example.COM.", Some(8080)))),
            ("a_b-c~d", Some(("a_b-c~d", None))),
            ("127.0.0.1:0", Some(("127.0.0.1", Some(0)))),
            ("h:65535", Some(("h", Some(65535)))),
            ("[::1]", Some(("::1", None))),
            ("[2001:db8::1.2.3.4]:443", Some(("2001:db8::1.2.3.4", Some(443)))),
            ("", None),
            (":80", None),
            ("h:", None),
            ("h:65536", None),
            ("h:000080", None),
            ("h:+80", None),
            ("h:80:80", None),
            ("::1", None),
            ("[::1", None),
            ("[]", None),
            ("[::1]x", None),
            ("[::1]:", None),
            ("[fe80::1%25eth0]", None),
            ("[v1.x]", None),
            ("user@h", None),
            ("a b", None),
            ("a,b", None),
            ("a/b", None),
            ("a%2eb", None),
            ("a?b", None),
            ("a#b", None),
            ("a\\b", None),
            ("\u{e9}", None),
        ];
        for (text, expected) in rows {
            let parsed = AuthoritySpan::parse(text.as_bytes());
            let shown = parsed.map(|authority| (&text[authority.host.range()], authority.port));
            assert_eq!(shown, *expected, "{text}");
        }
    }
}

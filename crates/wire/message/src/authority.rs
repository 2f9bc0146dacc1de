//! Authorities: the host and port of a request's destination, parsed strictly and stored in one normal form.
//!
//! Routing, egress policy, pools and certificates all compare authorities. So two spellings of one host must
//! be equal after parsing, and a spelling that two parsers read differently must be rejected. For example,
//! the C library reads `0x7f.1` and `2130706433` as 127.0.0.1, while a resolver reads them as names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum length of a name in its textual form without the trailing dot (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;

/// Maximum length of a label (RFC 1035 §2.3.4).
const LABEL_BYTES_MAX: usize = 63;

/// A host: a name or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name in lower case without a trailing dot. It has only letters, digits, `-`, `_` and `.`.
    Name(Box<str>),
    /// A literal address.
    Ip(IpAddr),
}

impl Host {
    /// Parses a host in URI syntax (RFC 3986 §3.2.2): a name, an IPv4 address, or an IPv6 address in
    /// brackets.
    pub fn parse(bytes: &[u8]) -> Result<Self, AuthorityError> {
        match bytes.strip_prefix(b"[") {
            Some(rest) => bracketed(rest.strip_suffix(b"]").ok_or(AuthorityError::Ipv6)?),
            None => unbracketed(bytes),
        }
    }

    /// Returns the name, if the host is not an address.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Ip(_) => None,
        }
    }

    /// Returns the address, if the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Name(_) => None,
            Self::Ip(ip) => Some(*ip),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
        }
    }
}

/// A host and a port, printed as `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authority {
    /// The host.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
}

impl Authority {
    /// Parses `host` or `host:port` (RFC 9110 §4.2 without userinfo, RFC 9112 §3.2.3). `default_port` is used
    /// if the port is missing. Without a default, the port is required.
    pub fn parse(bytes: &[u8], default_port: Option<u16>) -> Result<Self, AuthorityError> {
        if bytes.contains(&b'@') {
            return Err(AuthorityError::Userinfo);
        }
        // A bracketed address contains colons. Otherwise the first colon precedes the port.
        let host_bytes = match bytes.strip_prefix(b"[") {
            Some(rest) => 2 + rest.iter().position(|byte| *byte == b']').ok_or(AuthorityError::Ipv6)?,
            None => bytes.iter().position(|byte| *byte == b':').unwrap_or(bytes.len()),
        };
        let (host, rest) = bytes.split_at(host_bytes);
        let host = Host::parse(host)?;
        let port = match rest.split_first() {
            None => default_port.ok_or(AuthorityError::PortMissing)?,
            Some((b':', digits)) => parse_port(digits)?,
            Some(_) => return Err(AuthorityError::Ipv6),
        };
        Ok(Self { host, port })
    }

    /// Returns the socket address, if the host is an address.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        self.host.ip().map(|ip| SocketAddr::new(ip, self.port))
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The reason why bytes are not an authority. It holds none of the bytes, so it is safe to log and to send to
/// clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// The host is missing.
    #[error("the host is empty")]
    Empty,
    /// There is an `@`. Credentials are not allowed in an authority (RFC 9110 §4.2.4).
    #[error("credentials are not allowed in an authority")]
    Userinfo,
    /// A byte that is not allowed in a host name.
    #[error("the host contains a byte that is not allowed in a host name")]
    Byte,
    /// A label is empty or longer than 63 bytes, or the name is longer than 253.
    #[error("the host name or one of its labels is empty or too long")]
    Length,
    /// The host ends like an IPv4 address but is not four decimal numbers: octal, hexadecimal, short or too
    /// big.
    #[error("the host looks like an IPv4 address but is not four decimal numbers")]
    Ipv4,
    /// Brackets without an IPv6 address in them, or something other than a port behind them.
    #[error("the host is not an IPv6 address in brackets")]
    Ipv6,
    /// The port is not a number from 1 to 65535 in plain digits.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// The port is required but missing.
    #[error("the port is missing")]
    PortMissing,
}

/// Parses the address between brackets. The standard library's parser rejects zone ids, as required here (RFC
/// 9844).
fn bracketed(bytes: &[u8]) -> Result<Host, AuthorityError> {
    let text = std::str::from_utf8(bytes).map_err(|_| AuthorityError::Ipv6)?;
    let ip: Ipv6Addr = text.parse().map_err(|_| AuthorityError::Ipv6)?;
    Ok(Host::Ip(IpAddr::V6(ip)))
}

/// Parses a name or an IPv4 address, either with at most one trailing dot.
fn unbracketed(bytes: &[u8]) -> Result<Host, AuthorityError> {
    let bytes = bytes.strip_suffix(b".").unwrap_or(bytes);
    if bytes.is_empty() {
        return Err(AuthorityError::Empty);
    }
    if bytes.len() > NAME_BYTES_MAX {
        return Err(AuthorityError::Length);
    }
    let mut name = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => name.push(char::from(*byte)),
            b'A'..=b'Z' => name.push(char::from(byte.to_ascii_lowercase())),
            _ => return Err(AuthorityError::Byte),
        }
    }
    if name.split('.').any(|label| label.is_empty() || label.len() > LABEL_BYTES_MAX) {
        return Err(AuthorityError::Length);
    }
    if ends_in_number(&name) {
        let ip: Ipv4Addr = name.parse().map_err(|_| AuthorityError::Ipv4)?;
        return Ok(Host::Ip(IpAddr::V4(ip)));
    }
    Ok(Host::Name(name.into_boxed_str()))
}

/// Returns `true` if some parser may read `name` as an IPv4 address. No top-level domain is a number, so a
/// real name never qualifies.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let hexadecimal =
        last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hexadecimal || last.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses plain digits without leading zeros, so a port has only one spelling.
fn parse_port(digits: &[u8]) -> Result<u16, AuthorityError> {
    if !matches!(digits, [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit)) {
        return Err(AuthorityError::Port);
    }
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or(AuthorityError::Port)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<String, AuthorityError> {
        Authority::parse(text.as_bytes(), Some(80)).map(|authority| authority.to_string())
    }

    #[test]
    fn spellings_of_one_host_come_out_equal() {
        for (text, normal) in [
            ("example.com", "example.com:80"),
            ("EXAMPLE.com.", "example.com:80"),
            ("example.com:443", "example.com:443"),
            ("example.com.:443", "example.com:443"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example:80"),
            ("my_bucket.s3.amazonaws.com", "my_bucket.s3.amazonaws.com:80"),
            ("localhost", "localhost:80"),
            ("1e100.net", "1e100.net:80"),
            ("0x7f.com", "0x7f.com:80"),
            ("127.0.0.1", "127.0.0.1:80"),
            ("127.0.0.1.:8080", "127.0.0.1:8080"),
            ("[::1]", "[::1]:80"),
            ("[0:0:0:0:0:0:0:1]:8443", "[::1]:8443"),
            ("[2001:DB8::A]:65535", "[2001:db8::a]:65535"),
            ("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:1"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(normal), "{text}");
        }
    }

    #[test]
    fn an_ambiguous_authority_is_refused() {
        use AuthorityError::*;
        for (text, error) in [
            ("", Empty),
            (".", Empty),
            (":80", Empty),
            ("user@example.com", Userinfo),
            ("user:password@example.com:80", Userinfo),
            ("[::1]@example.com", Userinfo),
            ("example.com/path", Byte),
            ("example.com?x", Byte),
            ("example.com#x", Byte),
            ("example.com\\x", Byte),
            ("exa mple.com", Byte),
            (" example.com", Byte),
            ("example.com\r\n", Byte),
            ("example.com\0", Byte),
            ("ex%61mple.com", Byte),
            ("*.example.com", Byte),
            ("bücher.example", Byte),
            ("example..com", Length),
            (".example.com", Length),
            ("example.com..", Length),
            ("2130706433", Ipv4),
            ("127.1", Ipv4),
            ("127.0.1", Ipv4),
            ("0x7f.1", Ipv4),
            ("0x7f.0x1", Ipv4),
            ("0X7F000001", Ipv4),
            ("0x", Ipv4),
            ("0177.0.0.1", Ipv4),
            ("127.0.0.01", Ipv4),
            ("127.0.0.256", Ipv4),
            ("1.2.3.4.5", Ipv4),
            ("example.1", Ipv4),
            ("::1", Empty),
            ("2001:db8::1", Ipv4),
            ("fe80::1", Port),
            ("[]", Ipv6),
            ("[::1", Ipv6),
            ("[::1]x", Ipv6),
            ("[::1]]", Ipv6),
            ("[[::1]]", Ipv6),
            ("[fe80::1%25eth0]", Ipv6),
            ("[fe80::1%eth0]", Ipv6),
            ("[127.0.0.1]", Ipv6),
            ("[example.com]", Ipv6),
            ("[v1.x]", Ipv6),
            ("example.com:", Port),
            ("example.com:0", Port),
            ("example.com:080", Port),
            ("example.com:65536", Port),
            ("example.com:99999999999999999999", Port),
            ("example.com:+80", Port),
            ("example.com:-80", Port),
            ("example.com:0x50", Port),
            ("example.com:80:80", Port),
            ("example.com:80 ", Port),
            ("example.com:https", Port),
            ("example.com:٨٠", Port),
        ] {
            assert_eq!(parse(text), Err(error), "{text:?}");
        }
        assert_eq!(Authority::parse(b"example.com\xff", Some(80)), Err(Byte));
    }

    #[test]
    fn a_port_must_be_written_where_there_is_no_default() {
        assert_eq!(Authority::parse(b"example.com", None), Err(AuthorityError::PortMissing));
        assert_eq!(Authority::parse(b"[::1]", None), Err(AuthorityError::PortMissing));
        assert_eq!(Authority::parse(b"example.com:443", None).unwrap().port, 443);
    }

    #[test]
    fn names_and_labels_have_a_length() {
        let label = "a".repeat(63);
        let name = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(name.len(), 253);
        assert!(parse(&name).is_ok() && parse(&format!("{name}.")).is_ok());
        assert_eq!(parse(&format!("{name}a")), Err(AuthorityError::Length));
        assert_eq!(parse(&"a".repeat(64)), Err(AuthorityError::Length));
    }

    #[test]
    fn the_parts_can_be_asked_for() {
        let name = Authority::parse(b"example.com", Some(80)).unwrap();
        assert_eq!(
            (name.host.name(), name.host.ip(), name.socket_address()),
            (Some("example.com"), None, None)
        );
        let address = Authority::parse(b"[::1]:81", None).unwrap();
        assert_eq!(
            (address.host.name(), address.socket_address()),
            (None, Some("[::1]:81".parse().unwrap()))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(authority) = Authority::parse(&bytes, Some(80)) {
                prop_assert!(authority.port != 0);
                prop_assert_eq!(Authority::parse(authority.to_string().as_bytes(), None), Ok(authority));
            }
        }

        #[test]
        fn a_printed_authority_is_read_again(text in "[a-zA-Z0-9._:\\[\\]x-]{0,40}") {
            if let Ok(authority) = Authority::parse(text.as_bytes(), Some(80)) {
                let printed = authority.to_string();
                prop_assert!(!printed.bytes().any(|byte| byte.is_ascii_uppercase()));
                prop_assert_eq!(Authority::parse(printed.as_bytes(), None), Ok(authority));
            }
        }

        #[test]
        fn case_and_a_trailing_dot_make_no_difference(name in "[a-z][a-z0-9_-]{0,20}(\\.[a-z][a-z0-9_-]{0,20}){0,4}", port in 1..=u16::MAX) {
            let plain = Authority::parse(format!("{name}:{port}").as_bytes(), None);
            prop_assert!(plain.is_ok());
            prop_assert_eq!(Authority::parse(format!("{}.:{port}", name.to_uppercase()).as_bytes(), None), plain);
        }

        #[test]
        fn every_address_is_read_as_itself(bits in any::<u128>(), v4 in any::<bool>(), port in 1..=u16::MAX) {
            let ip = if v4 { IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits >> 96).unwrap())) } else { IpAddr::V6(Ipv6Addr::from_bits(bits)) };
            let address = SocketAddr::new(ip, port);
            let authority = Authority::parse(address.to_string().as_bytes(), None).unwrap();
            prop_assert_eq!(authority.socket_address(), Some(address));
            prop_assert_eq!(authority.to_string(), address.to_string());
        }

        #[test]
        fn a_number_alone_is_never_a_name(number in any::<u64>()) {
            for text in [number.to_string(), format!("{number:#x}"), format!("0{number:o}"), format!("127.{number}")] {
                prop_assert_eq!(Authority::parse(text.as_bytes(), Some(80)), Err(AuthorityError::Ipv4));
            }
        }
    }
}

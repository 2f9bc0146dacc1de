//! Patterns for hosts: a name, `*.example.com`, or an address.

use std::fmt;
use std::net::IpAddr;

/// A pattern for hosts, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Exactly this host.
    Exactly(Box<str>),
    /// Every name below this one, at any depth, but not the name itself. Stored without `*.`.
    Below(Box<str>),
}

/// A text that is not a host pattern, with the mistake in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPatternError {
    text: Box<str>,
    mistake: HostMistake,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostMistake {
    SchemeOrPath,
    Port,
    Star,
    Label,
}

impl fmt::Display for HostPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mistake = match self.mistake {
            HostMistake::SchemeOrPath => "write the host alone, without scheme and path",
            HostMistake::Port => "write it without a port",
            HostMistake::Star => "a star is only allowed at the start, for whole labels: `*.example.com`",
            HostMistake::Label => {
                "a name consists of labels of letters, digits, `-` and `_`, separated by dots, at most 253 bytes"
            }
        };
        write!(f, "`{}` is not a host: {mistake}", self.text)
    }
}

impl std::error::Error for HostPatternError {}

impl HostPattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        let lower = text.to_ascii_lowercase();
        let bare = lower.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&lower);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self::Exactly(address.to_string().into()));
        }
        let (is_below, name) = match lower.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, lower.as_str()),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        check_name(name).map_err(|mistake| HostPatternError { text: text.into(), mistake })?;
        Ok(if is_below { Self::Below(name.into()) } else { Self::Exactly(name.into()) })
    }

    /// Returns `true` if `host` matches. It must be in lower case and without port, trailing dot and
    /// brackets.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exactly(name) => **name == *host,
            Self::Below(name) => {
                host.strip_suffix(&**name).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
            }
        }
    }
}

/// Returns a request's host in the form that patterns match: an IPv6 address without its brackets.
pub fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

fn check_name(name: &str) -> Result<(), HostMistake> {
    if name.contains("://") || name.contains('/') {
        return Err(HostMistake::SchemeOrPath);
    }
    if name.contains(':') {
        return Err(HostMistake::Port);
    }
    if name.contains('*') {
        return Err(HostMistake::Star);
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_plain);
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Err(HostMistake::Label);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_whole_and_without_case() {
        for (pattern, good, bad) in [
            ("API.Stripe.com.", &["api.stripe.com"][..], &["stripe.com", "x.api.stripe.com"][..]),
            (
                "*.stripe.com",
                &["api.stripe.com", "a.b.stripe.com"],
                &["stripe.com", ".stripe.com", "evilstripe.com"],
            ),
            ("127.0.0.1", &["127.0.0.1"], &["127.0.0.2"]),
            ("[2001:DB8::0:1]", &["2001:db8::1"], &["2001:db8::2"]),
        ] {
            let pattern = HostPattern::parse(pattern).unwrap();
            assert!(good.iter().all(|host| pattern.matches(host)), "{pattern:?}");
            assert!(!bad.iter().any(|host| pattern.matches(host)), "{pattern:?}");
        }
        assert_eq!(bare("[::1]"), "::1");
    }

    #[test]
    fn what_is_no_host_is_refused_with_what_to_write() {
        for (text, message) in [
            ("https://api.stripe.com", "without scheme"),
            ("api.stripe.com:443", "without a port"),
            ("api.*.com", "only allowed at the start"),
            ("*", "only allowed at the start"),
            ("", "a name consists of labels"),
            ("a..b", "a name consists of labels"),
            ("a b", "a name consists of labels"),
        ] {
            assert!(HostPattern::parse(text).unwrap_err().to_string().contains(message), "{text}");
        }
    }
}

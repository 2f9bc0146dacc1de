//! Patterns of hosts in configs: a host, all names below a name, or every host.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use crate::authority::{AuthorityError, Host};

/// A pattern of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `*`: every host.
    Any,
    /// `*.example.com`: every name below `example.com`, at any depth, but not `example.com` itself.
    Below(Box<str>),
    /// A name or an address.
    Host(Host),
}

/// The reason why a text is not a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostPatternError {
    /// It is not a host either.
    #[error("{0}")]
    Host(AuthorityError),
    /// It is a URL.
    #[error("a host stands without a scheme and a path")]
    Url,
    /// An address has no names below it.
    #[error("an address has no names below it")]
    BelowAddress,
}

impl HostPattern {
    /// Parses a pattern. Unlike in a URI, an IPv6 address needs no brackets.
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if text.contains("://") {
            return Err(HostPatternError::Url);
        }
        if let Some(parent) = text.strip_prefix("*.") {
            return match Host::parse(parent.as_bytes()).map_err(HostPatternError::Host)? {
                Host::Name(name) => Ok(Self::Below(name)),
                Host::Ip(_) => Err(HostPatternError::BelowAddress),
            };
        }
        let host = match text.parse::<IpAddr>() {
            Ok(ip) => Host::Ip(ip),
            Err(_) => Host::parse(text.as_bytes()).map_err(HostPatternError::Host)?,
        };
        Ok(Self::Host(canonical(host)))
    }
}

impl From<Host> for HostPattern {
    fn from(host: Host) -> Self {
        Self::Host(canonical(host))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Host(Host::Name(name)) => f.write_str(name),
            Self::Host(Host::Ip(ip)) => ip.fmt(f),
        }
    }
}

/// Returns an IPv4-mapped IPv6 address as IPv4: both lead to the same host.
pub fn canonical(host: Host) -> Host {
    match host {
        Host::Ip(ip) => Host::Ip(ip.to_canonical()),
        name @ Host::Name(_) => name,
    }
}

/// A set of patterns. A look-up takes as many steps as the name has labels, whatever the number of patterns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPatterns {
    any: bool,
    below: HashSet<Box<str>>,
    hosts: HashSet<Host>,
}

impl HostPatterns {
    /// Returns `true` if a pattern matches the host.
    pub fn matches(&self, host: &Host) -> bool {
        if self.any {
            return true;
        }
        match host {
            Host::Name(name) => self.hosts.contains(host) || self.has_ancestor_of(name),
            Host::Ip(ip) => self.hosts.contains(&Host::Ip(ip.to_canonical())),
        }
    }

    /// Returns `true` if one of the patterns is this host itself.
    pub fn names(&self, host: &Host) -> bool {
        self.hosts.contains(host)
    }

    /// Returns `true` if a pattern `*.ancestor` matches the name.
    pub fn has_ancestor_of(&self, name: &str) -> bool {
        let mut rest = name;
        while let Some((_, parent)) = rest.split_once('.') {
            if self.below.contains(parent) {
                return true;
            }
            rest = parent;
        }
        false
    }
}

impl FromIterator<HostPattern> for HostPatterns {
    fn from_iter<I: IntoIterator<Item = HostPattern>>(patterns: I) -> Self {
        let mut set = Self::default();
        for pattern in patterns {
            match pattern {
                HostPattern::Any => set.any = true,
                HostPattern::Below(name) => drop(set.below.insert(name)),
                HostPattern::Host(host) => drop(set.hosts.insert(canonical(host))),
            }
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text.as_bytes()).unwrap()
    }

    fn patterns(texts: &[&str]) -> HostPatterns {
        texts.iter().map(|text| HostPattern::parse(text).unwrap()).collect()
    }

    #[test]
    fn a_pattern_matches_its_hosts_and_no_others() {
        for (pattern, good, bad) in [
            ("*", &["a", "a.b", "127.0.0.1", "[::1]"][..], &[][..]),
            ("*.B.c", &["a.b.c", "x.a.b.c", "A.B.C."], &["b.c", "ab.c", "a.b.c.d", "127.0.0.1"]),
            ("a.b.", &["a.b", "A.b."], &["x.a.b", "b", "aa.b"]),
            ("10.0.0.1", &["10.0.0.1", "[::ffff:10.0.0.1]"], &["10.0.0.2", "[::1]"]),
            ("::1", &["[::1]"], &["127.0.0.1", "[::2]"]),
            ("::ffff:10.0.0.1", &["10.0.0.1"], &["10.0.0.2"]),
        ] {
            let set = patterns(&[pattern]);
            assert!(good.iter().all(|text| set.matches(&host(text))), "{pattern}");
            assert!(!bad.iter().any(|text| set.matches(&host(text))), "{pattern}");
        }
        assert!(!HostPatterns::default().matches(&host("a")));
    }

    #[test]
    fn a_bad_pattern_is_refused() {
        for text in
            ["", "*.", "*a", "a.*", "*.*", "**", "a b", "https://a", "a:443", "é.example", "1.2.3", "[::1"]
        {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
        assert_eq!(HostPattern::parse("*.10.0.0.1"), Err(HostPatternError::BelowAddress));
    }

    proptest! {
        #[test]
        fn a_pattern_reads_back(text in r"(\*\.)?[a-zA-Z]{1,3}(\.[a-z-]{1,3}){0,3}\.?|\*|[0-9]{1,3}\.0\.0\.1|::[0-9a-f]{1,4}") {
            if let Ok(pattern) = HostPattern::parse(&text) {
                prop_assert_eq!(HostPattern::parse(&pattern.to_string()), Ok(pattern));
            }
        }

        #[test]
        fn a_set_matches_if_one_of_its_patterns_does(
            texts in prop::collection::vec(r"(\*\.)?[ab](\.[ab]){0,2}", 0..4),
            name in r"[ab](\.[ab]){0,4}",
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let one = |text: &&str| match text.strip_prefix('*') {
                Some(suffix) => name.ends_with(suffix),
                None => name == **text,
            };
            prop_assert_eq!(patterns(&texts).matches(&host(&name)), texts.iter().any(one));
        }
    }
}

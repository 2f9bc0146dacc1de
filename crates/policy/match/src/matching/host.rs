//! Patterns for hosts: a name, `*.example.com`, `{tenant}.example.com`, an address, or a regular expression.

use std::fmt;
use std::net::IpAddr;

use egret_config::{Case, RegexError, WholeRegex};

use super::path::{SegmentError, parameter_name};

/// A pattern for hosts, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this host.
    Exactly(Box<str>),
    /// Every name below this one, at any depth, but not the name itself. Stored without `*.`.
    Below(Box<str>),
    /// A name with these labels, of which at least one is a parameter.
    Labels(HostLabels),
    /// Hosts that a regular expression matches, whatever its case.
    Regex(WholeRegex),
}

/// The labels of a name, some of which are parameters: `{tenant}.example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLabels {
    labels: Box<[LabelPattern]>,
    /// The literal labels behind the last parameter, joined by dots. Empty if there are none.
    tail: Box<str>,
}

/// A pattern for one label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelPattern {
    /// This label, in lower case.
    Literal(Box<str>),
    /// Any label, captured under this name.
    Parameter(Box<str>),
}

/// A text that is not a host pattern, with the mistake in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPatternError {
    text: Box<str>,
    mistake: HostMistake,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostMistake {
    SchemeOrPath,
    Port,
    Star,
    StarAndParameter,
    Label,
    Parameter(SegmentError),
    PartOfLabel,
    DuplicateParameter(Box<str>),
    Regex(RegexError),
}

impl fmt::Display for HostPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mistake = match &self.mistake {
            HostMistake::SchemeOrPath => {
                let host = self.text.split_once("://").map_or(&*self.text, |(_, rest)| rest);
                let host = host.split(['/', '?', ':']).next().unwrap_or_default();
                if WholeRegex::prefixed(&self.text).is_none() && check_name(host).is_ok() {
                    return write!(f, "`{}` is not a host: write `{host}`", self.text);
                }
                "write the host alone, without scheme and path"
            }
            HostMistake::Port => "write it without a port",
            HostMistake::Star => "a star is only allowed at the start, for whole labels: `*.example.com`",
            HostMistake::Label => {
                "a name consists of labels of letters, digits, `-` and `_`, separated by dots, at most 253 bytes"
            }
            HostMistake::StarAndParameter => "use a star or parameters, not both",
            HostMistake::PartOfLabel => "a parameter must be a whole label: `{tenant}.example.com`",
            HostMistake::Parameter(error) => return write!(f, "`{}`: {error}", self.text),
            HostMistake::DuplicateParameter(name) => {
                return write!(f, "`{}` has two parameters `{name}`", self.text);
            }
            HostMistake::Regex(error) => return error.fmt(f),
        };
        write!(f, "`{}` is not a host: {mistake}", self.text)
    }
}

impl std::error::Error for HostPatternError {}

impl HostPattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        Self::of(text).map_err(|mistake| HostPatternError { text: text.into(), mistake })
    }

    fn of(text: &str) -> Result<Self, HostMistake> {
        if let Some(source) = WholeRegex::prefixed(text) {
            // No host has a slash, so such an expression would match nothing.
            if source.contains('/') {
                return Err(HostMistake::SchemeOrPath);
            }
            return WholeRegex::compile(source, Case::Ignored).map(Self::Regex).map_err(HostMistake::Regex);
        }
        if text.contains(['{', '}']) {
            return HostLabels::parse(text).map(Self::Labels);
        }
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
        check_name(name)?;
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
            Self::Labels(labels) => labels.matches(host),
            Self::Regex(regex) => regex.is_match(host),
        }
    }

    /// Returns the labels of a pattern with parameters.
    pub fn labels(&self) -> Option<&HostLabels> {
        match self {
            Self::Labels(labels) => Some(labels),
            _ => None,
        }
    }
}

impl HostLabels {
    fn parse(text: &str) -> Result<Self, HostMistake> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.contains('/') {
            return Err(HostMistake::SchemeOrPath);
        }
        if text.contains(':') {
            return Err(HostMistake::Port);
        }
        if text.contains('*') {
            return Err(HostMistake::StarAndParameter);
        }
        let labels = text.split('.').map(LabelPattern::parse).collect::<Result<Box<[_]>, _>>()?;
        if labels.len() > LABELS_MAX {
            return Err(HostMistake::Label);
        }
        let literals = labels.iter().rev().map_while(LabelPattern::literal).collect::<Vec<_>>();
        let tail = literals.into_iter().rev().collect::<Vec<_>>().join(".").into();
        let pattern = Self { labels, tail };
        let names: Vec<&str> = pattern.names().collect();
        match names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            Some((_, name)) => Err(HostMistake::DuplicateParameter((*name).into())),
            None => Ok(pattern),
        }
    }

    /// The literal labels behind the last parameter: `example.com` of `{tenant}.example.com`. May be empty.
    pub fn tail(&self) -> &str {
        &self.tail
    }

    /// Returns the names of the parameters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().filter_map(LabelPattern::parameter)
    }

    /// Returns the parameters and their values in `host`, which must match.
    pub fn captured<'a>(&'a self, host: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let labels = self.labels.iter().zip(host.split('.'));
        labels.filter_map(|(label, value)| Some((label.parameter()?, value)))
    }

    fn matches(&self, host: &str) -> bool {
        let mut labels = host.split('.');
        let fits = |pattern: &LabelPattern| {
            labels.next().is_some_and(|label| match pattern {
                LabelPattern::Literal(literal) => **literal == *label,
                LabelPattern::Parameter(_) => !label.is_empty(),
            })
        };
        self.labels.iter().all(fits) && labels.next().is_none() && host.parse::<IpAddr>().is_err()
    }
}

impl LabelPattern {
    fn parse(label: &str) -> Result<Self, HostMistake> {
        if let Some(name) = parameter_name(label).map_err(HostMistake::Parameter)? {
            return Ok(Self::Parameter(name.into()));
        }
        if label.contains(['{', '}']) {
            return Err(HostMistake::PartOfLabel);
        }
        check_name(label)?;
        Ok(Self::Literal(label.to_ascii_lowercase().into()))
    }

    fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(literal) => Some(literal),
            Self::Parameter(_) => None,
        }
    }

    fn parameter(&self) -> Option<&str> {
        match self {
            Self::Parameter(name) => Some(name),
            Self::Literal(_) => None,
        }
    }
}

/// Maximum number of labels: a name of 253 bytes has no more.
const LABELS_MAX: usize = 127;

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
            (
                "{tenant}.API.example.com.",
                &["a.api.example.com", "a-1.api.example.com"],
                &["api.example.com", "a.b.api.example.com", ".api.example.com", "a.api.example.com.evil"],
            ),
            ("api.{region}.{zone}", &["api.eu.example"], &["api.eu", "web.eu.example", "api..example"]),
            ("{a}.0.0.{b}", &["x.0.0.1a"], &["10.0.0.1"]),
            ("{host}", &["localhost"], &["a.b", "::1", ""]),
            (
                r"regex:(API|www)\d*\.example\.com",
                &["api.example.com", "www7.example.com"],
                &["apis.example.com", "x.api.example.com", "api.example.com.evil"],
            ),
        ] {
            let pattern = HostPattern::parse(pattern).unwrap();
            assert!(good.iter().all(|host| pattern.matches(host)), "{pattern:?}");
            assert!(!bad.iter().any(|host| pattern.matches(host)), "{pattern:?}");
        }
        assert_eq!(bare("[::1]"), "::1");
    }

    #[test]
    fn labels_are_captured() {
        let pattern = HostPattern::parse("{tenant}.api.{region}.example.com").unwrap();
        let labels = pattern.labels().unwrap();
        assert_eq!(labels.tail(), "example.com");
        let captured: Vec<_> = labels.captured("acme.api.eu.example.com").collect();
        assert_eq!(captured, [("tenant", "acme"), ("region", "eu")]);
    }

    #[test]
    fn an_invalid_host_is_refused_with_a_suggestion() {
        for (text, message) in [
            ("https://api.stripe.com/v1", "write `api.stripe.com`"),
            ("api.stripe.com:443", "without a port"),
            ("api.*.com", "only allowed at the start"),
            ("*", "only allowed at the start"),
            ("", "a name consists of labels"),
            ("a..b", "a name consists of labels"),
            ("a b", "a name consists of labels"),
            ("{a}.*.com", "not both"),
            ("{a}b.com", "a whole label"),
            ("{a.com", "a whole label"),
            ("{}.com", "cannot name a parameter"),
            ("{a}.{a}.com", "two parameters `a`"),
            ("{a}..com", "a name consists of labels"),
            ("{a}.com:443", "without a port"),
            ("https://{a}.com", "without scheme"),
            ("regex:https?://a", "without scheme"),
            ("regex:(a", "is not a regular expression"),
            ("regex:*.example.com", r"write `regex:.*\.example\.com`"),
        ] {
            assert!(HostPattern::parse(text).unwrap_err().to_string().contains(message), "{text}");
        }
    }
}

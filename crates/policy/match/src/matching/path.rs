//! Path patterns, and the ways in which a request's path can be read.
//!
//! Providers read paths differently: some treat `%2F` as a slash, some drop `;x=1` from a segment, some
//! resolve `..` and some do not. A client must not be able to bypass a flow by spelling a path differently,
//! so a path is read in each of these ways, and a flow matches if one of the readings matches. Most paths
//! have only one reading.
//!
//! In every reading
//! - percent-encoding is decoded once: `/%63harges` is `/charges`, and `%252F` is the three letters `%2F`;
//! - empty segments are skipped: `//a///b/` is `/a/b`, so a trailing slash makes no difference;
//! - upper and lower case differ (RFC 3986 §6.2.2.1).
//!
//! Readings differ in
//! - `%2F` and `%5C` (a backslash): part of a segment, or a separator;
//! - the part of a segment after `;`: kept or dropped;
//! - segments `.` and `..`, encoded or not: resolved (RFC 3986 §5.2.4), or ordinary segments.
//!
//! A regular expression sees a reading as one text: a slash before each segment, and `%2F` for a slash that
//! is part of a segment.

use std::ops::Range;

use egret_config::{Case, RegexError, WholeRegex};
use egret_http1::Span;

/// Maximum length of a pattern.
const PATTERN_BYTES_MAX: usize = 1024;

/// Maximum number of segments in a pattern, which bounds the depth of a search.
const SEGMENTS_MAX: usize = 32;

/// Maximum length of a parameter's name.
const PARAMETER_BYTES_MAX: usize = 64;

/// A path pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    /// `/v1/charges/{id}`, `/v1/*/items`, `/v1/*`.
    Segments(PathSegments),
    /// A regular expression for the whole path. Its named groups are parameters.
    Regex(Box<WholeRegex>),
}

/// A path pattern, segment by segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSegments {
    /// The segments, without the trailing star.
    pub segments: Box<[SegmentPattern]>,
    /// `true` if it ends in `/*`: any number of segments may follow, including none.
    pub is_open: bool,
}

/// A pattern for one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SegmentPattern {
    /// These bytes, after percent-decoding.
    Literal(Box<[u8]>),
    /// Any segment, captured under this name.
    Parameter(Box<str>),
    /// Any segment.
    Any,
}

/// The mistake in a path pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    /// The pattern is too long.
    #[error("a path pattern has at most {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// The pattern does not start with a slash.
    #[error("`{0}` is not a path: it starts with a slash, like `/v1/charges/{{id}}`")]
    NoSlash(Box<str>),
    /// The pattern has a query or a fragment.
    #[error("`{0}` is more than a path: the part after `?` belongs under `query`")]
    MoreThanPath(Box<str>),
    /// A segment of the pattern is wrong.
    #[error("`{0}`: {1}")]
    Segment(Box<str>, SegmentError),
    /// The pattern has too many segments.
    #[error("a path pattern has at most {SEGMENTS_MAX} segments")]
    TooManySegments,
    /// Two segments have the same parameter.
    #[error("`{pattern}` has two parameters `{name}`")]
    DuplicateParameter {
        /// The pattern.
        pattern: Box<str>,
        /// The parameter.
        name: Box<str>,
    },
    /// The regular expression is wrong.
    #[error("{0}")]
    Regex(RegexError),
    /// The regular expression matches no path, because it does not start with a slash.
    #[error("the regular expression `{0}` matches no path: a path starts with a slash; write `regex:/{0}`")]
    RegexWithoutSlash(Box<str>),
}

/// The mistake in one segment of a path pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// This is not a valid name of a parameter.
    #[error("`{0}` cannot name a parameter: use letters, digits and `_`, no digit first")]
    ParameterName(Box<str>),
    /// This segment is a parameter only in part.
    #[error("{}", partial(.0))]
    PartOfSegment(Box<str>),
    /// A star is only part of a segment.
    #[error("a star must be a whole segment: `/v1/*`, `/v1/*/items`")]
    Star,
    /// The segment is empty.
    #[error("a segment is empty; empty segments of requests are skipped")]
    Empty,
    /// The segment is `.` or `..`.
    #[error("`.` and `..` are resolved before a path is compared")]
    Dots,
}

fn partial(segment: &str) -> String {
    if segment.contains('{') == segment.contains('}') {
        format!("in `{segment}` the parameter is only part of a segment: it must be the whole segment")
    } else {
        format!("in `{segment}` a brace is missing: a parameter is written `{{name}}`")
    }
}

impl PathPattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, PathPatternError> {
        let Some(source) = WholeRegex::prefixed(text) else {
            return PathSegments::parse(text).map(Self::Segments);
        };
        let starts_wrong = source.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if starts_wrong && !source.contains('|') {
            return Err(PathPatternError::RegexWithoutSlash(source.into()));
        }
        let regex = WholeRegex::compile(source, Case::Matters).map_err(PathPatternError::Regex)?;
        Ok(Self::Regex(Box::new(regex)))
    }

    /// Returns the names of the parameters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (segments, regex) = match self {
            Self::Segments(pattern) => (Some(pattern.parameters().map(|(_, name)| name)), None),
            Self::Regex(regex) => (None, Some(regex.names())),
        };
        segments.into_iter().flatten().chain(regex.into_iter().flatten())
    }

    /// Returns the segments of the pattern. A regular expression has none.
    pub fn segments(&self) -> &[SegmentPattern] {
        match self {
            Self::Segments(pattern) => &pattern.segments,
            Self::Regex(_) => &[],
        }
    }

    /// Returns the regular expression, if the pattern is one.
    pub fn regex(&self) -> Option<&WholeRegex> {
        match self {
            Self::Segments(_) => None,
            Self::Regex(regex) => Some(regex),
        }
    }

    /// Returns `true` if that reading of a path matches. For a regular expression, the readings must have
    /// been [joined](Readings::join).
    pub fn matches(&self, reading: usize, readings: &Readings) -> bool {
        match self {
            Self::Segments(pattern) => pattern.matches(readings.segments(reading), readings.text()),
            Self::Regex(regex) => regex.is_match(readings.joined(reading)),
        }
    }
}

impl PathSegments {
    /// Parses a pattern.
    fn parse(text: &str) -> Result<Self, PathPatternError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PathPatternError::TooLong);
        }
        let Some(path) = text.strip_prefix('/') else {
            return Err(PathPatternError::NoSlash(text.into()));
        };
        if path.contains(['?', '#']) {
            return Err(PathPatternError::MoreThanPath(text.into()));
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        let (path, is_open) = match path.strip_suffix('*') {
            Some("") => ("", true),
            Some(front) if front.ends_with('/') => (&front[..front.len() - 1], true),
            _ => (path, false),
        };
        let mut segments = Vec::new();
        if !path.is_empty() {
            for segment in path.split('/') {
                let segment = SegmentPattern::parse(segment);
                segments.push(segment.map_err(|error| PathPatternError::Segment(text.into(), error))?);
            }
        }
        if segments.len() > SEGMENTS_MAX {
            return Err(PathPatternError::TooManySegments);
        }
        let pattern = Self { segments: segments.into(), is_open };
        let names: Vec<&str> = pattern.parameters().map(|(_, name)| name).collect();
        match names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            Some((_, name)) => {
                Err(PathPatternError::DuplicateParameter { pattern: text.into(), name: (*name).into() })
            }
            None => Ok(pattern),
        }
    }

    /// Returns the parameters as segment index and name.
    pub fn parameters(&self) -> impl Iterator<Item = (usize, &str)> {
        self.segments.iter().enumerate().filter_map(|(at, segment)| match segment {
            SegmentPattern::Parameter(name) => Some((at, &**name)),
            SegmentPattern::Literal(_) | SegmentPattern::Any => None,
        })
    }

    /// Returns `true` if a reading of a path, given as its segments in `text`, matches.
    fn matches(&self, segments: &[Span], text: &[u8]) -> bool {
        let has_length = if self.is_open {
            segments.len() >= self.segments.len()
        } else {
            segments.len() == self.segments.len()
        };
        has_length
            && self.segments.iter().zip(segments).all(|(pattern, segment)| match pattern {
                SegmentPattern::Literal(literal) => **literal == *segment.of(text),
                SegmentPattern::Parameter(_) | SegmentPattern::Any => true,
            })
    }
}

impl SegmentPattern {
    fn parse(segment: &str) -> Result<Self, SegmentError> {
        if let Some(name) = parameter_name(segment)? {
            return Ok(Self::Parameter(name.into()));
        }
        if segment == "*" {
            return Ok(Self::Any);
        }
        if segment.contains(['{', '}']) {
            return Err(SegmentError::PartOfSegment(segment.into()));
        }
        if segment.contains('*') {
            return Err(SegmentError::Star);
        }
        let mut literal = Vec::new();
        decode(segment.as_bytes(), |part| literal.extend_from_slice(part));
        match literal.as_slice() {
            b"" => Err(SegmentError::Empty),
            b"." | b".." => Err(SegmentError::Dots),
            _ => Ok(Self::Literal(literal.into())),
        }
    }
}

/// Returns the name in `{name}`, or `None` if `text` is not in braces.
pub(super) fn parameter_name(text: &str) -> Result<Option<&str>, SegmentError> {
    match text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        Some(name) if is_parameter_name(name) => Ok(Some(name)),
        Some(name) => Err(SegmentError::ParameterName(name.into())),
        None => Ok(None),
    }
}

fn is_parameter_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts_well = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    starts_well && name.len() <= PARAMETER_BYTES_MAX && name.bytes().all(is_plain)
}

/// The readings of one path. Reused between paths to avoid allocation.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    /// The bytes that segments are ranges of.
    text: Vec<u8>,
    /// The segments of all readings, one reading after another.
    segments: Vec<Span>,
    /// The range in `segments` of each reading.
    found: Vec<Range<u32>>,
    /// Each reading as one text. Empty until [`join`](Self::join).
    joined: Vec<String>,
}

/// Capacity that is kept after a very long path.
const TEXT_BYTES_KEPT: usize = 16 << 10;
const SEGMENTS_KEPT: usize = 1 << 10;

/// One way to read a path.
#[derive(Debug, Clone, Copy)]
struct ReadingRules {
    /// Encoded bytes that separate segments: slashes, backslashes, both or none.
    separators: &'static [u8],
    /// Segment parameters that are dropped.
    drops: Drops,
    /// `true` if `.` and `..` are resolved.
    resolves_dots: bool,
}

/// The extent of segment parameters (`;x=1`) that are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drops {
    Nothing,
    /// Up to the next literal slash.
    BeforeDecoding,
    /// Up to the next percent-encoded separator.
    AfterDecoding,
}

impl Readings {
    /// Removes the path and keeps the memory, within bounds.
    pub fn clear(&mut self) {
        self.text.clear();
        self.segments.clear();
        self.found.clear();
        self.joined.clear();
        self.text.shrink_to(TEXT_BYTES_KEPT);
        self.segments.shrink_to(SEGMENTS_KEPT);
    }

    /// Reads `path` in every way. A target that is not a path, such as the `*` of OPTIONS, has no reading.
    pub fn read(&mut self, path: &[u8]) {
        self.clear();
        if !path.is_empty() && path[0] != b'/' {
            return;
        }
        if memchr::memchr2(b'%', b';', path).is_some() {
            return self.read_encoded(path);
        }
        self.text.extend_from_slice(path);
        let mut has_dots = false;
        let mut start = 0;
        for end in memchr::memchr_iter(b'/', path).chain([path.len()]) {
            if end > start {
                has_dots |= is_dots(&path[start..end]);
                self.segments.push(Span::new(start, end));
            }
            start = end + 1;
        }
        self.close(0);
        if has_dots {
            let rules = ReadingRules { separators: b"", drops: Drops::Nothing, resolves_dots: true };
            self.read_once(path, rules);
        }
    }

    fn read_encoded(&mut self, path: &[u8]) {
        let encodes = |separator: u8| {
            let is_it = |at: usize| path.get(at + 1..at + 3).and_then(octet) == Some(separator);
            memchr::memchr_iter(b'%', path).any(is_it)
        };
        let ways_to_split: &[&[u8]] = match (encodes(b'/'), encodes(b'\\')) {
            (false, false) => &[b""],
            (true, false) => &[b"", b"/"],
            (false, true) => &[b"", b"\\"],
            (true, true) => &[b"", b"/\\", b"/", b"\\"],
        };
        let may_drop = memchr::memchr(b';', path).is_some();
        for separators in ways_to_split {
            // Without encoded separators, dropping before and after decoding gives the same result.
            let ways_to_drop = 1 + usize::from(may_drop) + usize::from(may_drop && !separators.is_empty());
            let all = [Drops::Nothing, Drops::BeforeDecoding, Drops::AfterDecoding];
            for drops in all.into_iter().take(ways_to_drop) {
                let rules = ReadingRules { separators, drops, resolves_dots: false };
                if self.read_once(path, rules) {
                    self.read_once(path, ReadingRules { resolves_dots: true, ..rules });
                }
            }
        }
    }

    /// Adds a reading. Returns `true` if it has segments `.` or `..`.
    fn read_once(&mut self, path: &[u8], rules: ReadingRules) -> bool {
        let from = self.segments.len();
        let mut has_dots = false;
        for raw in path.split(|byte| *byte == b'/') {
            let kept = match memchr::memchr(b';', raw) {
                Some(at) if rules.drops == Drops::BeforeDecoding => &raw[..at],
                _ => raw,
            };
            let mut start = self.text.len();
            decode(kept, |part| self.text.extend_from_slice(part));
            let end = self.text.len();
            let is_separator = |byte: &u8| rules.separators.contains(byte);
            while let Some(at) = self.text[start..end].iter().position(is_separator) {
                has_dots |= self.push(from, self.kept(start..start + at, rules), rules);
                start += at + 1;
            }
            has_dots |= self.push(from, self.kept(start..end, rules), rules);
        }
        self.close(from);
        has_dots
    }

    /// Returns the part of a decoded segment that is kept.
    fn kept(&self, segment: Range<usize>, rules: ReadingRules) -> Range<usize> {
        let Range { start, end } = segment;
        match memchr::memchr(b';', &self.text[start..end]) {
            Some(at) if rules.drops == Drops::AfterDecoding => start..start + at,
            _ => start..end,
        }
    }

    /// Adds a segment to the reading that starts at `from`. Returns `true` if the segment is `.` or `..`.
    fn push(&mut self, from: usize, segment: Range<usize>, rules: ReadingRules) -> bool {
        if segment.is_empty() {
            return false;
        }
        let bytes = &self.text[segment.clone()];
        let is_dots = is_dots(bytes);
        if is_dots && rules.resolves_dots {
            if bytes.len() == 2 && self.segments.len() > from {
                self.segments.pop();
            }
        } else {
            self.segments.push(Span::new(segment.start, segment.end));
        }
        is_dots
    }

    fn close(&mut self, from: usize) {
        let reading = Span::new(from, self.segments.len());
        self.found.push(reading.start..reading.end);
    }

    /// Number of readings.
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// Returns the segments of a reading, as ranges of [`text`](Self::text).
    pub fn segments(&self, reading: usize) -> &[Span] {
        let range = self.found.get(reading).cloned().unwrap_or_default();
        &self.segments[range.start as usize..range.end as usize]
    }

    /// Returns the segments of a reading, as bytes.
    pub fn words(&self, reading: usize) -> Vec<&[u8]> {
        self.segments(reading).iter().map(|segment| segment.of(&self.text)).collect()
    }

    /// The bytes that segments are ranges of.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Makes the texts that regular expressions see, unless they exist.
    pub fn join(&mut self) {
        for reading in self.joined.len()..self.count() {
            let mut text = Vec::new();
            for segment in self.segments(reading) {
                text.push(b'/');
                push_escaped(segment.of(&self.text), &mut text);
            }
            if text.is_empty() {
                text.push(b'/');
            }
            let text = String::from_utf8(text);
            self.joined
                .push(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()));
        }
    }

    /// Returns `true` if that reading matches a regular expression and no earlier one has the same text.
    pub(crate) fn is_new_match(&self, pattern: &PathPattern, reading: usize) -> bool {
        let is_known =
            self.joined[..reading.min(self.joined.len())].iter().any(|known| known == self.joined(reading));
        !is_known && pattern.matches(reading, self)
    }

    /// Returns a reading as one text, once the readings are [joined](Self::join).
    pub fn joined(&self, reading: usize) -> &str {
        self.joined.get(reading).map_or("", String::as_str)
    }
}

/// Appends a decoded segment, with `%2F` for a slash, so that a slash in `text` always ends a segment.
fn push_escaped(segment: &[u8], text: &mut Vec<u8>) {
    for (at, part) in segment.split(|byte| *byte == b'/').enumerate() {
        if at > 0 {
            text.extend_from_slice(b"%2F");
        }
        text.extend_from_slice(part);
    }
}

fn is_dots(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..")
}

/// Passes `bytes` with percent-encoding decoded to `append`, piece by piece. A percent sign without two
/// hexadecimal digits is kept.
pub fn decode(bytes: &[u8], mut append: impl FnMut(&[u8])) {
    let mut rest = bytes;
    while let Some(at) = memchr::memchr(b'%', rest) {
        append(&rest[..at]);
        rest = &rest[at..];
        let (byte, taken) = match rest.get(1..3).and_then(octet) {
            Some(byte) => (byte, 3),
            None => (b'%', 1),
        };
        append(&[byte]);
        rest = &rest[taken..];
    }
    append(rest);
}

/// Returns the byte that two hexadecimal digits encode.
fn octet(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match digits {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn readings(path: &str) -> Vec<String> {
        let mut readings = Readings::default();
        readings.read(path.as_bytes());
        let show = |reading| {
            let segments = readings.segments(reading).iter();
            let words = segments.map(|segment| String::from_utf8_lossy(segment.of(readings.text())));
            words.collect::<Vec<_>>().join("><")
        };
        (0..readings.count())
            .map(show)
            .map(|words| if words.is_empty() { words } else { format!("<{words}>") })
            .collect()
    }

    fn matches(pattern: &str, path: &str) -> bool {
        let pattern = PathPattern::parse(pattern).unwrap();
        let mut readings = Readings::default();
        readings.read(path.as_bytes());
        readings.join();
        (0..readings.count()).any(|reading| pattern.matches(reading, &readings))
    }

    #[test]
    fn most_paths_have_one_reading() {
        for (path, segments) in [
            ("/", ""),
            ("", ""),
            ("/v1/charges", "<v1><charges>"),
            ("/v1/charges/", "<v1><charges>"),
            ("//v1///charges//", "<v1><charges>"),
            ("/%76%31/ch%61rges", "<v1><charges>"),
            ("/a%252Fb", "<a%2Fb>"),
            ("/a%2", "<a%2>"),
            ("/a%zz%", "<a%zz%>"),
            ("/V1", "<V1>"),
        ] {
            assert_eq!(readings(path), [segments], "{path}");
        }
        assert_eq!(readings("*"), [""; 0]);
    }

    #[test]
    fn an_ambiguous_path_is_read_in_every_way() {
        for (path, expected) in [
            ("/a/../b", &["<a><..><b>", "<b>"][..]),
            ("/../a", &["<..><a>", "<a>"]),
            ("/a/%2e%2E/b", &["<a><..><b>", "<b>"]),
            ("/a/./b", &["<a><.><b>", "<a><b>"]),
            ("/a%2Fb", &["<a/b>", "<a><b>"]),
            ("/a%5cb", &[r"<a\b>", "<a><b>"]),
            ("/a;x=1/b", &["<a;x=1><b>", "<a><b>"]),
            ("/a/..;/b", &["<a><..;><b>", "<a><..><b>", "<b>"]),
            ("/a%2F..%2Fb", &["<a/../b>", "<a><..><b>", "<b>"]),
            ("/a%2Fb;c", &["<a/b;c>", "<a/b>", "<a><b;c>", "<a><b>", "<a><b>"]),
            ("/a%2Fb%5Cc", &[r"<a/b\c>", "<a><b><c>", r"<a><b\c>", r"<a/b><c>"]),
            ("/a;x%2Fb", &["<a;x/b>", "<a>", "<a;x><b>", "<a>", "<a><b>"]),
        ] {
            assert_eq!(readings(path), expected, "{path}");
        }
    }

    #[test]
    fn a_flow_cannot_be_dodged_by_spelling() {
        for path in [
            "/v1/charges/7",
            "/v1/charges/7/",
            "//v1//charges//7",
            "/v1/./charges/7",
            "/x/../v1/charges/7",
            "/v1/%63harges/7",
            "/v1%2Fcharges/7",
            "/v1/charges;jsessionid=1/7",
            "/v1/x/..;y/charges/7",
            "/v1%2F%2e%2E%2Fv1%5Ccharges/7",
        ] {
            assert!(matches("/v1/charges/{id}", path), "{path}");
        }
        for path in
            ["/v1/charges", "/v1/charges/7/x", "/v1/Charges/7", "/v1/charges%252F7", "/v1/charges/7/..", "*"]
        {
            assert!(!matches("/v1/charges/{id}", path), "{path}");
        }
    }

    #[test]
    fn a_star_at_the_end_takes_everything_from_there() {
        for (pattern, good, bad) in [
            ("/*", &["/", "", "/a", "/a/b"][..], &["*"][..]),
            ("/v1/*", &["/v1", "/v1/", "/v1/a", "/v1/a/b"], &["/", "/v2/a", "/v1a"]),
            ("/{a}/b/*", &["/x/b", "/x/b/c"], &["/b", "/x"]),
            ("/", &["/", "", "//"], &["/a"]),
            ("/a%20b/", &["/a%20b"], &["/a+b"]),
        ] {
            assert!(good.iter().all(|path| matches(pattern, path)), "{pattern}");
            assert!(!bad.iter().any(|path| matches(pattern, path)), "{pattern}");
        }
    }

    #[test]
    fn a_star_elsewhere_takes_one_segment() {
        for (pattern, good, bad) in [
            ("/v1/*/items", &["/v1/a/items", "/v1/a%2Fb/items"][..], &["/v1/items", "/v1/a/b/items"][..]),
            ("/*/items/*", &["/a/items", "/a/items/b/c"], &["/items", "/a/b"]),
            ("/*/*", &["/a", "/a/b"], &["/"]),
        ] {
            assert!(good.iter().all(|path| matches(pattern, path)), "{pattern}");
            assert!(!bad.iter().any(|path| matches(pattern, path)), "{pattern}");
        }
    }

    #[test]
    fn a_regular_expression_sees_every_reading() {
        let pattern = r"regex:/v1/(charges|refunds)/[^/]+";
        for path in [
            "/v1/charges/7",
            "/v1/refunds/7/",
            "//v1//charges//7",
            "/v1/./charges/7",
            "/x/../v1/charges/7",
            "/v1/%63harges/7",
            "/v1%2Fcharges/7",
            "/v1/charges/7%2F8",
            "/v1/charges/%ff%0A",
            "/v1/charges;jsessionid=1/7",
            "/v1%5Ccharges/7",
        ] {
            assert!(matches(pattern, path), "{path}");
        }
        for path in ["/v1/charges", "/v1/charges/7/x", "/v1/Charges/7", "/x/v1/charges/7", "*"] {
            assert!(!matches(pattern, path), "{path}");
        }
        for path in ["/", "", "//"] {
            assert!(matches("regex:/", path), "{path}");
        }
        assert!(matches("regex:/(?i)A", "/a"));
    }

    #[test]
    fn a_bad_pattern_is_refused_with_what_to_write() {
        let long = format!("/{}", "a/".repeat(SEGMENTS_MAX + 1));
        for (pattern, message) in [
            ("v1", "starts with a slash"),
            ("", "starts with a slash"),
            ("/a?b=1", "belongs under `query`"),
            ("/a#b", "belongs under `query`"),
            ("/a//b", "a segment is empty"),
            ("/a/../b", "are resolved"),
            ("/a/%2e/b", "are resolved"),
            ("/a*/b", "a whole segment"),
            ("/a*", "a whole segment"),
            ("regex:v1/.*", "write `regex:/v1/.*`"),
            ("regex:/v1/(", "is not a regular expression"),
            ("/a{b}", "must be the whole segment"),
            ("/{a", "a brace is missing"),
            ("/{}", "cannot name a parameter"),
            ("/{1a}", "cannot name a parameter"),
            ("/{a-b}", "cannot name a parameter"),
            ("/{a}/{a}", "two parameters `a`"),
            (&long, "at most 32 segments"),
        ] {
            let error = PathPattern::parse(pattern).expect_err(pattern).to_string();
            assert!(error.contains(message), "{pattern}: {error}");
        }
    }

    proptest! {
        #[test]
        fn an_encoded_path_reads_like_the_plain_one(path in "(/[a-c]{1,3}){0,5}", mask in any::<u32>()) {
            let encode = |(at, byte): (usize, u8)| match byte {
                byte if byte != b'/' && mask >> (at % 32) & 1 == 1 => format!("%{byte:02x}"),
                byte => char::from(byte).to_string(),
            };
            let encoded: String = path.bytes().enumerate().map(encode).collect();
            prop_assert_eq!(readings(&encoded), readings(&path));
        }

        #[test]
        fn slashes_more_or_less_make_no_difference(path in "(/[a-c.]{1,3}){1,5}", extra in 1_usize..4) {
            prop_assert_eq!(readings(&path.replace('/', &"/".repeat(extra))), readings(&path));
            prop_assert_eq!(readings(&format!("{path}/")), readings(&path));
        }

        #[test]
        fn any_bytes_are_read_in_bounds(path in proptest::collection::vec(prop::sample::select(b"/.%;2Ffa5c\\\xff".to_vec()), 0..60)) {
            let path = [b"/", path.as_slice()].concat();
            let mut readings = Readings::default();
            readings.read(&path);
            prop_assert!((1..=22).contains(&readings.count()));
            for reading in 0..readings.count() {
                for segment in readings.segments(reading) {
                    prop_assert!(!segment.of(readings.text()).is_empty());
                }
            }
        }
    }
}

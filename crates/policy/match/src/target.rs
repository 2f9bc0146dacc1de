//! Request targets: the normal form of path and query, and the test for a provider's base path.
//!
//! The bytes sent are those that the client wrote. Caches, labels and groups compare the *normal form*, which
//! is exactly RFC 3986 §6.2.2: hexadecimal digits in upper case, unreserved octets decoded, dot segments
//! removed. `%2F`, `//`, `;x` and the order of a query are kept, because providers distinguish them.
//!
//! Security checks are stricter, because a provider may read `%2F` as a slash. A target is inside or outside
//! a base path only if all [readings](crate::matching) agree. If they differ, the target is rejected as
//! ambiguous.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use crate::matching::Readings;

/// Returns the normal form of a path (RFC 3986 §6.2.2). An empty path becomes `/` (§6.2.3). A target that is
/// not a path, such as the `*` of OPTIONS, is returned unchanged.
pub fn normal_path(path: &[u8]) -> Cow<'_, [u8]> {
    if path.is_empty() {
        return Cow::Borrowed(b"/");
    }
    if is_normal_path(path) {
        return Cow::Borrowed(path);
    }
    let octets = normal_octets(path);
    if has_dot_segment(&octets) { Cow::Owned(without_dots(&octets)) } else { octets }
}

/// Returns the normal form of a query: only its octets are normalised. Names, values and their order stay.
pub fn normal_query(query: &[u8]) -> Cow<'_, [u8]> {
    normal_octets(query)
}

/// Returns `true` if a provider may read a path differently from its normal form: it has dot segments, or
/// encoded letters and digits, which routers that compare undecoded paths do not recognise. `~` and `%7E` do
/// not count as different, nor do `%c3` and `%C3`.
pub fn is_unusual(path: &[u8]) -> bool {
    if is_normal_path(path) {
        return false;
    }
    let is_unusual_octet = |at: usize| {
        let digits = path.get(at + 1..).and_then(<[u8]>::first_chunk::<2>);
        digits.and_then(|digits| octet(*digits)).is_some_and(|octet| is_unreserved(octet) && octet != b'~')
    };
    memchr::memchr_iter(b'%', path).any(is_unusual_octet) || has_dot_segment(path)
}

/// Returns `true` if a path is certainly in normal form. `false` means that a full check is needed.
fn is_normal_path(path: &[u8]) -> bool {
    memchr::memchr(b'%', path).is_none() && memchr::memmem::find(path, b"/.").is_none()
}

/// Normalises percent-encoding (RFC 3986 §6.2.2.1 and §6.2.2.2). A percent sign without two hexadecimal
/// digits becomes `%25`.
fn normal_octets(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memchr(b'%', text) else { return Cow::Borrowed(text) };
    let mut normal = Vec::with_capacity(text.len());
    normal.extend_from_slice(&text[..first]);
    let mut rest = &text[first..];
    while let Some((byte, after)) = rest.split_first() {
        let encoded = after.first_chunk::<2>().filter(|_| *byte == b'%');
        match encoded.and_then(|digits| Some((digits, octet(*digits)?))) {
            Some((_, octet)) if is_unreserved(octet) => {
                normal.push(octet);
                rest = &after[2..];
            }
            Some((digits, _)) => {
                normal.extend([b'%', digits[0].to_ascii_uppercase(), digits[1].to_ascii_uppercase()]);
                rest = &after[2..];
            }
            // Otherwise the percent sign could form an encoding with the following bytes.
            None if *byte == b'%' => {
                normal.extend(b"%25");
                rest = after;
            }
            None => {
                normal.push(*byte);
                rest = after;
            }
        }
    }
    Cow::Owned(normal)
}

fn octet([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Returns `true` for an unreserved character (RFC 3986 §2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn has_dot_segment(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|segment| matches!(segment, b"." | b".."))
}

/// Removes dot segments (RFC 3986 §5.2.4). Empty segments are kept.
fn without_dots(path: &[u8]) -> Vec<u8> {
    if !path.starts_with(b"/") {
        return path.to_vec();
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = path[1..].split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    kept.pop();
                }
                if is_last {
                    kept.push(b"");
                }
            }
            _ => kept.push(segment),
        }
    }
    let mut resolved = Vec::with_capacity(path.len());
    for segment in kept {
        resolved.push(b'/');
        resolved.extend_from_slice(segment);
    }
    if resolved.is_empty() {
        resolved.push(b'/');
    }
    resolved
}

impl PartialEq for BasePath {
    fn eq(&self, other: &Self) -> bool {
        self.segments == other.segments
    }
}

impl Eq for BasePath {}

/// Resolves a reference with `path` against the base path `base` (RFC 3986 §5.2.2 to §5.2.4).
pub fn resolve(path: &[u8], base: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return base.to_vec();
    }
    let directory = &base[..base.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)];
    let whole = if path.starts_with(b"/") { path.to_vec() } else { [directory, path].concat() };
    if has_dot_segment(&whole) { without_dots(&whole) } else { whole }
}

/// The path of a provider's URL. All targets of the provider lie under it.
#[derive(Clone, Default)]
pub struct BasePath {
    text: Box<[u8]>,
    /// The normal form of each segment.
    segments: Box<[Box<[u8]>]>,
    readings: Readings,
}

impl fmt::Debug for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.text))
    }
}

/// The reason that a target is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Its dot segments lead above the provider's base path.
    #[error("the path leads above the path of the provider's URL: write it without `..`")]
    Above,
    /// Some readings are under the base path of a provider, others are not.
    #[error("the path is ambiguous: it can be read as inside and as outside the path of a provider's URL")]
    Unclear,
}

impl BasePath {
    /// Creates a base path from `path`, in normal form and without trailing slashes.
    pub fn new(path: &[u8]) -> Self {
        let normal = normal_path(path);
        let end = normal.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let text = &normal[..end];
        let mut readings = Readings::default();
        readings.read(text);
        let segments = text.split(|byte| *byte == b'/').skip(1).map(Box::from).collect();
        Self { text: text.into(), segments, readings }
    }

    /// Returns its text: empty, or with a leading slash and without a trailing one.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns `true` if it is the root of its host.
    pub fn is_root(&self) -> bool {
        self.segments.is_empty()
    }

    /// Number of segments.
    pub fn depth(&self) -> usize {
        self.segments.len()
    }

    /// Orders base paths by their segments: each comes before all that are below it.
    pub fn compare(&self, other: &Self) -> Ordering {
        self.segments.cmp(&other.segments)
    }

    /// Returns `true` if it is below `other` and not equal to it.
    pub fn is_below(&self, other: &Self) -> bool {
        self.depth() > other.depth() && self.segments.starts_with(&other.segments)
    }

    /// Returns the number of bytes of `path` that spell this base path, or `None` if `path` is outside it.
    pub fn holds(&self, path: &[u8]) -> Result<Option<usize>, TargetError> {
        if self.is_root() {
            return Ok(Some(0));
        }
        if let Some(len) = self.spelled(path) {
            return if leads_above(&path[len..]) { Err(TargetError::Above) } else { Ok(Some(len)) };
        }
        let plain = memchr::memchr3(b'%', b';', b'\\', path).is_none()
            && memchr::memmem::find(path, b"//").is_none()
            && memchr::memmem::find(path, b"/.").is_none();
        if !plain && self.is_read_in(path) { Err(TargetError::Unclear) } else { Ok(None) }
    }

    /// Returns the number of bytes at the start of `path` that spell it, segment by segment.
    fn spelled(&self, path: &[u8]) -> Option<usize> {
        if let Some(rest) = path.strip_prefix(&*self.text) {
            return matches!(rest.first(), None | Some(b'/')).then_some(self.text.len());
        }
        let mut len = 0;
        for segment in &self.segments {
            let rest = path.get(len..)?.strip_prefix(b"/")?;
            let end = memchr::memchr(b'/', rest).unwrap_or(rest.len());
            if *normal_octets(&rest[..end]) != **segment {
                return None;
            }
            len += 1 + end;
        }
        Some(len)
    }

    /// Returns `true` if any reading of `path` begins with a reading of this base path.
    fn is_read_in(&self, path: &[u8]) -> bool {
        let mut readings = Readings::default();
        readings.read(path);
        let own: Vec<Vec<&[u8]>> =
            (0..self.readings.count()).map(|number| self.readings.words(number)).collect();
        (0..readings.count()).any(|number| {
            let words = readings.words(number);
            own.iter().any(|own| words.starts_with(own))
        })
    }
}

/// Returns `true` if, in any reading, the dot segments of `path` lead above the base path that precedes it,
/// even if later segments lead back.
pub fn leads_above(path: &[u8]) -> bool {
    let may = memchr::memchr(b'%', path).is_some() || memchr::memmem::find(path, b"..").is_some();
    if !may {
        return false;
    }
    let mut readings = Readings::default();
    readings.read(path);
    (0..readings.count()).any(|number| climbs(&readings.words(number)))
}

/// Returns `true` if the dot segments lead above the start of `segments`.
fn climbs(segments: &[&[u8]]) -> bool {
    let mut depth = 0_usize;
    segments.iter().any(|segment| match *segment {
        b"." => false,
        b".." if depth == 0 => true,
        b".." => {
            depth -= 1;
            false
        }
        _ => {
            depth += 1;
            false
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(path: &str) -> String {
        String::from_utf8(normal_path(path.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn equivalent_spellings_have_one_normal_form() {
        for (path, expected) in [
            ("", "/"),
            ("/", "/"),
            ("*", "*"),
            ("/a/b", "/a/b"),
            ("/%61/%7e%5F%2d%2E", "/a/~_-."),
            ("/%c3%a9", "/%C3%A9"),
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/./a/.", "/a/"),
            ("/../a", "/a"),
            ("/a/..", "/"),
            ("/a//../b", "/a/b"),
            ("/.a/..b/c.", "/.a/..b/c."),
            ("/%", "/%25"),
            ("/%2", "/%252"),
            ("/%zz", "/%25zz"),
            ("/%2%46", "/%252F"),
        ] {
            assert_eq!(normal(path), expected, "{path}");
        }
    }

    #[test]
    fn paths_that_may_differ_keep_different_normal_forms() {
        let paths = ["/a/b", "/a%2Fb", "/a//b", "/a/b/", "/a/b;", "/a/b;c", "/A/b", "/a%5Cb", "/a%252Fb"];
        let forms: std::collections::BTreeSet<String> = paths.iter().map(|path| normal(path)).collect();
        assert_eq!(forms.len(), paths.len());
        assert_ne!(normal_query(b"a=1&b=2"), normal_query(b"b=2&a=1"));
        assert_eq!(&*normal_query(b"%61=%2f../x"), b"a=%2F../x");
    }

    #[test]
    fn a_spelling_unlike_its_normal_form_is_unusual() {
        for (path, expected) in [
            ("/a", false),
            ("/a.b/.c", false),
            ("/%c3%a9", false),
            ("/%2F", false),
            ("/%7euser", false),
            ("/%61", true),
            ("/a%5fb", true),
            ("/a/../b", true),
            ("/a/.", true),
            ("/%2e/b", true),
        ] {
            assert_eq!(is_unusual(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn a_target_lies_under_a_base_path_where_every_reading_says_so() {
        let base = BasePath::new(b"/v2/");
        assert_eq!((base.text(), base.depth()), (&b"/v2"[..], 1));
        for (path, expected) in [
            ("/v2", Ok(Some(3))),
            ("/v2/", Ok(Some(3))),
            ("/v2/a", Ok(Some(3))),
            ("/%762/a", Ok(Some(5))),
            ("/v2//a;b/%2F", Ok(Some(3))),
            ("/v2/a/../b", Ok(Some(3))),
            ("/v2/a/..;/b", Ok(Some(3))),
            ("/v20", Ok(None)),
            ("/v1/a", Ok(None)),
            ("/", Ok(None)),
            ("", Ok(None)),
            ("*", Ok(None)),
            ("/a/v2", Ok(None)),
            ("/a/./b", Ok(None)),
            ("/V2/a", Ok(None)),
            ("/v2/..", Err(TargetError::Above)),
            ("/v2/../v2/a", Err(TargetError::Above)),
            ("/v2/a/../../b", Err(TargetError::Above)),
            ("/v2/%2e%2e/b", Err(TargetError::Above)),
            ("/v2/..;x/b", Err(TargetError::Above)),
            ("/v2/a%2F..%2F..", Err(TargetError::Above)),
            ("/v2/..%5Cb", Err(TargetError::Above)),
            ("//v2/a", Err(TargetError::Unclear)),
            ("/v2;x/a", Err(TargetError::Unclear)),
            ("/v2%2fa", Err(TargetError::Unclear)),
            ("/q/../v2/a", Err(TargetError::Unclear)),
            ("/./v2/a", Err(TargetError::Unclear)),
            ("/%2e/v2", Err(TargetError::Unclear)),
        ] {
            assert_eq!(base.holds(path.as_bytes()), expected, "{path}");
        }
        assert_eq!(BasePath::new(b"/").holds(b"/../a"), Ok(Some(0)));
        assert_eq!(BasePath::new(b"/a/../b/%63").text(), b"/b/c");
        assert!(BasePath::new(b"/a/b").is_below(&BasePath::new(b"/a")));
        assert!(!BasePath::new(b"/ab").is_below(&BasePath::new(b"/a")));
    }

    proptest! {
        #[test]
        fn a_normal_form_is_its_own_normal_form(path in "/(%2[efEF]|%6[1-9]|%|[./;a%]){0,24}") {
            let once = normal(&path);
            prop_assert_eq!(normal(&once), once);
        }

        #[test]
        fn a_path_below_a_base_path_normalizes_below_it(path in "(/|%2f|%76|v|2|v2|/v2|\\.|%2e|;|a){0,12}") {
            let base = BasePath::new(b"/v2");
            if let Ok(Some(_)) = base.holds(path.as_bytes()) {
                let normal = normal(&path);
                prop_assert!(normal == "/v2" || normal.starts_with("/v2/"), "{} is {}", path, normal);
            }
        }

        #[test]
        fn equivalent_spellings_lie_under_the_same_base_path(path in "(/|v2|/v2|\\.\\.|\\.|a){0,8}", at in 0_usize..8) {
            let base = BasePath::new(b"/v2");
            let spelled: String = path.chars().enumerate().map(|(number, letter)| {
                if number == at && letter != '/' { format!("%{:02x}", u32::from(letter)) } else { letter.to_string() }
            }).collect();
            let is_inside = |path: &str| base.holds(path.as_bytes()).map(|len| len.is_some());
            if let (Ok(one), Ok(other)) = (is_inside(&path), is_inside(&spelled)) {
                prop_assert_eq!(one, other, "{} {}", path, spelled);
            }
        }
    }
}

//! Conditional requests: those of clients, evaluated against stored responses (RFC 9111 §4.3.2), and those
//! that validate stored responses (§4.3.1).

use egret_clock::{Timestamp, http_date};
use egret_http1::{is_white_space, trim};
use egret_message::Request;

use super::stored::{Stored, is_etag};

/// Maximum number of entity tags that are read from one field.
const TAGS_MAX: usize = 64;

/// Returns `true` if a request has a condition that only the provider can evaluate (RFC 9111 §4.3.2).
pub(super) fn is_for_origin(request: &Request<'_>) -> bool {
    let has = |name: &'static [u8]| request.fields.get(name).is_some();
    has(b"if-match") || has(b"if-unmodified-since")
}

/// Returns `true` if a request has a condition that a cache can evaluate.
pub(super) fn is_conditional(request: &Request<'_>) -> bool {
    let has = |name: &'static [u8]| request.fields.get(name).is_some();
    has(b"if-none-match") || has(b"if-modified-since")
}

/// Returns `true` if the client already has the stored response, so the result is 304 (RFC 9110 §13.2.2).
/// `If-Modified-Since` counts only without `If-None-Match`.
pub(super) fn is_unchanged(request: &Request<'_>, stored: &Stored, now: Timestamp) -> bool {
    // Conditions apply only if the response would be a success without them (RFC 9110 §13.2.1).
    if !(200..300).contains(&stored.status) {
        return false;
    }
    let mut tags = request.fields.all(b"if-none-match").peekable();
    if tags.peek().is_some() {
        return names_tag(tags, stored.etag());
    }
    let mut dates = request.fields.all(b"if-modified-since");
    let (Some(since), None) = (dates.next(), dates.next()) else { return false };
    let modified = stored.last_modified.unwrap_or(stored.date);
    http_date::read(since, now).is_some_and(|since| modified <= since)
}

/// Returns `true` if lists of entity tags contain `tag`, by weak comparison; `*` matches any tag.
fn names_tag<'a>(mut lines: impl Iterator<Item = &'a [u8]>, tag: Option<&[u8]>) -> bool {
    let is_same = |other: &[u8]| tag.is_some_and(|tag| opaque(tag) == opaque(other));
    lines.any(|line| trim(line) == b"*" || each_tag(line, is_same))
}

/// Returns `true` if `is` accepts any tag of a list.
fn each_tag(line: &[u8], is: impl Fn(&[u8]) -> bool) -> bool {
    let mut rest = line;
    for _ in 0..TAGS_MAX {
        let blank = rest.iter().take_while(|byte| is_white_space(**byte) || **byte == b',').count();
        rest = &rest[blank..];
        let prefix = if rest.starts_with(b"W/") { 3 } else { 1 };
        let Some(end) = rest.get(prefix..).and_then(|inner| memchr::memchr(b'"', inner)) else {
            return false;
        };
        let (tag, after) = rest.split_at(prefix + end + 1);
        if !is_etag(tag) {
            return false;
        }
        if is(tag) {
            return true;
        }
        rest = after;
    }
    false
}

/// Returns a tag without its weakness prefix.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Returns `true` if two tags are equal and not weak (RFC 9110 §8.8.3.2).
pub(super) fn is_same_strong(one: &[u8], other: &[u8]) -> bool {
    one == other && !one.starts_with(b"W/")
}

/// Returns `true` if `If-Range` matches the stored response (RFC 9110 §13.1.5): by the same strong tag, or by
/// the same modification date, if that is before the second of the response's `Date`.
pub(super) fn if_range_holds(request: &Request<'_>, stored: &Stored) -> bool {
    let Some(value) = request.fields.get(b"if-range").map(trim) else { return true };
    if is_etag(value) {
        return stored.etag().is_some_and(|tag| is_same_strong(tag, value));
    }
    let is_strong = stored.last_modified.is_some_and(|modified| modified < stored.date);
    is_strong && stored.last_modified_text().map(trim) == Some(value)
}

/// The conditional fields that validate a stored response. They replace the client's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Validators {
    /// Value of `If-None-Match`: the stored tags and those of the client (RFC 9111 §4.3.1).
    pub if_none_match: Option<Vec<u8>>,
    /// Value of `If-Modified-Since`.
    pub if_modified_since: Option<Vec<u8>>,
    /// `true` if the client's own tags are included, so a 304 may refer to them alone.
    pub(super) is_joined: bool,
}

impl Validators {
    /// Builds the validators for `stored`, and for all of `others` that the provider may select. Returns
    /// `None` if there is no validator, or if the client's condition cannot be combined with the stored ones.
    pub(super) fn new<'a>(
        request: &Request<'a>,
        stored: &'a Stored,
        others: impl Iterator<Item = &'a Stored>,
    ) -> Option<Self> {
        let client: Vec<&[u8]> =
            request.fields.all(b"if-none-match").map(trim).filter(|line| !line.is_empty()).collect();
        let Some(tag) = stored.etag() else {
            let since = stored.last_modified_text()?.to_vec();
            // If both were sent, the provider would ignore the date.
            return client.is_empty().then_some(Self {
                if_none_match: None,
                if_modified_since: Some(since),
                is_joined: false,
            });
        };
        if client.contains(&&b"*"[..]) {
            return None;
        }
        let mut list = tag.to_vec();
        let tags = others.filter_map(Stored::etag).chain(client.iter().copied()).take(TAGS_MAX);
        let mut known = vec![tag];
        for tag in tags {
            if !known.contains(&tag) {
                known.push(tag);
                list.extend_from_slice(b", ");
                list.extend_from_slice(tag);
            }
        }
        let since = stored.last_modified_text().filter(|_| client.is_empty()).map(<[u8]>::to_vec);
        Some(Self { if_none_match: Some(list), if_modified_since: since, is_joined: !client.is_empty() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_in_lists_whatever_stands_in_them() {
        let has = |line: &str, tag: &str| names_tag([line.as_bytes()].into_iter(), Some(tag.as_bytes()));
        for (line, tag, found) in [
            ("\"a\"", "\"a\"", true),
            ("W/\"a\"", "\"a\"", true),
            ("\"a\"", "W/\"a\"", true),
            ("\"a,b\", \"c\"", "\"c\"", true),
            ("\"a,b\"", "\"b\"", false),
            (" ,, \"x\"\t,\"a\"", "\"a\"", true),
            ("*", "\"a\"", true),
            ("\"*\"", "\"a\"", false),
            ("a", "\"a\"", false),
            ("\"a", "\"a\"", false),
            ("w/\"a\"", "\"a\"", false),
            ("x, \"a\"", "\"a\"", false),
            ("", "\"a\"", false),
        ] {
            assert_eq!(has(line, tag), found, "{line} {tag}");
        }
        assert!(!names_tag([&b"\"a\""[..]].into_iter(), None));
        assert!(names_tag([&b"\"a\""[..], b"\"b\""].into_iter(), Some(b"\"b\"")));
        let many = (0..100).map(|number| format!("\"{number}\"")).collect::<Vec<_>>().join(",");
        assert!(has(&many, "\"63\"") && !has(&many, "\"64\""));
        assert!(is_same_strong(b"\"a\"", b"\"a\"") && !is_same_strong(b"W/\"a\"", b"W/\"a\""));
    }
}

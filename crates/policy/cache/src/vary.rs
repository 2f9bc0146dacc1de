//! Matches stored responses to requests by the fields in `Vary` (RFC 9111 §4.1).
//!
//! Only keyed hashes of the values are kept, because a value may be a credential.

use egret_http1::{is_token, is_white_space, trim};
use egret_message::Fields;

use super::key::KeySecret;

/// Maximum number of fields; a response that depends on more is not stored.
const NAMES_MAX: usize = 32;

/// Request fields that a response depends on, with hashes of their values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vary(Box<[(Box<[u8]>, u128)]>);

impl Vary {
    /// Computes it from the lines of `Vary` and the request. Returns `None` if the response suits only that
    /// request. An encoded response (`is_encoded`) always depends on `Accept-Encoding`.
    pub(super) fn new<'a>(
        secret: &KeySecret,
        lines: impl Iterator<Item = &'a [u8]>,
        is_encoded: bool,
        request: Fields<'_>,
    ) -> Option<Self> {
        let implied = is_encoded.then_some(&b"accept-encoding"[..]);
        let names = lines.flat_map(|line| line.split(|byte| *byte == b',').map(trim)).chain(implied);
        let mut known: Vec<(Box<[u8]>, u128)> = Vec::new();
        for name in names.filter(|name| !name.is_empty()) {
            if !is_token(name) || name == b"*" || known.len() == NAMES_MAX {
                return None;
            }
            let name = name.to_ascii_lowercase().into_boxed_slice();
            if known.iter().all(|(other, _)| *other != name) {
                let value = value(secret, request, &name);
                known.push((name, value));
            }
        }
        Some(Self(known.into()))
    }

    /// Returns `true` if the response also suits a request with these fields.
    pub(super) fn matches(&self, secret: &KeySecret, request: Fields<'_>) -> bool {
        self.0.iter().all(|(name, expected)| value(secret, request, name) == *expected)
    }

    /// Appends the serialized form, for the disk.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.0 {
            out.extend_from_slice(&value.to_le_bytes());
            out.extend_from_slice(&(name.len() as u64).to_le_bytes());
            out.extend_from_slice(name);
        }
    }

    /// Parses the output of [`save`](Self::save), up to the end; `None` if it is invalid.
    pub(super) fn load(mut saved: &[u8]) -> Option<Self> {
        let mut known = Vec::new();
        while !saved.is_empty() {
            let (value, rest) = saved.split_first_chunk::<16>()?;
            let (len, rest) = rest.split_first_chunk::<8>()?;
            let (name, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
            let is_name = is_token(name) && !name.iter().any(u8::is_ascii_uppercase);
            (is_name && known.len() < NAMES_MAX).then_some(())?;
            known.push((name.into(), u128::from_le_bytes(*value)));
            saved = rest;
        }
        Some(Self(known.into()))
    }

    /// Additional memory use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|(name, _)| name.len() + size_of::<(Box<[u8]>, u128)>()).sum()
    }
}

/// Hashes the values of the request fields called `name`. Only forwarded fields count. Lines are joined, and
/// white space around commas is removed, because the list means the same without it. Codings and languages
/// are case-insensitive.
fn value(secret: &KeySecret, request: Fields<'_>, name: &[u8]) -> u128 {
    let mut digest = secret.digest(b"vary");
    let mut is_there = false;
    let mut joined = Vec::new();
    for (_, value) in request.forwarded().filter(|(other, _)| other.eq_ignore_ascii_case(name)) {
        if std::mem::replace(&mut is_there, true) {
            joined.push(b',');
        }
        append_normal(value, &mut joined);
    }
    if matches!(name, b"accept-encoding" | b"accept-language" | b"accept-charset") {
        joined.make_ascii_lowercase();
    }
    digest.part(name);
    digest.optional(is_there.then_some(&joined));
    digest.finish()
}

/// Appends `value` without white space next to commas outside quotes.
fn append_normal(value: &[u8], out: &mut Vec<u8>) {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let mut pending = 0;
    let start = out.len();
    for (at, byte) in value.iter().enumerate() {
        if !is_quoted && is_white_space(*byte) {
            pending += 1;
            continue;
        }
        let is_after_comma = out.len() == start || out.last() == Some(&b',');
        if pending > 0 && *byte != b',' && !is_after_comma {
            out.extend_from_slice(&value[at - pending..at]);
        }
        pending = 0;
        is_quoted ^= *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && is_quoted && !is_escaped;
        out.push(*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egret_fixture::with_request;

    fn is_for(vary: &str, first: &str, second: &str) -> Option<bool> {
        let secret = KeySecret::new(&[1; 32]);
        let ask = |fields: &str| format!("GET https://h/\n{fields}");
        let lines = vary.split('\n').map(str::as_bytes);
        let stored =
            with_request("one", &ask(first), |request| Vary::new(&secret, lines, false, request.fields))?;
        Some(with_request("one", &ask(second), |request| stored.matches(&secret, request.fields)))
    }

    #[test]
    fn fields_match_if_they_mean_the_same() {
        for (first, second, same) in [
            ("x-a: 1", "X-A: 1", true),
            ("x-a: 1", "x-a: 2", false),
            ("x-a: 1", "x-b: 1", false),
            ("x-a: A", "x-a: a", false),
            ("x-b: 1", "x-c: 1", true),
            ("x-a: 1, 2", "x-a: 1\nx-a: 2", true),
            ("x-a: 1 ,\t2", "x-a: 1,2", true),
            ("x-a: 1 2", "x-a: 12", false),
            ("x-a: 1 2", "x-a: 1  2", false),
            ("x-a: \"1, 2\"", "x-a: \"1,2\"", false),
            ("x-a: 1, 2", "x-a: 2, 1", false),
            ("x-a:", "x-b: 1", false),
            // A field that is not forwarded counts as missing.
            ("Connection: x-a\nx-a: 1", "x-b: 1", true),
            ("Connection: x-a\nx-a: 1", "x-a: 1", false),
            ("Accept-Encoding: GZIP", "accept-encoding: gzip", true),
            ("accept-language: DE, en", "Accept-Language: de,en", true),
        ] {
            let vary = "X-A, accept-encoding\nAccept-Language,, x-a";
            assert_eq!(is_for(vary, first, second), Some(same), "{first} / {second}");
        }
    }

    #[test]
    fn a_response_for_one_request_only_is_for_none_after_it() {
        for vary in ["*", "x-a, *", "x-a\n*", "x a"] {
            assert_eq!(is_for(vary, "", ""), None, "{vary}");
        }
        let many = (0..40).map(|number| format!("x-{number}")).collect::<Vec<_>>().join(",");
        assert_eq!(is_for(&many, "", ""), None);
        assert_eq!(is_for("", "x-a: 1", "x-a: 2"), Some(true));
    }

    #[test]
    fn debug_output_shows_no_field_value() {
        let secret = KeySecret::new(&[1; 32]);
        let vary = with_request("one", "GET https://h/\nAuthorization: Bearer swordfish", |request| {
            Vary::new(&secret, [&b"authorization"[..]].into_iter(), true, request.fields).unwrap()
        });
        assert!(!format!("{vary:?}").contains("swordfish") && vary.bytes() > 0);
    }
}

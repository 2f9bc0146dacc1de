//! A stored response without its body: the header fields to send again, and the data that determine its
//! freshness.

use std::time::Duration;

use egret_clock::{Timestamp, http_date};
use egret_http1::{KnownField, is_token, list, trim};
use egret_message::Fields;
use egret_store::entries::StoredValue;

use super::directives::{Extent, ResponseDirectives, seconds};
use super::vary::Vary;

/// A stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The status code.
    pub status: u16,
    /// The length that the response declared. The actual length is the concern of the framing.
    pub declared_len: Option<u64>,
    /// The URL as text, for purging by prefix. The query is omitted if it may contain a credential.
    pub url: Box<[u8]>,
    pub(super) lines: FieldLines,
    pub(super) times: CallTimes,
    pub(super) directives: ResponseDirectives,
    pub(super) expires: Option<Timestamp>,
    pub(super) date: Timestamp,
    pub(super) last_modified: Option<Timestamp>,
    pub(super) initial_age: Duration,
    pub(super) vary: Vary,
    /// The boundary between the parts of its body, if several ranges are sent.
    pub(super) boundary: u128,
}

/// The times of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTimes {
    /// Time at which the request was sent.
    pub sent: Timestamp,
    /// Time at which the head of the response was received.
    pub received: Timestamp,
}

/// Header fields as they are sent: one line each, with its line end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldLines(Vec<u8>);

impl FieldLines {
    /// Adds a field. Neither part may contain a line end: both come from a parsed head.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        for part in [name, b": ", value, b"\r\n"] {
            self.0.extend_from_slice(part);
        }
    }

    /// Parses the result of [`as_bytes`](Self::as_bytes); `None` if it is invalid.
    fn load(bytes: &[u8]) -> Option<Self> {
        let mut lines = Self::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (line, after) = rest.split_at_checked(memchr::memmem::find(rest, b"\r\n")?)?;
            let (name, value) = line.split_at_checked(memchr::memchr(b':', line)?)?;
            let value = value.strip_prefix(b": ")?;
            let is_text = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
            (is_token(name) && value.iter().all(is_text)).then_some(())?;
            lines.push(name, value);
            rest = after.get(2..)?;
        }
        Some(lines)
    }

    /// Returns the fields with `Date` replaced by `at`.
    fn dated(&self, at: Timestamp) -> Self {
        let mut lines = Self::default();
        for (name, value) in self.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(b"date")) {
            lines.push(name, value);
        }
        lines.push(b"date", http_date::write(at).as_bytes());
        lines
    }

    /// The lines as they are sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Iterates over the names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let colon = memchr::memchr(b':', rest)?;
            let end = colon + memchr::memchr(b'\r', &rest[colon..])?;
            let (name, value) = (&rest[..colon], &rest[colon + 2..end]);
            rest = &rest[end + 2..];
            Some((name, value))
        })
    }

    /// Iterates over the values of all fields called `name`.
    pub fn all<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns the value of the first field called `name`.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Returns the header fields of `response` that may be stored (RFC 9111 §3.1). This excludes hop-by-hop and
/// proxy fields, fields about framing or age, cookies, and fields that `directives` exclude.
pub(super) fn storable_lines(response: Fields<'_>, directives: &ResponseDirectives) -> FieldLines {
    let nominated: Vec<&[u8]> = response.all(b"connection").flat_map(list).collect();
    let is_kept = |name: &[u8]| {
        let known = KnownField::of(name);
        let is_framing = matches!(known, KnownField::ContentLength | KnownField::Age | KnownField::Trailer);
        // Only the gateway itself may send its own fields.
        let is_own = known == KnownField::ProxyStatus || is_own(name);
        let is_cookie = known == KnownField::SetCookie || name.eq_ignore_ascii_case(b"set-cookie2");
        let is_nominated =
            known == KnownField::Other && nominated.iter().any(|other| other.eq_ignore_ascii_case(name));
        let is_withheld = directives.private.names(name) || directives.no_cache.names(name);
        !(known.is_hop_by_hop() || is_framing || is_nominated || is_withheld || is_cookie || is_own)
    };
    let mut lines = FieldLines::default();
    for (name, value) in response.iter().filter(|(name, _)| is_kept(name)) {
        lines.push(name, value);
    }
    lines
}

fn is_own(name: &[u8]) -> bool {
    [&b"x-egret-generated"[..], b"x-egret-error", b"x-egret-trace", b"x-egret-request-id"]
        .iter()
        .any(|own| name.eq_ignore_ascii_case(own))
}

/// Returns the value of `Age` in seconds: the first one if there are several, and 0 if it is not a number
/// (RFC 9111 §5.1).
pub(super) fn age_s(response: Fields<'_>) -> u64 {
    let first = response.get(b"age").and_then(|value| list(value).next());
    first.and_then(seconds).unwrap_or(0)
}

impl Stored {
    /// Creates a stored response from its storable fields. Without a valid `Date`, one with the time of
    /// receipt is added (RFC 9110 §6.6.1).
    pub(super) fn new(
        status: u16,
        mut lines: FieldLines,
        times: CallTimes,
        age_s: u64,
        directives: ResponseDirectives,
        vary: Vary,
    ) -> Self {
        let read = |value: &[u8]| http_date::read(value, times.received);
        let sent_date = lines.get(b"date").and_then(read);
        let date = sent_date.unwrap_or(Timestamp::from_secs(times.received.as_secs()));
        if sent_date.is_none() {
            lines = lines.dated(date);
        }
        let expires = expires(&lines, &directives, times.received);
        let last_modified = lines.get(b"last-modified").and_then(read);
        let initial_age = initial_age(times, date, age_s);
        Self {
            status,
            declared_len: None,
            url: Box::default(),
            lines,
            times,
            directives,
            expires,
            date,
            last_modified,
            initial_age,
            vary,
            boundary: 0,
        }
    }

    /// Sets `Date` to `at`, because the newer response that updated it has none.
    pub(super) fn redate(&mut self, at: Timestamp) {
        self.date = Timestamp::from_secs(at.as_secs());
        self.lines = self.lines.dated(self.date);
        self.initial_age = initial_age(self.times, self.date, 0);
    }

    /// The header fields to send, without age and length.
    pub fn lines(&self) -> &FieldLines {
        &self.lines
    }

    /// Age of the response (RFC 9111 §4.2.3).
    pub fn age(&self, now: Timestamp) -> Duration {
        self.initial_age.saturating_add(now.since(self.times.received))
    }

    /// The entity tag, verbatim, if it is valid.
    pub(super) fn etag(&self) -> Option<&[u8]> {
        self.lines.get(b"etag").map(trim).filter(|tag| is_etag(tag))
    }

    /// The value of `Last-Modified`, verbatim, if it is a valid date.
    pub(super) fn last_modified_text(&self) -> Option<&[u8]> {
        self.last_modified.and_then(|_| self.lines.get(b"last-modified"))
    }

    /// Returns `true` if the response has a validator.
    pub(super) fn has_validator(&self) -> bool {
        self.etag().is_some() || self.last_modified.is_some()
    }

    /// Memory use without the body, in bytes.
    pub fn bytes(&self) -> usize {
        let names = |extent: &Extent| match extent {
            Extent::Fields(names) => names.iter().map(|name| name.len() + size_of::<Box<str>>()).sum(),
            _ => 0,
        };
        let directives = names(&self.directives.no_cache) + names(&self.directives.private);
        size_of::<Self>() + self.lines.0.capacity() + self.url.len() + self.vary.bytes() + directives
    }
}

impl StoredValue for Stored {
    /// The header fields that take precedence over `Cache-Control`, in lower case. The directives are parsed
    /// again on loading.
    type Context = Box<[Box<str>]>;

    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn label(&self) -> &[u8] {
        &self.url
    }

    fn save(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.lines.0.len() + self.url.len() + 128);
        for number in [
            self.times.sent.as_micros(),
            self.times.received.as_micros(),
            u64::try_from(self.initial_age.as_micros()).unwrap_or(u64::MAX),
            self.declared_len.unwrap_or(NO_LEN),
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.status.to_le_bytes());
        out.extend_from_slice(&self.boundary.to_le_bytes());
        for part in [&*self.url, self.lines.as_bytes()] {
            out.extend_from_slice(&(part.len() as u64).to_le_bytes());
            out.extend_from_slice(part);
        }
        self.vary.save(&mut out);
        out
    }

    fn load(saved: &[u8], targets: &Self::Context) -> Option<Self> {
        let mut rest = saved;
        let mut number = || {
            let (bytes, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            Some(u64::from_le_bytes(*bytes))
        };
        let (sent, received, age, len) = (number()?, number()?, number()?, number()?);
        let (status, rest) = rest.split_first_chunk::<2>()?;
        let (boundary, mut rest) = rest.split_first_chunk::<16>()?;
        let mut part = || {
            let (len, after) = rest.split_first_chunk::<8>()?;
            let (part, after) = after.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
            rest = after;
            Some(part)
        };
        let (url, lines) = (part()?, FieldLines::load(part()?)?);
        let status = Some(u16::from_le_bytes(*status)).filter(|status| (200..=599).contains(status))?;
        let vary = Vary::load(rest)?;
        let times =
            CallTimes { sent: Timestamp::from_micros(sent), received: Timestamp::from_micros(received) };
        // Every stored response has a valid `Date`.
        http_date::read(lines.get(b"date")?, times.received)?;
        let directives = ResponseDirectives::read(targets, |name| lines.all(name));
        let mut stored = Self::new(status, lines.clone(), times, 0, directives, vary);
        stored.initial_age = Duration::from_micros(age);
        stored.declared_len = Some(len).filter(|len| *len != NO_LEN);
        stored.url = url.into();
        stored.boundary = u128::from_le_bytes(*boundary);
        Some(stored)
    }
}

/// Represents an undeclared length.
const NO_LEN: u64 = u64::MAX;

/// Returns the time in `Expires`. An invalid date (RFC 9111 §5.3), or several different ones, count as
/// already expired.
fn expires(lines: &FieldLines, directives: &ResponseDirectives, now: Timestamp) -> Option<Timestamp> {
    if directives.targeted {
        return None;
    }
    let mut values = lines.all(b"expires");
    let first = values.next()?;
    let is_one = values.all(|other| other == first);
    Some(http_date::read(first, now).filter(|_| is_one).unwrap_or_default())
}

/// Computes the age at receipt: the larger of the age by the provider's `Date`, and the `Age` field plus the
/// duration of the call (RFC 9111 §4.2.3).
fn initial_age(times: CallTimes, date: Timestamp, age_s: u64) -> Duration {
    let apparent = Timestamp::from_secs(times.received.as_secs()).since(date);
    let corrected = Duration::from_secs(age_s) + times.received.since(times.sent);
    apparent.max(corrected)
}

/// Returns `true` if `tag` is an entity tag (RFC 9110 §8.8.3).
pub(super) fn is_etag(tag: &[u8]) -> bool {
    let opaque = tag.strip_prefix(b"W/").unwrap_or(tag);
    matches!(opaque, [b'"', inner @ .., b'"'] if inner.iter().all(|byte| *byte > 0x20 && *byte != b'"' && *byte != 0x7f))
}

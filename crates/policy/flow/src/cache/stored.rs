//! A stored answer, without its body: what is sent of it again, and what tells how long it may be.

use std::time::Duration;

use egret_clock::Timestamp;
use egret_http1::KnownField;
use egret_http1::{is_token, list, trim};
use egret_store::entries::Kept;

use super::directives::{Extent, ResponseDirectives, seconds};
use super::vary::Vary;
use crate::message::Fields;
use egret_clock::http_date;

/// An answer as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The status.
    pub status: u16,
    /// What becomes of the body's length is the framing's affair; this is what the answer said.
    pub declared_len: Option<u64>,
    /// The URL as text, to purge by its beginning. Without the query where that may hold a credential.
    pub url: Box<[u8]>,
    pub(super) lines: Lines,
    pub(super) times: Times,
    pub(super) directives: ResponseDirectives,
    pub(super) expires: Option<Timestamp>,
    pub(super) date: Timestamp,
    pub(super) last_modified: Option<Timestamp>,
    pub(super) initial_age: Duration,
    pub(super) vary: Vary,
    /// What stands between parts of its body, where several are sent.
    pub(super) boundary: u128,
}

/// When a call was made, and when the head of its response was here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// When the request went out.
    pub sent: Timestamp,
    /// When the response's head was here.
    pub received: Timestamp,
}

/// Fields as they are sent: a line each, with its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lines(Vec<u8>);

impl Lines {
    /// Adds a field. Neither part holds the end of a line: they come from a head that was parsed.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        for part in [name, b": ", value, b"\r\n"] {
            self.0.extend_from_slice(part);
        }
    }

    /// What [`as_bytes`](Self::as_bytes) has given; `None` where it was not that.
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

    /// The same with this date.
    fn dated(&self, at: Timestamp) -> Self {
        let mut lines = Self::default();
        for (name, value) in self.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(b"date")) {
            lines.push(name, value);
        }
        lines.push(b"date", http_date::write(at).as_bytes());
        lines
    }

    /// As they are sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Each as name and value.
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

    /// The values of all fields `name`.
    pub fn all<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The value of the first field `name`.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// What of the fields of `response` may be stored (RFC 9111 §3.1): none that is for one connection or for a proxy, none that says how the
/// message was framed or how old it was, none that sets a cookie, and none that `directives` keep from it.
pub(super) fn storable_lines(response: Fields<'_>, directives: &ResponseDirectives) -> Lines {
    let nominated: Vec<&[u8]> = response.all(b"connection").flat_map(list).collect();
    let is_kept = |name: &[u8]| {
        let known = KnownField::of(name);
        let is_framing = matches!(known, KnownField::ContentLength | KnownField::Age | KnownField::Trailer);
        // What a gateway says of itself, nobody else may say.
        let is_own = known == KnownField::ProxyStatus || is_own(name);
        let is_cookie = known == KnownField::SetCookie || name.eq_ignore_ascii_case(b"set-cookie2");
        let is_nominated =
            known == KnownField::Other && nominated.iter().any(|other| other.eq_ignore_ascii_case(name));
        let is_withheld = directives.private.names(name) || directives.no_cache.names(name);
        !(known.is_hop_by_hop() || is_framing || is_nominated || is_withheld || is_cookie || is_own)
    };
    let mut lines = Lines::default();
    for (name, value) in response.iter().filter(|(name, _)| is_kept(name)) {
        lines.push(name, value);
    }
    lines
}

fn is_own(name: &[u8]) -> bool {
    [&b"x-egret-generated"[..], b"x-egret-error", b"x-egret-trace"]
        .iter()
        .any(|own| name.eq_ignore_ascii_case(own))
}

/// What `Age` says, in seconds: of several the first, and nothing if that is no number (RFC 9111 §5.1).
pub(super) fn age_s(response: Fields<'_>) -> u64 {
    let first = response.get(b"age").and_then(|value| list(value).next());
    first.and_then(seconds).unwrap_or(0)
}

impl Stored {
    /// Of what is stored of its fields. `Date` is added if there is none that can be read: then it is as old as it is here
    /// (RFC 9110 §6.6.1).
    pub(super) fn new(
        status: u16,
        mut lines: Lines,
        times: Times,
        age_s: u64,
        directives: ResponseDirectives,
        vary: Vary,
    ) -> Self {
        let read = |value: &[u8]| http_date::read(value, times.received);
        let told = lines.get(b"date").and_then(read);
        let date = told.unwrap_or(Timestamp::from_secs(times.received.as_secs()));
        if told.is_none() {
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

    /// Has it be of the moment `at`, which the newer answer it was updated from did not say.
    pub(super) fn redate(&mut self, at: Timestamp) {
        self.date = Timestamp::from_secs(at.as_secs());
        self.lines = self.lines.dated(self.date);
        self.initial_age = initial_age(self.times, self.date, 0);
    }

    /// The fields that are sent with it, but for its age and its length.
    pub fn lines(&self) -> &Lines {
        &self.lines
    }

    /// How old it is (RFC 9111 §4.2.3).
    pub fn age(&self, now: Timestamp) -> Duration {
        self.initial_age.saturating_add(now.since(self.times.received))
    }

    /// Its entity tag, as written.
    pub(super) fn etag(&self) -> Option<&[u8]> {
        self.lines.get(b"etag").map(trim).filter(|tag| is_etag(tag))
    }

    /// When it was modified last, as written.
    pub(super) fn last_modified_text(&self) -> Option<&[u8]> {
        self.last_modified.and_then(|_| self.lines.get(b"last-modified"))
    }

    /// Whether the provider can be asked whether it still holds.
    pub(super) fn has_validator(&self) -> bool {
        self.etag().is_some() || self.last_modified.is_some()
    }

    /// Bytes that it takes, without its body.
    pub fn bytes(&self) -> usize {
        let names = |extent: &Extent| match extent {
            Extent::Fields(names) => names.iter().map(|name| name.len() + size_of::<Box<str>>()).sum(),
            _ => 0,
        };
        let directives = names(&self.directives.no_cache) + names(&self.directives.private);
        size_of::<Self>() + self.lines.0.capacity() + self.url.len() + self.vary.bytes() + directives
    }
}

impl Kept for Stored {
    /// The fields that come before `Cache-Control`, in lower case: the directives are read from the fields again.
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
        let (url, lines) = (part()?, Lines::load(part()?)?);
        let status = Some(u16::from_le_bytes(*status)).filter(|status| (200..=599).contains(status))?;
        let vary = Vary::load(rest)?;
        let times = Times { sent: Timestamp::from_micros(sent), received: Timestamp::from_micros(received) };
        // Every answer that is stored has one.
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

/// Stands for a length that is not declared.
const NO_LEN: u64 = u64::MAX;

/// When it is no longer fresh by `Expires`; long ago where that is no date (RFC 9111 §5.3), or says two things.
fn expires(lines: &Lines, directives: &ResponseDirectives, now: Timestamp) -> Option<Timestamp> {
    if directives.targeted {
        return None;
    }
    let mut values = lines.all(b"expires");
    let first = values.next()?;
    let is_one = values.all(|other| other == first);
    Some(http_date::read(first, now).filter(|_| is_one).unwrap_or_default())
}

/// How old it was when it came: by the clock of the provider, or by what caches on the way say and how long it took, whichever is more
/// (RFC 9111 §4.2.3).
fn initial_age(times: Times, date: Timestamp, age_s: u64) -> Duration {
    let apparent = Timestamp::from_secs(times.received.as_secs()).since(date);
    let corrected = Duration::from_secs(age_s) + times.received.since(times.sent);
    apparent.max(corrected)
}

/// Whether `tag` is an entity tag (RFC 9110 §8.8.3).
pub(super) fn is_etag(tag: &[u8]) -> bool {
    let opaque = tag.strip_prefix(b"W/").unwrap_or(tag);
    matches!(opaque, [b'"', inner @ .., b'"'] if inner.iter().all(|byte| *byte > 0x20 && *byte != b'"' && *byte != 0x7f))
}

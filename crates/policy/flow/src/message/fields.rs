//! The fields of a message: those received, with the changes that remedies have made.

use egret_http1::{Field, KnownField, list};

/// Changes to the fields of a message, in the order they were made. Kept and cleared between messages, so that nothing is allocated.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Each a name and, unless it is only removed, a new value, as ranges of `arena`.
    changes: Vec<Change>,
    arena: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    name: (u32, u32),
    value: Option<(u32, u32)>,
    /// Whether fields of that name that were there before go.
    removes: bool,
}

/// One change as it is applied: all fields of that name go if `removes`; then one with `value` is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedChange<'a> {
    /// The field's name, compared without case.
    pub name: &'a [u8],
    /// Whether fields of that name that were there before go.
    pub removes: bool,
    /// The value of the field that is added, if one is.
    pub value: Option<&'a [u8]>,
}

impl Changes {
    /// Forgets all changes and keeps the memory.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.arena.clear();
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// The first `len` of them.
    pub(crate) fn first(&self, len: usize) -> Self {
        let mut first = self.clone();
        first.truncate(len);
        first
    }

    /// Forgets all but the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        let Some(first) = self.changes.get(len) else { return };
        self.arena.truncate(first.name.0 as usize);
        self.changes.truncate(len);
        let end = self.changes.last().map_or(0, |last| last.value.unwrap_or(last.name).1);
        self.arena.truncate(end as usize);
    }

    /// Gives the message one field `name` with `value`, in place of those it has. The name has to be a token and the value free of
    /// control characters: both are checked where they come from.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.push(name, Some(value), true);
    }

    /// Adds a field beside those that are there.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        self.push(name, Some(value), false);
    }

    /// Removes all fields `name`.
    pub fn remove(&mut self, name: &[u8]) {
        self.push(name, None, true);
    }

    fn push(&mut self, name: &[u8], value: Option<&[u8]>, removes: bool) {
        let name = self.store(name);
        let value = value.map(|value| self.store(value));
        self.changes.push(Change { name, value, removes });
    }

    fn store(&mut self, bytes: &[u8]) -> (u32, u32) {
        let at = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let start = at(self.arena.len());
        self.arena.extend_from_slice(bytes);
        (start, at(self.arena.len()))
    }

    /// All changes, in the order they were made.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = AppliedChange<'_>> + Clone {
        let of = |(start, end): (u32, u32)| &self.arena[start as usize..end as usize];
        self.changes.iter().map(move |change| AppliedChange {
            name: of(change.name),
            removes: change.removes,
            value: change.value.map(of),
        })
    }

    /// Whether the fields `name` that were received are gone.
    pub fn removes(&self, name: &[u8]) -> bool {
        self.iter().any(|change| change.removes && change.name.eq_ignore_ascii_case(name))
    }

    /// The fields that are there after all changes and were not received.
    pub fn added(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.iter().enumerate().filter_map(|(at, change)| {
            let is_gone = || {
                self.iter()
                    .skip(at + 1)
                    .any(|later| later.removes && later.name.eq_ignore_ascii_case(change.name))
            };
            change.value.filter(|_| !is_gone()).map(|value| (change.name, value))
        })
    }
}

/// The fields of a message.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    received: &'a [Field],
    bytes: &'a [u8],
    changes: &'a Changes,
}

impl<'a> Fields<'a> {
    /// The fields `received`, whose names and values are in `bytes`, with `changes`.
    pub fn new(received: &'a [Field], bytes: &'a [u8], changes: &'a Changes) -> Self {
        Self { received, bytes, changes }
    }

    /// The fields of a message as it was received.
    pub fn received(received: &'a [Field], bytes: &'a [u8]) -> Self {
        static NONE: Changes = Changes { changes: Vec::new(), arena: Vec::new() };
        Self::new(received, bytes, &NONE)
    }

    /// Whether the body is JSON, as they tell it.
    pub fn json(self) -> Json {
        if !self.all(b"content-type").any(is_json) {
            Json::No
        } else if self.is_encoded() {
            Json::Encoded
        } else {
            Json::Plain
        }
    }

    /// Whether the body is under a content coding, as they tell it (RFC 9110 §8.4).
    pub fn is_encoded(self) -> bool {
        let is_identity = |coding: &[u8]| {
            let coding = coding.trim_ascii();
            coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
        };
        let mut codings = self.all(b"content-encoding");
        !codings.all(|codings| codings.split(|byte| *byte == b',').all(is_identity))
    }

    /// The values of all fields `name`, in order: those received, then those added.
    pub fn all<'n>(self, name: &'n [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let Self { received, bytes, changes } = self;
        let is_kept = move |field: &&Field| {
            is_named(field, bytes, name) && (changes.is_empty() || !changes.removes(name))
        };
        let kept = received.iter().filter(is_kept).map(|field| field.value.of(bytes));
        let added = changes.added().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        kept.chain(added.map(|(_, value)| value))
    }

    /// The value of the first field `name`.
    pub fn get(self, name: &[u8]) -> Option<&'a [u8]> {
        let Self { received, bytes, changes } = self;
        if changes.is_empty() {
            return received
                .iter()
                .find(|field| is_named(field, bytes, name))
                .map(|field| field.value.of(bytes));
        }
        self.all(name).next()
    }

    /// All fields as name and value, in order: those received, then those added.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let Self { received, bytes, changes } = self;
        let received = received.iter().map(|field| (field.name.of(bytes), field.value.of(bytes)));
        let kept = received.filter(|(name, _)| changes.is_empty() || !changes.removes(name));
        kept.chain(changes.added())
    }

    /// The values of all fields `name`, in order, but for those that `Connection` keeps from going on: the
    /// client has taken those back. What the gateway itself keeps back is among them.
    pub(crate) fn all_meant<'n>(self, name: &'n [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let Self { received, bytes, changes } = self;
        let is_nominated = move || {
            let connection = received.iter().filter(move |field| field.known == KnownField::Connection);
            connection
                .flat_map(move |field| list(field.value.of(bytes)))
                .any(|other| other.eq_ignore_ascii_case(name))
        };
        let is_kept = move |field: &&Field| {
            is_named(field, bytes, name)
                && !(field.hop_by_hop && is_nominated())
                && (changes.is_empty() || !changes.removes(name))
        };
        let kept = received.iter().filter(is_kept).map(|field| field.value.of(bytes));
        let added = changes.added().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        kept.chain(added.map(|(_, value)| value))
    }

    /// All fields without those that were received for one connection alone, or for the gateway itself, and
    /// so do not go on.
    pub(crate) fn forwarded(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let Self { received, bytes, changes } = self;
        let received = received.iter().filter(|field| !field.hop_by_hop);
        let received = received.map(|field| (field.name.of(bytes), field.value.of(bytes)));
        received.filter(|(name, _)| changes.is_empty() || !changes.removes(name)).chain(changes.added())
    }
}

/// Whether `field`, which is in `bytes`, has that name. Lengths tell most names apart, and are here without a look at the bytes.
#[inline]
fn is_named(field: &Field, bytes: &[u8], name: &[u8]) -> bool {
    field.name.len() == name.len() && field.name.of(bytes).eq_ignore_ascii_case(name)
}

/// Whether a body is JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Json {
    /// It is something else, or nobody says what.
    No,
    /// It is, as it stands.
    Plain,
    /// It is, under a content coding.
    Encoded,
}

/// Whether a media type is `application/json` or has the suffix of those that are written in it (RFC 6839 §3.1).
pub(crate) fn is_json(media_type: &[u8]) -> bool {
    let end = media_type.iter().position(|byte| matches!(byte, b';' | b',')).unwrap_or(media_type.len());
    let essence = media_type[..end].trim_ascii();
    let suffix = &essence[essence.len().saturating_sub(5)..];
    essence.eq_ignore_ascii_case(b"application/json") || suffix.eq_ignore_ascii_case(b"+json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use egret_http1::{HeadLimits, Progress, RequestHead};

    fn after(change: impl FnOnce(&mut Changes)) -> Vec<String> {
        let bytes = b"GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-a: 2\r\nX-B: 3\r\n\r\n";
        let mut head = RequestHead::new();
        assert_eq!(head.parse(bytes, &HeadLimits::default()).unwrap(), Progress::Complete);
        let mut changes = Changes::default();
        change(&mut changes);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let fields = Fields::new(&head.fields, bytes, &changes);
        fields.iter().skip(1).map(|(name, value)| format!("{}={}", text(name), text(value))).collect()
    }

    #[test]
    fn later_changes_see_earlier_ones() {
        assert_eq!(after(|_| ()), ["X-A=1", "x-a=2", "X-B=3"]);
        assert_eq!(after(|changes| changes.set(b"x-a", b"9")), ["X-B=3", "x-a=9"]);
        assert_eq!(after(|changes| changes.remove(b"X-a")), ["X-B=3"]);
        assert_eq!(after(|changes| changes.add(b"X-B", b"4")), ["X-A=1", "x-a=2", "X-B=3", "X-B=4"]);
        let twice = after(|changes| {
            changes.add(b"x-c", b"1");
            changes.set(b"x-c", b"2");
            changes.add(b"x-c", b"3");
        });
        assert_eq!(twice, ["X-A=1", "x-a=2", "X-B=3", "x-c=2", "x-c=3"]);
        let gone = after(|changes| {
            changes.set(b"x-a", b"1");
            changes.remove(b"x-a");
        });
        assert_eq!(gone, ["X-B=3"]);
    }
    #[test]
    fn what_is_taken_back_leaves_nothing_behind() {
        let mut changes = Changes::default();
        changes.set(b"x-a", b"1");
        changes.remove(b"x-b");
        let len = changes.len();
        changes.add(b"x-c", b"2");
        changes.truncate(len);
        changes.truncate(len);
        assert_eq!((changes.len(), changes.arena.as_slice()), (2, &b"x-a1x-b"[..]));
    }

    #[test]
    fn a_content_type_says_what_is_json_and_a_coding_what_cannot_be_read() {
        let json = |fields: &str| {
            let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n").into_bytes();
            let mut head = RequestHead::new();
            assert_eq!(head.parse(&bytes, &HeadLimits::default()).unwrap(), Progress::Complete);
            Fields::received(&head.fields, &bytes).json()
        };
        for media_type in
            ["application/json", "Application/JSON; charset=utf-8", "application/hal+json;a=b", "a/b+JSON"]
        {
            assert_eq!(json(&format!("Content-Type: {media_type}")), Json::Plain, "{media_type}");
        }
        for media_type in ["application/json5", "text/event-stream", "application/x-ndjson", "json", ""] {
            assert_eq!(json(&format!("Content-Type: {media_type}")), Json::No, "{media_type}");
        }
        let encoded = |codings: &str| json(&format!("Content-Type: application/json\r\n{codings}"));
        assert_eq!(encoded("Content-Encoding: Identity"), Json::Plain);
        assert_eq!(encoded("Content-Encoding: identity, gzip"), Json::Encoded);
        assert_eq!(encoded("Content-Encoding: identity\r\nContent-Encoding: br"), Json::Encoded);
        assert_eq!(json("Content-Encoding: gzip"), Json::No);
    }
}

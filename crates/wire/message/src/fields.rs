//! Header fields of a message: the received ones with the remedies' changes.

use egret_http1::{Field, KnownField, list};

/// Fields of a request or response with a digest of the body, which is wrong after a change (RFC 9530, RFC
/// 1864).
const DIGESTS: [&[u8]; 4] = [b"content-digest", b"repr-digest", b"digest", b"content-md5"];

/// Changes to the fields of a message, in order. Reused between messages to avoid allocation.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Each change is a name and, unless it only removes, a new value, as ranges of `arena`.
    changes: Vec<FieldChange>,
    arena: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct FieldChange {
    name: (u32, u32),
    value: Option<(u32, u32)>,
    /// `true` if existing fields of that name are removed.
    removes: bool,
    /// `true` if the value must not be recorded.
    is_secret: bool,
}

/// Stands for a secret value in a recording.
const HIDDEN: &[u8] = b"(secret)";

/// One change as it is applied: existing fields of that name are removed if `removes`, then a field with
/// `value` is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedChange<'a> {
    /// Name of the field, compared case-insensitively.
    pub name: &'a [u8],
    /// `true` if existing fields of that name are removed.
    pub removes: bool,
    /// Value of the added field, if one is added.
    pub value: Option<&'a [u8]>,
}

impl Changes {
    /// Removes all changes and keeps the memory.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.arena.clear();
    }

    /// Returns `true` if there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Removes the digest fields of a body that has changed.
    pub fn remove_digests(&mut self) {
        for name in DIGESTS {
            self.remove(name);
        }
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns a copy of the first `len` changes.
    #[must_use]
    pub fn first(&self, len: usize) -> Self {
        let mut first = self.clone();
        first.truncate(len);
        first
    }

    /// Removes all but the first `len` changes.
    pub fn truncate(&mut self, len: usize) {
        let Some(first) = self.changes.get(len) else { return };
        self.arena.truncate(first.name.0 as usize);
        self.changes.truncate(len);
        let end = self.changes.last().map_or(0, |last| last.value.unwrap_or(last.name).1);
        self.arena.truncate(end as usize);
    }

    /// Sets field `name` to `value` and removes its other values. The caller checks that the name is a token
    /// and the value has no control characters.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.push(name, Some(value), true);
    }

    /// Adds a field and keeps existing ones of the same name.
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
        self.changes.push(FieldChange { name, value, removes, is_secret: false });
    }

    fn store(&mut self, bytes: &[u8]) -> (u32, u32) {
        let at = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let start = at(self.arena.len());
        self.arena.extend_from_slice(bytes);
        (start, at(self.arena.len()))
    }

    /// Marks the values of fields `name` as secrets, which recordings do not show.
    pub fn mark_secret(&mut self, name: &[u8]) {
        let arena = &self.arena;
        let is_it = |change: &&mut FieldChange| {
            arena[change.name.0 as usize..change.name.1 as usize].eq_ignore_ascii_case(name)
        };
        self.changes.iter_mut().filter(is_it).for_each(|change| change.is_secret = true);
    }

    /// Returns the changes as a recording shows them: without secret values, or without all values.
    #[must_use]
    pub fn shown(&self, hides_all: bool) -> Self {
        let mut shown = Self::default();
        for (change, original) in self.iter().zip(&self.changes) {
            let value =
                change.value.map(|value| if hides_all || original.is_secret { HIDDEN } else { value });
            shown.push(change.name, value, change.removes);
        }
        shown
    }

    /// Returns all changes, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = AppliedChange<'_>> + Clone {
        let of = |(start, end): (u32, u32)| &self.arena[start as usize..end as usize];
        self.changes.iter().map(move |change| AppliedChange {
            name: of(change.name),
            removes: change.removes,
            value: change.value.map(of),
        })
    }

    /// Returns `true` if the received fields `name` are removed.
    pub fn removes(&self, name: &[u8]) -> bool {
        self.iter().any(|change| change.removes && change.name.eq_ignore_ascii_case(name))
    }

    /// Returns the added fields that no later change removes.
    pub fn added(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.iter().enumerate().filter_map(|(at, change)| {
            let is_removed = || {
                self.iter()
                    .skip(at + 1)
                    .any(|later| later.removes && later.name.eq_ignore_ascii_case(change.name))
            };
            change.value.filter(|_| !is_removed()).map(|value| (change.name, value))
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
    /// Creates a view of the fields `received`, whose names and values are in `bytes`, with `changes`.
    pub fn new(received: &'a [Field], bytes: &'a [u8], changes: &'a Changes) -> Self {
        Self { received, bytes, changes }
    }

    /// Creates a view of a message's fields as received.
    pub fn received(received: &'a [Field], bytes: &'a [u8]) -> Self {
        static NONE: Changes = Changes { changes: Vec::new(), arena: Vec::new() };
        Self::new(received, bytes, &NONE)
    }

    /// Returns the body's JSON state according to `Content-Type` and `Content-Encoding`.
    pub fn json(self) -> Json {
        if !self.all(b"content-type").any(is_json) {
            Json::No
        } else if self.is_encoded() {
            Json::Encoded
        } else {
            Json::Plain
        }
    }

    /// Returns `true` if the fields declare a content coding (RFC 9110 §8.4).
    pub fn is_encoded(self) -> bool {
        let is_identity = |coding: &[u8]| {
            let coding = coding.trim_ascii();
            coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
        };
        let mut codings = self.all(b"content-encoding");
        !codings.all(|codings| codings.split(|byte| *byte == b',').all(is_identity))
    }

    /// Returns the values of all fields `name`, in order: received ones first, then added ones.
    pub fn all<'n>(self, name: &'n [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let Self { received, bytes, changes } = self;
        let is_kept = move |field: &&Field| {
            is_named(field, bytes, name) && (changes.is_empty() || !changes.removes(name))
        };
        let kept = received.iter().filter(is_kept).map(|field| field.value.of(bytes));
        let added = changes.added().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        kept.chain(added.map(|(_, value)| value))
    }

    /// Returns the value of the first field `name`.
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

    /// Returns all fields as name and value, in order: received ones first, then added ones.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let Self { received, bytes, changes } = self;
        let received = received.iter().map(|field| (field.name.of(bytes), field.value.of(bytes)));
        let kept = received.filter(|(name, _)| changes.is_empty() || !changes.removes(name));
        kept.chain(changes.added())
    }

    /// Returns the values of all fields `name`, in order, except fields that the client listed in
    /// `Connection`, which withdraws them. Fields that the gateway itself does not forward are included.
    pub fn all_unless_withdrawn<'n>(self, name: &'n [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
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

    /// Returns all fields except received ones that are not forwarded: hop-by-hop fields and fields meant for
    /// the gateway.
    pub fn forwarded(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let Self { received, bytes, changes } = self;
        let received = received.iter().filter(|field| !field.hop_by_hop);
        let received = received.map(|field| (field.name.of(bytes), field.value.of(bytes)));
        received.filter(|(name, _)| changes.is_empty() || !changes.removes(name)).chain(changes.added())
    }
}

/// Returns `true` if `field`, which is in `bytes`, has that name. The length alone rules out most names
/// without reading the bytes.
#[inline]
fn is_named(field: &Field, bytes: &[u8], name: &[u8]) -> bool {
    field.name.len() == name.len() && field.name.of(bytes).eq_ignore_ascii_case(name)
}

/// The JSON state of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Json {
    /// The body has another media type or none.
    No,
    /// The body is JSON without a content coding.
    Plain,
    /// The body is JSON with a content coding.
    Encoded,
}

/// Returns `true` if a media type is `application/json` or has the suffix `+json` (RFC 6839 §3.1).
pub fn is_json(media_type: &[u8]) -> bool {
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
    fn truncating_changes_restores_the_arena() {
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
    fn content_type_and_coding_decide_on_json() {
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

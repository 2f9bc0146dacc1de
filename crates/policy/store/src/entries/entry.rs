//! An entry of the store: its key, its value and its body; and the selection of entries for a purge.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use egret_clock::Timestamp;

use super::body::StoredBody;

/// A value that is stored with a body.
pub trait StoredValue: Send + Sync + Sized + 'static {
    /// The data needed for deserialization.
    type Context: Send + Sync + 'static;

    /// Memory use in bytes, including the value's own size.
    fn bytes(&self) -> usize;

    /// The label, by whose prefix entries are purged.
    fn label(&self) -> &[u8];

    /// Serializes the value.
    fn save(&self) -> Vec<u8>;

    /// Deserializes the output of [`save`](Self::save); `None` if it is invalid.
    fn load(saved: &[u8], context: &Self::Context) -> Option<Self>;
}

/// The key of an entry. Both parts are hashes keyed with a secret, so they cannot be chosen by an attacker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryKey {
    /// Identity by which entries are found. Several entries may share it.
    pub id: u128,
    /// Group of entries that are removed together.
    pub group: u128,
}

/// A stored entry.
#[derive(Debug)]
pub struct StoredEntry<K> {
    /// The key.
    pub key: EntryKey,
    /// The value.
    pub value: K,
    /// The body.
    pub body: Arc<StoredBody>,
    /// Time at which it was stored.
    pub stored_at: Timestamp,
    /// Unique number of the entry, also across restarts.
    pub(super) number: u64,
    pub(super) tags: Arc<[Box<str>]>,
    pub(super) used: AtomicBool,
}

impl<K> StoredEntry<K> {
    /// Returns an entry with the same body and another value. It is not in any store.
    pub fn with(&self, value: K) -> Arc<Self> {
        let Self { key, body, stored_at, tags, .. } = self;
        let (body, tags, used) = (Arc::clone(body), Arc::clone(tags), AtomicBool::new(false));
        Arc::new(Self { key: *key, value, body, stored_at: *stored_at, number: 0, tags, used })
    }

    /// Marks the entry as used, so it is evicted later than unused ones. Takes no lock.
    pub fn touch(&self) {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }
}

/// The entries to purge.
#[derive(Debug, Clone, Copy)]
pub enum Purge<'a> {
    /// All entries.
    All,
    /// Entries with this label.
    Label(&'a [u8]),
    /// Entries whose label begins with this.
    Prefix(&'a [u8]),
    /// Entries with this tag.
    Tag(&'a str),
}

impl Purge<'_> {
    /// Returns `true` if it selects an entry with this label and these tags.
    pub(super) fn matches(self, label: &[u8], tags: &[Box<str>]) -> bool {
        match self {
            Self::All => true,
            Self::Label(own) => label == own,
            Self::Prefix(prefix) => label.starts_with(prefix),
            Self::Tag(tag) => tags.iter().any(|other| &**other == tag),
        }
    }
}

/// The entries to remove, as they are kept, and sent to other gateways.
#[derive(Clone, PartialEq, Eq)]
pub enum Removal {
    /// All entries.
    All,
    /// Entries with this label.
    Label(Box<[u8]>),
    /// Entries whose label begins with this.
    Prefix(Box<[u8]>),
    /// Entries with this tag.
    Tag(Box<str>),
    /// Entries for a URL that was changed, as the cache writes it.
    Changed(Box<[u8]>),
}

/// Does not show URLs and tags.
impl fmt::Debug for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Removal({})", char::from(self.kind()))
    }
}

impl From<Purge<'_>> for Removal {
    fn from(purge: Purge<'_>) -> Self {
        match purge {
            Purge::All => Self::All,
            Purge::Label(label) => Self::Label(label.into()),
            Purge::Prefix(prefix) => Self::Prefix(prefix.into()),
            Purge::Tag(tag) => Self::Tag(tag.into()),
        }
    }
}

impl Removal {
    /// The purge that it is; `None` for a changed URL.
    pub fn purge(&self) -> Option<Purge<'_>> {
        match self {
            Self::All => Some(Purge::All),
            Self::Label(label) => Some(Purge::Label(label)),
            Self::Prefix(prefix) => Some(Purge::Prefix(prefix)),
            Self::Tag(tag) => Some(Purge::Tag(tag)),
            Self::Changed(_) => None,
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::All => b'a',
            Self::Label(_) => b'l',
            Self::Prefix(_) => b'p',
            Self::Tag(_) => b't',
            Self::Changed(_) => b'c',
        }
    }

    /// Serializes the removal.
    pub fn save(&self) -> Vec<u8> {
        let content = match self {
            Self::All => b"",
            Self::Label(content) | Self::Prefix(content) | Self::Changed(content) => &**content,
            Self::Tag(tag) => tag.as_bytes(),
        };
        [&[self.kind()], content].concat()
    }

    /// Deserializes the output of [`save`](Self::save); `None` if it is invalid.
    pub fn load(saved: &[u8]) -> Option<Self> {
        let (kind, content) = saved.split_first()?;
        match kind {
            b'a' => content.is_empty().then_some(Self::All),
            b'l' => Some(Self::Label(content.into())),
            b'p' => Some(Self::Prefix(content.into())),
            b't' => std::str::from_utf8(content).ok().map(|tag| Self::Tag(tag.into())),
            b'c' => Some(Self::Changed(content.into())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn malformed_removals_are_refused() {
        for saved in [&b""[..], b"x", b"ax", b"t\xff"] {
            assert_eq!(Removal::load(saved), None, "{}", saved.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn a_removal_is_read_as_it_was_written(content: Vec<u8>, tag: String) {
            let content: Box<[u8]> = content.into();
            for removal in [
                Removal::All,
                Removal::Label(content.clone()),
                Removal::Prefix(content.clone()),
                Removal::Changed(content),
                Removal::Tag(tag.into()),
            ] {
                prop_assert_eq!(Removal::load(&removal.save()), Some(removal));
            }
        }
    }
}

//! An entry of the store: its key, its value and its body; and the selection of entries for a purge.

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

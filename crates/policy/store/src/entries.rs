//! A store for entries in memory. It is limited in bytes, including all overhead, evicts by use, and never
//! returns an entry of another key. Optionally it is backed by a [`Disk`].
//!
//! An entry is a value (`K`) with a [`StoredBody`], both shared. A reader keeps its entry, even if the store
//! removes it, and holds no lock meanwhile. A [`BodyWriter`] appends to the body as data arrives, and the
//! body can be read at once. The store has several shards, each with a lock that is held for one lookup or
//! one change. All entries of a group are in the same shard, so they can be removed together.

mod body;
mod disk;
mod entry;
mod shard;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use body::BLOCK_OVERHEAD;
use disk::{Memory, Purging};
use egret_clock::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use shard::Shard;

pub use body::{Block, BodyRelay, Next, StoredBody};
#[cfg(feature = "simulated")]
pub use disk::SteppedDisk;
pub use disk::{
    Disk, DiskError, DiskEvent, DiskLimits, DiskLookup, DiskStats, EntryFile, Loading, Seal, Stop,
};
pub use entry::{EntryKey, Purge, Removal, StoredEntry, StoredValue};

/// Limits of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryLimits {
    /// Maximum size of all entries, including overhead, in bytes.
    pub bytes: u64,
    /// Maximum size of one body, in bytes.
    pub body_bytes: u64,
    /// Maximum number of entries under one identity; beyond it, the oldest are removed.
    pub variants: usize,
}

impl Default for EntryLimits {
    fn default() -> Self {
        Self { bytes: 64 << 20, body_bytes: 1 << 20, variants: 16 }
    }
}

/// Memory of an entry besides its value and its body: its slot with room to grow, two places in maps, itself,
/// and the state of its body.
const ENTRY_OVERHEAD: usize = 512;
/// Minimum capacity of a shard in bodies of maximum size, so one large body does not evict everything.
const BODIES_IN_SHARD: u64 = 8;
const SHARDS_MAX: u64 = 16;
/// Limit of all bodies in memory, relative to the size of the store. It includes evicted bodies that are
/// still being read; otherwise slow readers could keep any number of them in memory. Above it, nothing more
/// is stored or loaded.
const ALIVE_PER_BYTE: u64 = 2;
/// Number of slots that a purge examines under one lock.
const PURGE_BATCH: usize = 256;

/// Entries, shared by all readers.
#[derive(Debug)]
pub struct Entries<K: StoredValue> {
    shards: Box<[Mutex<Shard<K>>]>,
    limits: EntryLimits,
    alive: Arc<AtomicU64>,
    /// Limit of the bytes of stored bodies, and of evicted ones that are still being read or written.
    alive_max: u64,
    /// The number of the next entry.
    next: AtomicU64,
    /// The disk. It is changed under the lock of the same shard, so both agree on every group.
    disk: Option<Arc<Disk<K>>>,
}

/// Statistics of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryStats {
    /// Number of entries.
    pub entries: usize,
    /// Size of the entries, including overhead, in bytes.
    pub bytes: u64,
    /// Size of all bodies that are stored, or evicted and still being read, in bytes.
    pub alive_bytes: u64,
    /// Number of entries evicted for others.
    pub evicted: u64,
}

/// Reason why a body cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// It exceeds the maximum size.
    TooLarge,
    /// Nothing can be evicted for it: all stored bodies are still arriving, or evicted ones are still being
    /// read.
    NoRoom,
}

impl<K: StoredValue> Entries<K> {
    /// Creates an empty store.
    pub fn new(limits: EntryLimits) -> Arc<Self> {
        Self::with_disk(limits, None)
    }

    /// Creates a store with that disk. The disk has no effect until its [`serve`](Disk::serve) runs.
    pub fn with_disk(limits: EntryLimits, disk: Option<Arc<Disk<K>>>) -> Arc<Self> {
        let max = limits.bytes / (limits.body_bytes.max(1) * BODIES_IN_SHARD);
        let count =
            (1..=SHARDS_MAX).rev().find(|count| count.is_power_of_two() && *count <= max).unwrap_or(1);
        let shards = (0..count).map(|_| Mutex::new(Shard::new(limits.bytes / count))).collect();
        let next = AtomicU64::new(disk.as_ref().map_or(1, |disk| disk.first_number()));
        let waiting = disk.as_ref().map_or(0, |disk| disk.waiting_bytes());
        let alive_max = limits.bytes.saturating_mul(ALIVE_PER_BYTE).saturating_add(waiting);
        Arc::new(Self { shards, limits, alive: Arc::default(), alive_max, next, disk })
    }

    /// The disk, if there is one.
    pub fn disk(&self) -> Option<&Arc<Disk<K>>> {
        self.disk.as_ref()
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Finds the entries under an identity, newest first.
    pub fn find(&self, key: EntryKey, found: &mut impl Extend<Arc<StoredEntry<K>>>) {
        found.extend(self.shard(key.group).find(key.id).filter(|entry| entry.key == key).cloned());
    }

    /// Adds an entry whose body is about to arrive. If `expected`, its length in bytes, is known, room for it
    /// is reserved.
    pub fn begin(
        self: &Arc<Self>,
        key: EntryKey,
        value: K,
        tags: &Arc<[Box<str>]>,
        expected: Option<u64>,
        now: Timestamp,
    ) -> Result<BodyWriter<K>, Full> {
        let expected = expected.unwrap_or(0);
        if expected > self.limits.body_bytes {
            return Err(Full::TooLarge);
        }
        if !self.may_add(expected) {
            return Err(Full::NoRoom);
        }
        let body = Arc::new(StoredBody::new(Arc::clone(&self.alive)));
        let (used, tags) = (AtomicBool::new(false), Arc::clone(tags));
        let base = bytes_of(&value);
        let number = self.number();
        let entry = Arc::new(StoredEntry { key, value, body, stored_at: now, number, tags, used });
        let mut shard = self.shard(key.group);
        let surplus: Vec<_> = shard.find(key.id).skip(self.limits.variants.max(1) - 1).cloned().collect();
        for other in surplus {
            shard.remove(&other);
            self.remove_from_disk(&[other.number]);
        }
        let charge = base + if expected > 0 { expected + BLOCK_OVERHEAD as u64 } else { 0 };
        if !shard.insert(Arc::clone(&entry), charge) {
            return Err(Full::NoRoom);
        }
        drop(shard);
        Ok(BodyWriter { entries: Arc::clone(self), entry, charge, is_done: false })
    }

    /// Returns `true` if bodies may take that many more bytes, including evicted ones that are still being
    /// read.
    fn may_add(&self, bytes: u64) -> bool {
        self.alive.load(Relaxed).saturating_add(bytes) <= self.alive_max
    }

    /// Replaces the value of `entry`, with the same body. Does nothing if the entry was removed, or its body
    /// is incomplete.
    pub fn update(
        &self,
        entry: &Arc<StoredEntry<K>>,
        value: K,
        now: Timestamp,
    ) -> Option<Arc<StoredEntry<K>>> {
        entry.body.len()?;
        let mut shard = self.shard(entry.key.group);
        let charged = shard.charged(entry)?;
        let charge = (charged + bytes_of(&value)).saturating_sub(bytes_of(&entry.value));
        let (key, tags, used) = (entry.key, Arc::clone(&entry.tags), AtomicBool::new(true));
        let (body, number) = (Arc::clone(&entry.body), self.number());
        let updated = Arc::new(StoredEntry { key, value, body, stored_at: now, number, tags, used });
        shard.remove(entry);
        let is_in = shard.insert(Arc::clone(&updated), charge);
        match &self.disk {
            Some(disk) if is_in => disk.put(&updated, Some(entry.number)),
            _ => self.remove_from_disk(&[entry.number]),
        }
        is_in.then_some(updated)
    }

    /// Removes an entry.
    pub fn remove(&self, entry: &Arc<StoredEntry<K>>) -> bool {
        let mut shard = self.shard(entry.key.group);
        self.remove_from_disk(&[entry.number]);
        shard.remove(entry)
    }

    /// Removes all entries of a group, and returns their number.
    pub fn remove_group(&self, group: u128) -> usize {
        let mut shard = self.shard(group);
        let removed = shard.remove_group(group);
        self.disk.as_ref().map_or(removed.len(), |disk| disk.remove_group(group, &removed))
    }

    fn remove_from_disk(&self, numbers: &[u64]) {
        if let Some(disk) = &self.disk {
            disk.remove(numbers);
        }
    }

    /// Starts to load the entries under an identity from disk, unless they are in memory already. `found` are
    /// those that the caller has just [found](Self::find) there. After the load, only entries in memory are
    /// usable.
    pub fn look_up(&self, key: EntryKey, found: &[Arc<StoredEntry<K>>]) -> DiskLookup {
        let Some(disk) = &self.disk else { return DiskLookup::Nothing };
        let shard = self.shard(key.group);
        let is_new = |entry: &Arc<StoredEntry<K>>| {
            entry.key == key && !found.iter().any(|known| known.number == entry.number)
        };
        if shard.find(key.id).any(is_new) {
            return DiskLookup::InMemory;
        }
        let seen: Vec<_> = shard.find(key.id).map(|entry| entry.number).collect();
        disk.look_up(key, &seen)
    }

    /// Removes entries under an identity from the disk that are not in memory, because a newer entry replaces
    /// them unseen.
    pub fn remove_unloaded(&self, key: EntryKey) {
        let Some(disk) = &self.disk else { return };
        let shard = self.shard(key.group);
        let seen: Vec<_> = shard.find(key.id).map(|entry| entry.number).collect();
        disk.remove_others(key.id, &seen);
    }

    /// Removes the matching entries, and returns their number. Other threads can access the store in between.
    pub fn purge(&self, purge: Purge<'_>) -> usize {
        let matches = |entry: &StoredEntry<K>| purge.matches(entry.value.label(), &entry.tags);
        // The disk is purged first: entries that are being read from it are in memory by now, or will not be
        // added.
        let on_disk = self.disk.as_ref().map(|disk| disk.purge(purge, self.next.load(Relaxed)));
        let is_counted = |number: u64| on_disk.as_ref().is_some_and(|on_disk| on_disk.has(number));
        let mut removed = on_disk.as_ref().map_or(0, Purging::len);
        for shard in &self.shards {
            let (mut start, mut is_more) = (0, true);
            while is_more {
                let mut shard = shard.lock();
                let (numbers, more) = shard.remove_among(start, PURGE_BATCH, &matches);
                // More may have been added meanwhile.
                self.remove_from_disk(&numbers);
                drop(shard);
                removed += numbers.iter().filter(|number| !is_counted(**number)).count();
                (start, is_more) = (start + PURGE_BATCH, more);
            }
        }
        removed
    }

    /// Returns statistics, collected shard by shard.
    pub fn stats(&self) -> EntryStats {
        let mut stats = EntryStats { alive_bytes: self.alive.load(Relaxed), ..EntryStats::default() };
        for shard in &self.shards {
            let shard = shard.lock();
            stats.entries += shard.len;
            stats.bytes += shard.bytes;
            stats.evicted += shard.evicted;
        }
        stats
    }

    fn shard(&self, group: u128) -> MutexGuard<'_, Shard<K>> {
        let at = usize::try_from(group % self.shards.len() as u128).unwrap_or_default();
        self.shards[at].lock()
    }
}

impl<K: StoredValue> Memory<K> for Entries<K> {
    fn new_body(&self) -> StoredBody {
        StoredBody::new(Arc::clone(&self.alive))
    }

    fn has(&self, key: EntryKey, number: u64) -> bool {
        self.shard(key.group).find(key.id).any(|entry| entry.number == number)
    }

    fn is_used(&self, key: EntryKey, number: u64) -> bool {
        self.shard(key.group).find(key.id).any(|entry| entry.number == number && entry.used.load(Relaxed))
    }

    fn restore(&self, disk: &Disk<K>, entry: Arc<StoredEntry<K>>) -> bool {
        let Some(length) = entry.body.len().filter(|length| *length <= self.limits.body_bytes) else {
            return false;
        };
        // Its bytes are counted already.
        if !self.may_add(0) {
            return false;
        }
        let blocks = entry.body.blocks().map_or(0, <[Block]>::len);
        let charge = charge_of(&entry, length, blocks);
        let mut shard = self.shard(entry.key.group);
        disk.still_has(entry.number) && shard.insert(entry, charge)
    }
}

fn bytes_of<K: StoredValue>(value: &K) -> u64 {
    (ENTRY_OVERHEAD + value.bytes()) as u64
}

/// An entry whose body is arriving. If this is dropped before it is finished, the entry is removed, and its
/// readers see a broken body.
#[derive(Debug)]
pub struct BodyWriter<K: StoredValue> {
    entries: Arc<Entries<K>>,
    entry: Arc<StoredEntry<K>>,
    /// Size that the entry is charged with.
    charge: u64,
    is_done: bool,
}

impl<K: StoredValue> BodyWriter<K> {
    /// The entry, which readers may have found already.
    pub fn entry(&self) -> &Arc<StoredEntry<K>> {
        &self.entry
    }

    /// Appends data to the body. If there is no room, [give up](Self::give_up) or drop the entry.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Full> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (before, blocks) = self.entry.body.extent();
        let length = before + bytes.len() as u64;
        if length > self.entries.limits.body_bytes {
            return Err(Full::TooLarge);
        }
        if !self.entries.may_add(bytes.len() as u64) {
            return Err(Full::NoRoom);
        }
        self.charge_at_least(length, blocks + 1)?;
        self.entry.body.push(bytes.into());
        Ok(())
    }

    /// Removes the entry because there is no room for `rest`. Readers that have the body already can read
    /// `rest`, and what is passed on afterwards.
    pub fn give_up(mut self, rest: &[u8]) -> BodyRelay {
        self.is_done = true;
        self.entries.remove(&self.entry);
        if !rest.is_empty() {
            self.entry.body.push(rest.into());
        }
        BodyRelay::new(Arc::clone(&self.entry.body))
    }

    /// Marks the body as complete.
    pub fn finish(mut self) -> Arc<StoredEntry<K>> {
        self.is_done = true;
        let (length, _) = self.entry.body.extent();
        let blocks = self.entry.body.finish();
        // Releases reserved room that is not needed.
        let charge = charge_of(&self.entry, length, blocks);
        let mut shard = self.entries.shard(self.entry.key.group);
        shard.charge(&self.entry, charge.min(self.charge));
        if let Some(disk) = &self.entries.disk
            && shard.charged(&self.entry).is_some()
        {
            disk.put(&self.entry, None);
        }
        drop(shard);
        Arc::clone(&self.entry)
    }

    fn charge_at_least(&mut self, length: u64, blocks: usize) -> Result<(), Full> {
        let charge = charge_of(&self.entry, length, blocks);
        if charge > self.charge {
            if !self.entries.shard(self.entry.key.group).charge(&self.entry, charge) {
                return Err(Full::NoRoom);
            }
            self.charge = charge;
        }
        Ok(())
    }
}

fn charge_of<K: StoredValue>(entry: &StoredEntry<K>, length: u64, blocks: usize) -> u64 {
    bytes_of(&entry.value) + length + (blocks * BLOCK_OVERHEAD) as u64
}

impl<K: StoredValue> Drop for BodyWriter<K> {
    fn drop(&mut self) {
        if !self.is_done {
            self.entries.remove(&self.entry);
            self.entry.body.break_off(false);
        }
    }
}

#[cfg(test)]
mod tests;

//! Stored entries in memory: within a number of bytes that counts everything they take, evicted by use, and never one for another's key.
//! Behind the memory there may be a [`Disk`].
//!
//! An entry is what somebody keeps (`K`) and a [`Body`], both shared: who has found one goes on reading it whatever becomes of it, and no
//! lock is held meanwhile. A body is put in as it comes, by a [`Filling`], and can be read at once. The store is in parts with a lock
//! each, held for one look or one change. All of a group are in one part, so that they can be taken out together.

mod body;
mod disk;
mod shard;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use body::BLOCK_OVERHEAD;
use disk::Purging;
use egret_clock::Timestamp;
use shard::Shard;

pub use body::{Block, Body, Next};
pub use disk::{Disk, DiskError, DiskEvent, DiskLimits, DiskStats, EntryFile, Loading, Lookup, Seal, Stop};

/// What is kept with a body.
pub trait Kept: Send + Sync + Sized + 'static {
    /// What is needed to read it back.
    type Context: Send + Sync + 'static;

    /// Bytes that it takes, its own size among them.
    fn bytes(&self) -> usize;

    /// What entries are purged by the beginning of.
    fn label(&self) -> &[u8];

    /// Its parts, to be kept outside of the process.
    fn save(&self) -> Vec<u8>;

    /// What [`save`](Self::save) has made; `None` where it was not that.
    fn load(saved: &[u8], context: &Self::Context) -> Option<Self>;
}

/// Where an entry is stored. Both are hashes that nobody can choose, keyed with a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryKey {
    /// What it is found by. Several may have the same.
    pub id: u128,
    /// What goes together.
    pub group: u128,
}

/// An entry.
#[derive(Debug)]
pub struct Entry<K> {
    /// Where it is stored.
    pub place: EntryKey,
    /// What is kept.
    pub kept: K,
    /// Its body.
    pub body: Arc<Body>,
    /// When it was put in.
    pub stored_at: Timestamp,
    /// Tells it from all others that are or were in the store, also those of former processes.
    number: u64,
    tags: Arc<[Box<str>]>,
    used: AtomicBool,
}

impl<K> Entry<K> {
    /// The same body with something else kept beside it. It is in no store.
    pub fn with(&self, kept: K) -> Arc<Self> {
        let Self { place, body, stored_at, tags, .. } = self;
        let (body, tags, used) = (Arc::clone(body), Arc::clone(tags), AtomicBool::new(false));
        Arc::new(Self { place: *place, kept, body, stored_at: *stored_at, number: 0, tags, used })
    }

    /// Notes that it was of use, so that it stays longer than those that were not. Takes no lock.
    pub fn touch(&self) {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }
}

/// Bounds of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryLimits {
    /// Bytes of all entries, with all that they take.
    pub bytes: u64,
    /// Bytes of one body.
    pub body_bytes: u64,
    /// Entries under one identity: of more, the oldest go.
    pub variants: usize,
}

impl Default for EntryLimits {
    fn default() -> Self {
        Self { bytes: 64 << 20, body_bytes: 1 << 20, variants: 16 }
    }
}

/// What an entry takes besides what is kept and its body: its slot with room to grow, two places in maps, itself and its body's state.
const ENTRY_OVERHEAD: usize = 512;
/// A part has room for so many of the largest bodies at least, so that one of them does not empty it.
const BODIES_IN_SHARD: u64 = 8;
const SHARDS_MAX: u64 = 16;
/// Bodies that had to go, and are still being read, may take as much as the store: beyond, nothing more is
/// stored or read back, since slow readers of many entries would have it all kept for them.
const ALIVE_PER_BYTE: u64 = 2;
/// Slots that a purge looks at under one lock.
const PURGE_BATCH: usize = 256;

/// Entries, shared by all who serve from them.
#[derive(Debug)]
pub struct Entries<K: Kept> {
    shards: Box<[Mutex<Shard<K>>]>,
    limits: EntryLimits,
    alive: Arc<AtomicU64>,
    /// Bytes of bodies that are in, and of those that had to go and are still being read or written.
    alive_max: u64,
    /// The number of the next entry.
    next: AtomicU64,
    /// Changed under the lock of a part, as that is, so that both agree on every group.
    disk: Option<Arc<Disk<K>>>,
}

/// Figures of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryStats {
    /// Entries that are in.
    pub entries: usize,
    /// Bytes that they are counted with.
    pub bytes: u64,
    /// Bytes of bodies that are in, or out and still being read.
    pub alive_bytes: u64,
    /// Entries that had to go for others.
    pub evicted: u64,
}

/// Which entries are purged.
#[derive(Debug, Clone, Copy)]
pub enum Purge<'a> {
    /// All.
    All,
    /// Those whose label this is.
    Label(&'a [u8]),
    /// Those whose label begins so.
    Prefix(&'a [u8]),
    /// Those with this tag.
    Tag(&'a str),
}

/// Why a body cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// It is longer than a body may be.
    TooLarge,
    /// Nothing can be evicted for it: all that is stored is still coming, or what had to go is still being
    /// read.
    NoRoom,
}

impl<K: Kept> Entries<K> {
    /// An empty store.
    pub fn new(limits: EntryLimits) -> Arc<Self> {
        Self::with_disk(limits, None)
    }

    /// One with that disk, whose [`serve`](Disk::serve) has to be called for it to be of use.
    pub fn with_disk(limits: EntryLimits, disk: Option<Arc<Disk<K>>>) -> Arc<Self> {
        let most = limits.bytes / (limits.body_bytes.max(1) * BODIES_IN_SHARD);
        let count =
            (1..=SHARDS_MAX).rev().find(|count| count.is_power_of_two() && *count <= most).unwrap_or(1);
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

    /// What is stored under an identity, newest first.
    pub fn find(&self, place: EntryKey, found: &mut impl Extend<Arc<Entry<K>>>) {
        found.extend(self.shard(place.group).find(place.id).filter(|entry| entry.place == place).cloned());
    }

    /// Puts in an entry whose body is going to come; of `expected` bytes, if that is known, for which there is room then.
    pub fn begin(
        self: &Arc<Self>,
        place: EntryKey,
        kept: K,
        tags: &Arc<[Box<str>]>,
        expected: Option<u64>,
        now: Timestamp,
    ) -> Result<Filling<K>, Full> {
        let expected = expected.unwrap_or(0);
        if expected > self.limits.body_bytes {
            return Err(Full::TooLarge);
        }
        if !self.may_add(expected) {
            return Err(Full::NoRoom);
        }
        let body = Arc::new(Body::new(Arc::clone(&self.alive)));
        let (used, tags) = (AtomicBool::new(false), Arc::clone(tags));
        let base = bytes_of(&kept);
        let number = self.number();
        let entry = Arc::new(Entry { place, kept, body, stored_at: now, number, tags, used });
        let mut shard = self.shard(place.group);
        let surplus: Vec<_> = shard.find(place.id).skip(self.limits.variants.max(1) - 1).cloned().collect();
        for other in surplus {
            shard.remove(&other);
            self.remove_from_disk(&[other.number]);
        }
        let charge = base + if expected > 0 { expected + BLOCK_OVERHEAD as u64 } else { 0 };
        if !shard.insert(Arc::clone(&entry), charge) {
            return Err(Full::NoRoom);
        }
        drop(shard);
        Ok(Filling { entries: Arc::clone(self), entry, charge, is_done: false })
    }

    /// Whether bodies may take so many bytes more, those among them that had to go and are still being read.
    fn may_add(&self, bytes: u64) -> bool {
        self.alive.load(Relaxed).saturating_add(bytes) <= self.alive_max
    }

    /// Puts `kept` in the place of what is kept with `entry`, with the same body. Nothing happens where that is no longer in, or not whole.
    pub fn update(&self, entry: &Arc<Entry<K>>, kept: K, now: Timestamp) -> Option<Arc<Entry<K>>> {
        entry.body.len()?;
        let mut shard = self.shard(entry.place.group);
        let charged = shard.charged(entry)?;
        let charge = (charged + bytes_of(&kept)).saturating_sub(bytes_of(&entry.kept));
        let (place, tags, used) = (entry.place, Arc::clone(&entry.tags), AtomicBool::new(true));
        let (body, number) = (Arc::clone(&entry.body), self.number());
        let updated = Arc::new(Entry { place, kept, body, stored_at: now, number, tags, used });
        shard.remove(entry);
        let is_in = shard.insert(Arc::clone(&updated), charge);
        match &self.disk {
            Some(disk) if is_in => disk.put(&updated, Some(entry.number)),
            _ => self.remove_from_disk(&[entry.number]),
        }
        is_in.then_some(updated)
    }

    /// Takes an entry out.
    pub fn remove(&self, entry: &Arc<Entry<K>>) -> bool {
        let mut shard = self.shard(entry.place.group);
        self.remove_from_disk(&[entry.number]);
        shard.remove(entry)
    }

    /// Takes out all of a group. Says how many there were.
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

    /// Has what is on the disk under an identity put into memory, if that is not there yet. After it has been waited for, or could be,
    /// what is not in memory is of no more use.
    pub fn look_up(&self, place: EntryKey) -> Lookup {
        let Some(disk) = &self.disk else { return Lookup::Nothing };
        let shard = self.shard(place.group);
        let seen: Vec<_> = shard.find(place.id).map(|entry| entry.number).collect();
        disk.look_up(place, &seen)
    }

    /// Takes out of the disk what is under an identity and not in memory: whoever has something newer could not look at it.
    pub fn remove_unseen(&self, place: EntryKey) {
        let Some(disk) = &self.disk else { return };
        let shard = self.shard(place.group);
        let seen: Vec<_> = shard.find(place.id).map(|entry| entry.number).collect();
        disk.remove_others(place.id, &seen);
    }

    /// Whether the entry with that number is in memory.
    fn has(&self, place: EntryKey, number: u64) -> bool {
        self.shard(place.group).find(place.id).any(|entry| entry.number == number)
    }

    /// Whether it is, and was of use lately.
    fn is_used(&self, place: EntryKey, number: u64) -> bool {
        self.shard(place.group).find(place.id).any(|entry| entry.number == number && entry.used.load(Relaxed))
    }

    /// Puts back an entry that has been read from `disk`, unless it has been removed there meanwhile. Says whether it is in.
    fn restore(&self, disk: &Disk<K>, entry: Arc<Entry<K>>) -> bool {
        let Some(length) = entry.body.len().filter(|length| *length <= self.limits.body_bytes) else {
            return false;
        };
        // It is among those that are alive.
        if !self.may_add(0) {
            return false;
        }
        let blocks = entry.body.blocks().map_or(0, <[Block]>::len);
        let charge = charge_of(&entry, length, blocks);
        let mut shard = self.shard(entry.place.group);
        disk.still_has(entry.number) && shard.insert(entry, charge)
    }

    /// Takes out what is meant. Says how many there were. Others get in between.
    pub fn purge(&self, purge: Purge<'_>) -> usize {
        let is_meant = |entry: &Entry<K>| match purge {
            Purge::All => true,
            Purge::Label(label) => entry.kept.label() == label,
            Purge::Prefix(prefix) => entry.kept.label().starts_with(prefix),
            Purge::Tag(tag) => entry.tags.iter().any(|other| &**other == tag),
        };
        // The disk goes first: what is being read from it is in memory by now, or will not be.
        let on_disk = self.disk.as_ref().map(|disk| disk.purge(purge, self.next.load(Relaxed)));
        let is_counted = |number: u64| on_disk.as_ref().is_some_and(|on_disk| on_disk.has(number));
        let mut removed = on_disk.as_ref().map_or(0, Purging::len);
        for shard in &self.shards {
            let (mut start, mut is_more) = (0, true);
            while is_more {
                let mut shard = lock(shard);
                let (gone, more) = shard.remove_among(start, PURGE_BATCH, &is_meant);
                // Others may have come meanwhile.
                self.remove_from_disk(&gone);
                drop(shard);
                removed += gone.iter().filter(|number| !is_counted(**number)).count();
                (start, is_more) = (start + PURGE_BATCH, more);
            }
        }
        removed
    }

    /// Figures, of one part after the other.
    pub fn stats(&self) -> EntryStats {
        let mut stats = EntryStats { alive_bytes: self.alive.load(Relaxed), ..EntryStats::default() };
        for shard in &self.shards {
            let shard = lock(shard);
            stats.entries += shard.len;
            stats.bytes += shard.bytes;
            stats.evicted += shard.evicted;
        }
        stats
    }

    fn shard(&self, group: u128) -> MutexGuard<'_, Shard<K>> {
        let at = usize::try_from(group % self.shards.len() as u128).unwrap_or_default();
        lock(&self.shards[at])
    }
}

fn lock<K>(shard: &Mutex<Shard<K>>) -> MutexGuard<'_, Shard<K>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bytes_of<K: Kept>(kept: &K) -> u64 {
    (ENTRY_OVERHEAD + kept.bytes()) as u64
}

/// An entry whose body is coming. Dropped before it is finished, the entry goes, and who reads it learns that it is broken.
#[derive(Debug)]
pub struct Filling<K: Kept> {
    entries: Arc<Entries<K>>,
    entry: Arc<Entry<K>>,
    /// What the entry is charged with.
    charge: u64,
    is_done: bool,
}

impl<K: Kept> Filling<K> {
    /// The entry, which others may have found already.
    pub fn entry(&self) -> &Arc<Entry<K>> {
        &self.entry
    }

    /// Adds what has come. Where there is no room for it, the entry is to be [given up](Self::give_up), or
    /// dropped.
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

    /// There is no room for what has come, which is `rest`: the entry goes, and who reads it learns that it
    /// will never be whole. Whoever has the body already finds `rest` behind it.
    pub fn give_up(mut self, rest: &[u8]) {
        self.is_done = true;
        self.entries.remove(&self.entry);
        if !rest.is_empty() {
            self.entry.body.push(rest.into());
        }
        self.entry.body.break_off(true);
    }

    /// All of it has come.
    pub fn finish(mut self) -> Arc<Entry<K>> {
        self.is_done = true;
        let (length, _) = self.entry.body.extent();
        let blocks = self.entry.body.finish();
        // What was kept free for it and is not needed is given back.
        let charge = charge_of(&self.entry, length, blocks);
        let mut shard = self.entries.shard(self.entry.place.group);
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
            if !self.entries.shard(self.entry.place.group).charge(&self.entry, charge) {
                return Err(Full::NoRoom);
            }
            self.charge = charge;
        }
        Ok(())
    }
}

fn charge_of<K: Kept>(entry: &Entry<K>, length: u64, blocks: usize) -> u64 {
    bytes_of(&entry.kept) + length + (blocks * BLOCK_OVERHEAD) as u64
}

impl<K: Kept> Drop for Filling<K> {
    fn drop(&mut self) {
        if !self.is_done {
            self.entries.remove(&self.entry);
            self.entry.body.break_off(false);
        }
    }
}

#[cfg(test)]
mod tests;

//! A shard of the store behind one lock: slots in linked lists by identity, group and age.
//!
//! Eviction is SIEVE: entries stay in order of arrival. A hand moves from the oldest to the newest entry,
//! spares each entry that was used since its last visit, and evicts the first one that was not.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::entry::{EntryKey, StoredEntry, StoredValue};

/// Marks the end of a list.
const NONE: u32 = u32::MAX;

/// The linked lists of slots.
#[derive(Debug, Clone, Copy)]
enum Thread {
    /// Slots with the same identity.
    Id,
    /// Slots of the same group.
    Group,
    /// All slots in order of arrival.
    Age,
}

/// The newest slot of each identity or group.
type Index = HashMap<u128, u32, BuildHasherDefault<Folded>>;

/// A hasher that folds the two halves of a key. That is enough because identities and groups are keyed
/// hashes, as [`EntryKey`] requires, and cannot be chosen by an attacker.
#[derive(Debug, Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the halves are folded")]
    fn write_u128(&mut self, hash: u128) {
        self.0 = (hash >> 64) as u64 ^ hash as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug, Clone, Copy)]
struct SlotLink {
    newer: u32,
    older: u32,
}

#[derive(Debug)]
struct ShardSlot<K> {
    entry: Arc<StoredEntry<K>>,
    /// Size that the slot is charged with.
    bytes: u64,
    links: [SlotLink; 3],
}

#[derive(Debug)]
pub(super) struct Shard<K> {
    slots: Vec<Option<ShardSlot<K>>>,
    free: Vec<u32>,
    ids: Index,
    groups: Index,
    newest: u32,
    oldest: u32,
    hand: u32,
    pub bytes: u64,
    pub bytes_max: u64,
    pub evicted: u64,
    pub len: usize,
}

impl<K: StoredValue> Shard<K> {
    pub fn new(bytes_max: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            ids: Index::default(),
            groups: Index::default(),
            newest: NONE,
            oldest: NONE,
            hand: NONE,
            bytes: 0,
            bytes_max,
            evicted: 0,
            len: 0,
        }
    }

    fn slot(&self, at: u32) -> Option<&ShardSlot<K>> {
        self.slots.get(at as usize)?.as_ref()
    }

    /// Iterates over a list from `at` on, newest first.
    fn along(&self, thread: Thread, mut at: u32) -> impl Iterator<Item = (u32, &ShardSlot<K>)> {
        std::iter::from_fn(move || {
            let (current, slot) = (at, self.slot(at)?);
            at = slot.links[thread as usize].older;
            Some((current, slot))
        })
    }

    /// Finds the entries under `id`, newest first.
    pub fn find(&self, id: u128) -> impl Iterator<Item = &Arc<StoredEntry<K>>> {
        let first = self.ids.get(&id).copied().unwrap_or(NONE);
        self.along(Thread::Id, first).map(|(_, slot)| &slot.entry)
    }

    /// Returns the slot of an entry.
    fn slot_of(&self, entry: &Arc<StoredEntry<K>>) -> Option<u32> {
        let first = self.ids.get(&entry.key.id).copied()?;
        self.along(Thread::Id, first).find(|(_, slot)| Arc::ptr_eq(&slot.entry, entry)).map(|(at, _)| at)
    }

    /// Adds an entry with a charge of `bytes`. Returns `false` if there is no room.
    pub fn insert(&mut self, entry: Arc<StoredEntry<K>>, bytes: u64) -> bool {
        if !self.make_room(bytes, NONE) {
            return false;
        }
        let EntryKey { id, group } = entry.key;
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(NONE)
        });
        let older = |index: &mut Index, key| index.insert(key, at).unwrap_or(NONE);
        let olders = [older(&mut self.ids, id), older(&mut self.groups, group), self.newest];
        self.slots[at as usize] =
            Some(ShardSlot { entry, bytes, links: olders.map(|older| SlotLink { newer: NONE, older }) });
        for (thread, older) in [Thread::Id, Thread::Group, Thread::Age].into_iter().zip(olders) {
            if let Some(Some(older)) = self.slots.get_mut(older as usize) {
                older.links[thread as usize].newer = at;
            }
        }
        self.newest = at;
        if self.oldest == NONE {
            self.oldest = at;
        }
        self.bytes += bytes;
        self.len += 1;
        true
    }

    /// Changes the charge of an entry to `bytes`. Returns `false` if there is no room; a removed entry needs
    /// none.
    pub fn charge(&mut self, entry: &Arc<StoredEntry<K>>, bytes: u64) -> bool {
        let Some(at) = self.slot_of(entry) else { return true };
        let before = self.slot(at).map_or(0, |slot| slot.bytes);
        if bytes > before && !self.make_room(bytes - before, at) {
            return false;
        }
        if let Some(Some(slot)) = self.slots.get_mut(at as usize) {
            slot.bytes = bytes;
        }
        self.bytes = self.bytes + bytes - before;
        true
    }

    /// Returns the charge of an entry.
    pub fn charged(&self, entry: &Arc<StoredEntry<K>>) -> Option<u64> {
        self.slot_of(entry).and_then(|at| self.slot(at)).map(|slot| slot.bytes)
    }

    /// Removes an entry, if it is in the shard.
    pub fn remove(&mut self, entry: &Arc<StoredEntry<K>>) -> bool {
        let slot = self.slot_of(entry);
        slot.is_some_and(|at| self.take(at))
    }

    /// Removes all entries of a group, and returns their numbers.
    pub fn remove_group(&mut self, group: u128) -> Vec<u64> {
        let mut removed = Vec::new();
        while let Some(at) = self.groups.get(&group).copied() {
            removed.extend(self.slot(at).map(|slot| slot.entry.number));
            self.take(at);
        }
        removed
    }

    /// Removes the matching entries among `count` slots from `start` on. Returns their numbers, and `true` if
    /// more slots follow.
    pub fn remove_among(
        &mut self,
        start: usize,
        count: usize,
        matches: &dyn Fn(&StoredEntry<K>) -> bool,
    ) -> (Vec<u64>, bool) {
        let end = (start + count).min(self.slots.len());
        let mut removed = Vec::new();
        for at in start..end {
            let matching = self.slots[at].as_ref().filter(|slot| matches(&slot.entry));
            if let (Some(slot), Ok(at)) = (matching, u32::try_from(at)) {
                removed.push(slot.entry.number);
                self.take(at);
            }
        }
        (removed, end < self.slots.len())
    }

    /// Evicts until `bytes` fit. Never evicts the slot `keep`, nor an entry whose body is still arriving,
    /// because other requests may be reading it.
    fn make_room(&mut self, bytes: u64, keep: u32) -> bool {
        if bytes > self.bytes_max {
            return false;
        }
        // Each entry is spared at most once.
        let mut looks = self.len * 2;
        while self.bytes + bytes > self.bytes_max {
            if looks == 0 || self.oldest == NONE {
                return false;
            }
            looks -= 1;
            let at = if self.slot(self.hand).is_some() { self.hand } else { self.oldest };
            let Some(slot) = self.slot(at) else { return false };
            let newer = slot.links[Thread::Age as usize].newer;
            let is_partial = slot.entry.body.len().is_none();
            let is_spared = at == keep || is_partial || slot.entry.used.swap(false, Relaxed);
            self.hand = newer;
            if !is_spared {
                self.take(at);
                self.evicted += 1;
            }
        }
        true
    }

    fn take(&mut self, at: u32) -> bool {
        let Some(slot) = self.slots.get_mut(at as usize).and_then(Option::take) else { return false };
        let EntryKey { id, group } = slot.entry.key;
        for (thread, SlotLink { newer, older }) in
            [Thread::Id, Thread::Group, Thread::Age].into_iter().zip(slot.links)
        {
            if let Some(Some(other)) = self.slots.get_mut(older as usize) {
                other.links[thread as usize].newer = newer;
            }
            if let Some(Some(other)) = self.slots.get_mut(newer as usize) {
                other.links[thread as usize].older = older;
                continue;
            }
            // It is the newest of its list.
            let map = match thread {
                Thread::Id => &mut self.ids,
                Thread::Group => &mut self.groups,
                Thread::Age => {
                    self.newest = older;
                    continue;
                }
            };
            let key = if matches!(thread, Thread::Id) { id } else { group };
            if older == NONE {
                map.remove(&key)
            } else {
                map.insert(key, older)
            };
        }
        let SlotLink { newer, .. } = slot.links[Thread::Age as usize];
        if self.oldest == at {
            self.oldest = newer;
        }
        if self.hand == at {
            self.hand = newer;
        }
        self.free.push(at);
        self.bytes -= slot.bytes;
        self.len -= 1;
        true
    }
}

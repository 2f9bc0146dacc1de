//! The index of a disk, in memory. Entries that are not in the index do not exist, whatever files there are.
//!
//! The numbers of entries increase with time, also across processes. Eviction is SIEVE, as in memory: a hand
//! moves from the oldest to the newest entry, spares each entry that was used since its last visit, and
//! evicts the first one that was not.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::super::entry::{EntryKey, Removal, StoredEntry};
use super::load::Load;
use super::stop::Stop;

/// Memory of a record: itself, three places in trees, and the allocator's overhead.
const RECORD_OVERHEAD: u64 = 384;
/// Maximum number of removals recorded during the scan. With more, all existing files are discarded.
const SCAN_REMOVALS_MAX: usize = 10_000;

/// An entry that is on disk, or waiting to be written.
#[derive(Debug)]
pub(super) struct KnownRecord {
    pub key: EntryKey,
    label: Box<[u8]>,
    tags: Arc<[Box<str>]>,
    /// Size of its file; 0 before it is written.
    bytes: u64,
    used: bool,
}

impl KnownRecord {
    pub fn new(key: EntryKey, label: &[u8], tags: &Arc<[Box<str>]>, bytes: u64) -> Self {
        Self { key, label: label.into(), tags: Arc::clone(tags), bytes, used: false }
    }

    fn is_in(&self, purge: &Removal) -> bool {
        purge.purge().is_some_and(|purge| purge.matches(&self.label, &self.tags))
    }

    /// Memory use, in bytes.
    fn own_bytes(&self) -> u64 {
        RECORD_OVERHEAD + self.label.len() as u64
    }
}

/// The state of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its files have not been scanned yet.
    Opening,
    /// It works.
    Open,
    /// It does not work.
    Closed,
}

/// Removals during the scan. They apply to all entries that the scan finds.
#[derive(Debug, Default)]
struct RemovalsDuringScan {
    ids: HashSet<u128>,
    groups: HashSet<u128>,
    purges: Vec<Removal>,
    is_all: bool,
}

impl RemovalsDuringScan {
    fn matches(&self, known: &KnownRecord) -> bool {
        self.is_all
            || self.ids.contains(&known.key.id)
            || self.groups.contains(&known.key.group)
            || self.purges.iter().any(|purge| known.is_in(purge))
    }

    fn is_empty(&self) -> bool {
        !self.is_all && self.ids.is_empty() && self.groups.is_empty() && self.purges.is_empty()
    }

    fn bound(&mut self) {
        if self.ids.len() + self.groups.len() + self.purges.len() > SCAN_REMOVALS_MAX {
            *self = Self { is_all: true, ..Self::default() };
        }
    }
}

/// The contents of a disk.
#[derive(Debug)]
pub(super) struct Index<K> {
    pub phase: Phase,
    records: BTreeMap<u64, KnownRecord>,
    ids: BTreeSet<(u128, u64)>,
    groups: BTreeSet<(u128, u64)>,
    /// Size of all files, including those to be deleted.
    pub bytes: u64,
    /// Memory of the records.
    pub own_bytes: u64,
    hand: u64,
    scan_removals: RemovalsDuringScan,
    /// Purges in progress: matching entries with a smaller number are not written any more.
    purging: Vec<(Removal, u64)>,
    /// Entries to write, with their size in memory.
    pub writes: VecDeque<(Arc<StoredEntry<K>>, u64)>,
    pub waiting_bytes: u64,
    /// Files to delete, with their size.
    pub to_delete: Vec<(u64, u64)>,
    pub loads: VecDeque<(EntryKey, Arc<Load>)>,
    pub loading: HashMap<u128, Arc<Load>>,
    pub stop: Option<Stop>,
}

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self {
            phase: Phase::Opening,
            records: BTreeMap::new(),
            ids: BTreeSet::new(),
            groups: BTreeSet::new(),
            bytes: 0,
            own_bytes: 0,
            hand: 0,
            scan_removals: RemovalsDuringScan::default(),
            purging: Vec::new(),
            writes: VecDeque::new(),
            waiting_bytes: 0,
            to_delete: Vec::new(),
            loads: VecDeque::new(),
            loading: HashMap::new(),
            stop: None,
        }
    }
}

impl<K> Index<K> {
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn has(&self, number: u64) -> bool {
        self.records.contains_key(&number)
    }

    /// Returns the numbers of the entries under an identity, oldest first.
    pub fn numbers(&self, id: u128) -> impl Iterator<Item = u64> + '_ {
        self.ids.range((id, 0)..=(id, u64::MAX)).map(|(_, number)| *number)
    }

    /// Adds an entry; beyond `variants` under its identity, the oldest are removed.
    pub fn insert(&mut self, number: u64, known: KnownRecord, variants: usize) {
        let key = known.key;
        self.own_bytes += known.own_bytes();
        self.bytes += known.bytes;
        self.ids.insert((key.id, number));
        self.groups.insert((key.group, number));
        self.records.insert(number, known);
        let count = self.numbers(key.id).count();
        let surplus: Vec<_> = self.numbers(key.id).take(count.saturating_sub(variants.max(1))).collect();
        for other in surplus {
            self.remove(other);
        }
    }

    /// Adds an entry that the scan has found. If it was removed meanwhile, its file is deleted.
    pub fn insert_found(&mut self, number: u64, known: KnownRecord, variants: usize) {
        if self.scan_removals.matches(&known) {
            self.bytes += known.bytes;
            self.to_delete.push((number, known.bytes));
        } else {
            self.insert(number, known, variants);
        }
    }

    /// Returns `true` if files may still contain removed entries.
    pub fn has_removals(&self) -> bool {
        !self.to_delete.is_empty() || !self.scan_removals.is_empty()
    }

    /// Ends the scan.
    pub fn open(&mut self) {
        self.scan_removals = RemovalsDuringScan::default();
        self.phase = Phase::Open;
    }

    /// Notes the size of a written entry. Returns `false` if the entry was removed.
    pub fn note_written(&mut self, number: u64, bytes: u64) -> bool {
        let Some(known) = self.records.get_mut(&number) else { return false };
        known.bytes = bytes;
        self.bytes += bytes;
        true
    }

    /// Marks an entry as used.
    pub fn touch(&mut self, number: u64) {
        if let Some(known) = self.records.get_mut(&number) {
            known.used = true;
        }
    }

    /// Removes an entry, if it exists, and queues its file for deletion.
    pub fn remove(&mut self, number: u64) -> bool {
        let Some(known) = self.records.remove(&number) else { return false };
        let EntryKey { id, group } = known.key;
        self.ids.remove(&(id, number));
        self.groups.remove(&(group, number));
        self.own_bytes -= known.own_bytes();
        self.to_delete.push((number, known.bytes));
        true
    }

    /// Removes the entries under an identity whose numbers are not in `seen`.
    pub fn remove_others(&mut self, id: u128, seen: &[u64]) {
        if self.phase == Phase::Opening {
            self.scan_removals.ids.insert(id);
            self.scan_removals.bound();
        }
        let others: Vec<_> = self.numbers(id).filter(|number| !seen.contains(number)).collect();
        for number in others {
            self.remove(number);
        }
    }

    /// Removes all entries of a group, and returns their numbers.
    pub fn remove_group(&mut self, group: u128) -> Vec<u64> {
        if self.phase == Phase::Opening {
            self.scan_removals.groups.insert(group);
            self.scan_removals.bound();
        }
        let range = (group, 0)..=(group, u64::MAX);
        let removed: Vec<_> = self.groups.range(range).map(|(_, number)| *number).collect();
        for number in &removed {
            self.remove(*number);
        }
        removed
    }

    /// Begins a purge. It applies to entries that the scan has not found yet and, until it ends, to new
    /// entries with numbers below `end`.
    pub fn begin_purge(&mut self, purge: &Removal, end: u64) {
        self.purging.push((purge.clone(), end));
        if self.phase == Phase::Opening && !self.scan_removals.purges.contains(purge) {
            self.scan_removals.purges.push(purge.clone());
            self.scan_removals.bound();
        }
    }

    /// Ends a purge, after memory was purged too.
    pub fn end_purge(&mut self, purge: &Removal, end: u64) {
        if let Some(at) = self.purging.iter().position(|(other, below)| other == purge && *below == end) {
            self.purging.swap_remove(at);
        }
    }

    /// Returns `true` if a purge in progress covers the entry.
    pub fn is_purged(&self, number: u64, known: &KnownRecord) -> bool {
        self.purging.iter().any(|(purge, end)| number < *end && known.is_in(purge))
    }

    /// Removes the matching entries among `count` entries from the number `start` on. Returns their numbers,
    /// and the number to continue from.
    pub fn purge(&mut self, purge: &Removal, start: u64, count: usize) -> (Vec<u64>, Option<u64>) {
        let batch = || self.records.range(start..).take(count);
        let last = batch().last().map(|(number, _)| *number);
        let matching: Vec<_> =
            batch().filter(|(_, known)| known.is_in(purge)).map(|(number, _)| *number).collect();
        for number in &matching {
            self.remove(*number);
        }
        (matching, last.and_then(|last| last.checked_add(1)))
    }

    /// Returns the entry at the hand, with `true` if it was used since the last visit, and moves the hand.
    pub fn next_victim(&mut self) -> Option<(u64, EntryKey, bool)> {
        let (number, known) = match self.records.range_mut(self.hand..).find(|(_, known)| known.bytes > 0) {
            Some(found) => found,
            None => self.records.iter_mut().find(|(_, known)| known.bytes > 0)?,
        };
        self.hand = number.saturating_add(1);
        Some((*number, known.key, std::mem::take(&mut known.used)))
    }

    /// Resets the index after it was closed. Purges in progress continue.
    pub fn reopen(&mut self) {
        let purging = std::mem::take(&mut self.purging);
        *self = Self { purging, ..Self::default() };
    }

    /// Clears the index, and returns the loads whose waiters must be woken.
    pub fn close(&mut self) -> Vec<Arc<Load>> {
        let loads = self.loading.drain().map(|(_, load)| load).collect();
        let purging = std::mem::take(&mut self.purging);
        *self = Self { phase: Phase::Closed, stop: self.stop, purging, ..Self::default() };
        loads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_survives_a_failure_of_the_disk() {
        let mut index = Index::<()>::default();
        let known = KnownRecord::new(EntryKey { id: 1, group: 1 }, b"label", &Arc::default(), 0);
        index.begin_purge(&Removal::All, 10);
        index.close();
        index.reopen();
        assert_eq!(index.phase, Phase::Opening);
        assert!(index.is_purged(9, &known) && !index.is_purged(10, &known));
        index.end_purge(&Removal::All, 10);
        assert!(!index.is_purged(9, &known));
    }
}

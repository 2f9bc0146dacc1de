//! What is on a disk, in memory: what is not in here is not there, whatever files there are.
//!
//! Entries have numbers that rise with time, also from one process to the next. Eviction is SIEVE, as in memory: a hand goes from the oldest
//! on, spares once what was of use since it was there last, and takes the first that was not.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::super::{Entry, EntryKey, Purge};
use super::{Load, Stop};

/// What a record takes: itself, three places in trees, and the allocator's share.
const RECORD_OVERHEAD: u64 = 384;
/// Of more removals before the files have been looked at, nothing is remembered but that there were many: then none of the files holds.
const EARLY_MAX: usize = 10_000;

/// An entry that is on the disk, or on its way there.
#[derive(Debug)]
pub(super) struct Known {
    pub place: EntryKey,
    label: Box<[u8]>,
    tags: Arc<[Box<str>]>,
    /// What its file takes; nothing before it is written.
    bytes: u64,
    used: bool,
}

impl Known {
    pub fn new(place: EntryKey, label: &[u8], tags: &Arc<[Box<str>]>, bytes: u64) -> Self {
        Self { place, label: label.into(), tags: Arc::clone(tags), bytes, used: false }
    }

    /// What it takes in memory.
    fn own_bytes(&self) -> u64 {
        RECORD_OVERHEAD + self.label.len() as u64
    }
}

/// How a disk stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has not yet been looked what is on it.
    Opening,
    /// It works.
    Open,
    /// It does not.
    Closed,
}

/// Removals from before it was known what is there: they hold for all that is found then.
#[derive(Debug, Default)]
struct Early {
    ids: HashSet<u128>,
    groups: HashSet<u128>,
    purges: Vec<OwnPurge>,
    is_all: bool,
}

/// A purge, as long as it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OwnPurge {
    All,
    Label(Box<[u8]>),
    Prefix(Box<[u8]>),
    Tag(Box<str>),
}

impl From<Purge<'_>> for OwnPurge {
    fn from(purge: Purge<'_>) -> Self {
        match purge {
            Purge::All => Self::All,
            Purge::Label(label) => Self::Label(label.into()),
            Purge::Prefix(prefix) => Self::Prefix(prefix.into()),
            Purge::Tag(tag) => Self::Tag(tag.into()),
        }
    }
}

impl OwnPurge {
    fn means(&self, known: &Known) -> bool {
        match self {
            Self::All => true,
            Self::Label(label) => known.label == *label,
            Self::Prefix(prefix) => known.label.starts_with(prefix),
            Self::Tag(tag) => known.tags.contains(tag),
        }
    }
}

impl Early {
    fn means(&self, known: &Known) -> bool {
        self.is_all
            || self.ids.contains(&known.place.id)
            || self.groups.contains(&known.place.group)
            || self.purges.iter().any(|purge| purge.means(known))
    }

    fn is_empty(&self) -> bool {
        !self.is_all && self.ids.is_empty() && self.groups.is_empty() && self.purges.is_empty()
    }

    fn bound(&mut self) {
        if self.ids.len() + self.groups.len() + self.purges.len() > EARLY_MAX {
            *self = Self { is_all: true, ..Self::default() };
        }
    }
}

/// What is on a disk.
#[derive(Debug)]
pub(super) struct Index<K> {
    pub phase: Phase,
    records: BTreeMap<u64, Known>,
    ids: BTreeSet<(u128, u64)>,
    groups: BTreeSet<(u128, u64)>,
    /// What files take, those among them that are still to be deleted.
    pub bytes: u64,
    /// What records take.
    pub own_bytes: u64,
    hand: u64,
    early: Early,
    /// Purges under way: what has a smaller number than this is not put on the disk any more.
    purging: Vec<(OwnPurge, u64)>,
    /// Those to be written, and the bytes that they hold in memory.
    pub writes: VecDeque<(Arc<Entry<K>>, u64)>,
    pub waiting_bytes: u64,
    /// Files to be deleted, with what they take.
    pub gone: Vec<(u64, u64)>,
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
            early: Early::default(),
            purging: Vec::new(),
            writes: VecDeque::new(),
            waiting_bytes: 0,
            gone: Vec::new(),
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

    /// The numbers of what is there under an identity, oldest first.
    pub fn numbers(&self, id: u128) -> impl Iterator<Item = u64> + '_ {
        self.ids.range((id, 0)..=(id, u64::MAX)).map(|(_, number)| *number)
    }

    /// Adds an entry; of more than `variants` under its identity, the oldest go.
    pub fn insert(&mut self, number: u64, known: Known, variants: usize) {
        let place = known.place;
        self.own_bytes += known.own_bytes();
        self.bytes += known.bytes;
        self.ids.insert((place.id, number));
        self.groups.insert((place.group, number));
        self.records.insert(number, known);
        let count = self.numbers(place.id).count();
        let surplus: Vec<_> = self.numbers(place.id).take(count.saturating_sub(variants.max(1))).collect();
        for other in surplus {
            self.remove(other);
        }
    }

    /// Adds what a file was found to hold, unless that has been removed meanwhile. Then the file is to be deleted.
    pub fn insert_found(&mut self, number: u64, known: Known, variants: usize) {
        if self.early.means(&known) {
            self.bytes += known.bytes;
            self.gone.push((number, known.bytes));
        } else {
            self.insert(number, known, variants);
        }
    }

    /// Whether files may still have what was removed.
    pub fn has_gone(&self) -> bool {
        !self.gone.is_empty() || !self.early.is_empty()
    }

    /// All files have been looked at.
    pub fn open(&mut self) {
        self.early = Early::default();
        self.phase = Phase::Open;
    }

    /// Notes that an entry takes so much on the disk. Says no where it is no longer wanted.
    pub fn note_written(&mut self, number: u64, bytes: u64) -> bool {
        let Some(known) = self.records.get_mut(&number) else { return false };
        known.bytes = bytes;
        self.bytes += bytes;
        true
    }

    /// Notes that an entry was of use.
    pub fn touch(&mut self, number: u64) {
        if let Some(known) = self.records.get_mut(&number) {
            known.used = true;
        }
    }

    /// Takes an entry out, if it is in; its file is to be deleted.
    pub fn remove(&mut self, number: u64) -> bool {
        let Some(known) = self.records.remove(&number) else { return false };
        let EntryKey { id, group } = known.place;
        self.ids.remove(&(id, number));
        self.groups.remove(&(group, number));
        self.own_bytes -= known.own_bytes();
        self.gone.push((number, known.bytes));
        true
    }

    /// Takes out what is under an identity and not among `seen`.
    pub fn remove_others(&mut self, id: u128, seen: &[u64]) {
        if self.phase == Phase::Opening {
            self.early.ids.insert(id);
            self.early.bound();
        }
        let others: Vec<_> = self.numbers(id).filter(|number| !seen.contains(number)).collect();
        for number in others {
            self.remove(number);
        }
    }

    /// Takes out all of a group. Says which.
    pub fn remove_group(&mut self, group: u128) -> Vec<u64> {
        if self.phase == Phase::Opening {
            self.early.groups.insert(group);
            self.early.bound();
        }
        let range = (group, 0)..=(group, u64::MAX);
        let removed: Vec<_> = self.groups.range(range).map(|(_, number)| *number).collect();
        for number in &removed {
            self.remove(*number);
        }
        removed
    }

    /// Has a purge hold for what has not been found yet, and, until it has ended, for what comes of the numbers below `end`.
    pub fn begin_purge(&mut self, purge: &OwnPurge, end: u64) {
        self.purging.push((purge.clone(), end));
        if self.phase == Phase::Opening && !self.early.purges.contains(purge) {
            self.early.purges.push(purge.clone());
            self.early.bound();
        }
    }

    /// It has ended in memory, too.
    pub fn end_purge(&mut self, purge: &OwnPurge, end: u64) {
        if let Some(at) = self.purging.iter().position(|(other, below)| other == purge && *below == end) {
            self.purging.swap_remove(at);
        }
    }

    /// Whether an entry is one that a purge under way takes out.
    pub fn is_purged(&self, number: u64, known: &Known) -> bool {
        self.purging.iter().any(|(purge, end)| number < *end && purge.means(known))
    }

    /// Takes out what is meant among `count` entries from the number `start` on. Says which, and where to go on.
    pub fn purge(&mut self, purge: &OwnPurge, start: u64, count: usize) -> (Vec<u64>, Option<u64>) {
        let batch = || self.records.range(start..).take(count);
        let last = batch().last().map(|(number, _)| *number);
        let meant: Vec<_> =
            batch().filter(|(_, known)| purge.means(known)).map(|(number, _)| *number).collect();
        for number in &meant {
            self.remove(*number);
        }
        (meant, last.and_then(|last| last.checked_add(1)))
    }

    /// The entry that the hand is at, and whether it was of use since it was there last. The hand goes on.
    pub fn next_victim(&mut self) -> Option<(u64, EntryKey, bool)> {
        let (number, known) = match self.records.range_mut(self.hand..).find(|(_, known)| known.bytes > 0) {
            Some(found) => found,
            None => self.records.iter_mut().find(|(_, known)| known.bytes > 0)?,
        };
        self.hand = number.saturating_add(1);
        Some((*number, known.place, std::mem::take(&mut known.used)))
    }

    /// Begins anew after it was closed. Purges that are under way since hold on.
    pub fn reopen(&mut self) {
        let purging = std::mem::take(&mut self.purging);
        *self = Self { purging, ..Self::default() };
    }

    /// Forgets everything, and has all who wait go on. Nothing is there any more.
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
    fn a_purge_under_way_holds_when_the_disk_fails_and_is_opened_again() {
        let mut index = Index::<()>::default();
        let known = Known::new(EntryKey { id: 1, group: 1 }, b"label", &Arc::default(), 0);
        index.begin_purge(&OwnPurge::All, 10);
        index.close();
        index.reopen();
        assert_eq!(index.phase, Phase::Opening);
        assert!(index.is_purged(9, &known) && !index.is_purged(10, &known));
        index.end_purge(&OwnPurge::All, 10);
        assert!(!index.is_purged(9, &known));
    }
}

//! The groups of a quota, up to a maximum; the least recently used one is replaced by a new one.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, OnceLock};

use egret_clock::Timestamp;
use parking_lot::Mutex;

use super::backing::Backing;
use super::group::Group;
use super::group_kind::GroupKind;
use super::meter::Rule;

/// Maximum length of a name. Longer ones are replaced by a digest, so groups with long names need no more
/// memory.
const NAME_BYTES_MAX: usize = 128;
/// Maximum number of groups examined to find one to replace, beginning with the least recently used. Later
/// ones were used more recently, so their allowance is full no sooner.
const LOOKS_MAX: usize = 8;
/// Marks the end of the list.
const NONE: usize = usize::MAX;

/// A bounded set of groups, by name.
#[derive(Debug)]
pub(super) struct Groups {
    table: Mutex<GroupTable>,
    /// Counts the calls of the groups that did not fit.
    overflow: Arc<Group>,
    /// Set by the first use, or before it by an earlier process.
    hash: OnceLock<NameHash>,
    backing: Backing,
}

#[derive(Debug)]
struct GroupTable {
    indexes: HashMap<Arc<[u8]>, usize>,
    entries: Vec<GroupSlot>,
    /// Most and least recently used.
    newest: usize,
    oldest: usize,
    /// `true` while the overflow group may count units.
    is_overflowing: bool,
    /// `true` if another process counts.
    is_handed_over: bool,
}

/// The keys of a hash that nobody can predict.
#[derive(Debug, Clone, Copy)]
struct NameHash([u64; 4]);

impl NameHash {
    fn random() -> Self {
        let random = RandomState::new();
        Self([0_u8, 1, 2, 3].map(|number| random.hash_one(number)))
    }

    /// Returns two independent hashes of a name.
    #[expect(deprecated, reason = "the successor of this hash cannot be given the keys of another process")]
    fn of(self, name: &[u8]) -> [u64; 2] {
        let [first, second, third, fourth] = self.0;
        [(first, second), (third, fourth)].map(|(one, other)| {
            let mut hasher = std::hash::SipHasher::new_with_keys(one, other);
            name.hash(&mut hasher);
            hasher.finish()
        })
    }
}

#[derive(Debug)]
struct GroupSlot {
    name: Arc<[u8]>,
    group: Arc<Group>,
    newer: usize,
    older: usize,
}

impl Groups {
    pub(super) fn new(rule: Rule, backing: &Backing) -> Self {
        let table = GroupTable {
            indexes: HashMap::new(),
            entries: Vec::new(),
            newest: NONE,
            oldest: NONE,
            is_overflowing: false,
            is_handed_over: false,
        };
        let backed = backing.group(GroupKind::Overflow, b"", &rule);
        Self {
            table: Mutex::new(table),
            overflow: Arc::new(Group::new(b"", rule, backed)),
            hash: OnceLock::new(),
            backing: backing.clone(),
        }
    }

    /// Returns the group with that name, or the overflow group if the table is full. New groups are added
    /// only while the overflow group counts nothing. Otherwise a name counted there would start from zero,
    /// and a client could exceed the limit by inventing names.
    pub(super) fn get(&self, name: &[u8], rule: &Rule, groups_max: usize, now: Timestamp) -> Arc<Group> {
        let digest;
        let is_long = name.len() > NAME_BYTES_MAX;
        let name = if is_long {
            digest = self.digest(name);
            digest.as_slice()
        } else {
            name
        };
        let mut table = self.table.lock();
        if let Some(index) = table.indexes.get(name).copied() {
            table.touch(index);
            return table.entries[index].group.clone();
        }
        if table.is_overflowing && !is_forgettable(&self.overflow, now) {
            return self.overflow.clone();
        }
        table.is_overflowing = false;
        let is_handed_over = table.is_handed_over;
        let make = || {
            let backed = self.backing.group(GroupKind::Named, name, rule);
            let group = Group::new(name, rule.clone(), backed);
            if is_handed_over {
                group.hand_over(GroupKind::Named, now, 0);
            }
            Arc::new(group)
        };
        // Most digests are different in the next process, so a store cannot keep the counts.
        let has_room = !is_long || !self.backing.is_lasting() || self.backing.digest(b"").is_some();
        if has_room && let Some(group) = table.add(name, groups_max, now, make) {
            return group;
        }
        table.is_overflowing = true;
        self.overflow.clone()
    }

    /// Returns a replacement for a long name. The hash has a new key in each process, or the key of the
    /// cluster, so an attacker cannot search for collisions.
    fn digest(&self, name: &[u8]) -> Vec<u8> {
        if let Some(digest) = self.backing.digest(name) {
            return format!("#{digest}").into_bytes();
        }
        let [high, low] = self.name_hash().of(name);
        format!("#{high:016x}{low:016x}").into_bytes()
    }

    /// Returns a word that identifies a name without showing it.
    pub(super) fn disguise(&self, name: &[u8]) -> String {
        format!("#{:016x}", self.name_hash().of(name)[0])
    }

    fn name_hash(&self) -> NameHash {
        *self.hash.get_or_init(NameHash::random)
    }

    /// The keys of the hash that replaces long names.
    pub(super) fn keys(&self) -> [u64; 4] {
        self.name_hash().0
    }

    /// Replaces long names as an earlier process did, whose hash has these keys. Has no effect once this
    /// process has replaced one.
    pub(super) fn set_keys(&self, keys: [u64; 4]) {
        let _ = self.hash.set(NameHash(keys));
    }

    /// Makes every new group one whose counts were handed over.
    pub(super) fn hand_over(&self) {
        self.table.lock().is_handed_over = true;
    }

    /// Returns the overflow group, which is in use from now on.
    pub(super) fn use_overflow(&self) -> Arc<Group> {
        self.table.lock().is_overflowing = true;
        self.overflow.clone()
    }

    /// Returns up to `max` groups, the most recently used first, and the number of all groups. The overflow
    /// group is not included.
    pub(super) fn list(&self, max: usize) -> (Vec<Arc<Group>>, usize) {
        let table = self.table.lock();
        let mut groups = Vec::new();
        let mut index = table.newest;
        while index != NONE && groups.len() < max {
            groups.push(table.entries[index].group.clone());
            index = table.entries[index].older;
        }
        (groups, table.entries.len())
    }

    /// Calls `work` for every group, including the overflow group.
    pub(super) fn each(&self, mut work: impl FnMut(GroupKind, &Group)) {
        let table = self.table.lock();
        for entry in &table.entries {
            work(GroupKind::Named, &entry.group);
        }
        work(GroupKind::Overflow, &self.overflow);
    }

    /// Returns the overflow group, if it is in use.
    pub(super) fn overflow(&self) -> Option<&Arc<Group>> {
        self.table.lock().is_overflowing.then_some(&self.overflow)
    }
}

/// Returns `true` if a group equals a new one, and no call holds it.
fn is_forgettable(group: &Arc<Group>, now: Timestamp) -> bool {
    if Arc::strong_count(group) > 1 {
        return false;
    }
    let mut state = group.lock();
    state.advance(now);
    state.is_new()
}

impl GroupTable {
    /// Adds a new group, in a free index or in that of a group that can be forgotten.
    fn add(
        &mut self,
        name: &[u8],
        groups_max: usize,
        now: Timestamp,
        make: impl FnOnce() -> Arc<Group>,
    ) -> Option<Arc<Group>> {
        let index = if self.entries.len() < groups_max { self.entries.len() } else { self.forgettable(now)? };
        let group = make();
        let name: Arc<[u8]> = name.into();
        let entry = GroupSlot { name: name.clone(), group: group.clone(), newer: NONE, older: NONE };
        if index == self.entries.len() {
            self.entries.push(entry);
        } else {
            self.unlink(index);
            self.indexes.remove(&self.entries[index].name);
            self.entries[index] = entry;
        }
        self.indexes.insert(name, index);
        self.link_newest(index);
        Some(group)
    }

    fn forgettable(&self, now: Timestamp) -> Option<usize> {
        let mut index = self.oldest;
        for _ in 0..LOOKS_MAX {
            let entry = self.entries.get(index)?;
            if is_forgettable(&entry.group, now) {
                return Some(index);
            }
            index = entry.newer;
        }
        None
    }

    fn touch(&mut self, index: usize) {
        if index != self.newest {
            self.unlink(index);
            self.link_newest(index);
        }
    }

    fn unlink(&mut self, index: usize) {
        let GroupSlot { newer, older, .. } = self.entries[index];
        match self.entries.get_mut(newer) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, index: usize) {
        let before = std::mem::replace(&mut self.newest, index);
        self.entries[index].older = before;
        self.entries[index].newer = NONE;
        match self.entries.get_mut(before) {
            Some(entry) => entry.newer = index,
            None => self.oldest = index,
        }
    }
}

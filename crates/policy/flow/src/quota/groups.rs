//! The groups of a quota: as many as are allowed, the least recently used making room for new ones.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use egret_clock::Timestamp;

use super::group::Group;
use super::lease::{Backing, GroupKind};
use super::meter::Rule;

/// Longer names are told apart by a digest, so that groups with long names need no more memory.
const NAME_BYTES_MAX: usize = 128;
/// Groups that are looked at to find one that can make room, beginning with the least recently used. Those after it are used more
/// recently, and come back to their full allowance no sooner.
const LOOKS_MAX: usize = 8;
/// What stands for no neighbour.
const NONE: usize = usize::MAX;

/// Groups that come and go, by name.
#[derive(Debug)]
pub(super) struct Groups {
    table: Mutex<Table>,
    /// Counts the calls of groups that found no room.
    overflow: Arc<Group>,
    hashers: [RandomState; 2],
    backing: Option<Backing>,
}

#[derive(Debug)]
struct Table {
    places: HashMap<Arc<[u8]>, usize>,
    entries: Vec<Entry>,
    /// Most and least recently used.
    newest: usize,
    oldest: usize,
    /// The overflow group may still count units.
    is_overflowing: bool,
}

#[derive(Debug)]
struct Entry {
    name: Arc<[u8]>,
    group: Arc<Group>,
    newer: usize,
    older: usize,
}

impl Groups {
    pub(super) fn new(rule: Rule, backing: Option<&Backing>) -> Self {
        let table = Table {
            places: HashMap::new(),
            entries: Vec::new(),
            newest: NONE,
            oldest: NONE,
            is_overflowing: false,
        };
        let lease = backing.map(|backing| backing.lease(GroupKind::Overflow, b""));
        Self {
            table: Mutex::new(table),
            overflow: Arc::new(Group::new(b"", rule, lease)),
            hashers: [RandomState::new(), RandomState::new()],
            backing: backing.cloned(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group of that name, or the overflow group if the table is full. A table takes new groups only while its overflow group counts
    /// nothing: otherwise a name counted there would start from zero, and a client could pass the limit by inventing names.
    pub(super) fn get(&self, name: &[u8], rule: &Rule, groups_max: usize, now: Timestamp) -> Arc<Group> {
        let digest;
        let is_long = name.len() > NAME_BYTES_MAX;
        let name = if is_long {
            digest = self.digest(name);
            digest.as_slice()
        } else {
            name
        };
        let mut table = self.table();
        if let Some(place) = table.places.get(name).copied() {
            table.touch(place);
            return table.entries[place].group.clone();
        }
        if table.is_overflowing && !is_forgettable(&self.overflow, now) {
            return self.overflow.clone();
        }
        table.is_overflowing = false;
        let make = || {
            let lease = self.backing.as_ref().map(|backing| backing.lease(GroupKind::Named, name));
            Arc::new(Group::new(name, rule.clone(), lease))
        };
        // A digest means nothing to the next process, so that a store cannot keep what it counted.
        let has_room = self.backing.is_none() || !is_long;
        if has_room && let Some(group) = table.add(name, groups_max, now, make) {
            return group;
        }
        table.is_overflowing = true;
        self.overflow.clone()
    }

    /// A name that stands for a long one. Its hashes are keyed anew in each process, so that nobody can look for two that meet.
    fn digest(&self, name: &[u8]) -> Vec<u8> {
        let hashes = self.hashers.each_ref().map(|hasher| hasher.hash_one(name));
        format!("#{:016x}{:016x}", hashes[0], hashes[1]).into_bytes()
    }

    /// A word that tells a name apart without showing it.
    pub(super) fn disguise(&self, name: &[u8]) -> String {
        format!("#{:016x}", self.hashers[0].hash_one(name))
    }

    /// All groups, the most recently used first, the overflow group last.
    pub(super) fn list(&self, most: usize) -> (Vec<Arc<Group>>, usize) {
        let table = self.table();
        let mut groups = Vec::new();
        let mut place = table.newest;
        while place != NONE && groups.len() < most {
            groups.push(table.entries[place].group.clone());
            place = table.entries[place].older;
        }
        (groups, table.entries.len())
    }

    /// Does something to every group, those without room included.
    pub(super) fn each(&self, mut work: impl FnMut(GroupKind, &Group)) {
        let table = self.table();
        for entry in &table.entries {
            work(GroupKind::Named, &entry.group);
        }
        work(GroupKind::Overflow, &self.overflow);
    }

    /// The group of all that found no room, if it has been used.
    pub(super) fn overflow(&self) -> Option<&Arc<Group>> {
        self.table().is_overflowing.then_some(&self.overflow)
    }
}

/// Whether a group is as a new one would be, and nobody holds it who could still change that.
fn is_forgettable(group: &Arc<Group>, now: Timestamp) -> bool {
    if Arc::strong_count(group) > 1 {
        return false;
    }
    let mut state = group.lock();
    state.advance(now);
    state.is_new()
}

impl Table {
    /// A new group, in a place of its own or in that of a group that can be forgotten.
    fn add(
        &mut self,
        name: &[u8],
        groups_max: usize,
        now: Timestamp,
        make: impl FnOnce() -> Arc<Group>,
    ) -> Option<Arc<Group>> {
        let place = if self.entries.len() < groups_max { self.entries.len() } else { self.forgettable(now)? };
        let group = make();
        let name: Arc<[u8]> = name.into();
        let entry = Entry { name: name.clone(), group: group.clone(), newer: NONE, older: NONE };
        if place == self.entries.len() {
            self.entries.push(entry);
        } else {
            self.unlink(place);
            self.places.remove(&self.entries[place].name);
            self.entries[place] = entry;
        }
        self.places.insert(name, place);
        self.link_newest(place);
        Some(group)
    }

    fn forgettable(&self, now: Timestamp) -> Option<usize> {
        let mut place = self.oldest;
        for _ in 0..LOOKS_MAX {
            let entry = self.entries.get(place)?;
            if is_forgettable(&entry.group, now) {
                return Some(place);
            }
            place = entry.newer;
        }
        None
    }

    fn touch(&mut self, place: usize) {
        if place != self.newest {
            self.unlink(place);
            self.link_newest(place);
        }
    }

    fn unlink(&mut self, place: usize) {
        let Entry { newer, older, .. } = self.entries[place];
        match self.entries.get_mut(newer) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, place: usize) {
        let before = std::mem::replace(&mut self.newest, place);
        self.entries[place].older = before;
        self.entries[place].newer = NONE;
        match self.entries.get_mut(before) {
            Some(entry) => entry.newer = place,
            None => self.oldest = place,
        }
    }
}

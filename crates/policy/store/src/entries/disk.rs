//! A disk behind the memory: complete entries are written to it too, and read back when they have left
//! memory, or after a restart.
//!
//! Threads that serve requests perform no file I/O. An index in memory holds the state ([`index`]); changes
//! of it are effective at once. One thread, in [`Disk::serve`], updates the files ([`files`]): it deletes,
//! reads and writes, in this order and in turns. It adds an entry to memory only if the index still has it
//! after reading, so removed entries do not come back.
//!
//! If a request does not wait for a load, the loaded entry may be older than one that has arrived since;
//! [`Entries::remove_unloaded`](super::Entries::remove_unloaded) removes it then.

mod files;
mod index;
mod load;
#[cfg(feature = "simulated")]
mod simulated;
mod status;
mod stop;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use egret_clock::Moment;
use files::{Directory, FileRecord, Sealed};
use index::{Index, KnownRecord, Phase};
use load::Load;
use status::DiskCounts;

use super::body::StoredBody;
use super::entry::{EntryKey, Purge, Removal, StoredEntry, StoredValue};

pub use files::{EntryFile, Seal};
pub use load::Loading;
#[cfg(feature = "simulated")]
pub use simulated::SteppedDisk;
pub use status::{DiskError, DiskEvent, DiskStats};
pub use stop::Stop;

/// Maximum time until removals are durable on disk.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// Number of files to delete before the next load gets its turn.
const DELETES_IN_TURN: usize = 64;
/// Number of entries that a purge examines under one lock.
const PURGE_BATCH: usize = 4096;
/// Maximum memory of the index, as a fraction of the disk's size.
const INDEX_PART: u64 = 16;
/// The number of an entry contains the number of the run, shifted by this many bits.
const RUN_SHIFT: u32 = 40;
/// Maximum number of runs; never reached in practice.
const RUNS_MAX: u32 = 1 << 23;

/// Limits of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskLimits {
    /// Maximum size of all files, in bytes.
    pub bytes: u64,
    /// Maximum size of entries waiting in memory to be written, in bytes. Above it, new entries are not
    /// written.
    pub waiting_bytes: u64,
    /// Maximum number of entries under one identity; beyond it, the oldest are removed.
    pub variants: usize,
}

/// The result of a lookup on disk, for entries that are not in memory.
#[derive(Debug)]
pub enum DiskLookup {
    /// There is none.
    Nothing,
    /// There is one in memory by now, which the caller has not found there.
    InMemory,
    /// There is one, which is being loaded.
    Loading(Loading),
    /// Unknown: the disk is still being scanned.
    Unknown,
}

/// The memory in front of a disk.
pub trait Memory<K: StoredValue> {
    /// Returns an empty body, which counts for the memory that bodies may take.
    fn new_body(&self) -> StoredBody;

    /// Returns `true` if the entry with that number is in memory.
    fn has(&self, key: EntryKey, number: u64) -> bool;

    /// Returns `true` if the entry with that number is in memory and was used recently.
    fn is_used(&self, key: EntryKey, number: u64) -> bool;

    /// Adds an entry that was read from `disk`, unless it was removed there meanwhile. Returns `true` if it
    /// was added.
    fn restore(&self, disk: &Disk<K>, entry: Arc<StoredEntry<K>>) -> bool;
}

/// A disk for entries.
pub struct Disk<K: StoredValue> {
    directory: PathBuf,
    seal: Seal,
    /// Generation number: how often the directory has been opened.
    run: u32,
    context: K::Context,
    limits: DiskLimits,
    /// The current limit of its files, in bytes.
    bytes_max: AtomicU64,
    index: Mutex<Index<K>>,
    work: Condvar,
    counts: DiskCounts,
}

impl<K: StoredValue> fmt::Debug for Disk<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl<K: StoredValue> Disk<K> {
    /// Creates a disk in `directory`, which is not touched before [`serve`](Self::serve). Existing files are
    /// used if their fingerprint equals that of `seal`; their secret is used then. They are not used if
    /// another disk of this process still `has` the directory.
    pub fn new(
        directory: &Path,
        seal: Seal,
        has: bool,
        context: K::Context,
        limits: DiskLimits,
    ) -> Arc<Self> {
        let (seal, run) = match Sealed::read(directory) {
            Sealed::By(found, run) if !has && found.fingerprint == seal.fingerprint && run < RUNS_MAX => {
                (found, run + 1)
            }
            _ => (seal, 1),
        };
        Arc::new(Self {
            directory: directory.to_owned(),
            seal,
            run,
            context,
            limits,
            bytes_max: AtomicU64::new(limits.bytes),
            index: Mutex::default(),
            work: Condvar::new(),
            counts: DiskCounts::default(),
        })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The secret for keys, with which existing entries can be found.
    pub fn secret(&self) -> &[u8; 32] {
        &self.seal.secret
    }

    /// Maximum size of entries waiting in memory to be written.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.limits.waiting_bytes
    }

    /// Changes the limit of the files.
    pub fn set_bytes_max(&self, bytes: u64) {
        self.bytes_max.store(bytes, Relaxed);
        let _index = self.lock();
        self.work.notify_one();
    }

    /// Makes [`serve`](Self::serve) return.
    pub fn stop(&self, stop: Stop) {
        self.lock().stop = Some(stop);
        self.work.notify_one();
    }

    /// Returns statistics.
    pub fn stats(&self) -> DiskStats {
        let DiskCounts { loads, writes, evicted, skipped, dropped } = &self.counts;
        let index = self.lock();
        DiskStats {
            is_open: index.phase == Phase::Open,
            entries: index.len(),
            bytes: index.bytes,
            loads: loads.load(Relaxed),
            writes: writes.load(Relaxed),
            evicted: evicted.load(Relaxed),
            skipped: skipped.load(Relaxed),
            dropped: dropped.load(Relaxed),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Index<K>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the first entry of this run.
    pub(super) fn first_number(&self) -> u64 {
        u64::from(self.run) << RUN_SHIFT
    }

    /// Queues a complete entry to be written, in key of the entry with the number `old` if that is given.
    pub(super) fn put(&self, entry: &Arc<StoredEntry<K>>, old: Option<u64>) {
        let mut index = self.lock();
        if let Some(old) = old {
            index.remove(old);
        }
        let bytes = entry.value.bytes() as u64 + entry.body.len().unwrap_or_default();
        if index.phase == Phase::Closed {
            return;
        }
        let known = KnownRecord::new(entry.key, entry.value.label(), &entry.tags, 0);
        if index.is_purged(entry.number, &known) {
            return;
        }
        if index.waiting_bytes + bytes > self.limits.waiting_bytes {
            self.counts.skipped.fetch_add(1, Relaxed);
        } else {
            index.insert(entry.number, known, self.limits.variants);
            index.waiting_bytes += bytes;
            index.writes.push_back((Arc::clone(entry), bytes));
        }
        self.work.notify_one();
    }

    /// Removes entries.
    pub(super) fn remove(&self, numbers: &[u64]) {
        if numbers.is_empty() {
            return;
        }
        let mut index = self.lock();
        let removed = numbers.iter().filter(|number| index.remove(**number)).count();
        if removed > 0 {
            self.work.notify_one();
        }
    }

    /// Removes all entries of a group. Returns their number, including those with the numbers in `others`.
    pub(super) fn remove_group(&self, group: u128, others: &[u64]) -> usize {
        let removed = self.lock().remove_group(group);
        self.work.notify_one();
        others.iter().filter(|number| removed.binary_search(number).is_err()).count() + removed.len()
    }

    /// Removes the entries under an identity whose numbers are not in `seen`.
    pub(super) fn remove_others(&self, id: u128, seen: &[u64]) {
        self.lock().remove_others(id, seen);
        self.work.notify_one();
    }

    /// Removes the matching entries, and returns their numbers, in order. Other threads can add entries in
    /// between, except with numbers below `end` until the purge has ended: such an entry may become complete,
    /// and be evicted from memory before the purge reaches it there.
    pub(super) fn purge(&self, purge: Purge<'_>, end: u64) -> Purging<'_, K> {
        let purge = Removal::from(purge);
        self.lock().begin_purge(&purge, end);
        let (mut removed, mut next) = (Vec::new(), Some(0));
        while let Some(start) = next {
            let (numbers, after) = self.lock().purge(&purge, start, PURGE_BATCH);
            removed.extend(numbers);
            next = after;
        }
        self.work.notify_one();
        Purging { disk: self, purge, end, removed }
    }

    /// Starts to load the entries under an identity, unless `seen` already has all of them.
    pub(super) fn look_up(&self, key: EntryKey, seen: &[u64]) -> DiskLookup {
        let mut index = self.lock();
        match index.phase {
            Phase::Opening => return DiskLookup::Unknown,
            Phase::Closed => return DiskLookup::Nothing,
            Phase::Open => {}
        }
        if index.numbers(key.id).all(|number| seen.contains(&number)) {
            return DiskLookup::Nothing;
        }
        if let Some(load) = index.loading.get(&key.id) {
            return DiskLookup::Loading(Loading::new(load));
        }
        let load = Arc::new(Load::default());
        let loading = Loading::new(&load);
        index.loading.insert(key.id, Arc::clone(&load));
        index.loads.push_back((key, load));
        self.work.notify_one();
        DiskLookup::Loading(loading)
    }

    /// Returns `true` if the entry is still there, and marks it as used.
    pub(super) fn still_has(&self, number: u64) -> bool {
        let mut index = self.lock();
        index.touch(number);
        index.has(number)
    }

    /// Applies the changes of `memory` to the files until it is stopped. Blocks, so it needs its own thread.
    /// If it returns an error, no entries remain on the disk until it is called again.
    pub fn serve(&self, memory: &dyn Memory<K>, report: &dyn Fn(DiskEvent)) -> Result<(), DiskError> {
        let closing = Closing(self);
        let directory = self.enter()?;
        match self.work(memory, &directory, report) {
            Ok(Stop::Keep(_)) => Ok(()),
            Ok(Stop::Delete) => {
                drop(closing);
                directory.destroy().map_err(DiskError::Io)
            }
            Err(error) => {
                drop(closing);
                // Later removals are not recorded, so no file may remain. The first error is the one to
                // report.
                let _ = directory.clear();
                Err(error.into())
            }
        }
    }

    /// Opens the directory.
    fn enter(&self) -> Result<Directory, DiskError> {
        let mut index = self.lock();
        if index.phase == Phase::Closed {
            index.reopen();
        }
        drop(index);
        Directory::open(&self.directory)
    }

    fn work(
        &self,
        memory: &dyn Memory<K>,
        directory: &Directory,
        report: &dyn Fn(DiskEvent),
    ) -> io::Result<Stop> {
        self.claim(directory, report)?;
        self.scan(directory, report)?;
        let mut removed_at = None;
        loop {
            if let Some(stop) = self.turn(memory, directory, &mut removed_at)? {
                return Ok(stop);
            }
        }
    }

    /// Does a part of each kind of pending work, so no kind blocks another; waits until there is work.
    /// `removed_at` is the time of the first removal that is not durable yet. Returns the request to stop
    /// once it was handled.
    fn turn(
        &self,
        memory: &dyn Memory<K>,
        directory: &Directory,
        removed_at: &mut Option<Moment>,
    ) -> io::Result<Option<Stop>> {
        if let Some(stop) = self.stopped() {
            self.finish(directory)?;
            return Ok(Some(stop));
        }
        self.wait(*removed_at);
        if self.delete_files(directory, DELETES_IN_TURN)? {
            removed_at.get_or_insert_with(Moment::now);
        }
        for (key, load) in self.take_loads() {
            self.load(memory, directory, key)?;
            self.lock().loading.remove(&key.id);
            load.finish();
        }
        if let Some(entry) = self.next_write() {
            self.write(memory, directory, &entry)?;
        }
        self.make_room(memory, directory, 0)?;
        if removed_at.is_some_and(|at| Moment::now().since(at) >= SYNC_INTERVAL) {
            directory.sync()?;
            *removed_at = None;
        }
        Ok(None)
    }

    /// Prepares the directory for this disk: unchanged from the last run, or empty.
    fn claim(&self, directory: &Directory, report: &dyn Fn(DiskEvent)) -> io::Result<()> {
        let found = Sealed::read(&self.directory);
        if !matches!(found, Sealed::By(seal, run) if seal == self.seal && run + 1 == self.run) {
            directory.clear()?;
            match found {
                Sealed::Damaged => report(DiskEvent::Damaged),
                Sealed::By(..) => report(DiskEvent::Outdated),
                Sealed::Not => {}
            }
        }
        directory.seal(&self.seal, self.run)
    }

    /// Scans the existing files.
    fn scan(&self, directory: &Directory, report: &dyn Fn(DiskEvent)) -> io::Result<()> {
        let mut tags: Arc<[Box<str>]> = Arc::default();
        for number in directory.numbers()? {
            let record = directory.read_head(number)?.filter(|_| number < self.first_number());
            let found = record.and_then(|record| Some((K::load(&record.value, &self.context)?, record)));
            let Some((value, record)) = found else {
                directory.delete(number)?;
                self.counts.dropped.fetch_add(1, Relaxed);
                continue;
            };
            if *record.tags != *tags {
                tags = record.tags.clone().into();
            }
            let known = KnownRecord::new(record.key, value.label(), &tags, record.bytes());
            let mut index = self.lock();
            index.insert_found(number, known, self.limits.variants);
            // Without any changes yet, all files can stay as they are.
            let is_idle = index.writes.is_empty() && !index.has_removals();
            if index.stop.is_some_and(|stop| is_idle || stop.is_due()) {
                return Ok(());
            }
        }
        let mut index = self.lock();
        index.open();
        let (entries, dropped) = (index.len(), self.counts.dropped.load(Relaxed));
        drop(index);
        report(DiskEvent::Open { entries, dropped });
        Ok(())
    }

    /// Returns the request to stop, if it must be handled now.
    fn stopped(&self) -> Option<Stop> {
        let index = self.lock();
        let is_done = index.writes.is_empty() && index.to_delete.is_empty();
        index.stop.filter(|stop| is_done || stop.is_due())
    }

    /// Ensures that removed entries do not come back.
    fn finish(&self, directory: &Directory) -> io::Result<()> {
        // There may be too many files to delete in time.
        if self.lock().has_removals() { directory.unseal() } else { directory.sync() }
    }

    /// Waits until there is work.
    fn wait(&self, removed_at: Option<Moment>) {
        let mut index = self.lock();
        loop {
            let left = removed_at.map(|at| SYNC_INTERVAL.saturating_sub(Moment::now().since(at)));
            if left == Some(Duration::ZERO) || self.has_work(&index) {
                return;
            }
            index = match left {
                Some(left) => self.work.wait_timeout(index, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.work.wait(index).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Returns `true` if there is something to do at once.
    fn has_work(&self, index: &Index<K>) -> bool {
        let is_idle = index.to_delete.is_empty() && index.loads.is_empty() && index.writes.is_empty();
        !is_idle || index.stop.is_some() || index.bytes > self.bytes_max.load(Relaxed)
    }

    fn take_loads(&self) -> Vec<(EntryKey, Arc<Load>)> {
        self.lock().loads.drain(..).collect()
    }

    /// Returns the next entry to write. Pending deletions have precedence, to make room.
    fn next_write(&self) -> Option<Arc<StoredEntry<K>>> {
        let mut index = self.lock();
        let (entry, bytes) = if index.to_delete.is_empty() { index.writes.pop_front() } else { None }?;
        index.waiting_bytes -= bytes;
        Some(entry)
    }

    /// Deletes files of removed entries, up to `max`. Returns `true` if there were any.
    fn delete_files(&self, directory: &Directory, max: usize) -> io::Result<bool> {
        let deleted: Vec<_> = {
            let mut index = self.lock();
            let from = index.to_delete.len().saturating_sub(max);
            index.to_delete.drain(from..).collect()
        };
        for (number, _) in &deleted {
            directory.delete(*number)?;
        }
        let bytes: u64 = deleted.iter().map(|(_, bytes)| bytes).sum();
        self.lock().bytes -= bytes;
        Ok(!deleted.is_empty())
    }

    /// Loads the entries under an identity into memory.
    fn load(&self, memory: &dyn Memory<K>, directory: &Directory, key: EntryKey) -> io::Result<()> {
        let wanted: Vec<_> = {
            let index = self.lock();
            let queued = |number| index.writes.iter().find(|(entry, _)| entry.number == number);
            let numbers = index.numbers(key.id);
            numbers.map(|number| (number, queued(number).map(|(entry, _)| Arc::clone(entry)))).collect()
        };
        let mut has_loaded = false;
        for (number, queued) in wanted {
            if memory.has(key, number) {
                continue;
            }
            let entry = match queued {
                Some(entry) => Some(entry),
                None => self.read(memory, directory, key, number)?,
            };
            let is_in = entry.is_some_and(|entry| memory.restore(self, entry));
            has_loaded |= is_in;
            if !is_in {
                // It cannot be read, or memory has no room for it: no request should wait for it again.
                self.remove(&[number]);
            }
        }
        self.counts.loads.fetch_add(u64::from(has_loaded), Relaxed);
        Ok(())
    }

    fn read(
        &self,
        memory: &dyn Memory<K>,
        directory: &Directory,
        key: EntryKey,
        number: u64,
    ) -> io::Result<Option<Arc<StoredEntry<K>>>> {
        let read = directory.read(number)?.filter(|(record, _)| record.key == key);
        let entry = read.and_then(|(record, blocks)| {
            let value = K::load(&record.value, &self.context)?;
            let body = Arc::new(memory.new_body());
            for block in blocks {
                body.push(block);
            }
            body.finish();
            let (stored_at, tags) = (record.stored_at, record.tags.into());
            let used = AtomicBool::new(true);
            Some(Arc::new(StoredEntry { key, value, body, stored_at, number, tags, used }))
        });
        // Entries that were removed meanwhile do not count as damaged.
        if entry.is_none() && self.lock().has(number) {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
        Ok(entry)
    }

    fn write(&self, memory: &dyn Memory<K>, directory: &Directory, entry: &StoredEntry<K>) -> io::Result<()> {
        let StoredEntry { key, value, body, stored_at, number, tags, .. } = entry;
        if !self.lock().has(*number) {
            return Ok(());
        }
        let record = FileRecord::new(*number, *key, *stored_at, tags, value.save(), body);
        let is_in = match &record {
            Some(record) => self.make_room(memory, directory, record.bytes())?,
            None => false,
        };
        let Some(record) = record.filter(|_| is_in) else {
            self.counts.skipped.fetch_add(1, Relaxed);
            self.remove(&[*number]);
            return Ok(());
        };
        if self.lock().note_written(*number, record.bytes()) {
            directory.write(&record, body)?;
            self.counts.writes.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Evicts until files and index are within their limits with `bytes` more. Returns `false` if that is
    /// impossible.
    fn make_room(&self, memory: &dyn Memory<K>, directory: &Directory, bytes: u64) -> io::Result<bool> {
        let bytes_max = self.bytes_max.load(Relaxed);
        if bytes > bytes_max {
            return Ok(false);
        }
        let mut spared = 0;
        loop {
            self.delete_files(directory, usize::MAX)?;
            let victim = {
                let mut index = self.lock();
                if index.bytes + bytes <= bytes_max && index.own_bytes <= bytes_max / INDEX_PART {
                    return Ok(true);
                }
                let may_spare = spared < index.len() * 2;
                index.next_victim().map(|victim| (victim, may_spare))
            };
            let Some(((number, key, used), may_spare)) = victim else { return Ok(false) };
            if may_spare && (used || memory.is_used(key, number)) {
                spared += 1;
                continue;
            }
            if self.lock().remove(number) {
                self.counts.evicted.fetch_add(1, Relaxed);
            }
        }
    }
}

/// A purge that has finished on disk and continues in memory. It ends when this is dropped.
pub(super) struct Purging<'a, K: StoredValue> {
    disk: &'a Disk<K>,
    purge: Removal,
    end: u64,
    removed: Vec<u64>,
}

impl<K: StoredValue> Purging<'_, K> {
    /// Number of entries that were on disk.
    pub fn len(&self) -> usize {
        self.removed.len()
    }

    /// Returns `true` if the entry with that number was on disk.
    pub fn has(&self, number: u64) -> bool {
        self.removed.binary_search(&number).is_ok()
    }
}

impl<K: StoredValue> Drop for Purging<'_, K> {
    fn drop(&mut self) {
        self.disk.lock().end_purge(&self.purge, self.end);
    }
}

/// Closes a disk when its thread ends, for any reason.
struct Closing<'a, K: StoredValue>(&'a Disk<K>);

impl<K: StoredValue> Drop for Closing<'_, K> {
    fn drop(&mut self) {
        let loads = self.0.lock().close();
        for load in loads {
            load.finish();
        }
    }
}

#[cfg(test)]
mod tests;

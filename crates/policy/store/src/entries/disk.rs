//! A disk behind the memory: what is whole is written there too, and read back when it is no longer in memory, or after a restart.
//!
//! Whoever has a request under way never waits for a file. An index in memory says what is there ([`index`]); changes of it hold at once.
//! One thread, in [`Disk::serve`], follows with the files ([`files`]): it deletes, reads, writes, in this order and by turns. What it reads
//! is put into memory only if the index still has it then, so that nothing removed comes back.
//!
//! An entry whose load was not waited for may be older than what has come since; [`Entries::remove_unseen`] takes it out then.

mod files;
mod index;
mod load;

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::body::Body;
use super::{Entries, Entry, EntryKey, Kept, Purge};
use egret_clock::Moment;
use files::{Directory, OpenError, Record, Sealed};
use index::{Index, Known, OwnPurge, Phase};
use load::Load;

pub use files::{EntryFile, Seal};
pub use load::Loading;

/// Within this time it is on the disk that an entry is gone.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// Files that are deleted before the next load has its turn.
const DELETES_IN_TURN: usize = 64;
/// Entries that a purge looks at under one lock.
const PURGE_BATCH: usize = 4096;
/// The index takes at most this part of the disk's size in memory.
const INDEX_PART: u64 = 16;
/// Numbers of entries have the number of the run above so many bits.
const RUN_SHIFT: u32 = 40;
/// More runs than there will be.
const RUNS_MAX: u32 = 1 << 23;

/// Bounds of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskLimits {
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of entries that wait in memory to be written. Those that come when there are more are not written.
    pub waiting_bytes: u64,
    /// Entries under one identity: of more, the oldest go.
    pub variants: usize,
}

/// How a disk is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// What waits is written before this moment; all stays.
    Keep(Moment),
    /// All is deleted.
    Delete,
}

/// What a disk has to say while it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskEvent {
    /// What was there was of no use any more, and is deleted: it was stored under another config.
    Outdated,
    /// The same, since it could not be told what it was.
    Damaged,
    /// It is known what is there: so many entries, and files that were none and are deleted.
    Open {
        /// Entries.
        entries: usize,
        /// Files that were cut short or changed.
        dropped: u64,
    },
}

/// Why a disk no longer works. What was there is deleted, as far as that can be done.
#[derive(Debug)]
pub enum DiskError {
    /// Another process has it.
    InUse,
    /// It cannot be read or written.
    Io(io::Error),
}

impl From<io::Error> for DiskError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str("another process has it: give each gateway a `data_dir` of its own"),
            Self::Io(error) => {
                let hint = match error.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                        "; make room there, or lower `disk.size`"
                    }
                    ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                        "; Egret's user must be able to write there, or set `disk.directory`"
                    }
                    _ => "",
                };
                write!(f, "{error}{hint}")
            }
        }
    }
}

impl std::error::Error for DiskError {}

/// Figures of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskStats {
    /// Whether it is known what is there, and it works.
    pub is_open: bool,
    /// Entries that are there, or on their way there.
    pub entries: usize,
    /// Bytes that their files take.
    pub bytes: u64,
    /// How often something was read back into memory.
    pub loads: u64,
    /// Entries that were written.
    pub writes: u64,
    /// Entries that had to go for others.
    pub evicted: u64,
    /// Entries that were not written, since too many waited for it or they are too large.
    pub skipped: u64,
    /// Files that could not be read back, and are deleted.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Counts {
    loads: AtomicU64,
    writes: AtomicU64,
    evicted: AtomicU64,
    skipped: AtomicU64,
    dropped: AtomicU64,
}

/// What a disk has of an identity that is not in memory.
#[derive(Debug)]
pub enum Lookup {
    /// Nothing.
    Nothing,
    /// Something, which is on its way.
    Loading(Loading),
    /// That is not known yet.
    Unknown,
}

/// A disk for entries.
pub struct Disk<K: Kept> {
    directory: PathBuf,
    seal: Seal,
    /// The how manieth time it is that the directory is opened.
    run: u32,
    context: K::Context,
    limits: DiskLimits,
    /// What its files may take now.
    bytes_max: AtomicU64,
    index: Mutex<Index<K>>,
    work: Condvar,
    counts: Counts,
}

impl<K: Kept> fmt::Debug for Disk<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl<K: Kept> Disk<K> {
    /// A disk in `directory`, which is not touched before [`serve`](Self::serve). What is there is of use if its fingerprint is
    /// that of `seal`, and then its secret is taken; unless somebody else in this process `has` the directory still.
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
            counts: Counts::default(),
        })
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The secret that keys are to be made with, so that what is there is found.
    pub fn secret(&self) -> &[u8; 32] {
        &self.seal.secret
    }

    /// What may wait in memory to be written.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.limits.waiting_bytes
    }

    /// Has its files take at most so many bytes from now on.
    pub fn set_bytes_max(&self, bytes: u64) {
        self.bytes_max.store(bytes, Relaxed);
        let _index = self.lock();
        self.work.notify_one();
    }

    /// Has [`serve`](Self::serve) end.
    pub fn stop(&self, stop: Stop) {
        self.lock().stop = Some(stop);
        self.work.notify_one();
    }

    /// Figures.
    pub fn stats(&self) -> DiskStats {
        let Counts { loads, writes, evicted, skipped, dropped } = &self.counts;
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

    /// Has a whole entry written, in the place of the one with the number `old` if that is given.
    pub(super) fn put(&self, entry: &Arc<Entry<K>>, old: Option<u64>) {
        let mut index = self.lock();
        if let Some(old) = old {
            index.remove(old);
        }
        let bytes = entry.kept.bytes() as u64 + entry.body.len().unwrap_or_default();
        if index.phase == Phase::Closed {
            return;
        }
        let known = Known::new(entry.place, entry.kept.label(), &entry.tags, 0);
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

    /// Takes entries out.
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

    /// Takes out all of a group, and says how many there were, those with `others` as numbers among them.
    pub(super) fn remove_group(&self, group: u128, others: &[u64]) -> usize {
        let removed = self.lock().remove_group(group);
        self.work.notify_one();
        others.iter().filter(|number| removed.binary_search(number).is_err()).count() + removed.len()
    }

    /// Takes out what is under an identity and is not among `seen`.
    pub(super) fn remove_others(&self, id: u128, seen: &[u64]) {
        self.lock().remove_others(id, seen);
        self.work.notify_one();
    }

    /// Takes out what is meant. Says which, in order. Others get in between, but none of the numbers below `end`, until the purge has ended:
    /// they may have become whole, and be evicted from memory before they could be taken out there.
    pub(super) fn purge(&self, purge: Purge<'_>, end: u64) -> Purging<'_, K> {
        let purge = OwnPurge::from(purge);
        self.lock().begin_purge(&purge, end);
        let (mut removed, mut next) = (Vec::new(), Some(0));
        while let Some(start) = next {
            let (gone, after) = self.lock().purge(&purge, start, PURGE_BATCH);
            removed.extend(gone);
            next = after;
        }
        self.work.notify_one();
        Purging { disk: self, purge, end, removed }
    }

    /// Has what is under an identity put into memory, where all that is there yet is `seen`.
    pub(super) fn look_up(&self, place: EntryKey, seen: &[u64]) -> Lookup {
        let mut index = self.lock();
        match index.phase {
            Phase::Opening => return Lookup::Unknown,
            Phase::Closed => return Lookup::Nothing,
            Phase::Open => {}
        }
        if index.numbers(place.id).all(|number| seen.contains(&number)) {
            return Lookup::Nothing;
        }
        if let Some(load) = index.loading.get(&place.id) {
            return Lookup::Loading(Loading::new(load));
        }
        let load = Arc::new(Load::default());
        let loading = Loading::new(&load);
        index.loading.insert(place.id, Arc::clone(&load));
        index.loads.push_back((place, load));
        self.work.notify_one();
        Lookup::Loading(loading)
    }

    /// Whether an entry is still there; then it counts as used.
    pub(super) fn still_has(&self, number: u64) -> bool {
        let mut index = self.lock();
        index.touch(number);
        index.has(number)
    }

    /// Follows with the files what becomes of `entries`, until it is told to stop. Blocks, for a thread of its own. Where it ends otherwise
    /// there is nothing on the disk any more, until it is called again.
    pub fn serve(&self, entries: &Entries<K>, tell: &dyn Fn(DiskEvent)) -> Result<(), DiskError> {
        let closing = Closing(self);
        {
            let mut index = self.lock();
            if index.phase == Phase::Closed {
                index.reopen();
            }
        }
        let directory = Directory::open(&self.directory).map_err(|error| match error {
            OpenError::InUse => DiskError::InUse,
            OpenError::Io(error) => DiskError::Io(error),
        })?;
        match self.work(entries, &directory, tell) {
            Ok(Stop::Keep(_)) => Ok(()),
            Ok(Stop::Delete) => {
                drop(closing);
                directory.destroy().map_err(DiskError::Io)
            }
            Err(error) => {
                drop(closing);
                // What is removed from now on is not noted, so that nothing may stay. The first error is the one to tell.
                let _ = directory.clear();
                Err(error.into())
            }
        }
    }

    fn work(
        &self,
        entries: &Entries<K>,
        directory: &Directory,
        tell: &dyn Fn(DiskEvent),
    ) -> io::Result<Stop> {
        self.take(directory, tell)?;
        self.look_through(directory, tell)?;
        let mut removed_at = None;
        loop {
            if let Some(stop) = self.turn(entries, directory, &mut removed_at)? {
                return Ok(stop);
            }
        }
    }

    /// Does some of what is to be done, in turns, so that nothing waits for all of something else; waits until there is something.
    /// `removed_at` is since when it is not on the disk that something is gone. Says how it was told to stop when it has.
    fn turn(
        &self,
        entries: &Entries<K>,
        directory: &Directory,
        removed_at: &mut Option<Moment>,
    ) -> io::Result<Option<Stop>> {
        if let Some(stop) = self.stopped() {
            self.finish(directory)?;
            return Ok(Some(stop));
        }
        self.wait(*removed_at);
        if self.delete_gone(directory, DELETES_IN_TURN)? {
            removed_at.get_or_insert_with(Moment::now);
        }
        for (place, load) in self.take_loads() {
            self.load(entries, directory, place)?;
            self.lock().loading.remove(&place.id);
            load.finish();
        }
        if let Some(entry) = self.next_write() {
            self.write(entries, directory, &entry)?;
        }
        self.make_room(entries, directory, 0)?;
        if removed_at.is_some_and(|at| Moment::now().since(at) >= SYNC_INTERVAL) {
            directory.sync()?;
            *removed_at = None;
        }
        Ok(None)
    }

    /// Has the directory be this disk's: as it was left, or empty.
    fn take(&self, directory: &Directory, tell: &dyn Fn(DiskEvent)) -> io::Result<()> {
        let found = Sealed::read(&self.directory);
        if !matches!(found, Sealed::By(seal, run) if seal == self.seal && run + 1 == self.run) {
            directory.clear()?;
            match found {
                Sealed::Damaged => tell(DiskEvent::Damaged),
                Sealed::By(..) => tell(DiskEvent::Outdated),
                Sealed::Not => {}
            }
        }
        directory.seal(&self.seal, self.run)
    }

    /// Finds out what is there.
    fn look_through(&self, directory: &Directory, tell: &dyn Fn(DiskEvent)) -> io::Result<()> {
        let mut tags: Arc<[Box<str>]> = Arc::default();
        for number in directory.numbers()? {
            let record = directory.read_head(number)?.filter(|_| number < self.first_number());
            let found = record.and_then(|record| Some((K::load(&record.kept, &self.context)?, record)));
            let Some((kept, record)) = found else {
                directory.delete(number)?;
                self.counts.dropped.fetch_add(1, Relaxed);
                continue;
            };
            if *record.tags != *tags {
                tags = record.tags.clone().into();
            }
            let known = Known::new(record.place, kept.label(), &tags, record.bytes());
            let mut index = self.lock();
            index.insert_found(number, known, self.limits.variants);
            // Where nothing has happened yet, all can be left as it is.
            let is_idle = index.writes.is_empty() && !index.has_gone();
            if index.stop.is_some_and(|stop| is_idle || stop.is_due()) {
                return Ok(());
            }
        }
        let mut index = self.lock();
        index.open();
        let (entries, dropped) = (index.len(), self.counts.dropped.load(Relaxed));
        drop(index);
        tell(DiskEvent::Open { entries, dropped });
        Ok(())
    }

    /// How it is to stop, if it is to stop now.
    fn stopped(&self) -> Option<Stop> {
        let index = self.lock();
        let is_done = index.writes.is_empty() && index.gone.is_empty();
        index.stop.filter(|stop| is_done || stop.is_due())
    }

    /// Has nothing come back that is gone.
    fn finish(&self, directory: &Directory) -> io::Result<()> {
        // Too many to delete them all in time.
        if self.lock().has_gone() { directory.unseal() } else { directory.sync() }
    }

    /// Waits until there is something to be done.
    fn wait(&self, removed_at: Option<Moment>) {
        let mut index = self.lock();
        loop {
            let left = removed_at.map(|at| SYNC_INTERVAL.saturating_sub(Moment::now().since(at)));
            let has_work = !(index.gone.is_empty() && index.loads.is_empty() && index.writes.is_empty());
            let is_over = index.bytes > self.bytes_max.load(Relaxed);
            if has_work || is_over || index.stop.is_some() || left == Some(Duration::ZERO) {
                return;
            }
            index = match left {
                Some(left) => self.work.wait_timeout(index, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.work.wait(index).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn take_loads(&self) -> Vec<(EntryKey, Arc<Load>)> {
        self.lock().loads.drain(..).collect()
    }

    /// What is to be written next. What is to go goes first, so that there is room.
    fn next_write(&self) -> Option<Arc<Entry<K>>> {
        let mut index = self.lock();
        let (entry, bytes) = if index.gone.is_empty() { index.writes.pop_front() } else { None }?;
        index.waiting_bytes -= bytes;
        Some(entry)
    }

    /// Deletes files of what is gone, at most so many. Says whether there were any.
    fn delete_gone(&self, directory: &Directory, most: usize) -> io::Result<bool> {
        let gone: Vec<_> = {
            let mut index = self.lock();
            let from = index.gone.len().saturating_sub(most);
            index.gone.drain(from..).collect()
        };
        for (number, _) in &gone {
            directory.delete(*number)?;
        }
        let bytes: u64 = gone.iter().map(|(_, bytes)| bytes).sum();
        self.lock().bytes -= bytes;
        Ok(!gone.is_empty())
    }

    /// Puts into memory what is under an identity.
    fn load(&self, entries: &Entries<K>, directory: &Directory, place: EntryKey) -> io::Result<()> {
        let wanted: Vec<_> = {
            let index = self.lock();
            let queued = |number| index.writes.iter().find(|(entry, _)| entry.number == number);
            let numbers = index.numbers(place.id);
            numbers.map(|number| (number, queued(number).map(|(entry, _)| Arc::clone(entry)))).collect()
        };
        let mut has_loaded = false;
        for (number, queued) in wanted {
            if entries.has(place, number) {
                continue;
            }
            let entry = match queued {
                Some(entry) => Some(entry),
                None => self.read(entries, directory, place, number)?,
            };
            let is_in = entry.is_some_and(|entry| entries.restore(self, entry));
            has_loaded |= is_in;
            if !is_in {
                // It cannot be read, or there is no room for it in memory: nobody should wait for it again.
                self.remove(&[number]);
            }
        }
        self.counts.loads.fetch_add(u64::from(has_loaded), Relaxed);
        Ok(())
    }

    fn read(
        &self,
        entries: &Entries<K>,
        directory: &Directory,
        place: EntryKey,
        number: u64,
    ) -> io::Result<Option<Arc<Entry<K>>>> {
        let read = directory.read(number)?.filter(|(record, _)| record.place == place);
        let entry = read.and_then(|(record, blocks)| {
            let kept = K::load(&record.kept, &self.context)?;
            let body = Arc::new(Body::new(Arc::clone(&entries.alive)));
            for block in blocks {
                body.push(block);
            }
            body.finish();
            let (stored_at, tags) = (record.stored_at, record.tags.into());
            let used = AtomicBool::new(true);
            Some(Arc::new(Entry { place, kept, body, stored_at, number, tags, used }))
        });
        // Those that were removed meanwhile are not damaged.
        if entry.is_none() && self.lock().has(number) {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
        Ok(entry)
    }

    fn write(&self, entries: &Entries<K>, directory: &Directory, entry: &Entry<K>) -> io::Result<()> {
        let Entry { place, kept, body, stored_at, number, tags, .. } = entry;
        if !self.lock().has(*number) {
            return Ok(());
        }
        let record = Record::new(*number, *place, *stored_at, tags, kept.save(), body);
        let is_in = match &record {
            Some(record) => self.make_room(entries, directory, record.bytes())?,
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

    /// Evicts until files and index are within their bounds with `bytes` more. Says no where they cannot be.
    fn make_room(&self, entries: &Entries<K>, directory: &Directory, bytes: u64) -> io::Result<bool> {
        let bytes_max = self.bytes_max.load(Relaxed);
        if bytes > bytes_max {
            return Ok(false);
        }
        let mut spared = 0;
        loop {
            self.delete_gone(directory, usize::MAX)?;
            let victim = {
                let mut index = self.lock();
                if index.bytes + bytes <= bytes_max && index.own_bytes <= bytes_max / INDEX_PART {
                    return Ok(true);
                }
                let may_spare = spared < index.len() * 2;
                index.next_victim().map(|victim| (victim, may_spare))
            };
            let Some(((number, place, used), may_spare)) = victim else { return Ok(false) };
            if may_spare && (used || entries.is_used(place, number)) {
                spared += 1;
                continue;
            }
            if self.lock().remove(number) {
                self.counts.evicted.fetch_add(1, Relaxed);
            }
        }
    }
}

/// A purge that has taken out what is on the disk, and goes on in memory. Dropped, it has ended.
pub(super) struct Purging<'a, K: Kept> {
    disk: &'a Disk<K>,
    purge: OwnPurge,
    end: u64,
    removed: Vec<u64>,
}

impl<K: Kept> Purging<'_, K> {
    /// How many there were on the disk.
    pub fn len(&self) -> usize {
        self.removed.len()
    }

    /// Whether that one was on the disk.
    pub fn has(&self, number: u64) -> bool {
        self.removed.binary_search(&number).is_ok()
    }
}

impl<K: Kept> Drop for Purging<'_, K> {
    fn drop(&mut self) {
        self.disk.lock().end_purge(&self.purge, self.end);
    }
}

impl Stop {
    /// Whether nothing more is waited for.
    fn is_due(self) -> bool {
        match self {
            Self::Keep(until) => Moment::now() >= until,
            Self::Delete => true,
        }
    }
}

/// Closes a disk when its thread ends, however it does.
struct Closing<'a, K: Kept>(&'a Disk<K>);

impl<K: Kept> Drop for Closing<'_, K> {
    fn drop(&mut self) {
        let loads = self.0.lock().close();
        for load in loads {
            load.finish();
        }
    }
}

#[cfg(test)]
mod tests;

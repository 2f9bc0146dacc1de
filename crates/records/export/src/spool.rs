//! A disk queue of limited size for records that a collector cannot take at the moment.
//!
//! Records are stored in order in segments, which are files named by a number. Each record follows its length
//! and its checksum, both 32 bits in little endian. Records torn by a crash fail the checksum and are
//! skipped. A segment is deleted when all its records are taken, or when it is the oldest and there is no
//! space. After a restart, records already taken from the oldest segment can reappear.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use egret_files::private_directory;
use egret_files::system::{self as fs, File, FileExt as _};

use crate::disk::{self, Disk};

/// Length and checksum.
const HEADER_BYTES: usize = 8;
/// Number of segments that the limit is divided into. When the limit is reached, one segment is lost.
const SEGMENTS: u64 = 8;
/// Maximum size of a segment, which limits the records that reappear after a restart.
const SEGMENT_BYTES_MAX: u64 = 1 << 20;

/// The position after a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    segment: u64,
    offset: u64,
}

/// Records, each with the position after it.
pub type Records = Vec<(Vec<u8>, Position)>;

#[derive(Debug)]
struct Segment {
    number: u64,
    file: File,
    bytes: u64,
    records: u64,
}

/// A queue of records on disk.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    disk: Box<dyn Disk>,
    bytes_max: u64,
    segments: VecDeque<Segment>,
    /// Number of the next segment.
    next: u64,
    /// `true` if the last segment may grow.
    is_growing: bool,
    /// The part of the first segment that was taken.
    taken: Taken,
    /// Keeps the directory locked for this process.
    _lock: File,
}

#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    bytes: u64,
    records: u64,
}

/// A spool, and the result of its recovery.
#[derive(Debug)]
pub struct Opened {
    /// The spool.
    pub spool: Spool,
    /// Number of bytes torn by a crash.
    pub damaged_bytes: u64,
}

impl Spool {
    /// Opens the spool in `directory`, or creates it. Fails while another process, or an exporter that is
    /// being closed, has it open.
    pub fn open(directory: &Path, bytes_max: u64, disk: Box<dyn Disk>) -> io::Result<Opened> {
        private_directory(directory)?;
        let lock = File::options().create(true).append(true).open(directory.join("lock"))?;
        if !disk::is_free(&lock) {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another process or exporter has the spool open",
            ));
        }
        let mut spool = Self {
            directory: directory.to_owned(),
            disk,
            bytes_max,
            segments: VecDeque::new(),
            next: 0,
            is_growing: false,
            taken: Taken::default(),
            _lock: lock,
        };
        let damaged_bytes = spool.find()?;
        Ok(Opened { spool, damaged_bytes })
    }

    /// Reads the existing segments. Returns the number of bytes in them that are not valid records.
    fn find(&mut self) -> io::Result<u64> {
        let mut numbers: Vec<u64> = fs::read_dir(&self.directory)?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".segment")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let mut damaged = 0;
        for number in numbers {
            let path = self.path(number);
            let file = File::options().read(true).write(true).open(&path)?;
            let length = file.metadata()?.len();
            let mut segment = Segment { number, file, bytes: length, records: 0 };
            let mut at = 0;
            while let Some(record) = segment.read(at)? {
                at += (HEADER_BYTES + record.len()) as u64;
                segment.records += 1;
            }
            if at < length {
                damaged += length - at;
                segment.file.set_len(at)?;
            }
            segment.bytes = at;
            self.next = number + 1;
            if segment.records == 0 {
                fs::remove_file(&path)?;
            } else {
                self.segments.push_back(segment);
            }
        }
        Ok(damaged)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:020}.segment"))
    }

    /// Number of bytes in the queue.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum::<u64>() - self.taken.bytes
    }

    /// Returns `true` if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Appends all records or none. Returns the number of old records deleted to make room.
    pub fn append<'a>(&mut self, records: impl IntoIterator<Item = &'a [u8]>) -> io::Result<u64> {
        let (mut batch, mut count) = (Vec::new(), 0);
        for record in records {
            let length = u32::try_from(record.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
            batch.extend_from_slice(&length.to_le_bytes());
            batch.extend_from_slice(&crc32fast::hash(record).to_le_bytes());
            batch.extend_from_slice(record);
            count += 1;
        }
        if batch.is_empty() {
            return Ok(0);
        }
        let dropped = self.make_room(batch.len() as u64)?;
        let segment_max = (self.bytes_max / SEGMENTS).min(SEGMENT_BYTES_MAX);
        if !self.is_growing || self.segments.back().is_none_or(|segment| segment.bytes >= segment_max) {
            self.begin()?;
        }
        let Some(segment) = self.segments.back_mut() else { return Ok(dropped) };
        if let Err(error) = self.disk.write_all_at(&segment.file, &batch, segment.bytes) {
            // The partly written record is cut off. If that fails too, the segment is not extended any
            // further.
            self.is_growing = segment.file.set_len(segment.bytes).is_ok();
            if segment.records == 0 {
                self.remove_last();
            }
            return Err(error);
        }
        segment.bytes += batch.len() as u64;
        segment.records += count;
        Ok(dropped)
    }

    /// Deletes the oldest segments until there is room. Returns the number of records deleted.
    fn make_room(&mut self, bytes: u64) -> io::Result<u64> {
        if bytes > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut dropped = 0;
        while self.segments.iter().map(|segment| segment.bytes).sum::<u64>() + bytes > self.bytes_max {
            let Some(segment) = self.segments.front() else { break };
            dropped += segment.records - self.taken.records;
            self.remove_first();
        }
        Ok(dropped)
    }

    fn begin(&mut self) -> io::Result<()> {
        private_directory(&self.directory)?;
        let file = disk::create(&self.path(self.next))?;
        self.segments.push_back(Segment { number: self.next, file, bytes: 0, records: 0 });
        self.next += 1;
        self.is_growing = true;
        Ok(())
    }

    fn remove_first(&mut self) {
        self.taken = Taken::default();
        if let Some(segment) = self.segments.pop_front() {
            let _ = fs::remove_file(self.path(segment.number));
        }
    }

    fn remove_last(&mut self) {
        self.is_growing = false;
        if let Some(segment) = self.segments.pop_back() {
            let _ = fs::remove_file(self.path(segment.number));
        }
    }

    /// Returns the oldest records, at least one unless the queue is empty. They stay in the queue until they
    /// are taken.
    pub fn oldest(&self, records_max: usize, bytes_max: usize) -> io::Result<Records> {
        let (mut found, mut bytes) = (Records::new(), 0);
        let mut at = self.taken.bytes;
        for segment in &self.segments {
            while at < segment.bytes {
                if found.len() >= records_max || (bytes >= bytes_max && !found.is_empty()) {
                    return Ok(found);
                }
                // The record was valid when it was counted and is damaged now. The rest of the segment cannot
                // be read either.
                let Some(record) = segment.read(at)? else { break };
                at += (HEADER_BYTES + record.len()) as u64;
                bytes += record.len();
                found.push((record, Position { segment: segment.number, offset: at }));
            }
            at = 0;
        }
        Ok(found)
    }

    /// Removes the oldest records up to a position returned by [`Spool::oldest`].
    pub fn take(&mut self, end: Position) {
        while self.segments.front().is_some_and(|segment| segment.number < end.segment) {
            self.remove_first();
        }
        let Some(segment) = self.segments.front().filter(|segment| segment.number == end.segment) else {
            return;
        };
        if end.offset >= segment.bytes {
            let is_last = self.segments.len() == 1;
            self.remove_first();
            self.is_growing &= !is_last;
        } else if end.offset > self.taken.bytes {
            let mut at = self.taken;
            while at.bytes < end.offset {
                let Ok(Some(record)) = segment.read(at.bytes) else { break };
                at =
                    Taken { bytes: at.bytes + (HEADER_BYTES + record.len()) as u64, records: at.records + 1 };
            }
            self.taken = at;
        }
    }

    /// Deletes the oldest segment because it is unreadable. Returns the number of records lost.
    pub fn drop_oldest(&mut self) -> u64 {
        let lost = self.segments.front().map_or(0, |segment| segment.records - self.taken.records);
        if self.segments.len() == 1 {
            self.is_growing = false;
        }
        self.remove_first();
        lost
    }

    /// Rewrites the oldest segment without its taken records, so they do not reappear.
    pub fn close(mut self) -> io::Result<()> {
        let Some(segment) = self.segments.front().filter(|_| self.taken.bytes > 0) else { return Ok(()) };
        let length =
            usize::try_from(segment.bytes - self.taken.bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut rest = vec![0; length];
        segment.file.read_exact_at(&mut rest, self.taken.bytes)?;
        let (path, draft) = (self.path(segment.number), self.directory.join("draft"));
        let _ = fs::remove_file(&draft);
        self.disk.write_all_at(&disk::create(&draft)?, &rest, 0)?;
        fs::rename(draft, path)?;
        self.taken = Taken::default();
        Ok(())
    }
}

impl Segment {
    /// Reads the record at an offset. Returns `None` at the end and for an invalid record.
    fn read(&self, at: u64) -> io::Result<Option<Vec<u8>>> {
        if at + HEADER_BYTES as u64 > self.bytes {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        self.file.read_exact_at(&mut header, at)?;
        let [a, b, c, d, checksum @ ..] = header;
        let length = u32::from_le_bytes([a, b, c, d]);
        if at + (HEADER_BYTES as u64) + u64::from(length) > self.bytes {
            return Ok(None);
        }
        let mut record = vec![0; length as usize];
        self.file.read_exact_at(&mut record, at + HEADER_BYTES as u64)?;
        // After a crash a file can contain a hole of zeros, and zero is the checksum of an empty record.
        let is_whole = crc32fast::hash(&record) == u32::from_le_bytes(checksum) && length > 0;
        Ok(is_whole.then_some(record))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::disk::System;
    use crate::disk::tests::LimitedDisk;

    const MAX: u64 = 4_096;

    fn open(directory: &Path) -> Opened {
        Spool::open(directory, MAX, Box::new(System)).unwrap()
    }

    fn record(number: u32, length: usize) -> Vec<u8> {
        let mut record = number.to_le_bytes().to_vec();
        record.resize(4 + length, u8::try_from(number % 251).unwrap());
        record
    }

    #[derive(Debug, Clone)]
    enum SpoolStep {
        Append(Vec<usize>),
        Take(usize),
        Reopen,
        Crash { cut: usize, zeros: usize },
    }

    fn step() -> impl Strategy<Value = SpoolStep> {
        prop_oneof![
            4 => prop::collection::vec(0_usize..400, 1..5).prop_map(SpoolStep::Append),
            3 => (1_usize..6).prop_map(SpoolStep::Take),
            1 => Just(SpoolStep::Reopen),
            1 => (0_usize..900, 0_usize..100).prop_map(|(cut, zeros)| SpoolStep::Crash { cut, zeros }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn whatever_happens_order_is_kept_and_nothing_lost_but_what_is_counted(steps in prop::collection::vec(step(), 1..40)) {
            let directory = tempfile::tempdir().unwrap();
            let mut spool = open(directory.path()).spool;
            // The records not taken yet, oldest first, and those that may reappear after a restart.
            let (mut waiting, mut again): (VecDeque<Vec<u8>>, VecDeque<Vec<u8>>) = Default::default();
            let mut number = 0;
            for step in steps {
                match step {
                    SpoolStep::Append(lengths) => {
                        let batch: Vec<_> = lengths.iter().map(|length| { number += 1; record(number, *length) }).collect();
                        let dropped = spool.append(batch.iter().map(Vec::as_slice)).unwrap();
                        waiting.drain(..usize::try_from(dropped).unwrap());
                        waiting.extend(batch);
                    }
                    SpoolStep::Take(count) => {
                        let oldest = spool.oldest(count, usize::MAX).unwrap();
                        prop_assert_eq!(oldest.len(), count.min(waiting.len()));
                        if let Some((_, end)) = oldest.last() {
                            spool.take(*end);
                        }
                        for (record, _) in oldest {
                            prop_assert_eq!(Some(&record), waiting.front());
                            again.extend(waiting.pop_front());
                        }
                    }
                    SpoolStep::Reopen => {
                        spool.close().unwrap();
                        let opened = open(directory.path());
                        prop_assert_eq!(opened.damaged_bytes, 0);
                        spool = opened.spool;
                        again.clear();
                    }
                    SpoolStep::Crash { cut, zeros } => {
                        drop(spool);
                        // Tears the last write: its end is missing, and nothing or zeros follow.
                        let mut paths: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
                        paths.retain(|path| path.extension().is_some_and(|extension| extension == "segment"));
                        paths.sort();
                        if let Some(last) = paths.last() {
                            let mut bytes = fs::read(last).unwrap();
                            bytes.truncate(bytes.len().saturating_sub(cut));
                            bytes.resize(bytes.len() + zeros, 0);
                            fs::write(last, bytes).unwrap();
                        }
                        spool = open(directory.path()).spool;
                        let remaining: Vec<_> = spool.oldest(usize::MAX, usize::MAX).unwrap().into_iter().map(|(record, _)| record).collect();
                        // The records left are in order without a gap. They may begin with taken ones, and
                        // lack those that were torn.
                        let all: Vec<_> = again.iter().chain(&waiting).cloned().collect();
                        let start = remaining.first().and_then(|first| all.iter().position(|record| record == first)).unwrap_or(all.len());
                        prop_assert_eq!(&remaining[..], &all[start..start + remaining.len()]);
                        prop_assert!(remaining.is_empty() || start <= again.len());
                        if cut == 0 { prop_assert!(remaining.len() >= waiting.len()); }
                        waiting = remaining.into();
                        again.clear();
                    }
                }
                prop_assert!(spool.segments.iter().map(|segment| segment.bytes).sum::<u64>() <= MAX);
                let expected: usize = waiting.iter().map(|record| record.len() + HEADER_BYTES).sum();
                prop_assert_eq!(spool.bytes(), expected as u64);
                prop_assert_eq!(spool.is_empty(), waiting.is_empty());
            }
        }

        #[test]
        fn whatever_stands_in_a_segment_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(format!("{:020}.segment", 7)), &bytes).unwrap();
            let opened = open(directory.path());
            let found: usize = opened.spool.oldest(99, 9_999).unwrap().iter().map(|(record, _)| record.len() + HEADER_BYTES).sum();
            prop_assert_eq!(found as u64 + opened.damaged_bytes, bytes.len() as u64);
        }
    }

    #[test]
    fn a_full_disk_appends_nothing_and_damages_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(directory.path(), MAX, Box::new(LimitedDisk::of(250))).unwrap().spool;
        let [one, other] = [record(1, 200), record(2, 100)];
        spool.append([&*one]).unwrap();
        assert!(spool.append([&*other, &*other]).is_err());
        let remaining = |spool: &Spool| {
            spool.oldest(9, 9_999).unwrap().into_iter().map(|(record, _)| record).collect::<Vec<_>>()
        };
        assert_eq!(remaining(&spool), [one.as_slice()]);
        drop(spool);
        let Opened { mut spool, damaged_bytes } = open(directory.path());
        assert_eq!(damaged_bytes, 0);
        spool.append([&*other]).unwrap();
        assert_eq!(remaining(&spool), [one, other]);
    }

    #[test]
    fn two_do_not_share_a_spool() {
        let directory = tempfile::tempdir().unwrap();
        let first = open(directory.path());
        let error = Spool::open(directory.path(), MAX, Box::new(System)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        drop(first);
        open(directory.path());
    }
}

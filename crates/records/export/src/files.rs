//! Appends entries to files that are valid at every moment.
//!
//! Every file ends with the closing text of its format, and each batch of entries replaces that text.
//! `growing` describes how this works without a half-written file. If a power failure tears a file,
//! `retention` cuts it to its last complete entry.

pub mod config;
mod format;
mod growing;
mod layout;
mod retention;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use egret_clock::{Moment, system_time};
use egret_har::sink::{Content, Exported, Sink};
use format::ENTRY_BYTES_MAX;
use parking_lot::Mutex;

use crate::background::Backoff;
use crate::counters::{Counters, DropReason, ExporterSnapshot};
use crate::disk::Disk;
use crate::exporter::Exporter;
pub use format::FileFormat;
use growing::Growing;
pub use layout::Layout;
pub use retention::{Closed, Retention};

/// Number of waiting bytes that are written at once. Fewer are written with the next tick.
const BATCH_BYTES: usize = 256 << 10;
/// Maximum number of bytes that wait while the disk does not accept them.
const PENDING_BYTES_MAX: usize = 4 << 20;
/// Maximum wait between two attempts to write.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Appends entries to files. The time is a parameter, so tests can control it.
#[derive(Debug)]
pub struct Writer {
    layout: Arc<Layout>,
    counters: Arc<Counters>,
    disk: Box<dyn Disk>,
    /// Waiting entries, each in the form that follows another entry.
    pending: Vec<u8>,
    pending_entries: u64,
    open: Option<Growing>,
    /// Time in the name of the last file.
    named: SystemTime,
    backoff: Backoff,
    retry_at: Option<Moment>,
}

impl Writer {
    pub fn new(layout: Arc<Layout>, counters: Arc<Counters>, disk: Box<dyn Disk>) -> Self {
        Self {
            layout,
            counters,
            disk,
            pending: Vec::new(),
            pending_entries: 0,
            open: None,
            named: SystemTime::UNIX_EPOCH,
            backoff: Backoff::up_to(BACKOFF_MAX),
            retry_at: None,
        }
    }

    /// Takes an entry, or drops and counts it. Returns `true` if a file was closed.
    pub fn put(&mut self, entry: &[u8], now: Moment) -> bool {
        self.counters.put.fetch_add(1, Relaxed);
        if entry.len() > ENTRY_BYTES_MAX {
            self.counters.dropped(DropReason::TooLarge, 1);
            return false;
        }
        let mut closed = false;
        if self.pending.len() + entry.len() > PENDING_BYTES_MAX && !self.pending.is_empty() {
            closed = self.flush(now);
            if !self.pending.is_empty() {
                self.counters.dropped(DropReason::Full, 1);
                return closed;
            }
        }
        self.layout.format.push(entry, &mut self.pending);
        self.pending_entries += 1;
        if self.pending.len() >= BATCH_BYTES {
            closed |= self.flush(now);
        }
        closed
    }

    /// Writes the waiting entries, and closes a file that is old enough. Returns `true` if a file was closed.
    pub fn tick(&mut self, now: Moment) -> bool {
        let closed = self.flush(now);
        let is_due = self
            .open
            .as_ref()
            .zip(self.layout.rotate_after)
            .is_some_and(|(open, after)| open.age(now) >= after);
        closed | (is_due && self.close())
    }

    /// Writes or drops the waiting entries, and closes the file.
    pub fn end(&mut self) {
        self.retry_at = None;
        self.flush(Moment::now());
        self.pending.clear();
        self.counters.dropped(DropReason::Closed, std::mem::take(&mut self.pending_entries));
        self.close();
    }

    /// Closes the open file; the next entry begins a new one. Returns `true` if a file was open.
    pub fn close(&mut self) -> bool {
        self.open.take().is_some()
    }

    /// Writes the waiting entries, unless an attempt failed a short time ago. Returns `true` if the file is
    /// full and was closed.
    pub fn flush(&mut self, now: Moment) -> bool {
        if self.pending.is_empty() || self.retry_at.is_some_and(|at| now < at) {
            return false;
        }
        if self.backoff.is_waiting() {
            self.counters.retries.fetch_add(1, Relaxed);
        }
        if let Err(error) = self.write(now) {
            let directory = self.layout.directory.display();
            self.counters.failed(format!("cannot write to {directory}: {error}"));
            self.retry_at = Some(now + self.backoff.next());
            return false;
        }
        // A successful write to a spool does not mean that its entries reach their destination.
        if !self.layout.is_spool || self.backoff.is_waiting() {
            self.counters.succeeded();
        }
        self.backoff.reset();
        self.retry_at = None;
        self.pending.shrink_to(PENDING_BYTES_MAX);
        let is_full = self.open.as_ref().is_some_and(|open| open.end() >= self.layout.rotate_bytes);
        is_full && self.close()
    }

    fn write(&mut self, now: Moment) -> io::Result<()> {
        let mut open = match self.open.take().filter(|open| open.is_intact(&self.counters)) {
            Some(open) => open,
            None => self.begin(now)?,
        };
        let batch = &self.pending[if open.entries() == 0 { self.layout.format.first_skips } else { 0 }..];
        let written = open.append(batch, self.pending_entries, &*self.disk, &self.counters);
        // Torn files are repaired by `Retention`.
        self.open = Some(open).filter(|open| !open.is_torn());
        written?;
        let entries = std::mem::take(&mut self.pending_entries);
        if !self.layout.is_spool {
            self.counters.wrote(entries, batch.len() as u64);
        }
        self.pending.clear();
        Ok(())
    }

    fn begin(&mut self, now: Moment) -> io::Result<Growing> {
        let layout = &*self.layout;
        // Names sort in the order of creation, even if files fill quickly or the clock is set back.
        let now_us = system_time().as_micros();
        self.named = (SystemTime::UNIX_EPOCH + Duration::from_micros(now_us))
            .max(self.named + Duration::from_millis(1));
        let name = layout.file_name(self.named);
        Growing::begin(&layout.directory, &name, &layout.format, layout.has_twin(), &*self.disk, now)
    }
}

/// An exporter of `type: har`, `type: ndjson` or `type: lines`.
#[derive(Debug)]
pub struct FileExporter {
    content: Content,
    writer: Mutex<Writer>,
    retention: Arc<Retention>,
    counters: Arc<Counters>,
}

impl FileExporter {
    /// Opens the exporter. It does not access the disk yet, except to clean up after an earlier process.
    pub fn open(layout: Layout, counters: Counters, disk: Box<dyn Disk>) -> Self {
        let (layout, counters) = (Arc::new(layout), Arc::new(counters));
        let content = layout.format.content;
        let retention = Arc::new(Retention::new(Arc::clone(&layout), Arc::clone(&counters)));
        retention.wake();
        let writer = Mutex::new(Writer::new(layout, Arc::clone(&counters), disk));
        Self { content, writer, retention, counters }
    }
}

impl Sink for FileExporter {
    fn takes(&self, content: Content) -> bool {
        self.content == content
    }

    fn put(&self, exchange: Exported<'_>) {
        if self.writer.lock().put(exchange.entry, Moment::now()) {
            self.retention.wake();
        }
    }

    fn tick(&self) {
        if self.writer.lock().tick(Moment::now()) {
            self.retention.wake();
        }
    }
}

impl Exporter for FileExporter {
    /// Later entries begin another file.
    fn close(&self, _: Instant) {
        self.writer.lock().end();
        self.retention.wake();
        self.retention.join();
    }

    fn snapshot(&self) -> ExporterSnapshot {
        self.counters.snapshot()
    }
}

#[cfg(test)]
mod tests;

//! Counters of an exporter, and reports when it fails or recovers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use egret_clock::planted;
use egret_items::words;
use parking_lot::Mutex;
use serde::Serialize;

words! {
    /// Reason for the loss of an entry.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum DropReason: word {
        /// The exporter does not work, and its buffer is full.
        Full => "full",
        /// The entry is longer than the maximum.
        TooLarge => "too-large",
        /// The file with the entry was deleted by another program.
        Deleted => "deleted",
        /// The entry was the oldest in a full spool.
        SpoolFull => "spool-full",
        /// The destination rejected the entry.
        Rejected => "rejected",
        /// The entry was damaged in the spool.
        Damaged => "damaged",
        /// The exporter was closed.
        Closed => "closed",
    }
}

/// The counters of an exporter.
#[derive(Debug)]
pub(crate) struct Counters {
    name: String,
    kind: &'static str,
    /// Entries received.
    pub put: AtomicU64,
    /// Entries that reached their destination.
    pub written: AtomicU64,
    /// Bytes that reached their destination.
    pub written_bytes: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
    /// Attempts after a failed one.
    pub retries: AtomicU64,
    /// Files torn by a crash.
    pub repaired: AtomicU64,
    /// Bytes that wait on disk.
    pub spooled_bytes: AtomicU64,
    is_down: AtomicBool,
    /// While it is locked, `is_down` does not change.
    last_error: Mutex<Option<String>>,
}

/// The counters of an exporter at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ExporterSnapshot {
    /// Name in the config.
    pub name: String,
    /// Its `type`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `true` if the last attempt to write or send succeeded.
    pub up: bool,
    /// Entries received.
    pub put: u64,
    /// Entries that reached their destination.
    pub written: u64,
    /// Bytes that reached their destination.
    pub written_bytes: u64,
    /// Entries lost, for each of [`DropReason::ALL`].
    pub dropped: BTreeMap<&'static str, u64>,
    /// Attempts after a failed one.
    pub retries: u64,
    /// Files and segments torn by a crash.
    pub repaired: u64,
    /// Bytes that wait on disk to be sent.
    pub spooled_bytes: u64,
    /// Most recent error.
    pub last_error: Option<String>,
}

impl Counters {
    pub fn new(name: &str, kind: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            put: AtomicU64::new(0),
            written: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            dropped: Default::default(),
            retries: AtomicU64::new(0),
            repaired: AtomicU64::new(0),
            spooled_bytes: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            last_error: Mutex::new(None),
        }
    }

    /// Counts entries that reached their destination.
    pub fn wrote(&self, entries: u64, bytes: u64) {
        self.written.fetch_add(entries, Relaxed);
        self.written_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts lost entries.
    pub fn dropped(&self, reason: DropReason, entries: u64) {
        let entries = if planted!(DropUncounted) { 0 } else { entries };
        self.dropped[reason as usize].fetch_add(entries, Relaxed);
    }

    /// Records a failed attempt, and logs it if the one before succeeded.
    pub fn failed(&self, error: String) {
        let mut last = self.last_error.lock();
        if !self.is_down.load(Relaxed) {
            tracing::error!(
                exporter = self.name,
                "the exporter fails: {error}; it keeps retrying, and traffic is not affected"
            );
        }
        *last = Some(error);
        self.is_down.store(true, Relaxed);
    }

    /// Records a successful attempt, and logs it if the one before failed.
    pub fn succeeded(&self) {
        if !self.is_down.load(Relaxed) {
            return;
        }
        let _last = self.last_error.lock();
        if self.is_down.swap(false, Relaxed) {
            tracing::info!(exporter = self.name, "the exporter works again");
        }
    }

    /// Logs a problem that does not stop the exporter but needs attention.
    pub fn warn(&self, what: String) {
        tracing::warn!(exporter = self.name, "{what}");
        *self.last_error.lock() = Some(what);
    }

    /// Logs a problem that may occur often, only if it differs from the last one.
    pub fn warn_once(&self, what: String) {
        let mut last = self.last_error.lock();
        if last.as_ref() != Some(&what) {
            tracing::warn!(exporter = self.name, "{what}");
            *last = Some(what);
        }
    }

    /// Returns the current values.
    pub fn snapshot(&self) -> ExporterSnapshot {
        let last_error = self.last_error.lock();
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        ExporterSnapshot {
            name: self.name.clone(),
            kind: self.kind,
            up: !self.is_down.load(Relaxed),
            put: read(&self.put),
            written: read(&self.written),
            written_bytes: read(&self.written_bytes),
            dropped: DropReason::ALL
                .iter()
                .map(|reason| reason.word())
                .zip(self.dropped.iter().map(read))
                .collect(),
            retries: read(&self.retries),
            repaired: read(&self.repaired),
            spooled_bytes: read(&self.spooled_bytes),
            last_error: last_error.clone(),
        }
    }
}

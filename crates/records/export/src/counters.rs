//! What an exporter counts, and how it tells that it fails or works again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// Why an entry was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// The exporter does not work, and what may wait for it is full.
    Full,
    /// It was longer than any entry may be.
    TooLarge,
    /// The file that it was in was deleted by somebody else.
    Deleted,
    /// It was the oldest in a full spool.
    SpoolFull,
    /// The collector does not take it.
    Rejected,
    /// It was damaged in the spool.
    Damaged,
    /// The exporter was closed.
    Closed,
}

impl DropReason {
    /// All of them, in the order in which they are counted.
    pub const ALL: [Self; 7] = [
        Self::Full,
        Self::TooLarge,
        Self::Deleted,
        Self::SpoolFull,
        Self::Rejected,
        Self::Damaged,
        Self::Closed,
    ];

    /// As metrics and the API name it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::TooLarge => "too-large",
            Self::Deleted => "deleted",
            Self::SpoolFull => "spool-full",
            Self::Rejected => "rejected",
            Self::Damaged => "damaged",
            Self::Closed => "closed",
        }
    }
}

/// What an exporter has counted.
#[derive(Debug)]
pub(crate) struct Counters {
    name: String,
    kind: &'static str,
    /// Entries that it was given.
    pub put: AtomicU64,
    /// Entries that are where they should go.
    pub written: AtomicU64,
    /// Bytes that are there.
    pub written_bytes: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
    /// Attempts after one that failed.
    pub retries: AtomicU64,
    /// Files that a crash had left torn.
    pub repaired: AtomicU64,
    /// Bytes that wait on the disk.
    pub spooled_bytes: AtomicU64,
    is_down: AtomicBool,
    last_error: Mutex<Option<String>>,
}

/// What an exporter has counted, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ExporterSnapshot {
    /// Its name in the config.
    pub name: String,
    /// Its `type`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Whether the last attempt to write or send went well.
    pub up: bool,
    /// Entries that it was given.
    pub put: u64,
    /// Entries that are where they should go.
    pub written: u64,
    /// Bytes that are there.
    pub written_bytes: u64,
    /// Entries that were lost, for each of [`DropReason::ALL`].
    pub dropped: BTreeMap<&'static str, u64>,
    /// Attempts after one that failed.
    pub retries: u64,
    /// Files and segments that a crash had left torn.
    pub repaired: u64,
    /// Bytes that wait on the disk to be sent.
    pub spooled_bytes: u64,
    /// What went wrong last.
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

    /// Counts entries that are where they should go.
    pub fn wrote(&self, entries: u64, bytes: u64) {
        self.written.fetch_add(entries, Relaxed);
        self.written_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts entries that are lost.
    pub fn dropped(&self, reason: DropReason, entries: u64) {
        self.dropped[reason as usize].fetch_add(entries, Relaxed);
    }

    /// The last attempt failed. Says so where the one before did not.
    pub fn failed(&self, error: String) {
        let mut last = self.last_error();
        if !self.is_down.load(Relaxed) {
            tracing::error!(
                exporter = self.name,
                "the exporter fails: {error}; it tries again, and traffic goes on"
            );
        }
        *last = Some(error);
        self.is_down.store(true, Relaxed);
    }

    /// The last attempt went well. Says so where the one before did not.
    pub fn works(&self) {
        if !self.is_down.load(Relaxed) {
            return;
        }
        let _last = self.last_error();
        if self.is_down.swap(false, Relaxed) {
            tracing::info!(exporter = self.name, "the exporter works again");
        }
    }

    /// Something that it can live with, but that somebody should look at.
    pub fn noticed(&self, what: String) {
        tracing::warn!(exporter = self.name, "{what}");
        *self.last_error() = Some(what);
    }

    /// The same where it may come often: said in the log when it is new.
    pub fn complained(&self, what: String) {
        let mut last = self.last_error();
        if last.as_ref() != Some(&what) {
            tracing::warn!(exporter = self.name, "{what}");
            *last = Some(what);
        }
    }

    /// What went wrong last; while it is held, whether the exporter works does not change.
    fn last_error(&self) -> MutexGuard<'_, Option<String>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them now.
    pub fn snapshot(&self) -> ExporterSnapshot {
        let last_error = self.last_error();
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

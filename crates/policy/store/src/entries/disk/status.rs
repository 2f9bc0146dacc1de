//! The events, errors and statistics that a disk reports.

use std::io::{self, ErrorKind};
use std::sync::atomic::AtomicU64;

use serde::Serialize;

/// An event during the work of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskEvent {
    /// The existing entries were stored under another config and are deleted.
    Outdated,
    /// The existing entries could not be identified and are deleted.
    Damaged,
    /// The disk is ready, with the number of entries, and of invalid files that were deleted.
    Open {
        /// Number of entries.
        entries: usize,
        /// Number of files that were truncated or modified.
        dropped: u64,
    },
}

/// Reason why a disk has stopped working. Its files are deleted as far as possible.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Another process uses the directory.
    #[error("another process has it open: give each gateway its own `data_dir`")]
    InUse,
    /// The directory cannot be read or written.
    #[error("{0}{hint}", hint = hint(.0))]
    Io(#[from] io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free some space, or lower `disk.size`",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "; give Egret's user write access, or set `disk.directory`"
        }
        _ => "",
    }
}

/// Statistics of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DiskStats {
    /// `true` once the disk has been scanned, while it works.
    pub is_open: bool,
    /// Number of entries on disk, or waiting to be written.
    pub entries: usize,
    /// Size of their files, in bytes.
    pub bytes: u64,
    /// Number of loads into memory.
    pub loads: u64,
    /// Number of entries written.
    pub writes: u64,
    /// Number of entries evicted for others.
    pub evicted: u64,
    /// Number of entries not written, because too many were waiting or they are too large.
    pub skipped: u64,
    /// Number of files that could not be read and were deleted.
    pub dropped: u64,
}

/// Counters behind [`DiskStats`].
#[derive(Debug, Default)]
pub(super) struct DiskCounts {
    pub loads: AtomicU64,
    pub writes: AtomicU64,
    pub evicted: AtomicU64,
    pub skipped: AtomicU64,
    pub dropped: AtomicU64,
}

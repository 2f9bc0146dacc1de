//! The state that the thread of diagnoses and a worker share beside the ring.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::sync::{AtomicBool, AtomicU64};

/// State that the thread and one worker share beside the ring.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct RingState {
    /// Number of records that the thread has processed, and their bytes. Updated now and then.
    seen: AtomicU64,
    seen_bytes: AtomicU64,
    /// `true` once the thread has been woken and has not checked the ring since.
    is_urgent: AtomicBool,
    /// `true` if a record was dropped since the thread last checked the ring.
    is_overfull: AtomicBool,
}

impl RingState {
    /// Number of records that the thread has processed. The worker that knows it also sees that their places
    /// in the ring are free.
    pub fn seen(&self) -> u64 {
        self.seen.load(Acquire)
    }

    /// Bytes of these records.
    pub fn seen_bytes(&self) -> u64 {
        self.seen_bytes.load(Relaxed)
    }

    /// Adds to them. Only the thread calls it.
    pub fn saw(&self, records: u64, bytes: u64) {
        self.seen.store(self.seen.load(Relaxed) + records, Release);
        self.seen_bytes.store(self.seen_bytes.load(Relaxed) + bytes, Relaxed);
    }

    /// Returns `true` if the thread must be woken, because nobody has done so since it last checked the ring.
    pub fn becomes_urgent(&self) -> bool {
        !self.is_urgent.swap(true, AcqRel)
    }

    /// Notes that a record was dropped.
    pub fn note_drop(&self) {
        self.is_overfull.store(true, Relaxed);
    }

    /// Begins to check the ring. Returns `true` if a record was dropped since the last time.
    pub fn begin_look(&self) -> bool {
        // Not a store: a worker whose own swap came before does not wake the thread, so its records must be
        // seen from here on.
        self.is_urgent.swap(false, AcqRel);
        self.is_overfull.swap(false, Relaxed)
    }
}

/// Tells the thread to process what waits, and to end.
#[derive(Debug, Default)]
pub(super) struct StopFlag(AtomicBool);

impl StopFlag {
    /// Sets it. Records that were handed over before are processed.
    pub fn set(&self) {
        self.0.store(true, Release);
    }

    /// Returns `true` if it is set. The rings then show all records that were handed over before.
    pub fn is_set(&self) -> bool {
        self.0.load(Acquire)
    }
}

//! The resolver's cache: bounded, with cheap eviction.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use egret_clock::planted;
use tokio::time::Instant;

use super::LookupOutcome;

/// Results and failures by name.
///
/// Eviction uses second chance: names are in a queue. The first one is evicted, unless it was used since it
/// was last first; then it moves to the end. That approximates least-recently-used without a list of uses.
#[derive(Debug)]
pub(super) struct Cache {
    entries: HashMap<Arc<str>, DnsRecord>,
    /// Every name of `entries` once.
    queue: VecDeque<Arc<str>>,
    entries_max: usize,
}

#[derive(Debug)]
struct DnsRecord {
    outcome: LookupOutcome,
    expires: Instant,
    was_used: bool,
}

impl Cache {
    pub(super) fn new(entries_max: u32) -> Self {
        Self { entries: HashMap::new(), queue: VecDeque::new(), entries_max: bound(entries_max) }
    }

    /// Returns the number of names kept, some of which may have expired.
    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Returns the unexpired result for `host` at `now`.
    pub(super) fn get(&mut self, host: &str, now: Instant) -> Option<LookupOutcome> {
        let entry = self.entries.get_mut(host)?;
        if now >= entry.expires && !planted!(NameOutlived) {
            return None;
        }
        entry.was_used = true;
        Some(entry.outcome.clone())
    }

    /// Stores a result until `expires`.
    pub(super) fn insert(&mut self, host: Arc<str>, outcome: LookupOutcome, expires: Instant) {
        let entry = DnsRecord { outcome, expires, was_used: false };
        if let Some(before) = self.entries.get_mut(&host) {
            *before = entry;
            return;
        }
        // Room is made first. Otherwise the new entry would be evicted as the first one without a use.
        self.evict_to(self.entries_max - 1);
        self.queue.push_back(host.clone());
        self.entries.insert(host, entry);
    }

    /// Changes the limit.
    pub(super) fn resize(&mut self, entries_max: u32) {
        self.entries_max = bound(entries_max);
        self.evict_to(self.entries_max);
    }

    fn evict_to(&mut self, entries_max: usize) {
        while self.entries.len() > entries_max {
            let Some(host) = self.queue.pop_front() else { return };
            match self.entries.get_mut(&host) {
                Some(entry) if entry.was_used => {
                    entry.was_used = false;
                    self.queue.push_back(host);
                }
                _ => {
                    self.entries.remove(&host);
                }
            }
        }
    }
}

/// Returns a limit of at least one entry, so the newest is always kept.
fn bound(entries_max: u32) -> usize {
    usize::try_from(entries_max).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::DnsError;
    use super::*;

    const FAILED: LookupOutcome = Err(DnsError::Failed);

    #[test]
    fn a_name_that_was_asked_for_outlives_one_that_was_not() {
        let (mut cache, now) = (Cache::new(2), Instant::now());
        let later = now + Duration::from_secs(1);
        cache.insert("a".into(), FAILED, later);
        cache.insert("b".into(), FAILED, later);
        assert!(cache.get("a", now).is_some());
        cache.insert("c".into(), FAILED, later);
        assert_eq!(["a", "b", "c"].map(|host| cache.get(host, now).is_some()), [true, false, true]);
        assert_eq!((cache.len(), cache.queue.len()), (2, 2));
    }

    #[test]
    fn names_asked_for_all_the_same_are_evicted_too() {
        let (mut cache, now) = (Cache::new(8), Instant::now());
        for index in 0..1_000 {
            let host: Arc<str> = index.to_string().into();
            cache.insert(host.clone(), FAILED, now + Duration::from_secs(1));
            assert!(cache.get(&host, now).is_some());
        }
        assert_eq!((cache.len(), cache.queue.len()), (8, 8));
        cache.resize(3);
        assert_eq!((cache.len(), cache.queue.len()), (3, 3));
    }

    #[test]
    fn an_entry_holds_until_it_expires_and_is_then_replaced_in_place() {
        let (mut cache, now) = (Cache::new(2), Instant::now());
        let later = now + Duration::from_secs(1);
        cache.insert("a".into(), FAILED, later);
        assert!(cache.get("a", now).is_some() && cache.get("a", later).is_none());
        cache.insert("a".into(), Ok([[127, 0, 0, 1].into()].into()), later + Duration::from_secs(1));
        assert!(cache.get("a", later).unwrap().is_ok());
        assert_eq!((cache.len(), cache.queue.len()), (1, 1));
    }
}

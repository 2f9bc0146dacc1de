//! The state of a cache that survives a reload: its entries, their disk, and its counters.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use egret_cache::{CacheConfig, CacheCounts, DiskConfig, DiskLocation, KeySecret, Stored, group_of};
use egret_store::coalescer::Coalescer;
use egret_store::entries::{Entries, EntryLimits, Removal, Seal};
use egret_store::shared::PurgedCache;

use crate::remedy::Mode;

/// State that survives a reload.
#[derive(Debug)]
pub(super) struct CacheState {
    pub secret: Arc<KeySecret>,
    pub entries: Arc<Entries<Stored>>,
    pub coalescer: Arc<Coalescer>,
    pub counts: CacheCounts,
    /// The part of the config that determines keys and stored content. If it changes, entries would not be
    /// found, or would be found by requests that must not get them.
    pub config: CacheConfig,
    pub disk: Option<DiskLocation>,
    /// `true` once other gateways remove responses from this state.
    pub is_shared: AtomicBool,
}

impl PurgedCache for CacheState {
    fn remove(&self, removal: &Removal) {
        if let Some(purge) = removal.purge() {
            self.entries.purge(purge);
        } else if let Removal::Changed(url) = removal
            && let Some(group) = group_of(url, &self.secret)
        {
            self.entries.remove_group(group);
        }
    }
}

/// The disk of a new state.
pub(super) struct DiskSource {
    /// Identity of the files that may be used, and the secret of the keys.
    pub seal: Seal,
    /// Location of the files, if the cache has a disk.
    pub location: Option<DiskLocation>,
    /// `true` if another disk of this process still uses the location.
    pub is_in_use: bool,
}

impl CacheState {
    /// Creates an empty state. `lasting` is the [lasting](Self::lasting) part of `config`.
    pub fn new(config: &CacheConfig, lasting: CacheConfig, disk: DiskSource, workers: usize) -> Self {
        let DiskSource { seal, location, is_in_use } = disk;
        let limits = EntryLimits {
            bytes: config.memory.bytes(),
            body_bytes: config.max_entry.bytes(),
            ..EntryLimits::default()
        };
        let targets = || config.targets.iter().map(|name| name.to_ascii_lowercase().into()).collect();
        let opened =
            location.as_ref().map(|disk| disk.disk(config, seal, is_in_use, targets(), limits.variants));
        let secret = opened.as_ref().map_or(&seal.secret, |disk| disk.secret());
        Self {
            secret: Arc::new(KeySecret::new(secret)),
            entries: Entries::with_disk(limits, opened),
            coalescer: Coalescer::new(),
            counts: CacheCounts::new(workers),
            config: lasting,
            disk: location,
            is_shared: AtomicBool::new(false),
        }
    }

    /// Returns the part of a config that must stay the same for stored responses to remain usable. A cache
    /// that only reports stores nothing and needs no disk.
    pub fn lasting(config: &CacheConfig, mode: Mode) -> CacheConfig {
        let one = config.clone();
        let disk = one.disk.filter(|_| mode == Mode::Enforce);
        CacheConfig {
            key: one.key,
            shared: one.shared,
            private: one.private,
            credentials: one.credentials,
            methods: one.methods,
            max_entry: one.max_entry,
            memory: one.memory,
            disk: disk
                .map(|disk| Box::new(DiskConfig { directory: disk.directory, ..DiskConfig::default() })),
            set_cookie: one.set_cookie,
            targets: one.targets,
            ..CacheConfig::default()
        }
    }
}

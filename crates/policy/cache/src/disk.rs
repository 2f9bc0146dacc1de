//! The disk of a cache: its directory, its format, and its thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest;
#[cfg(feature = "simulated")]
use egret_store::entries::SteppedDisk;
use egret_store::entries::{Disk, DiskError, DiskEvent, DiskLimits, Entries, Seal, Stop};

use super::config::{CacheConfig, DiskConfig};
use super::stored::Stored;

/// Length of the secret for cache keys.
pub const SECRET_BYTES: usize = 32;
/// Format version. Change it when the computation of keys or the format of stored responses changes.
const FORMAT: &[u8] = b"egret cache 3";
/// Maximum size of pending writes; one large response may exceed it.
const WAITING_BYTES: u64 = 16 << 20;
/// Maximum number of characters of a flow's name in the name of a directory.
const NAME_CHARS_MAX: usize = 40;

/// The disk of a cache, for the thread that serves it. Nothing on disk is touched before
/// [`serve`](Self::serve) is called.
#[derive(Debug, Clone)]
pub struct CacheDisk {
    entries: Arc<Entries<Stored>>,
    disk: Arc<Disk<Stored>>,
    bytes: u64,
}

impl CacheDisk {
    /// Returns the disk of `entries` with the settings in `config`, if they have one.
    pub fn of(entries: &Arc<Entries<Stored>>, config: &CacheConfig) -> Option<Self> {
        let (disk, config) = (entries.disk()?, config.disk.as_ref()?);
        Some(Self { entries: Arc::clone(entries), disk: Arc::clone(disk), bytes: config.size.bytes() })
    }

    /// Returns `true` if both are the same disk, not only in the same directory.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.disk, &other.disk)
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        self.disk.directory()
    }

    /// Applies the configured size.
    pub fn resize(&self) {
        self.disk.set_bytes_max(self.bytes);
    }

    /// Writes changes of the stored responses to disk until it is stopped. Blocks, so it needs its own
    /// thread.
    pub fn serve(&self, report: &dyn Fn(DiskEvent)) -> Result<(), DiskError> {
        self.disk.serve(&*self.entries, report)
    }

    /// Opens the disk for turns that a simulated world gives.
    ///
    /// # Errors
    ///
    /// Fails as [`serve`](Self::serve) does.
    #[cfg(feature = "simulated")]
    pub fn open(&self) -> Result<SteppedDisk<Stored>, DiskError> {
        SteppedDisk::open(&self.disk)
    }

    /// Gives the open disk a turn.
    ///
    /// # Errors
    ///
    /// Fails as [`serve`](Self::serve) does.
    #[cfg(feature = "simulated")]
    pub fn turn(&self, stepped: &mut SteppedDisk<Stored>) -> Result<(), DiskError> {
        stepped.turn(&*self.entries)
    }

    /// Makes [`serve`](Self::serve) return.
    pub fn stop(&self, stop: Stop) {
        self.disk.stop(stop);
    }
}

/// The directory of a cache's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskLocation(PathBuf);

impl DiskLocation {
    /// Returns the directory of the flow's cache number `ordinal`. Each cache has its own directory. A digest
    /// of the flow's name distinguishes them, because the name may contain characters that are not allowed in
    /// file names.
    pub fn new(config: &DiskConfig, data_dir: &Path, flow: &str, ordinal: usize) -> Self {
        let is_plain = |char: &char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
        let name: String = flow.chars().filter(is_plain).take(NAME_CHARS_MAX).collect();
        let digest = digest::digest(&digest::SHA256, flow.as_bytes());
        let mark = digest.as_ref().first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let parent = config.directory.clone().unwrap_or_else(|| data_dir.join("cache"));
        Self(parent.join(format!("{name}-{ordinal}-{mark:08x}")))
    }

    /// Opens the disk at this location. If another disk of this process is still there, or the files do not
    /// belong to `config`, it is emptied when it is first served.
    pub fn disk(
        &self,
        config: &CacheConfig,
        seal: Seal,
        has: bool,
        targets: Box<[Box<str>]>,
        variants: usize,
    ) -> Arc<Disk<Stored>> {
        let bytes = config.disk.as_ref().map_or(0, |disk| disk.size.bytes());
        let waiting_bytes = WAITING_BYTES.max(config.max_entry.bytes() * 2);
        Disk::new(&self.0, seal, has, targets, DiskLimits { bytes, waiting_bytes, variants })
    }
}

/// Returns a digest of everything that determines where a cache of `flow` finds its responses, and which
/// clients they are for. `lasting` is the part of its config that must stay the same for that.
pub fn fingerprint(lasting: &CacheConfig, flow: &str) -> [u8; 32] {
    // The size limits do not affect the meaning of stored responses.
    let CacheConfig { memory, max_entry, disk, .. } = CacheConfig::default();
    let config = CacheConfig { max_entry, memory, disk, ..lasting.clone() };
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [FORMAT, flow.as_bytes(), &serde_json::to_vec(&config).unwrap_or_default()] {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    context.finish().as_ref().try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(config: serde_json::Value) -> CacheConfig {
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn each_cache_has_a_directory_of_its_own() {
        let directory = |flow: &str, ordinal| {
            let location = DiskLocation::new(&DiskConfig::default(), Path::new("/data"), flow, ordinal);
            location.0.to_str().unwrap().to_owned()
        };
        let places = [
            directory("search", 1),
            directory("search", 2),
            directory("../search", 1),
            directory("\u{e9}", 1),
            directory("", 1),
            directory(&"x".repeat(500), 1),
            directory(&"x".repeat(501), 1),
        ];
        for (at, one) in places.iter().enumerate() {
            assert!(!places[..at].contains(one), "{one}");
            assert!(one.starts_with("/data/cache/") && one.len() < 80, "{one}");
            assert!(!one["/data/cache/".len()..].contains(['/', '.']), "{one}");
        }
        let named = config(json!({ "disk": { "directory": "/var/cache" } })).disk.unwrap();
        assert!(DiskLocation::new(&named, Path::new("/data"), "search", 1).0.starts_with("/var/cache"));
    }

    #[test]
    fn a_fingerprint_changes_with_what_keys_depend_on_and_with_nothing_else() {
        let of = |value: serde_json::Value| fingerprint(&config(value), "f");
        let plain = of(json!({}));
        for same in [json!({ "memory": "1GiB", "max_entry": "1KiB" }), json!({ "disk": { "size": "9GiB" } })]
        {
            assert_eq!(of(same.clone()), plain, "{same}");
        }
        for other in [
            json!({ "shared": true }),
            json!({ "private": true }),
            json!({ "key": { "query": "sorted" } }),
            json!({ "credentials": ["x-a"] }),
            json!({ "targets": [] }),
            json!({ "set_cookie": "strip" }),
        ] {
            assert_ne!(of(other.clone()), plain, "{other}");
        }
        assert_ne!(fingerprint(&CacheConfig::default(), "g"), plain);
    }
}

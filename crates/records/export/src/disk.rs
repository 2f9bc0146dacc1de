//! Disk access of exporters: files that only their owner can access, and writes at an offset.

use std::fmt::Debug;
use std::io;
use std::path::Path;

use egret_files::system::{File, FileExt as _, private_file};

/// Writes bytes to files. Tests replace it by a disk that fills up.
pub trait Disk: Debug + Send + Sync {
    /// Writes all bytes at `offset`. On error a part of them may have been written.
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
}

/// The disk of the system.
#[derive(Debug)]
pub struct System;

impl Disk for System {
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }
}

/// Creates a new file, accessible to the owner only.
pub fn create(path: &Path) -> io::Result<File> {
    private_file().read(true).write(true).create_new(true).open(path)
}

/// Locks a file for this process until it is closed. Returns `false` if another process has locked it.
pub fn is_free(file: &File) -> bool {
    file.try_lock().is_ok()
}

#[cfg(test)]
pub mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    /// A disk with a number of free bytes.
    #[derive(Debug)]
    pub struct LimitedDisk(pub AtomicU64);

    impl LimitedDisk {
        pub fn of(bytes: u64) -> Self {
            Self(AtomicU64::new(bytes))
        }
    }

    impl Disk for LimitedDisk {
        fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
            // Overwriting needs no space.
            let grown = (offset + bytes.len() as u64).saturating_sub(file.metadata()?.len());
            let free = self.0.load(Relaxed);
            if grown <= free {
                self.0.store(free - grown, Relaxed);
                return System.write_all_at(file, bytes, offset);
            }
            self.0.store(0, Relaxed);
            let fits = bytes.len() - usize::try_from(grown - free).unwrap();
            System.write_all_at(file, &bytes[..fits], offset)?;
            Err(io::ErrorKind::StorageFull.into())
        }
    }
}

//! What exporters ask of a disk: directories and files for their owner alone, and writes at a place.

use std::fmt::Debug;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// How bytes get to a file, so that tests can have a disk that is full.
pub trait Disk: Debug + Send + Sync {
    /// Writes all of it at `offset`, or part of it and fails.
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
}

/// The disk itself.
#[derive(Debug)]
pub struct System;

impl Disk for System {
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }
}

/// Makes a directory and those above it, for their owner alone; one that is there stays as it is.
pub fn make_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Makes a file that was not there, for its owner alone.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Takes a file for this process until it is closed; false where somebody else has it.
pub fn is_free(file: &File) -> bool {
    file.try_lock().is_ok()
}

#[cfg(test)]
pub mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    /// A disk with room for so many bytes.
    #[derive(Debug)]
    pub struct Room(pub AtomicU64);

    impl Room {
        pub fn of(bytes: u64) -> Self {
            Self(AtomicU64::new(bytes))
        }
    }

    impl Disk for Room {
        fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
            // What is written over takes no room.
            let grown = (offset + bytes.len() as u64).saturating_sub(file.metadata()?.len());
            let room = self.0.load(Relaxed);
            if grown <= room {
                self.0.store(room - grown, Relaxed);
                return System.write_all_at(file, bytes, offset);
            }
            self.0.store(0, Relaxed);
            let fits = bytes.len() - usize::try_from(grown - room).unwrap();
            System.write_all_at(file, &bytes[..fits], offset)?;
            Err(io::ErrorKind::StorageFull.into())
        }
    }
}

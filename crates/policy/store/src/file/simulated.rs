//! The database's file on the disk of a simulated world.

use std::io;

use egret_files::system::{File, FileExt as _};
use redb::{DatabaseError, StorageBackend};

/// A file as a database reads and writes it. One process uses it, so nothing is locked.
#[derive(Debug)]
pub(super) struct FileBackend(File);

impl FileBackend {
    pub fn new(file: File) -> Result<Self, DatabaseError> {
        Ok(Self(file))
    }
}

impl StorageBackend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }
}

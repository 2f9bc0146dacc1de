//! The turns of a disk in a simulated world, which has no thread for it.

use std::sync::Arc;

use egret_clock::Moment;

use super::files::Directory;
use super::{Closing, Disk, DiskError, Memory, SYNC_INTERVAL, Stop, StoredValue};

/// A disk whose turns the world gives.
#[derive(Debug)]
pub struct SteppedDisk<K: StoredValue> {
    disk: Arc<Disk<K>>,
    /// `None` once it has ended.
    directory: Option<Directory>,
    removed_at: Option<Moment>,
}

impl<K: StoredValue> SteppedDisk<K> {
    /// Opens the disk, as [`Disk::serve`] begins.
    ///
    /// # Errors
    ///
    /// Fails as that does.
    pub fn open(disk: &Arc<Disk<K>>) -> Result<Self, DiskError> {
        let mut stepped = Self { disk: Arc::clone(disk), directory: None, removed_at: None };
        let opened = disk.enter().and_then(|directory| {
            let directory = stepped.directory.insert(directory);
            disk.claim(directory, &|_| ())?;
            Ok(disk.scan(directory, &|_| ())?)
        });
        if let Err(error) = opened {
            stepped.fail();
            return Err(error);
        }
        Ok(stepped)
    }

    /// The time of its next turn, if it has something to do.
    pub fn due(&self) -> Option<Moment> {
        self.directory.as_ref()?;
        if self.disk.has_work(&self.disk.lock()) {
            return Some(Moment::now());
        }
        self.removed_at.map(|at| at + SYNC_INTERVAL)
    }

    /// Gives it a turn, which must be due.
    ///
    /// # Errors
    ///
    /// Fails as [`Disk::serve`] does. It has ended then.
    pub fn turn(&mut self, memory: &dyn Memory<K>) -> Result<(), DiskError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        match self.disk.turn(memory, directory, &mut self.removed_at) {
            Ok(None) => Ok(()),
            Ok(Some(Stop::Keep(_) | Stop::Delete)) => {
                self.directory = None;
                drop(Closing(&self.disk));
                Ok(())
            }
            Err(error) => {
                self.fail();
                Err(error.into())
            }
        }
    }

    /// Ends it: no file may remain.
    fn fail(&mut self) {
        drop(Closing(&self.disk));
        if let Some(directory) = self.directory.take() {
            let _ = directory.clear();
        }
    }
}

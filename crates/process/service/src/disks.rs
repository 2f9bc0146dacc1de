//! The threads of the caches' disks.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use egret_cache::CacheDisk;
use egret_clock::Moment;
use egret_store::entries::{DiskEvent, Stop};

/// Maximum time for pending writes when Egret stops.
const WRITE_MAX: Duration = Duration::from_secs(2);
/// Further time for the threads to end.
const END_MAX: Duration = Duration::from_millis(500);

/// The cache disks that have a thread.
#[derive(Debug, Default)]
pub struct Disks {
    running: Vec<Running>,
    /// Disks that were asked to stop, and may still hold a directory that another disk needs.
    ending: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    disk: CacheDisk,
    thread: JoinHandle<()>,
    ended: Receiver<()>,
}

impl Disks {
    /// Starts the threads of all `wanted` disks, including those that failed, and deletes the disks that are
    /// no longer wanted.
    pub fn apply(&mut self, wanted: Vec<CacheDisk>) {
        self.ending.retain(|one| !one.thread.is_finished());
        for one in std::mem::take(&mut self.running) {
            if one.thread.is_finished() {
                continue;
            }
            if wanted.iter().any(|disk| disk.is(&one.disk)) {
                self.running.push(one);
            } else {
                // Deleted because invalidations would be missed while the disk is not maintained.
                one.disk.stop(Stop::Delete);
                self.ending.push(one);
            }
        }
        for disk in wanted {
            disk.resize();
            if !self.running.iter().any(|one| one.disk.is(&disk)) {
                self.start(disk);
            }
        }
    }

    fn start(&mut self, disk: CacheDisk) {
        let is_same_directory = |one: &mut Running| one.disk.directory() == disk.directory();
        let before: Vec<_> = self.ending.extract_if(.., is_same_directory).collect();
        let (end, ended) = sync_channel(1);
        let served = disk.clone();
        let serve = move || {
            for one in before {
                // A panic was already reported by its thread.
                let _ = one.thread.join();
            }
            serve(&served);
            let _ = end.send(());
        };
        match std::thread::Builder::new().name("egret-cache".into()).spawn(serve) {
            Ok(thread) => self.running.push(Running { disk, thread, ended }),
            Err(error) => {
                tracing::error!(
                    "cannot start the thread for the disk of a cache: {error}; responses are stored in memory only"
                );
            }
        }
    }

    /// Writes pending data and ends all threads; threads that take too long are abandoned. With `immediately`
    /// nothing more is written.
    pub fn close(self, immediately: bool) {
        let write_max = if immediately { Duration::ZERO } else { WRITE_MAX };
        let until = Moment::now() + write_max;
        for one in &self.running {
            one.disk.stop(Stop::Keep(until));
        }
        for one in self.running.iter().chain(&self.ending) {
            let left = (until + END_MAX).since(Moment::now());
            if one.ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                let directory = one.disk.directory().display();
                tracing::warn!(%directory, "the disk of a cache was not closed in time: responses stored last are missing from it");
            }
        }
    }
}

/// Runs a disk on this thread, and logs its events.
fn serve(disk: &CacheDisk) {
    let directory = disk.directory().display();
    let log = |event| match event {
        DiskEvent::Outdated => {
            tracing::info!(%directory, "emptied the disk of a cache: it belonged to another config");
        }
        DiskEvent::Damaged => {
            tracing::warn!(%directory, "emptied the disk of a cache: it was damaged");
        }
        DiskEvent::Open { entries, dropped } => {
            tracing::info!(%directory, entries, "the disk of a cache is open");
            if dropped > 0 {
                tracing::warn!(%directory, dropped, "deleted damaged responses from the disk of a cache");
            }
        }
    };
    if let Err(error) = disk.serve(&log) {
        tracing::warn!(
            %directory,
            "the disk of a cache is not used until the next reload, responses are stored in memory only: {error}"
        );
    }
}

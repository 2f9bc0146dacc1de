//! The threads of the caches' disks.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use egret_clock::Moment;
use egret_flow::cache::CacheDisk;
use egret_store::entries::{DiskEvent, Stop};

/// How long what waits to be written may take when Egret stops.
const WRITE_MAX: Duration = Duration::from_secs(2);
/// What a thread may take beyond that to end.
const END_MAX: Duration = Duration::from_millis(500);

/// The disks that have a thread.
#[derive(Debug, Default)]
pub struct Disks {
    running: Vec<Running>,
    /// Those that were told to end, and may have a directory still that another one wants.
    ending: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    disk: CacheDisk,
    thread: JoinHandle<()>,
    ended: Receiver<()>,
}

impl Disks {
    /// Has all of `wanted` work, also those that have failed, and deletes those that are no longer among them.
    pub fn settle(&mut self, wanted: Vec<CacheDisk>) {
        self.ending.retain(|one| !one.thread.is_finished());
        for one in std::mem::take(&mut self.running) {
            if one.thread.is_finished() {
                continue;
            }
            if wanted.iter().any(|disk| disk.is(&one.disk)) {
                self.running.push(one);
            } else {
                // While nobody looks after it, what changes at the provider would not be learned of.
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
        let place = |one: &mut Running| one.disk.directory() == disk.directory();
        let before: Vec<_> = self.ending.extract_if(.., place).collect();
        let (end, ended) = sync_channel(1);
        let served = disk.clone();
        let serve = move || {
            for one in before {
                // That it has panicked is told where it did.
                let _ = one.thread.join();
            }
            serve(&served);
            let _ = end.send(());
        };
        match std::thread::Builder::new().name("egret-cache".into()).spawn(serve) {
            Ok(thread) => self.running.push(Running { disk, thread, ended }),
            Err(error) => {
                tracing::error!("no thread for the disk of a cache: {error}; answers are in memory only");
            }
        }
    }

    /// Has what waits be written, and all of them end; what takes too long is left. `at_once` has nothing more written.
    pub fn close(self, at_once: bool) {
        let write_max = if at_once { Duration::ZERO } else { WRITE_MAX };
        let until = Moment::now() + write_max;
        for one in &self.running {
            one.disk.stop(Stop::Keep(until));
        }
        for one in self.running.iter().chain(&self.ending) {
            let left = (until + END_MAX).since(Moment::now());
            if one.ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                let directory = one.disk.directory().display();
                tracing::warn!(%directory, "the disk of a cache was not closed in time: what was stored last is not on it");
            }
        }
    }
}

/// Gives a disk this thread, and tells what becomes of it.
fn serve(disk: &CacheDisk) {
    let directory = disk.directory().display();
    let tell = |event| match event {
        DiskEvent::Outdated => {
            tracing::info!(%directory, "the disk of a cache is emptied: it was of another config");
        }
        DiskEvent::Damaged => {
            tracing::warn!(%directory, "the disk of a cache is damaged, and emptied");
        }
        DiskEvent::Open { entries, dropped } => {
            tracing::info!(%directory, entries, "the disk of a cache is open");
            if dropped > 0 {
                tracing::warn!(%directory, dropped, "stored answers on the disk of a cache were damaged, and deleted");
            }
        }
    };
    if let Err(error) = disk.serve(&tell) {
        tracing::warn!(
            %directory,
            "the disk of a cache is not used until the next reload, answers are in memory only: {error}"
        );
    }
}

//! The generation that a member knew last, on disk. After a restart the member can thus say that there was
//! one, although the store may have forgotten it: units of calls from before may still count.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use egret_files::{private_directory, replace_file};
use tokio::task::{JoinHandle, spawn_blocking};

/// Time between two writings of the same generation. The age of the file says how long ago it was known.
const WRITE_INTERVAL: Duration = Duration::from_mins(1);

/// The file with the generation.
#[derive(Debug)]
pub(super) struct KnownGeneration {
    path: PathBuf,
    written: Option<(u64, Instant)>,
    /// The last writing, perhaps still going on.
    writing: Option<JoinHandle<()>>,
    /// `true` once the log has said that the file cannot be written, until it can.
    has_warned: Arc<AtomicBool>,
}

impl KnownGeneration {
    /// A file at `path`, which need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self { path, written: None, writing: None, has_warned: Arc::default() }
    }

    /// Reads the generation; 0 if there is none, or if no unit from then counts any more: each does for
    /// `cool_down` at most.
    pub fn read(&self, cool_down: Duration) -> u64 {
        let is_over = || {
            let age = std::fs::metadata(&self.path)?.modified()?.elapsed();
            // A file from the future was written before the clock was set back.
            Ok::<_, io::Error>(age.is_ok_and(|age| age > cool_down + WRITE_INTERVAL))
        };
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        let generation = text.trim_end().parse().unwrap_or_default();
        if is_over().unwrap_or(true) { 0 } else { generation }
    }

    /// Writes the generation, unless that was done lately. A disk may be slow, and this thread renews leases,
    /// so another one writes. Meanwhile no other generation is written: the next renewal does that.
    pub fn note(&mut self, generation: u64) {
        let is_lately = |(known, at): (u64, Instant)| known == generation && at.elapsed() < WRITE_INTERVAL;
        let is_writing = self.writing.as_ref().is_some_and(|writing| !writing.is_finished());
        if is_writing || self.written.is_some_and(is_lately) {
            return;
        }
        self.written = Some((generation, Instant::now()));
        let (path, has_warned) = (self.path.clone(), Arc::clone(&self.has_warned));
        self.writing = Some(spawn_blocking(move || {
            let written = write(&path, generation);
            let had_warned = has_warned.swap(written.is_err(), Relaxed);
            if let (Err(error), false) = (written, had_warned) {
                tracing::warn!(
                    %error, path = %path.display(),
                    "cannot note the generation of the cluster: if the store and this gateway restart at once, a quota may exceed its limit"
                );
            }
        }));
    }
}

fn write(path: &Path, generation: u64) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        private_directory(directory)?;
    }
    replace_file(path, format!("{generation}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn note(noted: &mut KnownGeneration, generation: u64) {
        noted.note(generation);
        if let Some(writing) = noted.writing.take() {
            writing.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_generation_is_known_after_a_restart_until_its_units_are_free() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("generation");
        let hour = Duration::from_hours(1);
        let known = || KnownGeneration::new(path.clone()).read(hour);
        assert_eq!(known(), 0);
        let mut noted = KnownGeneration::new(path.clone());
        note(&mut noted, 7).await;
        note(&mut noted, 8).await;
        assert_eq!(known(), 8);
        let age = |age: Duration| {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
        };
        age(hour);
        assert_eq!(known(), 8);
        age(2 * hour);
        assert_eq!(known(), 0);
        note(&mut noted, 8).await;
        assert_eq!(known(), 0, "it was written lately");
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_written_is_told_of_until_it_can() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        std::fs::write(&data_dir, "no directory").unwrap();
        let mut noted = KnownGeneration::new(data_dir.join("generation"));
        note(&mut noted, 1).await;
        assert!(noted.has_warned.load(Relaxed));
        std::fs::remove_file(&data_dir).unwrap();
        note(&mut noted, 2).await;
        assert!(!noted.has_warned.load(Relaxed));
        assert_eq!(noted.read(Duration::from_hours(1)), 2);
    }
}

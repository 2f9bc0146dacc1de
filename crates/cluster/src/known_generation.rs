//! The generation that a member knew last, on disk. After a restart the member can thus say that there was
//! one, although the store may have forgotten it: units of calls from before may still count.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use egret_files::{private_directory, replace_file};

/// Time between two writings of the same generation. The age of the file says how long ago it was known.
const WRITE_INTERVAL: Duration = Duration::from_mins(1);

/// The file with the generation.
#[derive(Debug)]
pub(super) struct KnownGeneration {
    path: PathBuf,
    written: Option<(u64, Instant)>,
    /// `true` once the log has said that the file cannot be written, until it can.
    has_warned: bool,
}

impl KnownGeneration {
    /// A file at `path`, which need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self { path, written: None, has_warned: false }
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

    /// Writes the generation, unless that was done lately.
    pub fn note(&mut self, generation: u64) {
        let is_lately = |(known, at): (u64, Instant)| known == generation && at.elapsed() < WRITE_INTERVAL;
        if self.written.is_some_and(is_lately) {
            return;
        }
        self.written = Some((generation, Instant::now()));
        let written = self.write(generation);
        if let Err(error) = &written
            && !self.has_warned
        {
            tracing::warn!(
                %error, path = %self.path.display(),
                "cannot note the generation of the cluster: if the store and this gateway restart at once, a quota may exceed its limit"
            );
        }
        self.has_warned = written.is_err();
    }

    fn write(&self, generation: u64) -> io::Result<()> {
        if let Some(directory) = self.path.parent() {
            private_directory(directory)?;
        }
        replace_file(&self.path, format!("{generation}\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_known_after_a_restart_until_its_units_are_free() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("generation");
        let hour = Duration::from_hours(1);
        let known = || KnownGeneration::new(path.clone()).read(hour);
        assert_eq!(known(), 0);
        let mut noted = KnownGeneration::new(path.clone());
        noted.note(7);
        noted.note(8);
        assert_eq!(known(), 8);
        let age = |age: Duration| {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
        };
        age(hour);
        assert_eq!(known(), 8);
        age(2 * hour);
        assert_eq!(known(), 0);
        noted.note(8);
        assert_eq!(known(), 0, "it was written lately");
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_told_of_until_it_can() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        std::fs::write(&data_dir, "no directory").unwrap();
        let mut noted = KnownGeneration::new(data_dir.join("generation"));
        noted.note(1);
        assert!(noted.has_warned);
        std::fs::remove_file(&data_dir).unwrap();
        noted.note(2);
        assert!(!noted.has_warned);
        assert_eq!(noted.read(Duration::from_hours(1)), 2);
    }
}

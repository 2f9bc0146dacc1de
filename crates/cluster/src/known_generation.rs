//! The generation that a member knew last, on disk. After a restart the member can thus say that there was
//! one, although the store may have forgotten it: units of calls from before may still count.

use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use egret_files::private_file;

/// Time between two writings of the same generation. The age of the file says how long ago it was known.
const WRITE_INTERVAL: Duration = Duration::from_mins(1);

/// The file with the generation.
#[derive(Debug)]
pub(super) struct KnownGeneration {
    path: PathBuf,
    written: Option<(u64, Instant)>,
}

impl KnownGeneration {
    /// A file at `path`, which need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self { path, written: None }
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
        if let Err(error) = self.write(generation) {
            tracing::debug!(%error, path = %self.path.display(), "cannot note the generation of the cluster");
        }
    }

    fn write(&self, generation: u64) -> io::Result<()> {
        if let Some(directory) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let draft = self.path.with_extension("part");
        let mut file = private_file().write(true).create(true).truncate(true).open(&draft)?;
        writeln!(file, "{generation}")?;
        std::fs::rename(draft, &self.path)
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
}

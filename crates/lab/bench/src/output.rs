//! Output files of a run: written completely, or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// A file to be written when the run has ended.
///
/// It is opened before the run, so a run whose result cannot be stored fails at once. A regular file is
/// written under a temporary name in the same directory and renamed when it is complete. A device or pipe is
/// written directly.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    draft: Option<PathBuf>,
    file: File,
}

impl Output {
    /// Opens the file.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let failed = |error| Error::Write(path.to_owned(), error);
        let special = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
        if special {
            let file = File::options().write(true).open(path).map_err(failed)?;
            return Ok(Self { path: path.to_owned(), draft: None, file });
        }
        let name = path.file_name().ok_or_else(|| failed(io::Error::other("not a file name")))?;
        let mut draft_name = name.to_owned();
        draft_name.push(format!(".{}.part", std::process::id()));
        let draft = path.with_file_name(draft_name);
        let file = File::create(&draft).map_err(failed)?;
        Ok(Self { path: path.to_owned(), draft: Some(draft), file })
    }

    /// Writes the whole content, then renames the file to its final name.
    pub fn finish(mut self, content: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(content).and_then(|()| self.file.flush());
        let placed = written.and_then(|()| match &self.draft {
            // Some file systems report a full disk only on sync.
            Some(draft) => self.file.sync_all().and_then(|()| fs::rename(draft, &self.path)),
            None => Ok(()),
        });
        placed.map_err(|error| Error::Write(self.path.clone(), error))?;
        self.draft = None;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(draft) = &self.draft {
            let _ = fs::remove_file(draft);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("egret-bench-output-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_there_when_it_is_whole_and_not_before() {
        let directory = directory("whole");
        let path = directory.join("a.json");
        fs::write(&path, "old").unwrap();
        let output = Output::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        output.finish(b"new").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(&directory).len()), ("new", 1));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn an_unfinished_output_leaves_no_file() {
        let directory = directory("none");
        drop(Output::create(&directory.join("a.json")).unwrap());
        assert_eq!(names(&directory), Vec::<String>::new());
        assert!(Output::create(&directory.join("missing/a.json")).is_err());
        fs::remove_dir_all(directory).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_told() {
        let error = Output::create(Path::new("/dev/full")).unwrap().finish(b"content").unwrap_err();
        assert!(error.to_string().starts_with("/dev/full cannot be written"), "{error}");
    }
}

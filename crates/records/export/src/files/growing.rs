//! The file that is being written, and how a batch gets into it without its ever being half written.
//!
//! A file that ends with a closing has a hidden twin. A batch is written into the twin, which then takes the file's name; what had the
//! name becomes the twin, and is given that batch together with the next one. So nothing is ever written into what has the name, and a
//! kill at any moment leaves it whole. That writes each byte twice, and keeps a second copy of the one file that grows.
//!
//! A file without a closing is appended to, and so is any where the file system has no hard links: there a kill can tear it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Format;
use crate::counters::{Counters, DropReason};
use crate::disk::{self, Disk};

/// A hidden file that is to get a name.
pub const PART: &str = "part";
/// A second name of a file, for a moment.
pub const LINK: &str = "link";

/// The file that is being written. It is locked, so that no keeper takes it for a left one.
#[derive(Debug)]
pub struct Growing {
    file: File,
    path: PathBuf,
    inode: u64,
    closing: &'static str,
    /// Where the closing begins.
    end: u64,
    entries: u64,
    opened: Instant,
    is_torn: bool,
    twin: Option<Twin>,
}

/// What is written, and then takes the file's name.
#[derive(Debug)]
struct Twin {
    file: File,
    inode: u64,
    path: PathBuf,
    /// For a moment another name of the file that has been shown.
    link: PathBuf,
    /// Up to where it is as the file.
    end: u64,
    /// What the file has from there on, up to its closing.
    behind: Vec<u8>,
}

impl Growing {
    /// A file with no entries yet. It gets its name once it is valid. A twin is for files that somebody reads while they grow.
    pub fn begin(
        directory: &Path,
        name: &str,
        format: &Format,
        has_twin: bool,
        disk: &dyn Disk,
        now: Instant,
    ) -> io::Result<Self> {
        disk::make_directory(directory)?;
        let (path, part) = (directory.join(name), hidden(directory, name, PART));
        let file = create(&part)?;
        let begun = || {
            disk.write_all_at(&file, format!("{}{}", format.header, format.closing).as_bytes(), 0)?;
            fs::rename(&part, &path)?;
            Ok(file.metadata()?.ino())
        };
        let inode = begun().inspect_err(|_: &io::Error| {
            let _ = fs::remove_file(&part);
        })?;
        // A directory that has taken one file refuses another only where it is full, and then the batch does not fit either.
        let twin = has_twin.then(|| Twin::begin(directory, name, format)).transpose()?;
        let (closing, end) = (format.closing, format.header.len() as u64);
        Ok(Self { file, path, inode, closing, end, entries: 0, opened: now, is_torn: false, twin })
    }

    /// Where it is.
    #[cfg(test)]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where its closing begins.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Entries in it.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// How long it has been written.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.opened)
    }

    /// Whether a write into it has failed and could not be undone: the keeper repairs it.
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Writes a batch of `entries` entries. Where that fails, the file stays as it was, unless it is torn.
    pub fn append(
        &mut self,
        batch: &[u8],
        entries: u64,
        disk: &dyn Disk,
        counters: &Counters,
    ) -> io::Result<()> {
        if !self.is_written_by_twin(batch, disk, counters)? {
            self.write_in_place(batch, disk)?;
        }
        self.end += batch.len() as u64;
        self.entries += entries;
        Ok(())
    }

    /// False where there is no twin, or no longer.
    fn is_written_by_twin(&mut self, batch: &[u8], disk: &dyn Disk, counters: &Counters) -> io::Result<bool> {
        let Some(twin) = &mut self.twin else { return Ok(false) };
        twin.write(batch, self.closing, disk)?;
        if let Err(error) = twin.take_name(&self.path) {
            let path = self.path.display();
            counters.noticed(format!("{path} is written in place, where a kill can tear it: {error}"));
            self.twin = None;
            return Ok(false);
        }
        std::mem::swap(&mut self.file, &mut twin.file);
        std::mem::swap(&mut self.inode, &mut twin.inode);
        twin.end = self.end;
        twin.behind.drain(..twin.behind.len() - batch.len());
        Ok(true)
    }

    /// In one write, which begins where the closing did.
    fn write_in_place(&mut self, batch: &[u8], disk: &dyn Disk) -> io::Result<()> {
        let closing = self.closing.as_bytes();
        disk.write_all_at(&self.file, &[batch, closing].concat(), self.end).inspect_err(|_| {
            let restored = disk.write_all_at(&self.file, closing, self.end);
            let length = self.end + closing.len() as u64;
            self.is_torn = restored.and_then(|()| self.file.set_len(length)).is_err();
        })
    }

    /// Whether the file still is where it was, as long as it was. Tells what has become of it where it is not.
    pub fn is_there(&self, counters: &Counters) -> bool {
        let path = self.path.display();
        let length = self.end + self.closing.len() as u64;
        match fs::symlink_metadata(&self.path) {
            Ok(found) if found.ino() == self.inode && found.len() == length => return true,
            Ok(found) if found.ino() == self.inode => {
                counters.noticed(format!("{path} was changed by somebody else: another file is begun"));
            }
            _ if self.file.metadata().is_ok_and(|file| file.nlink() == 0) => {
                let entries = self.entries;
                counters.dropped(DropReason::Deleted, entries);
                counters.noticed(format!("{path} was deleted with {entries} entries: another file is begun"));
            }
            _ => counters.noticed(format!("{path} was moved: another file is begun")),
        }
        false
    }
}

impl Twin {
    /// Of a file of that name, in the same directory, that holds nothing but its header and its closing.
    fn begin(directory: &Path, name: &str, format: &Format) -> io::Result<Self> {
        let (path, link) = (hidden(directory, name, PART), hidden(directory, name, LINK));
        let file = create(&path)?;
        let inode = file.metadata()?.ino();
        Ok(Self { file, inode, path, link, end: 0, behind: format.header.clone().into_bytes() })
    }

    /// Brings it up to where the file is, and writes a batch behind that.
    fn write(&mut self, batch: &[u8], closing: &str, disk: &dyn Disk) -> io::Result<()> {
        let known = self.behind.len();
        self.behind.extend_from_slice(batch);
        self.behind.extend_from_slice(closing.as_bytes());
        let written = disk.write_all_at(&self.file, &self.behind, self.end);
        self.behind.truncate(if written.is_ok() { known + batch.len() } else { known });
        // Room that a part of it has taken is given back.
        written.inspect_err(|_| _ = self.file.set_len(self.end))
    }

    /// Gives it the name of the file, and what had the name that of the twin.
    fn take_name(&self, path: &Path) -> io::Result<()> {
        fs::hard_link(path, &self.link)?;
        fs::rename(&self.path, path)?;
        // Where this fails, the next link does.
        let _ = fs::rename(&self.link, &self.path);
        Ok(())
    }
}

/// Removes what is hidden; the file is whole without it.
impl Drop for Twin {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(&self.link);
    }
}

fn hidden(directory: &Path, name: &str, extension: &str) -> PathBuf {
    directory.join(format!(".{name}.{extension}"))
}

/// Makes a hidden file and locks it. Before it is locked, a keeper may have taken it for a left one and removed it.
fn create(path: &Path) -> io::Result<File> {
    loop {
        let file = disk::create(path)?;
        // Not every file system has locks; where there are none, no keeper takes a file either.
        let _ = file.lock();
        if file.metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

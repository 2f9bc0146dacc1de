//! The file that is being written. A batch is added without the file ever being half written.
//!
//! A file that ends with a closing has a hidden twin. A batch is written to the twin, which then takes the
//! name of the file. The file that had the name becomes the twin, and receives that batch together with the
//! next one. The visible file is never written to, so killing the process at any moment leaves it intact. The
//! cost: each byte is written twice, and the growing file exists twice.
//!
//! A file without a closing is appended to in place, and so is every file if the file system has no hard
//! links. Then a kill can tear the file.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use egret_clock::Moment;
use egret_files::system::{self as fs, File, MetadataExt as _};

use egret_files::private_directory;

use super::format::FileFormat;
use crate::counters::{Counters, DropReason};
use crate::disk::{self, Disk};

/// Extension of a hidden file that will be renamed.
pub const PART: &str = "part";
/// Extension of the temporary second name of a file.
pub const LINK: &str = "link";

/// The file that is being written. It is locked, so `Retention` does not treat it as closed.
#[derive(Debug)]
pub struct Growing {
    file: File,
    path: PathBuf,
    inode: u64,
    closing: &'static str,
    /// Offset of the closing.
    end: u64,
    entries: u64,
    opened: Moment,
    is_torn: bool,
    twin: Option<Twin>,
}

/// The hidden copy that is written and then takes the name of the file.
#[derive(Debug)]
struct Twin {
    file: File,
    inode: u64,
    path: PathBuf,
    /// Temporary second name of the visible file.
    link: PathBuf,
    /// Offset up to which the twin equals the file.
    end: u64,
    /// Content of the file from there up to its closing.
    behind: Vec<u8>,
}

impl Growing {
    /// Creates a file without entries. It gets its name once it is valid. A twin is for files that may be
    /// read while they grow.
    pub fn begin(
        directory: &Path,
        name: &str,
        format: &FileFormat,
        has_twin: bool,
        disk: &dyn Disk,
        now: Moment,
    ) -> io::Result<Self> {
        private_directory(directory)?;
        let (path, part) = (directory.join(name), hidden(directory, name, PART));
        let file = create(&part)?;
        let created = || {
            disk.write_all_at(&file, format!("{}{}", format.header, format.closing).as_bytes(), 0)?;
            fs::rename(&part, &path)?;
            Ok(file.metadata()?.ino())
        };
        let inode = created().inspect_err(|_: &io::Error| {
            let _ = fs::remove_file(&part);
        })?;
        // A directory that has accepted one file refuses a second only if the disk is full, and then the
        // batch does not fit either.
        let twin = has_twin.then(|| Twin::begin(directory, name, format)).transpose()?;
        let (closing, end) = (format.closing, format.header.len() as u64);
        Ok(Self { file, path, inode, closing, end, entries: 0, opened: now, is_torn: false, twin })
    }

    /// Path of the file.
    #[cfg(test)]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Offset of the closing.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Number of entries in the file.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Time since the file was created.
    pub fn age(&self, now: Moment) -> Duration {
        now.since(self.opened)
    }

    /// Returns `true` if a write failed and could not be undone. `Retention` repairs the file.
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Appends a batch of `entries` entries. On error the file is unchanged, unless it is torn.
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

    /// Writes a batch by way of the twin. Returns `false` if there is no usable twin.
    fn is_written_by_twin(&mut self, batch: &[u8], disk: &dyn Disk, counters: &Counters) -> io::Result<bool> {
        let Some(twin) = &mut self.twin else { return Ok(false) };
        twin.write(batch, self.closing, disk)?;
        if let Err(error) = twin.take_name(&self.path) {
            let path = self.path.display();
            counters.warn(format!("{path} is written in place, so killing Egret can tear it: {error}"));
            self.twin = None;
            return Ok(false);
        }
        std::mem::swap(&mut self.file, &mut twin.file);
        std::mem::swap(&mut self.inode, &mut twin.inode);
        twin.end = self.end;
        twin.behind.drain(..twin.behind.len() - batch.len());
        Ok(true)
    }

    /// Writes a batch in a single write over the closing.
    fn write_in_place(&mut self, batch: &[u8], disk: &dyn Disk) -> io::Result<()> {
        let closing = self.closing.as_bytes();
        disk.write_all_at(&self.file, &[batch, closing].concat(), self.end).inspect_err(|_| {
            let restored = disk.write_all_at(&self.file, closing, self.end);
            let length = self.end + closing.len() as u64;
            self.is_torn = restored.and_then(|()| self.file.set_len(length)).is_err();
        })
    }

    /// Returns `true` if the file is still in its place with the expected length. Otherwise reports what
    /// happened to it.
    pub fn is_intact(&self, counters: &Counters) -> bool {
        let path = self.path.display();
        let length = self.end + self.closing.len() as u64;
        match fs::symlink_metadata(&self.path) {
            Ok(found) if found.ino() == self.inode && found.len() == length => return true,
            Ok(found) if found.ino() == self.inode => {
                counters.warn(format!("{path} was changed by another program: starting a new file"));
            }
            _ if self.file.metadata().is_ok_and(|file| file.nlink() == 0) => {
                let entries = self.entries;
                counters.dropped(DropReason::Deleted, entries);
                counters.warn(format!("{path} was deleted with {entries} entries: starting a new file"));
            }
            _ => counters.warn(format!("{path} was moved: starting a new file")),
        }
        false
    }
}

impl Twin {
    /// Creates the twin of a new file in the same directory.
    fn begin(directory: &Path, name: &str, format: &FileFormat) -> io::Result<Self> {
        let (path, link) = (hidden(directory, name, PART), hidden(directory, name, LINK));
        let file = create(&path)?;
        let inode = file.metadata()?.ino();
        Ok(Self { file, inode, path, link, end: 0, behind: format.header.clone().into_bytes() })
    }

    /// Adds the content that the twin lacks, followed by a batch.
    fn write(&mut self, batch: &[u8], closing: &str, disk: &dyn Disk) -> io::Result<()> {
        let known = self.behind.len();
        self.behind.extend_from_slice(batch);
        self.behind.extend_from_slice(closing.as_bytes());
        let written = disk.write_all_at(&self.file, &self.behind, self.end);
        self.behind.truncate(if written.is_ok() { known + batch.len() } else { known });
        // Frees the space of a partial write.
        written.inspect_err(|_| _ = self.file.set_len(self.end))
    }

    /// Exchanges the names of the twin and the file.
    fn take_name(&self, path: &Path) -> io::Result<()> {
        fs::hard_link(path, &self.link)?;
        fs::rename(&self.path, path)?;
        // If this fails, so does the next hard link, and the twin is given up.
        let _ = fs::rename(&self.link, &self.path);
        Ok(())
    }
}

/// Removes the hidden files. The visible file is complete without them.
impl Drop for Twin {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(&self.link);
    }
}

fn hidden(directory: &Path, name: &str, extension: &str) -> PathBuf {
    directory.join(format!(".{name}.{extension}"))
}

/// Creates and locks a hidden file. Before it is locked, another process may have treated it as abandoned and
/// removed it.
fn create(path: &Path) -> io::Result<File> {
    loop {
        let file = disk::create(path)?;
        // Some file systems have no locks. On those, `Retention` cannot lock any file either, so it removes
        // none.
        let _ = file.lock();
        if file.metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

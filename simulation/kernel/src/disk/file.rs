//! Open files, and how they are opened.

use std::fs::TryLockError;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

use super::paths::Metadata;
use super::{Disk, Name, Node, with};

/// An open file or directory.
#[derive(Debug)]
pub struct File {
    /// `None` for a directory.
    node: Option<usize>,
    handle: u64,
    life: u64,
    at: AtomicU64,
}

fn position(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

impl File {
    /// Opens a file for reading, or a directory.
    ///
    /// # Errors
    ///
    /// Fails if there is none, and as the disk does.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path)
    }

    /// Returns the options of an open file.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Uses the content of the file. It is gone after a power failure.
    fn act<T>(&self, act: impl FnOnce(&mut Disk, usize) -> io::Result<T>) -> io::Result<T> {
        with(|disk| match self.node {
            _ if disk.life != self.life => Err(Errno::IO.into()),
            Some(node) => act(disk, node),
            None => Err(Errno::ISDIR.into()),
        })
    }

    /// Returns what is known of the file.
    ///
    /// # Errors
    ///
    /// Fails after a power failure.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.act(|disk, node| {
            disk.begin(0)?;
            Ok(Metadata::of(node, &disk.nodes[node]))
        })
    }

    /// Changes the length.
    ///
    /// # Errors
    ///
    /// Fails as the disk does.
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        self.act(|disk, node| disk.set_len(node, position(length)))
    }

    /// Makes the content durable.
    ///
    /// # Errors
    ///
    /// Fails as the disk does.
    pub fn sync_data(&self) -> io::Result<()> {
        self.act(|disk, node| disk.sync(node))
    }

    /// Does the same. Of a directory all names are durable already.
    ///
    /// # Errors
    ///
    /// Fails as the disk does.
    pub fn sync_all(&self) -> io::Result<()> {
        if self.node.is_some() { self.sync_data() } else { with(|disk| disk.begin(disk.faults.sync)) }
    }

    /// Locks the file.
    ///
    /// # Errors
    ///
    /// Fails if another handle has locked it: nobody would unlock it while the world waits.
    pub fn lock(&self) -> io::Result<()> {
        self.try_lock().map_err(io::Error::from)
    }

    /// Locks the file, unless another handle has locked it.
    ///
    /// # Errors
    ///
    /// Fails if another handle has locked it, and after a power failure.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        let locked = self.act(|disk, node| {
            let by = *disk.nodes[node].locked_by.get_or_insert(self.handle);
            Ok(by == self.handle)
        });
        match locked {
            Ok(true) => Ok(()),
            Ok(false) => Err(TryLockError::WouldBlock),
            Err(error) => Err(TryLockError::Error(error)),
        }
    }

    fn read_part(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.act(|disk, node| {
            disk.begin(disk.faults.read)?;
            let rest = disk.nodes[node].bytes.get(position(at)..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        })
    }

    fn write_part(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.act(|disk, node| disk.write(node, position(at), bytes))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // The lock ends with its handle.
        let _ = self.act(|disk, node| {
            let locked_by = &mut disk.nodes[node].locked_by;
            *locked_by = locked_by.filter(|handle| *handle != self.handle);
            Ok(())
        });
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_part(buffer, self.at.load(Relaxed))?;
        self.at.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.write_part(bytes, self.at.load(Relaxed))?;
        self.at.fetch_add(count as u64, Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let length = self.metadata()?.len();
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => length.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.load(Relaxed).checked_add_signed(offset),
        };
        let at = at.ok_or(io::ErrorKind::InvalidInput)?;
        self.at.store(at, Relaxed);
        Ok(at)
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

/// Reads and writes at an offset.
pub trait FileExt {
    /// Fills `buffer` from an offset.
    ///
    /// # Errors
    ///
    /// Fails if the file ends before, and as the disk does.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all bytes at an offset.
    ///
    /// # Errors
    ///
    /// Fails as the disk does. A part of them may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let count = self.read_part(buffer, offset)?;
        if count == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.write_part(&bytes[done..], offset + done as u64)?;
        }
        Ok(())
    }
}

/// The options of an open file.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the options of the system are independent of each other")]
pub struct OpenOptions {
    write: bool,
    append: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
}

/// Defines options that are on or off.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        impl OpenOptions {
            $($(#[$doc])*
            pub fn $name(&mut self, is_on: bool) -> &mut Self {
                self.$name = is_on;
                self
            })*
        }
    };
}

options! {
    /// It is written.
    write;
    /// It is written at its end.
    append;
    /// It is created if it is not there.
    create;
    /// It is created, and must not be there.
    create_new;
    /// It is emptied.
    truncate;
}

impl OpenOptions {
    /// Creates options without any.
    pub fn new() -> Self {
        Self::default()
    }

    /// It is read: every file can be.
    pub fn read(&mut self, _: bool) -> &mut Self {
        self
    }

    /// Opens a file, or a directory.
    ///
    /// # Errors
    ///
    /// Fails if it is there or not there, against the options, and as the disk does.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        with(|disk| {
            disk.begin(disk.faults.read)?;
            let node = match disk.names.get(path).copied() {
                Some(_) if self.create_new => return Err(Errno::EXIST.into()),
                Some(Name::Directory) => None,
                Some(Name::File(node)) => Some(node),
                None if self.create || self.create_new => Some(create(disk, path)?),
                None => return Err(Errno::NOENT.into()),
            };
            if let Some(node) = node.filter(|_| self.truncate) {
                disk.set_len(node, 0)?;
            }
            disk.next_handle += 1;
            let at = node.filter(|_| self.append).map_or(0, |node| disk.nodes[node].bytes.len() as u64);
            Ok(File { node, handle: disk.next_handle, life: disk.life, at: AtomicU64::new(at) })
        })
    }
}

/// Returns the options of a private file: there is one user, and there are no links.
pub fn private_file() -> OpenOptions {
    OpenOptions::new()
}

fn create(disk: &mut Disk, path: &Path) -> io::Result<usize> {
    disk.needs_parent(path)?;
    let node = disk.nodes.len();
    disk.nodes.push(Node { links: 1, ..Node::default() });
    disk.names.insert(path.to_owned(), Name::File(node));
    Ok(node)
}

/// Options that only Unix has. They change nothing here: there is one user, and there are no links.
pub trait OpenOptionsExt {
    /// Sets the permissions of a new file.
    fn mode(&mut self, mode: u32) -> &mut Self;

    /// Sets flags of the call.
    fn custom_flags(&mut self, flags: i32) -> &mut Self;
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, _: u32) -> &mut Self {
        self
    }

    fn custom_flags(&mut self, _: i32) -> &mut Self {
        self
    }
}

/// Creates directories.
#[derive(Debug, Default)]
pub struct DirBuilder;

impl DirBuilder {
    /// Creates it.
    pub fn new() -> Self {
        Self
    }

    /// Its parents are created always.
    pub fn recursive(&mut self, _: bool) -> &mut Self {
        self
    }

    /// Creates a directory and its parents.
    ///
    /// # Errors
    ///
    /// Fails if there is a file, and as the disk does.
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        super::create_dir_all(path)
    }
}

/// Options that only Unix has.
pub trait DirBuilderExt {
    /// Sets the permissions of new directories: there is one user.
    fn mode(&mut self, mode: u32) -> &mut Self;
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, _: u32) -> &mut Self {
        self
    }
}

//! Calls that name files by their path.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::{File, Name, Node, with};

/// The metadata of a file.
#[derive(Debug, Clone, Copy)]
pub struct Metadata {
    length: u64,
    node: u64,
    links: u64,
    is_file: bool,
}

impl Metadata {
    pub(super) fn of(number: usize, node: &Node) -> Self {
        Self { length: node.bytes.len() as u64, node: number as u64, links: node.links, is_file: true }
    }

    /// Its length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "the name and form are those of the standard library")]
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Returns `true` if it is no directory.
    pub fn is_file(&self) -> bool {
        self.is_file
    }
}

/// Metadata that only Unix has.
pub trait MetadataExt {
    /// Its number, whatever its names are.
    fn ino(&self) -> u64;

    /// Number of its names.
    fn nlink(&self) -> u64;
}

impl MetadataExt for Metadata {
    fn ino(&self) -> u64 {
        self.node
    }

    fn nlink(&self) -> u64 {
        self.links
    }
}

/// Returns what is known of a file or directory.
///
/// # Errors
///
/// Fails if there is none.
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    with(|disk| {
        disk.begin(0)?;
        match disk.names.get(path.as_ref()) {
            Some(Name::File(node)) => Ok(Metadata::of(*node, &disk.nodes[*node])),
            Some(Name::Directory) => Ok(Metadata { length: 0, node: u64::MAX, links: 1, is_file: false }),
            None => Err(Errno::NOENT.into()),
        }
    })
}

/// Does the same: there are no symbolic links.
///
/// # Errors
///
/// Fails if there is none.
pub fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    metadata(path)
}

/// Returns `true` if there is a file or directory.
///
/// # Errors
///
/// None.
pub fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    Ok(with(|disk| disk.names.contains_key(path.as_ref())))
}

/// Gives a file another name, in place of the file that has it.
///
/// # Errors
///
/// Fails if there is no file, and as the disk does.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    with(|disk| {
        disk.begin(disk.faults.rename)?;
        let node = disk.file(from)?;
        disk.needs_parent(to)?;
        if let Some(Name::File(before)) = disk.names.insert(to.to_owned(), Name::File(node)) {
            disk.unlink(before);
        }
        if from != to {
            disk.names.remove(from);
        }
        Ok(())
    })
}

/// Gives a file a second name.
///
/// # Errors
///
/// Fails if there is no file, if the name is taken, and as the disk does.
pub fn hard_link(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    with(|disk| {
        disk.begin(disk.faults.rename)?;
        let node = disk.file(from)?;
        disk.needs_parent(to)?;
        if disk.names.contains_key(to) {
            return Err(Errno::EXIST.into());
        }
        disk.names.insert(to.to_owned(), Name::File(node));
        disk.nodes[node].links += 1;
        Ok(())
    })
}

/// Removes a name of a file.
///
/// # Errors
///
/// Fails if there is none, and as the disk does.
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    with(|disk| {
        disk.begin(disk.faults.rename)?;
        let node = disk.file(path.as_ref())?;
        disk.names.remove(path.as_ref());
        disk.unlink(node);
        Ok(())
    })
}

/// Removes an empty directory.
///
/// # Errors
///
/// Fails if there is none, or if it is not empty.
pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    with(|disk| {
        disk.begin(disk.faults.rename)?;
        match disk.names.get(path) {
            Some(Name::Directory) => {}
            Some(Name::File(_)) => return Err(Errno::NOTDIR.into()),
            None => return Err(Errno::NOENT.into()),
        }
        if disk.names.keys().any(|name| name.parent() == Some(path)) {
            return Err(Errno::NOTEMPTY.into());
        }
        disk.names.remove(path);
        Ok(())
    })
}

/// Creates a directory and its parents.
///
/// # Errors
///
/// Fails if there is a file, and as the disk does.
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    with(|disk| {
        disk.begin(disk.faults.rename)?;
        for parent in path.as_ref().ancestors() {
            match disk.names.insert(parent.to_owned(), Name::Directory) {
                Some(file @ Name::File(_)) => {
                    disk.names.insert(parent.to_owned(), file);
                    return Err(Errno::NOTDIR.into());
                }
                Some(Name::Directory) => break,
                None => {}
            }
        }
        Ok(())
    })
}

/// Changes nothing: there is one user.
///
/// # Errors
///
/// Fails if there is no file or directory.
pub fn set_permissions(path: impl AsRef<Path>, _: Permissions) -> io::Result<()> {
    metadata(path).map(|_| ())
}

/// A file in a directory.
#[derive(Debug)]
pub struct DirEntry(PathBuf);

impl DirEntry {
    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.0.clone()
    }

    /// Its name.
    pub fn file_name(&self) -> OsString {
        self.0.file_name().map(OsString::from).unwrap_or_default()
    }
}

/// Returns what is in a directory.
///
/// # Errors
///
/// Fails if there is none, and as the disk does.
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<std::vec::IntoIter<io::Result<DirEntry>>> {
    let path = path.as_ref();
    with(|disk| {
        disk.begin(disk.faults.read)?;
        if disk.names.get(path) != Some(&Name::Directory) {
            return Err(Errno::NOENT.into());
        }
        let within = disk.names.keys().filter(|name| name.parent() == Some(path));
        let within: Vec<_> = within.map(|name| Ok(DirEntry(name.clone()))).collect();
        Ok(within.into_iter())
    })
}

/// Reads a whole file.
///
/// # Errors
///
/// Fails if there is none, and as the disk does.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

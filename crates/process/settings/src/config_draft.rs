//! Replaces the config file: a crash at any moment leaves the old file or the new one, whole.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use egret_files::private_file;
use rustix::fs::{Access, access};

use crate::control_token::random_hex;

/// Bits of a file's mode that allow writing.
const WRITE_BITS: u32 = 0o222;

/// Bits of a file's mode that are kept.
const MODE_BITS: u32 = 0o7777;

/// A new text of a file, beside it. Dropping it leaves the file as it is.
pub struct Draft {
    path: PathBuf,
    file: PathBuf,
    /// `true` if the file did not exist.
    is_new: bool,
    is_committed: bool,
}

impl Draft {
    /// Writes the text to the disk, in a file with the owner and the permissions of `file`. If `file` does
    /// not exist, it gets those of `like`.
    ///
    /// # Errors
    ///
    /// Fails as [`write`](Self::write) does.
    pub fn write_like(file: &Path, like: &Path, text: &str) -> io::Result<Self> {
        let is_missing =
            fs::symlink_metadata(file).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        Self::write_as(file, text, if is_missing { like } else { file })
    }

    /// Writes the text to the disk, in a file with the owner and the permissions of `file`.
    ///
    /// # Errors
    ///
    /// Fails if `file` is read-only, if it is a symbolic link (a mounted `ConfigMap` is one: its source is
    /// elsewhere, and the mount would discard the change), and if the directory cannot be written to.
    pub fn write(file: &Path, text: &str) -> io::Result<Self> {
        Self::write_as(file, text, file)
    }

    fn write_as(file: &Path, text: &str, like: &Path) -> io::Result<Self> {
        let metadata = check_writable(like)?;
        remove_leftovers(file);
        let mut name = prefix(file);
        name.push(random_hex::<8>()?);
        let is_new = file != like;
        let draft =
            Self { path: file.with_file_name(name), file: file.to_owned(), is_new, is_committed: false };
        let mut new = private_file().write(true).create_new(true).open(&draft.path)?;
        new.write_all(text.as_bytes())?;
        keep_owner(&new, &metadata)?;
        new.set_permissions(fs::Permissions::from_mode(metadata.mode() & MODE_BITS))?;
        new.sync_all()?;
        Ok(draft)
    }

    /// Puts the new text in the place of the file.
    ///
    /// # Errors
    ///
    /// Fails without a change if the file cannot be replaced, for example because it is a mount of its own.
    pub fn commit(mut self) -> io::Result<()> {
        if !self.is_new {
            check_writable(&self.file)?;
        }
        fs::rename(&self.path, &self.file)?;
        self.is_committed = true;
        sync_directory(&self.file);
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_committed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes a rename in the file's directory permanent. Not every file system can; the new file is in place
/// anyway.
pub fn sync_directory(file: &Path) {
    let synced = File::open(directory(file)).and_then(|directory| directory.sync_all());
    if let Err(error) = synced {
        tracing::debug!(%error, "the directory of the config cannot be synced");
    }
}

/// Returns the properties of the file if it can be replaced.
fn check_writable(file: &Path) -> io::Result<Metadata> {
    let refused = |message: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    let metadata = fs::symlink_metadata(file)?;
    if metadata.is_symlink() {
        return refused(
            "it is a symbolic link, as in a mounted ConfigMap: change the source that it leads to",
        );
    }
    if !metadata.is_file() {
        return refused("it is not a regular file");
    }
    if metadata.mode() & WRITE_BITS == 0 {
        return refused("it is read-only");
    }
    access(file, Access::WRITE_OK)?;
    Ok(metadata)
}

fn keep_owner(new: &File, old: &Metadata) -> io::Result<()> {
    let own = new.metadata()?;
    if (own.uid(), own.gid()) == (old.uid(), old.gid()) {
        return Ok(());
    }
    fchown(new, Some(old.uid()), Some(old.gid()))
        .map_err(|error| io::Error::new(error.kind(), format!("its owner and group cannot be kept: {error}")))
}

/// Removes drafts that a crash has left. A draft that another Egret is writing may be among them; its change
/// then fails, and the file is as it was.
fn remove_leftovers(file: &Path) {
    let prefix = prefix(file);
    let Ok(entries) = fs::read_dir(directory(file)) else { return };
    let is_leftover = |name: &OsString| name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes());
    for entry in entries.flatten().filter(|entry| is_leftover(&entry.file_name())) {
        let _ = fs::remove_file(entry.path());
    }
}

/// Returns the beginning of the names of drafts.
fn prefix(file: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(file.file_name().unwrap_or_default());
    prefix.push(".egret-");
    prefix
}

fn directory(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn file(directory: &tempfile::TempDir) -> PathBuf {
        let file = directory.path().join("egret.yaml");
        fs::write(&file, "old").unwrap();
        file
    }

    fn names(directory: &tempfile::TempDir) -> usize {
        fs::read_dir(directory.path()).unwrap().count()
    }

    #[test]
    fn a_draft_replaces_the_file_whole_and_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(&directory);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let left = Draft::write(&file, "left").unwrap();
        // As a crash would.
        std::mem::forget(left);
        let draft = Draft::write(&file, "new").unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), names(&directory)), ("old", 2));
        draft.commit().unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), names(&directory)), ("new", 1));
        assert_eq!(fs::metadata(&file).unwrap().mode() & MODE_BITS, 0o640);
    }

    #[test]
    fn a_draft_that_is_dropped_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(&directory);
        drop(Draft::write(&file, "new").unwrap());
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), names(&directory)), ("old", 1));
    }

    #[test]
    fn links_and_read_only_files_are_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(&directory);
        let link = directory.path().join("link.yaml");
        symlink(&file, &link).unwrap();
        let refusal = |file: &Path| Draft::write(file, "new").err().unwrap().to_string();
        assert!(refusal(&link).contains("symbolic link"));
        assert!(refusal(directory.path()).contains("regular"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        assert_eq!(refusal(&file), "it is read-only");
        assert_eq!(names(&directory), 2);
    }
}

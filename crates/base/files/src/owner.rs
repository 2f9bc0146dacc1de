//! The decision if a file is followed: its owner, and the users that can change it.
//!
//! A file of another user is an attack until somebody names it: what it says would be done with the rights of
//! the user that runs this program.

use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The user and the group that may do everything anyway.
const ROOT: u32 = 0;

/// Write permission for the group, and for everybody (POSIX `S_IWGRP`, `S_IWOTH`).
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// In a directory with this bit, files can only be replaced by their owners, and by that of the directory
/// (`S_ISVTX`).
const STICKY: u32 = 0o1000;

/// The users and the groups of the machine.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The reason why a file or directory is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// It belongs to this user, who is neither root nor the one that runs this program.
    #[error("it belongs to {}, and this program runs as {}", NamedUser(*.0), NamedUser(own()))]
    Owner(u32),
    /// This mode lets other users change it.
    #[error("other users can change it (mode {0:04o})")]
    Writable(u32),
}

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A user in a message: `alice (user 1000)`.
struct NamedUser(u32);

impl fmt::Display for NamedUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match user_name(self.0) {
            Some(name) => write!(f, "{name} (user {})", self.0),
            None => write!(f, "user {}", self.0),
        }
    }
}

/// Returns the name of a user of this machine, if it is a plain word.
pub fn user_name(user: u32) -> Option<String> {
    let users = fs::read_to_string(USERS).ok()?;
    let name = name_of(&users, user)?;
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)).then(|| name.to_owned())
}

/// Checks that a file or directory belongs to the user that runs this program, or to root.
///
/// # Errors
///
/// Fails with the owner otherwise.
pub fn is_ours(metadata: &Metadata) -> Result<(), Distrust> {
    match metadata.uid() {
        ROOT => Ok(()),
        owner if owner == own() => Ok(()),
        owner => Err(Distrust::Owner(owner)),
    }
}

/// Checks the same, and that no other user can change it. A sticky directory passes: nobody can replace
/// files of others in it. So does what the owner's private group may change.
///
/// # Errors
///
/// Fails with the owner or the mode otherwise.
pub fn is_ours_alone(metadata: &Metadata) -> Result<(), Distrust> {
    is_ours(metadata)?;
    let mode = metadata.mode() & 0o7777;
    let is_safe_directory = metadata.is_dir() && mode & STICKY != 0;
    let others_write = mode & OTHERS_WRITE != 0;
    let group_writes = mode & GROUP_WRITES != 0 && !is_private_group(metadata.uid(), metadata.gid());
    if (others_write || group_writes) && !is_safe_directory {
        return Err(Distrust::Writable(mode));
    }
    Ok(())
}

/// Returns `true` for root's group, and for the group that a user shares with nobody. Many systems give each
/// user one and let it write new files (umask 0002).
fn is_private_group(owner: u32, group: u32) -> bool {
    if group == ROOT {
        return true;
    }
    let [users, groups] = [USERS, GROUPS].map(|file| fs::read_to_string(file).unwrap_or_default());
    is_private(&users, &groups, owner, group)
}

/// Does the same with the tables of the machine (`passwd(5)`, `group(5)`): the group has the user's name, and
/// no further member. Without entries, as in a container, the same number stands for it.
fn is_private(users: &str, groups: &str, owner: u32, group: u32) -> bool {
    let Some((name, members)) = group_of(groups, group) else { return owner == group };
    let is_primary_of_another = users.lines().any(|line| {
        let mut columns = line.split(':').skip(2);
        let [user, primary] = [columns.next(), columns.next()].map(|number| number?.parse::<u32>().ok());
        primary == Some(group) && user != Some(owner)
    });
    let is_own = |member: &str| member.is_empty() || Some(member) == name_of(users, owner);
    Some(name) == name_of(users, owner) && members.split(',').all(is_own) && !is_primary_of_another
}

fn name_of(users: &str, user: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut columns = line.split(':');
        let name = columns.next()?;
        (columns.nth(1)?.parse() == Ok(user)).then_some(name)
    })
}

/// Returns the name and the members of a group.
fn group_of(groups: &str, group: u32) -> Option<(&str, &str)> {
    groups.lines().find_map(|line| {
        let mut columns = line.split(':');
        let name = columns.next()?;
        (columns.nth(1)?.parse() == Ok(group)).then(|| (name, columns.next().unwrap_or_default()))
    })
}

/// The reason why a file that was found, and not named, is not followed.
#[derive(Debug, thiserror::Error)]
pub enum FoundError {
    /// This file or directory is not ours alone.
    #[error("{0}: {1}")]
    Distrust(PathBuf, Distrust),
    /// The system does not tell about this one.
    #[error("{0}: {1}")]
    System(PathBuf, io::Error),
}

/// Checks that nobody else can choose what a found file says: neither its content, nor by replacing it, nor
/// through a symbolic link.
///
/// # Errors
///
/// Fails for the first file or directory on the way to the content that is not ours alone.
pub fn check_found(path: &Path) -> Result<(), FoundError> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let directory =
        fs::canonicalize(directory).map_err(|error| FoundError::System(directory.to_owned(), error))?;
    // A link's own mode means nothing: its directory decides who can replace it.
    check(&directory, fs::metadata(&directory), is_ours_alone)?;
    check(path, fs::symlink_metadata(path), is_ours)?;
    let target = fs::canonicalize(path).map_err(|error| FoundError::System(path.to_owned(), error))?;
    check(&target, fs::metadata(&target), is_ours_alone)?;
    match target.parent() {
        Some(parent) => check(parent, fs::metadata(parent), is_ours_alone),
        None => Ok(()),
    }
}

fn check(
    path: &Path,
    metadata: io::Result<Metadata>,
    rule: impl Fn(&Metadata) -> Result<(), Distrust>,
) -> Result<(), FoundError> {
    let metadata = metadata.map_err(|error| FoundError::System(path.to_owned(), error))?;
    rule(&metadata).map_err(|why| FoundError::Distrust(path.to_owned(), why))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    const OTHER: u32 = 65_534;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Gives a file to another user. Only root can; `false` otherwise.
    fn give_away(path: &Path) -> bool {
        let given = chown(path, Some(OTHER), Some(OTHER)).is_ok();
        if !given {
            println!("not run as root: files of other users are not tried");
        }
        given
    }

    #[test]
    fn a_found_file_must_be_ours_alone_and_so_must_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("egret.yaml");
        fs::write(&file, "").unwrap();
        assert!(check_found(&file).is_ok());
        for mode in [0o602, 0o666] {
            set_mode(&file, mode);
            assert!(
                matches!(check_found(&file), Err(FoundError::Distrust(_, Distrust::Writable(m))) if m == mode)
            );
        }
        set_mode(&file, 0o644);
        set_mode(directory.path(), 0o777);
        let error = check_found(&file).unwrap_err().to_string();
        assert!(error.starts_with(&directory.path().display().to_string()), "{error}");
        set_mode(directory.path(), 0o1777);
        assert!(check_found(&file).is_ok(), "nobody else can replace it");
        if give_away(&file) {
            let error = check_found(&file).unwrap_err().to_string();
            assert!(error.contains("it belongs to") && error.contains("user 65534"), "{error}");
        }
    }

    #[test]
    fn a_link_counts_with_the_owners_of_its_target() {
        let directory = tempfile::tempdir().unwrap();
        let (here, there) = (directory.path().join("here"), directory.path().join("there"));
        for path in [&here, &there] {
            fs::create_dir(path).unwrap();
        }
        let (link, target) = (here.join("egret.yaml"), there.join("target.yaml"));
        fs::write(&target, "").unwrap();
        symlink(&target, &link).unwrap();
        assert!(check_found(&link).is_ok());
        set_mode(&there, 0o777);
        assert!(matches!(check_found(&link), Err(FoundError::Distrust(at, _)) if at.ends_with("there")));
        set_mode(&there, 0o755);
        if give_away(&target) {
            assert!(
                matches!(check_found(&link), Err(FoundError::Distrust(at, _)) if at.ends_with("target.yaml"))
            );
            fs::remove_file(&target).unwrap();
            fs::write(&target, "").unwrap();
            std::os::unix::fs::lchown(&link, Some(OTHER), None).unwrap();
            assert!(matches!(check_found(&link), Err(FoundError::Distrust(at, _)) if at == link));
        }
        fs::remove_file(&target).unwrap();
        assert!(check_found(&link).is_err(), "it leads nowhere");
    }

    #[test]
    fn a_group_without_other_members_is_private() {
        let users = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\ncy:x:1002:100::/:\n";
        let groups = "root:x:0:\nann:x:1000:ann\nbob:x:1001:ann\nusers:x:100:\n";
        for (owner, group, expected) in [
            (1000, 1000, true),
            (1001, 1001, false),
            (1000, 100, false),
            (1002, 100, false),
            (5000, 5000, true),
            (5000, 5001, false),
        ] {
            assert_eq!(is_private(users, groups, owner, group), expected, "{owner} {group}");
        }
        let shared = format!("{users}dan:x:1003:1000::/:\n");
        assert!(!is_private(&shared, groups, 1000, 1000));
    }
}

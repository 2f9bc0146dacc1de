//! `data_dir/exec`: the logs of gateways that `egret exec` has started, the addresses of those that run, and
//! the files by which commands trust their authorities.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use egret_files::{is_ours_alone, private_directory, private_file};

/// The directory's name in the data directory.
const NAME: &str = "exec";

/// Maximum number of logs. The oldest are removed.
const LOGS_MAX: usize = 10;

/// Maximum number of gateways with a file. The oldest are removed. Gateways remove their own when they end.
const GATEWAYS_MAX: usize = 64;

/// Maximum number of authorities with files. The oldest are removed. Gateways remove their own when they end.
const AUTHORITIES_MAX: usize = 64;

const LOG_END: &str = ".log";
const GATEWAY_END: &str = ".control";
const AUTHORITY_START: &str = "ca-";

/// Length of a name made from a digest, in bytes of it.
const NAME_BYTES: usize = 8;

/// The directory, with an absolute path: commands may change theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecDirectory {
    path: PathBuf,
}

impl ExecDirectory {
    /// Returns the directory in this data directory, whether it exists or not.
    ///
    /// # Errors
    ///
    /// Fails if the current directory is unknown.
    pub fn of(data_dir: &Path) -> io::Result<Self> {
        Ok(Self { path: std::path::absolute(data_dir)?.join(NAME) })
    }

    /// Creates the log of the gateway of the command with this process id.
    pub fn log(&self, command: u32) -> io::Result<(PathBuf, File)> {
        create(&self.path)?;
        let path = self.path.join(format!("{command}{LOG_END}"));
        // An old one is that of another command, whose process id is used again.
        let _ = fs::remove_file(&path);
        self.remove_oldest(LOGS_MAX - 1, |name| name.ends_with(LOG_END));
        let log = private_file().append(true).create_new(true).open(&path)?;
        Ok((path, log))
    }

    /// Notes the address of the control port of this process, for commands in another terminal.
    pub fn note_gateway(&self, control: SocketAddr) -> io::Result<()> {
        create(&self.path)?;
        self.forget_gateway();
        self.remove_oldest(GATEWAYS_MAX - 1, |name| name.ends_with(GATEWAY_END));
        let mut file = private_file().write(true).create_new(true).open(self.gateway_file())?;
        file.write_all(control.to_string().as_bytes())
    }

    /// Removes the address of this process.
    pub fn forget_gateway(&self) {
        // There is none if it could not be written.
        let _ = fs::remove_file(self.gateway_file());
    }

    /// Returns the addresses of control ports, the newest first. A gateway that was killed has left its own.
    pub fn gateways(&self) -> Vec<SocketAddr> {
        let files = self.aged(|name| name.ends_with(GATEWAY_END)).into_iter().rev();
        files.filter_map(|(_, path)| fs::read_to_string(path).ok()?.parse().ok()).collect()
    }

    fn gateway_file(&self) -> PathBuf {
        self.path.join(format!("{}{GATEWAY_END}", std::process::id()))
    }

    /// Creates the directory for the authority with this root certificate, in DER.
    pub fn authority(&self, root: &[u8]) -> io::Result<PathBuf> {
        let path = self.path_of_authority(root);
        create(&self.path)?;
        if !path.is_dir() {
            self.remove_oldest(AUTHORITIES_MAX - 1, |name| name.starts_with(AUTHORITY_START));
        }
        create(&path)?;
        Ok(path)
    }

    /// Removes the files of an authority that no longer exists.
    pub fn remove_authority(&self, root: &[u8]) {
        // There are none if no command has used the authority.
        let _ = fs::remove_dir_all(self.path_of_authority(root));
    }

    fn path_of_authority(&self, root: &[u8]) -> PathBuf {
        self.path.join(format!("{AUTHORITY_START}{}", short_digest(root)))
    }

    /// Removes the oldest entries until there are `max`.
    fn remove_oldest(&self, max: usize, is_meant: impl Fn(&str) -> bool) {
        let aged = self.aged(is_meant);
        let surplus = aged.len().saturating_sub(max);
        for (_, path) in aged.into_iter().take(surplus) {
            // Another `egret exec` may have removed it.
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }

    /// Returns entries with the time of their last change, the oldest first.
    fn aged(&self, is_meant: impl Fn(&str) -> bool) -> Vec<(SystemTime, PathBuf)> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let meant = entries.filter(|entry| entry.file_name().to_str().is_some_and(&is_meant));
        let mut aged: Vec<(SystemTime, PathBuf)> =
            meant.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
        aged.sort();
        aged
    }
}

/// Creates a directory unless it exists. One that another user has made, or can change, is refused: commands
/// trust the certificates in it.
fn create(directory: &Path) -> io::Result<()> {
    private_directory(directory)?;
    is_ours_alone(&fs::metadata(directory)?).map_err(|why| {
        io::Error::new(io::ErrorKind::PermissionDenied, format!("{}: {why}", directory.display()))
    })
}

/// Returns the first digits of a digest, as a name for these bytes.
pub fn short_digest(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    HEXLOWER.encode(digest.as_ref().get(..NAME_BYTES).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_their_owners_alone_and_few() {
        let data_dir = tempfile::tempdir().unwrap();
        let directory = ExecDirectory::of(&data_dir.path().join("data")).unwrap();
        for command in 0..40 {
            directory.log(command).unwrap();
            directory.log(command).unwrap();
        }
        let authorities: Vec<PathBuf> =
            (0..70u8).map(|number| directory.authority(&[number]).unwrap()).collect();
        let count = |is_dir: bool| {
            fs::read_dir(&directory.path)
                .unwrap()
                .filter(|entry| entry.as_ref().unwrap().path().is_dir() == is_dir)
                .count()
        };
        assert_eq!((count(false), count(true)), (LOGS_MAX, AUTHORITIES_MAX));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let last = authorities.last().unwrap();
        assert_eq!((mode(&directory.path), mode(last)), (0o700, 0o700));
        assert_eq!(mode(&directory.log(1).unwrap().0), 0o600);
        directory.remove_authority(&[69]);
        assert!(!last.exists());
        let address = "127.0.0.1:8001".parse().unwrap();
        directory.note_gateway(address).unwrap();
        directory.note_gateway(address).unwrap();
        assert_eq!(directory.gateways(), [address]);
        directory.forget_gateway();
        assert!(directory.gateways().is_empty());
    }
}

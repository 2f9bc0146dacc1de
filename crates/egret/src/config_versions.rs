//! The last versions of the config file that were in effect, in the data directory.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use egret_clock::{Clock, Moment};
use egret_config::{CONFIG_BYTES_MAX, read_file};
use egret_control::Version;
use egret_files::private_file;

use crate::config_draft::sync_directory;
use crate::control_token::random_hex;

/// The directory's name in the data directory.
const DIRECTORY_NAME: &str = "config-versions";

/// Number of versions that are kept.
const VERSIONS_MAX: usize = 10;

/// Permissions of a new directory: its owner's alone.
const DIRECTORY_MODE: u32 = 0o700;

/// The event by which a version came into effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionOrigin {
    /// Egret started with it.
    Start,
    /// The file was changed, or SIGHUP was sent.
    File,
    /// It was sent over the API.
    Api,
    /// A rollback over the API.
    Rollback,
}

impl VersionOrigin {
    const ALL: [Self; 4] = [Self::Start, Self::File, Self::Api, Self::Rollback];

    const fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::File => "file",
            Self::Api => "api",
            Self::Rollback => "rollback",
        }
    }
}

/// The kept versions: one file each, called `NUMBER-TIME-ORIGIN.yaml`.
pub struct ConfigVersions {
    directory: PathBuf,
}

/// A version and its file.
struct Kept {
    number: u64,
    since_us: u64,
    origin: VersionOrigin,
    path: PathBuf,
}

impl ConfigVersions {
    /// Creates the access to the versions; the directory is created when first needed.
    pub fn new(data_dir: &Path) -> Self {
        Self { directory: data_dir.join(DIRECTORY_NAME) }
    }

    /// Keeps a text that is now in effect, unless the newest version has the same text. Returns its number;
    /// `None` if it cannot be kept, and then the log says why.
    pub fn record(&self, text: &str, origin: VersionOrigin) -> Option<u64> {
        let recorded = self.try_record(text, origin);
        let failed = |error| {
            tracing::info!(directory = %self.directory.display(), "this version of the config is not kept: {error}");
        };
        recorded.map_err(failed).ok()
    }

    fn try_record(&self, text: &str, origin: VersionOrigin) -> io::Result<u64> {
        fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&self.directory)?;
        let kept = self.kept();
        let newest = kept.last();
        if let Some(newest) = newest
            && read(&newest.path).is_ok_and(|kept| kept == text)
        {
            return Ok(newest.number);
        }
        let number = newest.map_or(1, |newest| newest.number.saturating_add(1));
        let since_us = Clock::new().timestamp(Moment::now()).as_micros();
        let path = self.directory.join(format!("{number:06}-{since_us}-{}.yaml", origin.word()));
        let draft = self.directory.join(format!(".{}", random_hex::<8>()?));
        let mut file = private_file().write(true).create_new(true).open(&draft)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        if let Err(error) = written.and_then(|()| fs::rename(&draft, &path)) {
            let _ = fs::remove_file(&draft);
            return Err(error);
        }
        sync_directory(&path);
        for old in kept.iter().rev().skip(VERSIONS_MAX - 1) {
            let _ = fs::remove_file(&old.path);
        }
        Ok(number)
    }

    /// Returns the versions, the newest first. The newest is current if it has the text `in_effect`.
    pub fn list(&self, in_effect: &str) -> Vec<Version> {
        let kept = self.kept();
        let newest = kept.last().map(|kept| kept.number);
        let version = |kept: &Kept| Version {
            number: kept.number,
            since_us: kept.since_us,
            origin: kept.origin.word(),
            bytes: fs::metadata(&kept.path).map_or(0, |file| file.len()),
            current: Some(kept.number) == newest && read(&kept.path).is_ok_and(|text| text == in_effect),
        };
        kept.iter().rev().map(version).collect()
    }

    /// Returns the text of a version; `None` if there is none with that number.
    pub fn text(&self, number: u64) -> Option<String> {
        let kept = self.kept().into_iter().find(|kept| kept.number == number)?;
        read(&kept.path).ok()
    }

    /// Returns the versions, the oldest first.
    fn kept(&self) -> Vec<Kept> {
        let Ok(entries) = fs::read_dir(&self.directory) else { return Vec::new() };
        let mut kept: Vec<Kept> = entries.flatten().filter_map(|entry| parse(entry.path())).collect();
        kept.sort_by_key(|kept| kept.number);
        kept
    }
}

/// Returns the version in a file, by the file's name. Other files are left alone.
fn parse(path: PathBuf) -> Option<Kept> {
    let mut parts = path.file_name()?.to_str()?.strip_suffix(".yaml")?.splitn(3, '-');
    let (number, since_us) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let word = parts.next()?;
    let origin = VersionOrigin::ALL.into_iter().find(|origin| origin.word() == word)?;
    Some(Kept { number, since_us, origin, path })
}

fn read(path: &Path) -> io::Result<String> {
    let mut bytes = read_file(path, CONFIG_BYTES_MAX)?;
    String::from_utf8(std::mem::take(&mut *bytes)).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_last_ten_different_versions_are_kept_for_their_owner_alone() {
        let data_dir = tempfile::tempdir().unwrap();
        let versions = ConfigVersions::new(data_dir.path());
        assert_eq!(versions.list(""), []);
        assert_eq!(versions.record("0", VersionOrigin::Start), Some(1));
        assert_eq!(versions.record("0", VersionOrigin::File), Some(1));
        for number in 1..12 {
            assert_eq!(versions.record(&number.to_string(), VersionOrigin::Api), Some(number + 1));
        }
        let list = versions.list("11");
        assert_eq!(
            list.iter().map(|version| version.number).collect::<Vec<_>>(),
            (3..=12).rev().collect::<Vec<_>>()
        );
        assert!(list[0].current && !list[1].current && !versions.list("other")[0].current);
        assert_eq!((versions.text(3).as_deref(), versions.text(2)), (Some("2"), None));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&versions.directory), 0o700);
        for entry in fs::read_dir(&versions.directory).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
    }

    #[test]
    fn what_is_not_a_version_is_left_alone() {
        let data_dir = tempfile::tempdir().unwrap();
        let versions = ConfigVersions::new(data_dir.path());
        versions.record("a", VersionOrigin::Rollback).unwrap();
        for name in ["notes.yaml", "1-2-other.yaml", "x-2-api.yaml", "000009-1-api.yml"] {
            fs::write(versions.directory.join(name), "x").unwrap();
        }
        assert_eq!(versions.list("a").len(), 1);
        assert!(ConfigVersions::new(Path::new("/dev/null")).record("a", VersionOrigin::Api).is_none());
    }
}

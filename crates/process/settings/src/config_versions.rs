//! The last versions of the config file that were in effect, in the data directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use egret_clock::{Clock, Moment};
use egret_config::{CONFIG_BYTES_MAX, SourceSet, SourceText, read_file};
use egret_control::Version;
use egret_files::{private_directory, replace_file};
use egret_items::words;
use serde::{Deserialize, Serialize};

use crate::config_draft::sync_directory;

/// The directory's name in the data directory.
const DIRECTORY_NAME: &str = "config-versions";

/// Number of versions that are kept.
const VERSIONS_MAX: usize = 10;

words! {
    /// The event by which a version came into effect.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum VersionOrigin: word {
        /// Egret started with it.
        Start => "start",
        /// The file was changed, or SIGHUP was sent.
        File => "file",
        /// It was sent over the API.
        Api => "api",
        /// A rollback over the API.
        Rollback => "rollback",
    }
}

/// Maximum length of a version's file. In JSON, a text may take several times its length.
const VERSION_BYTES_MAX: usize = 8 * CONFIG_BYTES_MAX;

/// A file of a version that has several: name and text. Names are relative to the directory of the config.
#[derive(Debug, Serialize, Deserialize)]
struct KeptFile {
    name: String,
    text: String,
}

/// The kept versions: one file each, called `NUMBER-TIME-ORIGIN.yaml`, or `NUMBER-TIME-ORIGIN.json` for a
/// config that includes other files. If a user made it, `-` and the user's name in hexadecimal digits follow
/// the origin: any other form could leave the directory.
pub struct ConfigVersions {
    directory: PathBuf,
}

/// A version and its file.
struct Kept {
    number: u64,
    since_us: u64,
    origin: VersionOrigin,
    user: Option<String>,
    path: PathBuf,
}

impl ConfigVersions {
    /// Creates the access to the versions; the directory is created when first needed.
    pub fn new(data_dir: &Path) -> Self {
        Self { directory: data_dir.join(DIRECTORY_NAME) }
    }

    /// Keeps the texts that are now in effect, unless the newest version has the same. Returns its number;
    /// `None` if they cannot be kept, and then the log says why.
    pub fn record(&self, set: &SourceSet, origin: VersionOrigin, user: Option<&str>) -> Option<u64> {
        let recorded = self.try_record(set, origin, user);
        let failed = |error| {
            tracing::info!(directory = %self.directory.display(), "this version of the config is not kept: {error}");
        };
        recorded.map_err(failed).ok()
    }

    fn try_record(&self, set: &SourceSet, origin: VersionOrigin, user: Option<&str>) -> io::Result<u64> {
        private_directory(&self.directory)?;
        let kept = self.kept();
        let newest = kept.last();
        if let Some(newest) = newest
            && read(&newest.path).is_ok_and(|kept| is_same(&kept, set))
        {
            return Ok(newest.number);
        }
        let number = newest.map_or(1, |newest| newest.number.saturating_add(1));
        let since_us = Clock::new().timestamp(Moment::now()).as_micros();
        let (text, extension) = written(set)?;
        let user = user.map(|user| format!("-{}", HEXLOWER.encode(user.as_bytes()))).unwrap_or_default();
        let name = format!("{number:06}-{since_us}-{}{user}.{extension}", origin.word());
        let path = self.directory.join(name);
        replace_file(&path, text.as_bytes())?;
        sync_directory(&path);
        for old in kept.iter().rev().skip(VERSIONS_MAX - 1) {
            let _ = fs::remove_file(&old.path);
        }
        Ok(number)
    }

    /// Returns the versions, the newest first. The newest is current if it has the texts `in_effect`.
    pub fn list(&self, in_effect: &SourceSet) -> Vec<Version> {
        let kept = self.kept();
        let newest = kept.last().map(|kept| kept.number);
        let version = |kept: &Kept| {
            let set = read(&kept.path).unwrap_or_default();
            Version {
                number: kept.number,
                since_us: kept.since_us,
                origin: kept.origin.word(),
                user: kept.user.clone(),
                bytes: set.bytes() as u64,
                files: 1 + set.included.len(),
                current: Some(kept.number) == newest && is_same(&set, in_effect),
            }
        };
        kept.iter().rev().map(version).collect()
    }

    /// Returns the texts of a version; `None` if there is none with that number. Included files have their
    /// names relative to the directory of the config, whose own name is empty.
    pub fn set(&self, number: u64) -> Option<SourceSet> {
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
    let name = path.file_name()?.to_str()?;
    let mut parts = name.strip_suffix(".yaml").or(name.strip_suffix(".json"))?.splitn(3, '-');
    let (number, since_us) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let made = parts.next()?;
    let (word, user) = made.split_once('-').map_or((made, None), |(word, user)| (word, Some(user)));
    let decoded = |user: &str| String::from_utf8(HEXLOWER.decode(user.as_bytes()).ok()?).ok();
    let user = match user {
        Some(user) => Some(decoded(user)?),
        None => None,
    };
    let origin = VersionOrigin::ALL.into_iter().find(|origin| origin.word() == word)?;
    Some(Kept { number, since_us, origin, user, path })
}

fn read(path: &Path) -> io::Result<SourceSet> {
    let mut bytes = read_file(path, VERSION_BYTES_MAX)?;
    let text = String::from_utf8(std::mem::take(&mut *bytes)).map_err(io::Error::other)?;
    if path.extension().is_none_or(|extension| extension != "json") {
        return Ok(SourceSet::single("", text));
    }
    let files: Vec<KeptFile> = serde_json::from_str(&text)?;
    let mut files = files.into_iter().map(|KeptFile { name, text }| SourceText { name, text });
    let main = files.next().ok_or(io::ErrorKind::InvalidData)?;
    Ok(SourceSet { main: SourceText { name: String::new(), ..main }, included: files.collect() })
}

/// Returns the content of a version's file, and its extension.
fn written(set: &SourceSet) -> io::Result<(String, &'static str)> {
    if set.included.is_empty() {
        return Ok((set.main.text.clone(), "yaml"));
    }
    let main = KeptFile { name: String::new(), text: set.main.text.clone() };
    let included = set
        .included
        .iter()
        .map(|file| KeptFile { name: set.relative_name(file).to_owned(), text: file.text.clone() });
    let files: Vec<KeptFile> = std::iter::once(main).chain(included).collect();
    Ok((serde_json::to_string(&files)?, "json"))
}

/// Returns `true` if both have the same texts under the same relative names.
fn is_same(kept: &SourceSet, set: &SourceSet) -> bool {
    let texts = |set: &SourceSet| -> Vec<(String, String)> {
        let named = |file: &SourceText| (set.relative_name(file).to_owned(), file.text.clone());
        set.included.iter().map(named).collect()
    };
    kept.main.text == set.main.text && texts(kept) == texts(set)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn single(text: &str) -> SourceSet {
        SourceSet::single("etc/egret.yaml", text)
    }

    #[test]
    fn the_last_ten_different_versions_are_kept_for_their_owner_alone() {
        let data_dir = tempfile::tempdir().unwrap();
        let versions = ConfigVersions::new(data_dir.path());
        assert_eq!(versions.list(&single("")), []);
        assert_eq!(versions.record(&single("0"), VersionOrigin::Start, None), Some(1));
        assert_eq!(versions.record(&single("0"), VersionOrigin::File, None), Some(1));
        for number in 1..12 {
            let set = single(&number.to_string());
            assert_eq!(versions.record(&set, VersionOrigin::Api, None), Some(number + 1));
        }
        let list = versions.list(&single("11"));
        assert_eq!(
            list.iter().map(|version| version.number).collect::<Vec<_>>(),
            (3..=12).rev().collect::<Vec<_>>()
        );
        assert!(list[0].current && !list[1].current && !versions.list(&single("other"))[0].current);
        let text = |number| versions.set(number).map(|set| set.main.text);
        assert_eq!((text(3).as_deref(), text(2)), (Some("2"), None));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&versions.directory), 0o700);
        for entry in fs::read_dir(&versions.directory).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
    }

    #[test]
    fn a_version_has_all_files_of_the_set() {
        let data_dir = tempfile::tempdir().unwrap();
        let versions = ConfigVersions::new(data_dir.path());
        let file = |name: &str, text: &str| SourceText { name: name.to_owned(), text: text.to_owned() };
        let set = SourceSet { included: vec![file("etc/flows/a.yaml", "b: \"c\"\n")], ..single("a") };
        assert_eq!(versions.record(&set, VersionOrigin::Start, None), Some(1));
        assert_eq!(versions.record(&set, VersionOrigin::File, None), Some(1));
        let other = SourceSet { included: vec![file("etc/flows/a.yaml", "d")], ..set.clone() };
        assert_eq!(versions.record(&other, VersionOrigin::File, None), Some(2));
        assert_eq!(versions.record(&single("a"), VersionOrigin::File, None), Some(3));
        let kept = versions.set(1).unwrap();
        assert_eq!((kept.main.text.as_str(), kept.included), ("a", vec![file("flows/a.yaml", "b: \"c\"\n")]));
        let list: Vec<_> =
            versions.list(&single("a")).iter().map(|version| (version.files, version.bytes)).collect();
        assert_eq!(list, [(1, 1), (2, 2), (2, 8)]);
    }

    #[test]
    fn a_version_names_its_user_whatever_the_name() {
        let data_dir = tempfile::tempdir().unwrap();
        let versions = ConfigVersions::new(data_dir.path());
        let users = ["alice@example.com", "../../etc/passwd", "a-b.yaml", &"x".repeat(96)];
        for (index, user) in users.iter().enumerate() {
            let set = single(&index.to_string());
            assert!(versions.record(&set, VersionOrigin::Api, Some(user)).is_some(), "{user}");
            let newest = versions.list(&set).swap_remove(0);
            assert_eq!((newest.user.as_deref(), newest.origin, newest.current), (Some(*user), "api", true));
        }
        assert_eq!(fs::read_dir(&versions.directory).unwrap().count(), users.len());
    }

    #[test]
    fn other_files_are_not_listed_as_versions() {
        let data_dir = tempfile::tempdir().unwrap();
        let versions = ConfigVersions::new(data_dir.path());
        versions.record(&single("a"), VersionOrigin::Rollback, None).unwrap();
        for name in ["notes.yaml", "1-2-other.yaml", "1-2-api-xyz.yaml", "x-2-api.yaml", "000009-1-api.yml"] {
            fs::write(versions.directory.join(name), "x").unwrap();
        }
        assert_eq!(versions.list(&single("a")).len(), 1);
        assert!(
            ConfigVersions::new(Path::new("/dev/null"))
                .record(&single("a"), VersionOrigin::Api, None)
                .is_none()
        );
    }
}

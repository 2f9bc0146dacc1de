//! The files of an exporter: their directory, names and limits.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;

use super::config::FilesConfig;
use super::format::FileFormat;
use crate::background::random;

/// The files of an exporter, and the rules for rotating them.
#[derive(Debug)]
pub struct Layout {
    /// Name of the exporter. File names begin with it.
    pub name: String,
    /// Directory of the files.
    pub directory: PathBuf,
    /// Format of the files.
    pub format: FileFormat,
    /// Maximum size of a file.
    pub rotate_bytes: u64,
    /// Maximum age of a file.
    pub rotate_after: Option<Duration>,
    /// Maximum size of all files together.
    pub keep_bytes: Option<u64>,
    /// `true` if closed files are compressed.
    pub gzip: bool,
    /// `true` if the files are only a spool: their entries have not reached their destination yet.
    pub is_spool: bool,
}

impl Layout {
    /// Returns the layout for a config.
    pub fn new(name: &str, config: &FilesConfig, format: FileFormat) -> Self {
        Self {
            name: name.to_owned(),
            directory: config.directory.clone(),
            format,
            rotate_bytes: config.rotate.bytes(),
            rotate_after: Some(config.rotate_after.get()).filter(|after| !after.is_zero()),
            keep_bytes: Some(config.keep.bytes()).filter(|bytes| *bytes > 0),
            gzip: config.gzip,
            is_spool: false,
        }
    }

    /// Returns `true` if files have to be valid while they grow. Formats without a closing are valid anyway,
    /// and spool files are not read while they grow.
    pub fn has_twin(&self) -> bool {
        !self.format.closing.is_empty() && !self.is_spool
    }

    /// Returns a unique file name. Names sort by time.
    pub fn file_name(&self, time: SystemTime) -> String {
        let stamp = egret_clock::rfc3339::write(time).replace(['-', ':'], "");
        let unique = HEXLOWER.encode(&random::<3>());
        format!("{}-{stamp}-{unique}.{}", self.name, self.format.extension)
    }

    /// Returns `true` for the file names of this exporter: `NAME-20261122T105253.250Z-4f2a91.har`, followed
    /// by `.gz` if compressed.
    pub fn is_own(&self, file_name: &str) -> bool {
        let Some(rest) = file_name.strip_prefix(&*self.name).and_then(|rest| rest.strip_prefix('-')) else {
            return false;
        };
        let Some((stamp, rest)) = rest.split_at_checked(STAMP.len()) else { return false };
        let Some((unique, rest)) = rest.split_at_checked("-4f2a91.".len()) else { return false };
        let looks_like = |text: &str, model: &str| {
            text.bytes().zip(model.bytes()).all(|(byte, model)| match model {
                b'0' => byte.is_ascii_digit(),
                b'x' => byte.is_ascii_hexdigit(),
                other => byte == other,
            })
        };
        let extension = self.format.extension;
        looks_like(stamp, STAMP)
            && looks_like(unique, "-xxxxxx.")
            && (rest == extension || rest.strip_suffix(".gz") == Some(extension))
    }
}

/// Pattern of the time in a file name.
const STAMP: &str = "00000000T000000.000Z";

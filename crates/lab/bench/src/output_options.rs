//! The presentation, the files and the conditions of a run, and the kind of measurement.

use std::path::PathBuf;

use crate::error::Error;
use crate::report::Style;
use crate::threshold::Threshold;

/// The outputs and conditions requested for a run.
#[derive(Debug, Clone, Default)]
pub struct OutputOptions {
    /// Presentation of the report.
    pub style: Style,
    /// ab's `-e`.
    pub csv: Option<PathBuf>,
    /// ab's `-g`.
    pub tsv: Option<PathBuf>,
    /// File for the result as JSON.
    pub json: Option<PathBuf>,
    /// File for the histograms.
    pub hdr: Option<PathBuf>,
    /// Conditions under which the run counts as failed.
    pub fail_if: Vec<Threshold>,
    /// The kind of measurement.
    pub mode: Mode,
}

impl OutputOptions {
    /// Returns `true` if the report is read by a person alone: no program gets a file, ab's report or HTML.
    pub(crate) fn is_for_readers(&self) -> bool {
        let files = [&self.csv, &self.tsv, &self.json, &self.hdr];
        files.iter().all(|file| file.is_none()) && !self.style.ab_compat && self.style.html.is_none()
    }

    /// Rejects options that describe a single run, for modes that consist of several. Ignoring them silently
    /// would mislead.
    pub(crate) fn reject_files_and_conditions(&self, why: &str) -> Result<(), Error> {
        let files = [&self.csv, &self.tsv, &self.json, &self.hdr];
        if self.fail_if.is_empty() && files.iter().all(|file| file.is_none()) {
            return Ok(());
        }
        Err(Error::Usage(format!("{why}: remove --fail-if, -e, -g, --json and --hdr")))
    }
}

/// A kind of measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Mode {
    /// One run.
    #[default]
    Once,
    /// Search for the highest rate at which the target keeps up.
    Saturation,
    /// Comparison of the target with another URL.
    Comparison(String),
}

//! The evaluation of a results folder, as `summary.json` has it.

use serde::{Deserialize, Serialize};

use super::bounded_figure::BoundedFigure;
use super::case_summary::CaseSummary;
use super::slopes::SlopeSummary;
use super::text_table::TextTable;

/// The evaluation of a results folder.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Summary {
    /// Version of this file format: 1.
    pub version: u32,
    /// The experiment's name.
    pub name: String,
    /// Title of the experiment.
    pub title: String,
    /// `true` for the quick profile.
    pub quick: bool,
    /// `true` if every turn was completed.
    pub whole: bool,
    /// The scenario that the others are compared with.
    pub baseline: String,
    /// The conclusion, in one or two sentences.
    #[serde(default)]
    pub headline: String,
    /// The outcome in sentences, the most important first.
    pub verdict: Vec<String>,
    /// Reasons to doubt the figures.
    pub doubts: Vec<String>,
    /// `true` if failing requests are part of the experiment.
    #[serde(default)]
    pub failures_expected: bool,
    /// The cases.
    pub cases: Vec<CaseSummary>,
    /// Increase of the added time with provider time, if the cases differ in it.
    pub slopes: Vec<SlopeSummary>,
    /// Tables that span two cases.
    #[serde(default)]
    pub tables: Vec<TextTable>,
    /// Figures with a bound.
    #[serde(default)]
    pub held: Vec<BoundedFigure>,
}

impl Summary {
    /// Returns the cases in ascending order of offered rate. Returns none if two cases have the same rate,
    /// because then they differ in something else.
    pub fn by_rate(&self) -> Vec<(u32, &CaseSummary)> {
        let rated = self.cases.iter().filter_map(|case| Some((case.offered_per_second?, case)));
        let mut rated: Vec<_> = rated.collect();
        rated.sort_by_key(|(rate, _)| *rate);
        if rated.windows(2).any(|pair| pair[0].0 == pair[1].0) { Vec::new() } else { rated }
    }

    /// Finds a case by name.
    pub fn case(&self, name: &str) -> Option<&CaseSummary> {
        self.cases.iter().find(|case| case.case == name)
    }
}

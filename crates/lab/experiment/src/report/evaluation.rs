//! Evaluates a results folder.

use super::bounded_figure::bounded_figures;
use super::case_summary::CaseSummary;
use super::slopes::slopes;
use super::summary::Summary;
use super::{case_table, headline, load_table, verdict};
use crate::results::Results;

impl Summary {
    /// Evaluates a results folder.
    pub fn of(results: &Results) -> Self {
        let metadata = &results.metadata;
        let baseline = metadata.experiment.baseline().to_owned();
        let cases: Vec<CaseSummary> = (0..metadata.experiment.cases.len())
            .map(|case| CaseSummary::of(results, case, &baseline))
            .collect();
        let mut summary = Self {
            version: 1,
            name: metadata.name.clone(),
            title: metadata.experiment.title.clone(),
            quick: metadata.quick,
            whole: results.is_whole(),
            failures_expected: metadata.experiment.failures_expected,
            slopes: slopes(results, &cases, &baseline),
            held: bounded_figures(results),
            baseline,
            headline: String::new(),
            verdict: Vec::new(),
            doubts: Vec::new(),
            cases,
            tables: Vec::new(),
        };
        summary.tables = metadata
            .experiment
            .tables
            .iter()
            .filter_map(|table| {
                let is_of_load = table.cases.is_empty();
                if is_of_load {
                    load_table::build(table, &summary)
                } else {
                    case_table::build(table, results)
                }
            })
            .collect();
        summary.headline = headline::headline(&summary);
        summary.verdict = verdict::verdict(&summary);
        summary.doubts = verdict::doubts(&summary, results);
        summary
    }
}

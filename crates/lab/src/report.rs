//! What a results folder says: a summary in figures and words, charts, and one page that holds them all.

mod bars;
mod compare;
mod lines;
mod page;
mod summary;
mod svg;
mod verdict;

use std::path::PathBuf;

pub use compare::{Comparison, Difference, compare};
pub use summary::{CaseSummary, ScenarioSummary, SlopeSummary, Summary};

use crate::experiment::{Results, ResultsError, make_directory, write_json, write_whole};

/// Writes `summary.json` and the percentile CSV of each scenario into a results folder.
pub fn summarise(results: &Results) -> Result<Summary, ResultsError> {
    let summary = Summary::of(results);
    let directory = results.directory.join("percentiles");
    make_directory(&directory)?;
    for case in &summary.cases {
        for scenario in case.scenarios.iter().filter(|scenario| !scenario.response_ms.is_empty()) {
            let file = directory.join(format!("{}-{}.csv", case.case, scenario.scenario));
            write_whole(&file, &scenario.percentiles_csv())?;
        }
    }
    write_json(&results.directory.join("summary.json"), &summary)?;
    Ok(summary)
}

/// Writes the report: `report.html`, which needs nothing beside it, and every chart as a file in `charts/`. Gives the page's path.
pub fn report(results: &Results) -> Result<(PathBuf, Summary), ResultsError> {
    let summary = summarise(results)?;
    let charts = page::charts(&summary);
    let directory = results.directory.join("charts");
    make_directory(&directory)?;
    for chart in &charts {
        write_whole(&directory.join(format!("{}.svg", chart.name)), &chart.file())?;
    }
    let file = results.directory.join("report.html");
    write_whole(&file, &page::page(results, &summary, &charts))?;
    Ok((file, summary))
}
